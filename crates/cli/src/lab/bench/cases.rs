//! What `bench store` measures: the same work on bare heed and on the store.
//!
//! Both hold the same records in LMDB files of their own, opened alike (thread-local readers, nothing synced). Each
//! case is a function of its own that is not inlined, so that an instruction counter (callgrind) can tell them apart.

use std::hint::black_box;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, WithTls};
use punctual_engines::lmdb::{Lmdb, LmdbOptions};
use punctual_os::LinuxOs;
use punctual_store::engine::EngineError;
use punctual_store::temporal::ObjectSpec;
use punctual_store::{Deadline, Freshness, Store, StoreError, StoreOptions};
use punctual_units::{Clock, Nanos, ObjectId, SensorId, Seq};
use punctual_workload::Durability;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use tempfile::TempDir;

/// The records on either side.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Records {
    /// How many, at least 1.
    pub objects: u32,
    /// Bytes of each value.
    pub value_bytes: usize,
}

impl Records {
    /// Bytes of all values on one side.
    pub fn bytes(self) -> u64 {
        u64::from(self.objects) * self.value_bytes as u64
    }

    /// Room for them, for as much again that copy-on-write needs, and for keys and pages half full.
    fn map_size(self) -> usize {
        (64 << 20) + 4 * self.objects as usize * (self.value_bytes + 64)
    }
}

/// Temporal objects of the store, beside the records: the sensors of ten of the fire scenario's buildings.
pub const TEMPORAL_OBJECTS: u32 = 10_240;
/// Bytes of a temporal object's value.
pub const TEMPORAL_BYTES: usize = 100;
/// Keys drawn ahead, so that drawing is not measured.
const DRAWN: usize = 1 << 16;
/// Records filled in by one transaction.
const FILL: u32 = 10_000;
/// Gets in one transaction of the long cases.
const GETS: usize = 100;

type Table<'e> = Database<'e, Bytes, Bytes>;
type OurStore = Store<Lmdb, LinuxOs>;

/// Why a case could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    #[error(transparent)]
    Bare(#[from] heed::Error),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("temporary folder: {0}")]
    Folder(#[from] std::io::Error),
    #[error("a record that was written is not there")]
    Missing,
    #[error("figures: {0}")]
    Figures(String),
    #[error("stopped before it was measured; nothing is left behind")]
    Stopped,
}

/// Asked every so often; an error ends the benchmark, in order: its folders are removed.
pub type GoingOn<'g> = &'g dyn Fn() -> Result<(), CaseError>;

/// One kind of operation.
pub struct Case<'s> {
    pub name: &'static str,
    /// Does no work.
    pub is_control: bool,
    /// The case on the bare engine with the same work.
    pub compared_with: Option<&'static str>,
    /// Operations of a batch: about a millisecond.
    pub batch: usize,
    /// Does so many operations.
    pub run: Box<dyn FnMut(usize) -> Result<(), CaseError> + 's>,
}

/// The bare engine, opened and empty.
pub struct Bare {
    env: Env<WithTls>,
    records: Records,
    _folder: TempDir,
}

impl Bare {
    /// Opens LMDB in a temporary folder.
    ///
    /// # Errors
    /// [`CaseError`], above all where there is no room.
    pub fn open(records: Records) -> Result<Bare, CaseError> {
        let folder = tempfile::tempdir()?;
        let mut options = EnvOpenOptions::new().read_txn_with_tls();
        options.map_size(records.map_size().next_multiple_of(4096)).max_dbs(1);
        // SAFETY: the folder is new and this process's own: nothing else maps or changes the file.
        let env = unsafe { options.flags(EnvFlags::NO_SYNC).open(folder.path())? };
        Ok(Bare {
            env,
            records,
            _folder: folder,
        })
    }

    fn fill(&self, value: &[u8], going_on: GoingOn<'_>) -> Result<Table<'_>, CaseError> {
        let txn = self.env.write_txn()?;
        let table = self.env.create_databases_and_commit(txn, |opener, txn| {
            let table = opener.create_database::<Bytes, Bytes>(txn, Some("records"))?;
            Ok::<_, heed::Error>(CommitOrAbort::<_, std::convert::Infallible>::Commit(table))
        })?;
        let CommitOrAbort::Commit(table) = table;
        for group in groups(self.records.objects) {
            going_on()?;
            let mut txn = self.env.write_txn()?;
            for i in group {
                table.put(&mut txn, &key(i), value)?;
            }
            txn.commit()?;
        }
        Ok(table)
    }
}

/// The bare engine and the store, with the same records.
pub struct Stores<'e> {
    env: &'e Env<WithTls>,
    bare: Table<'e>,
    store: OurStore,
    /// What puts write.
    value: Vec<u8>,
    /// Keys of ordinary records, of temporal objects, and the latter's handles, in the order of use.
    keys: Vec<Vec<u8>>,
    temporal_keys: Vec<Vec<u8>>,
    handles: Vec<ObjectId>,
    _folder: TempDir,
}

