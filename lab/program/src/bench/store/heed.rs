//! LMDB through heed alone: thread-local readers, a slice of its memory for each get.

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, WithTls};
use std::ops::Bound;
use tempfile::TempDir;

use super::contender::{CaseError, Contender, FILLED, GoingOn, Promise, Records, Session, failed, key, look};

pub const NAME: &str = "bare heed";

pub struct Heed {
    env: &'static Env<WithTls>,
    table: Database<'static, Bytes, Bytes>,
    _folder: TempDir,
}

impl Heed {
    /// Opens LMDB in a temporary folder, and fills in the records.
    ///
    /// # Errors
    /// [`CaseError`], in particular if there is no room.
    pub fn fill(records: Records, promise: Promise, going_on: GoingOn<'_>) -> Result<Heed, CaseError> {
        let folder = tempfile::tempdir()?;
        let mut options = EnvOpenOptions::new().read_txn_with_tls();
        options.map_size(records.room().next_multiple_of(4096)).max_dbs(1);
        let flags = match promise {
            Promise::Visible => EnvFlags::NO_SYNC,
            Promise::Durable => EnvFlags::empty(),
        };
        // SAFETY: the folder is new and this process's own: nothing else maps or changes the file.
        let env = unsafe { options.flags(flags).open(folder.path()) }.map_err(failed(NAME))?;
        // The table borrows the environment. A benchmark opens few of them, and ends.
        let env: &'static Env<WithTls> = Box::leak(Box::new(env));
        let table = fill(env, records, going_on).map_err(|error| match error {
            Filling::Refused(error) => failed(NAME)(error),
            Filling::Stopped(error) => error,
        })?;
        Ok(Heed {
            env,
            table,
            _folder: folder,
        })
    }
}

enum Filling {
    Refused(heed::Error),
    Stopped(CaseError),
}

impl From<heed::Error> for Filling {
    fn from(error: heed::Error) -> Filling {
        Filling::Refused(error)
    }
}

fn fill(
    env: &'static Env<WithTls>,
    records: Records,
    going_on: GoingOn<'_>,
) -> Result<Database<'static, Bytes, Bytes>, Filling> {
    let txn = env.write_txn()?;
    let CommitOrAbort::Commit(table) = env.create_databases_and_commit(txn, |opener, txn| {
        let table = opener.create_database::<Bytes, Bytes>(txn, Some("records"))?;
        Ok::<_, heed::Error>(CommitOrAbort::<_, std::convert::Infallible>::Commit(table))
    })?;
    let values = records.values(FILLED);
    for group in records.groups() {
        going_on().map_err(Filling::Stopped)?;
        let mut txn = env.write_txn()?;
        for i in group {
            table.put(&mut txn, &key(i), values.of(i as usize))?;
        }
        txn.commit()?;
    }
    Ok(table)
}

impl Contender for Heed {
    fn name(&self) -> &'static str {
        NAME
    }

    fn session(&self) -> Result<Box<dyn Session + '_>, CaseError> {
        Ok(Box::new(self))
    }
}

impl Session for &Heed {
    fn gets(&mut self, keys: &[Vec<u8>]) -> Result<(), CaseError> {
        let txn = self.env.read_txn().map_err(failed(NAME))?;
        for key in keys {
            let value = self.table.get(&txn, key).map_err(failed(NAME))?;
            look(value.ok_or(CaseError::Missing)?);
        }
        Ok(())
    }

    fn scan(&mut self, key: &[u8], count: usize) -> Result<(), CaseError> {
        let txn = self.env.read_txn().map_err(failed(NAME))?;
        let range = (Bound::Included(key), Bound::Unbounded);
        let records = self.table.range(&txn, &range).map_err(failed(NAME))?;
        for record in records.take(count) {
            let (key, value) = record.map_err(failed(NAME))?;
            look(key);
            look(value);
        }
        Ok(())
    }

    fn puts(&mut self, keys: &[Vec<u8>], value: &[u8]) -> Result<(), CaseError> {
        let mut txn = self.env.write_txn().map_err(failed(NAME))?;
        let mut put = |key: &Vec<u8>| self.table.put(&mut txn, key, value).map_err(failed(NAME));
        keys.iter().try_for_each(&mut put)?;
        txn.commit().map_err(failed(NAME))
    }
}
