//! redb, and our store on redb.

use ::redb::{Database, Durability, ReadableDatabase, TableDefinition};
use punctual_engines::redb::RedbOptions;
use punctual_store::UpdateMode;
use tempfile::TempDir;

use super::super::contender::{CaseError, Contender, FILLED, GoingOn, Promise, Records, Session, failed, key, look};
use super::super::ours;

const NAME: &str = "redb";
const OURS: &str = "ours on redb";
const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");

pub struct Redb {
    database: Database,
    promise: Promise,
    _folder: TempDir,
}

/// Opens our store on redb, filled with the records.
///
/// # Errors
/// [`CaseError`].
pub fn ours(records: Records, promise: Promise, going_on: GoingOn<'_>) -> Result<Box<dyn Contender>, CaseError> {
    let folder = tempfile::tempdir()?;
    let options = RedbOptions {
        durability: ours::durability(promise),
        cache_bytes: records.room(),
        ..RedbOptions::default()
    };
    let engine = options.open(folder.path()).map_err(failed(OURS))?;
    Ok(Box::new(ours::fill(
        OURS,
        engine,
        folder,
        records,
        UpdateMode::MemoryFirst,
        going_on,
    )?))
}

impl Redb {
    /// Opens redb in a temporary folder, and fills in the records.
    ///
    /// # Errors
    /// [`CaseError`].
    pub fn fill(records: Records, promise: Promise, going_on: GoingOn<'_>) -> Result<Redb, CaseError> {
        let folder = tempfile::tempdir()?;
        let mut builder = Database::builder();
        builder.set_cache_size(records.room());
        let database = builder
            .create(folder.path().join("records.redb"))
            .map_err(failed(NAME))?;
        let values = records.values(FILLED);
        let put = |group: std::ops::Range<u32>| -> Result<(), ::redb::Error> {
            let transaction = database.begin_write()?;
            {
                let mut table = transaction.open_table(TABLE)?;
                for i in group {
                    table.insert(&*key(i), values.of(i as usize))?;
                }
            }
            Ok(transaction.commit()?)
        };
        for group in records.groups() {
            going_on()?;
            put(group).map_err(failed(NAME))?;
        }
        Ok(Redb {
            database,
            promise,
            _folder: folder,
        })
    }

    fn gets(&self, keys: &[Vec<u8>]) -> Result<bool, ::redb::Error> {
        let table = self.database.begin_read()?.open_table(TABLE)?;
        for key in keys {
            match table.get(key.as_slice())? {
                Some(value) => look(value.value()),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    fn scan(&self, key: &[u8], count: usize) -> Result<(), ::redb::Error> {
        let table = self.database.begin_read()?.open_table(TABLE)?;
        for record in table.range(key..)?.take(count) {
            let (key, value) = record?;
            look(key.value());
            look(value.value());
        }
        Ok(())
    }

    fn puts(&self, keys: &[Vec<u8>], value: &[u8]) -> Result<(), ::redb::Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(match self.promise {
            Promise::Visible => Durability::None,
            Promise::Durable => Durability::Immediate,
        })?;
        let mut table = transaction.open_table(TABLE)?;
        for key in keys {
            table.insert(key.as_slice(), value)?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }
}

impl Contender for Redb {
    fn name(&self) -> &'static str {
        NAME
    }

    fn session(&self) -> Result<Box<dyn Session + '_>, CaseError> {
        Ok(Box::new(self))
    }
}

impl Session for &Redb {
    fn gets(&mut self, keys: &[Vec<u8>]) -> Result<(), CaseError> {
        let found = Redb::gets(self, keys).map_err(failed(NAME))?;
        found.then_some(()).ok_or(CaseError::Missing)
    }

    fn scan(&mut self, key: &[u8], count: usize) -> Result<(), CaseError> {
        Redb::scan(self, key, count).map_err(failed(NAME))
    }

    fn puts(&mut self, keys: &[Vec<u8>], value: &[u8]) -> Result<(), CaseError> {
        Redb::puts(self, keys, value).map_err(failed(NAME))
    }
}