impl<'e> Stores<'e> {
    /// Fills `bare`, and opens and fills a store in a temporary folder.
    ///
    /// # Errors
    /// [`CaseError`], above all where there is no room.
    pub fn fill(bare: &'e Bare, going_on: GoingOn<'_>) -> Result<Stores<'e>, CaseError> {
        let folder = tempfile::tempdir()?;
        let records = bare.records;
        let value = vec![7; records.value_bytes];
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut draw = |of: u32| -> Vec<u32> { (0..DRAWN).map(|_| rng.random_range(0..of)).collect() };
        let (drawn, drawn_temporal) = (draw(records.objects), draw(TEMPORAL_OBJECTS));
        Ok(Stores {
            env: &bare.env,
            bare: bare.fill(&value, going_on)?,
            store: filled_store(&folder, records, &value, going_on)?,
            value,
            keys: drawn.iter().map(|i| key(*i)).collect(),
            temporal_keys: drawn_temporal.iter().map(|i| temporal_key(*i)).collect(),
            handles: drawn_temporal.iter().map(|i| ObjectId(*i)).collect(),
            _folder: folder,
        })
    }

    /// Every case.
    pub fn cases(&self) -> Vec<Case<'_>> {
        const BARE_GET: &str = "bare heed: get";
        const BARE_GETS: &str = "bare heed: 100 gets";
        const BARE_PUT: &str = "bare heed: put";
        let case = |name, compared_with, batch, operation: Operation| {
            let mut at = 0;
            let mut value = Vec::with_capacity(TEMPORAL_BYTES);
            let run = move |n: usize| {
                let done = operation(self, at, n, &mut value);
                at = (at + n) % DRAWN;
                done
            };
            Case {
                name,
                is_control: false,
                compared_with,
                batch,
                run: Box::new(run),
            }
        };
        let control = Case {
            is_control: true,
            ..case("no-op control", None, 2000, nothing)
        };
        vec![
            control,
            case(BARE_GET, None, 2000, bare_get),
            case("transactional get", Some(BARE_GET), 2000, transactional_get),
            case("the same, with a deadline, timed", Some(BARE_GET), 2000, timed_get),
            case(BARE_GETS, None, 20, bare_gets),
            case("transactional 100 gets", Some(BARE_GETS), 20, transactional_gets),
            case("the same, with a deadline, timed", Some(BARE_GETS), 20, timed_gets),
            case("temporal get by handle", Some(BARE_GET), 2000, temporal_by_handle),
            case("temporal get by key", Some(BARE_GET), 2000, temporal_by_key),
            case("temporal get_fresh", Some(BARE_GET), 2000, temporal_fresh),
            case(BARE_PUT, None, 100, bare_put),
            case("put", Some(BARE_PUT), 100, put),
        ]
    }
}

/// `n` of the drawn items from `at` on, beginning again at their end.
fn from<T>(items: &[T], at: usize, n: usize) -> impl Iterator<Item = &T> {
    items.iter().cycle().skip(at).take(n)
}

