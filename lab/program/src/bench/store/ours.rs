//! Our store, on one of its engines.

use punctual_engines::lmdb::LmdbOptions;
use punctual_os::LinuxOs;
use punctual_store::engine::{Durability, Engine};
use punctual_store::temporal::ObjectSpec;
use punctual_store::{Deadline, Store, StoreError, StoreOptions, UpdateMode};
use punctual_units::{Clock, Nanos, SensorId, Seq};
use tempfile::TempDir;

use super::contender::{CaseError, Contender, FILLED, GoingOn, Promise, Records, Session, failed, key, look};

pub const NAME: &str = "ours";
/// Number of temporal objects in the store, beside the records: the sensors of ten of the fire scenario's buildings.
pub const TEMPORAL_OBJECTS: u32 = 10_240;
/// Bytes of a temporal object's value.
pub const TEMPORAL_BYTES: usize = 100;

pub struct Ours<E> {
    name: &'static str,
    pub store: Store<E, LinuxOs>,
    _folder: TempDir,
}

/// Opens our store on LMDB in a temporary folder, and fills in the records.
///
/// # Errors
/// [`CaseError`], in particular if there is no room.
pub fn on_lmdb(
    records: Records,
    promise: Promise,
    going_on: GoingOn<'_>,
) -> Result<Ours<punctual_engines::Lmdb>, CaseError> {
    let folder = tempfile::tempdir()?;
    let options = LmdbOptions {
        durability: durability(promise),
        quota: records.room(),
        ..LmdbOptions::default()
    };
    let engine = options.open(folder.path()).map_err(failed(NAME))?;
    fill(NAME, engine, folder, records, UpdateMode::MemoryFirst, going_on)
}

/// Opens our store with a transaction for each update, as in the first paper, and without other records.
///
/// # Errors
/// [`CaseError`], in particular if there is no room.
pub fn by_transactions(going_on: GoingOn<'_>) -> Result<Ours<punctual_engines::Lmdb>, CaseError> {
    let folder = tempfile::tempdir()?;
    let durability = durability(Promise::Visible);
    let engine = LmdbOptions {
        durability,
        ..LmdbOptions::default()
    }
    .open(folder.path());
    let none = Records {
        objects: 0,
        value_bytes: 0,
    };
    let mode = UpdateMode::Transaction;
    fill(NAME, engine.map_err(failed(NAME))?, folder, none, mode, going_on)
}

pub fn durability(promise: Promise) -> Durability {
    match promise {
        Promise::Visible => Durability::Volatile,
        Promise::Durable => Durability::Durable,
    }
}

/// Fills our store on the empty `engine`.
///
/// # Errors
/// [`CaseError`].
pub fn fill<E: Engine>(
    name: &'static str,
    engine: E,
    folder: TempDir,
    records: Records,
    update_mode: UpdateMode,
    going_on: GoingOn<'_>,
) -> Result<Ours<E>, CaseError> {
    let period = Nanos::from_secs(1);
    let object = |i| ObjectSpec {
        key: temporal_key(i),
        avi: period * 2,
        period,
        max_len: TEMPORAL_BYTES,
        history: 1,
    };
    let options = StoreOptions {
        objects: (0..TEMPORAL_OBJECTS).map(object).collect(),
        update_mode,
        ..StoreOptions::default()
    };
    let store = Store::open(engine, LinuxOs, options).map_err(failed(name))?;
    let values = records.values(FILLED);
    let put = |group: std::ops::Range<u32>| -> Result<(), StoreError> {
        let mut transaction = store.write_transaction(Deadline::NONE)?;
        for i in group {
            transaction.put(key(i), values.of(i as usize))?;
        }
        transaction.commit().map(drop)
    };
    for group in records.groups() {
        going_on()?;
        put(group).map_err(failed(name))?;
    }
    for i in 0..TEMPORAL_OBJECTS {
        let offered = store.offer(SensorId(i), Seq(1), LinuxOs.now(), &[7; TEMPORAL_BYTES]);
        offered.map_err(failed(name))?;
        store.install_pending(1).map_err(failed(name))?;
    }
    Ok(Ours {
        name,
        store,
        _folder: folder,
    })
}

pub fn temporal_key(i: u32) -> Vec<u8> {
    format!("sensor/{i:08}").into_bytes()
}

impl<E: Engine> Contender for Ours<E> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn session(&self) -> Result<Box<dyn Session + '_>, CaseError> {
        Ok(Box::new(self))
    }
}

impl<E: Engine> Session for &Ours<E> {
    fn gets(&mut self, keys: &[Vec<u8>]) -> Result<(), CaseError> {
        let transaction = self.store.read_transaction(Deadline::NONE).map_err(failed(self.name))?;
        for key in keys {
            let found = transaction.get_with(key, look).map_err(failed(self.name))?;
            found.ok_or(CaseError::Missing)?;
        }
        Ok(())
    }

    fn scan(&mut self, key: &[u8], count: usize) -> Result<(), CaseError> {
        let fail = failed(self.name);
        let transaction = self.store.begin_read().map_err(fail)?;
        let mut records = transaction.range(key..).map_err(fail)?;
        for _ in 0..count {
            let Some((key, value)) = records.lend().map_err(fail)? else {
                break;
            };
            look(key);
            look(value);
        }
        Ok(())
    }

    fn puts(&mut self, keys: &[Vec<u8>], value: &[u8]) -> Result<(), CaseError> {
        let put = match keys {
            [key] => self.store.put(key, value),
            keys => self
                .store
                .update(|tx| keys.iter().try_for_each(|key| tx.put(key, value))),
        };
        put.map_err(failed(self.name))
    }
}
