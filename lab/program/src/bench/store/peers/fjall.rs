//! fjall: a log-structured tree, with threads of its own that compact it.

use ::fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable};
use tempfile::TempDir;

use super::super::contender::{CaseError, Contender, FILLED, GoingOn, Promise, Records, Session, failed, key, look};

const NAME: &str = "fjall";

pub struct Fjall {
    database: Database,
    records: Keyspace,
    promise: Promise,
    _folder: TempDir,
}

impl Fjall {
    /// Opens fjall in a temporary folder, and fills in the records.
    ///
    /// # Errors
    /// [`CaseError`].
    pub fn fill(records: Records, promise: Promise, going_on: GoingOn<'_>) -> Result<Fjall, CaseError> {
        let folder = tempfile::tempdir()?;
        let open = || {
            let database = Database::builder(folder.path())
                .cache_size(records.room() as u64)
                .open()?;
            let keyspace = database.keyspace("records", KeyspaceCreateOptions::default)?;
            Ok::<_, ::fjall::Error>((database, keyspace))
        };
        let (database, keyspace) = open().map_err(failed(NAME))?;
        let values = records.values(FILLED);
        for group in records.groups() {
            going_on()?;
            let mut batch = database.batch();
            for i in group {
                batch.insert(&keyspace, key(i), values.of(i as usize));
            }
            batch.commit().map_err(failed(NAME))?;
        }
        // Moves the records into the tree, where they would be after a while, before they are read.
        keyspace.rotate_memtable_and_wait().map_err(failed(NAME))?;
        Ok(Fjall {
            database,
            records: keyspace,
            promise,
            _folder: folder,
        })
    }
}

impl Contender for Fjall {
    fn name(&self) -> &'static str {
        NAME
    }

    fn session(&self) -> Result<Box<dyn Session + '_>, CaseError> {
        Ok(Box::new(self))
    }
}

impl Session for &Fjall {
    fn gets(&mut self, keys: &[Vec<u8>]) -> Result<(), CaseError> {
        let snapshot = self.database.snapshot();
        for key in keys {
            let value = snapshot.get(&self.records, key).map_err(failed(NAME))?;
            look(&value.ok_or(CaseError::Missing)?);
        }
        Ok(())
    }

    fn scan(&mut self, key: &[u8], count: usize) -> Result<(), CaseError> {
        let snapshot = self.database.snapshot();
        for record in snapshot.range(&self.records, key..).take(count) {
            let (key, value) = record.into_inner().map_err(failed(NAME))?;
            look(&key);
            look(&value);
        }
        Ok(())
    }

    fn puts(&mut self, keys: &[Vec<u8>], value: &[u8]) -> Result<(), CaseError> {
        let put = |key: &Vec<u8>| self.records.insert(key.as_slice(), value).map_err(failed(NAME));
        keys.iter().try_for_each(put)?;
        match self.promise {
            Promise::Visible => Ok(()), // handed to the kernel: fjall itself buffers nothing
            Promise::Durable => self.database.persist(PersistMode::SyncData).map_err(failed(NAME)),
        }
    }
}