/// Does `n` operations, beginning with the key number `at` of those drawn; with a buffer for copies of values.
type Operation = fn(&Stores<'_>, usize, usize, &mut Vec<u8>) -> Result<(), CaseError>;

#[inline(never)]
fn nothing(stores: &Stores<'_>, at: usize, n: usize, _: &mut Vec<u8>) -> Result<(), CaseError> {
    for key in from(&stores.keys, at, n) {
        black_box(key);
    }
    Ok(())
}

#[inline(never)]
fn bare_get(stores: &Stores<'_>, at: usize, n: usize, _: &mut Vec<u8>) -> Result<(), CaseError> {
    for key in from(&stores.keys, at, n) {
        let txn = stores.env.read_txn()?;
        black_box(stores.bare.get(&txn, key)?.ok_or(CaseError::Missing)?);
    }
    Ok(())
}

#[inline(never)]
fn transactional_get(stores: &Stores<'_>, at: usize, n: usize, _: &mut Vec<u8>) -> Result<(), CaseError> {
    gets_one_by_one(stores, at, n, Deadline::NONE)
}

#[inline(never)]
fn timed_get(stores: &Stores<'_>, at: usize, n: usize, _: &mut Vec<u8>) -> Result<(), CaseError> {
    gets_one_by_one(stores, at, n, Deadline::soft(LinuxOs.now()))
}

#[inline(always)]
fn gets_one_by_one(stores: &Stores<'_>, at: usize, n: usize, deadline: Deadline) -> Result<(), CaseError> {
    for key in from(&stores.keys, at, n) {
        let transaction = stores.store.read_transaction(deadline)?;
        black_box(transaction.get(key)?.ok_or(CaseError::Missing)?);
        black_box(transaction.finish());
    }
    Ok(())
}

#[inline(never)]
fn bare_gets(stores: &Stores<'_>, at: usize, n: usize, _: &mut Vec<u8>) -> Result<(), CaseError> {
    for i in 0..n {
        let txn = stores.env.read_txn()?;
        for key in from(&stores.keys, (at + i) % DRAWN, GETS) {
            black_box(stores.bare.get(&txn, key)?.ok_or(CaseError::Missing)?);
        }
    }
    Ok(())
}

#[inline(never)]
fn transactional_gets(stores: &Stores<'_>, at: usize, n: usize, _: &mut Vec<u8>) -> Result<(), CaseError> {
    gets_together(stores, at, n, Deadline::NONE)
}

#[inline(never)]
fn timed_gets(stores: &Stores<'_>, at: usize, n: usize, _: &mut Vec<u8>) -> Result<(), CaseError> {
    gets_together(stores, at, n, Deadline::soft(LinuxOs.now()))
}

#[inline(always)]
fn gets_together(stores: &Stores<'_>, at: usize, n: usize, deadline: Deadline) -> Result<(), CaseError> {
    for i in 0..n {
        let transaction = stores.store.read_transaction(deadline)?;
        for key in from(&stores.keys, (at + i) % DRAWN, GETS) {
            black_box(transaction.get(key)?.ok_or(CaseError::Missing)?);
        }
        black_box(transaction.finish());
    }
    Ok(())
}

#[inline(never)]
fn temporal_by_handle(stores: &Stores<'_>, at: usize, n: usize, value: &mut Vec<u8>) -> Result<(), CaseError> {
    for handle in from(&stores.handles, at, n) {
        black_box(stores.store.read(*handle, value)?.ok_or(CaseError::Missing)?);
    }
    Ok(())
}

#[inline(never)]
fn temporal_by_key(stores: &Stores<'_>, at: usize, n: usize, value: &mut Vec<u8>) -> Result<(), CaseError> {
    for key in from(&stores.temporal_keys, at, n) {
        let handle = stores.store.object(key).ok_or(CaseError::Missing)?;
        black_box(stores.store.read(handle, value)?.ok_or(CaseError::Missing)?);
    }
    Ok(())
}

#[inline(never)]
fn temporal_fresh(stores: &Stores<'_>, at: usize, n: usize, _: &mut Vec<u8>) -> Result<(), CaseError> {
    for key in from(&stores.temporal_keys, at, n) {
        match stores.store.get_fresh(key, Nanos::MAX)? {
            Freshness::Fresh { value, .. } => black_box(value),
            Freshness::Stale { .. } | Freshness::NotFound => return Err(CaseError::Missing),
        };
    }
    Ok(())
}

#[inline(never)]
fn bare_put(stores: &Stores<'_>, at: usize, n: usize, _: &mut Vec<u8>) -> Result<(), CaseError> {
    for key in from(&stores.keys, at, n) {
        let mut txn = stores.env.write_txn()?;
        stores.bare.put(&mut txn, key, &stores.value)?;
        txn.commit()?;
    }
    Ok(())
}

#[inline(never)]
fn put(stores: &Stores<'_>, at: usize, n: usize, _: &mut Vec<u8>) -> Result<(), CaseError> {
    for key in from(&stores.keys, at, n) {
        stores.store.put(key, &stores.value)?;
    }
    Ok(())
}

fn filled_store(
    folder: &TempDir,
    records: Records,
    value: &[u8],
    going_on: GoingOn<'_>,
) -> Result<OurStore, CaseError> {
    let engine = LmdbOptions {
        durability: Durability::Volatile,
        quota: records.map_size(),
        ..LmdbOptions::default()
    };
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
        ..StoreOptions::default()
    };
    let store = Store::open(engine.open(folder.path())?, LinuxOs, options)?;
    for group in groups(records.objects) {
        going_on()?;
        let mut transaction = store.write_transaction(Deadline::NONE)?;
        for i in group {
            transaction.put(&key(i), value)?;
        }
        transaction.commit()?;
    }
    for i in 0..TEMPORAL_OBJECTS {
        store.offer(SensorId(i), Seq(1), LinuxOs.now(), &[7; TEMPORAL_BYTES])?;
        store.install_pending(1)?;
    }
    Ok(store)
}

/// `0..objects` in parts of [`FILL`].
fn groups(objects: u32) -> impl Iterator<Item = std::ops::Range<u32>> {
    (0..objects)
        .step_by(FILL as usize)
        .map(move |start| start..objects.min(start.saturating_add(FILL)))
}

fn key(i: u32) -> Vec<u8> {
    format!("object/{i:08}").into_bytes()
}

fn temporal_key(i: u32) -> Vec<u8> {
    format!("sensor/{i:08}").into_bytes()
}
