//! SQLite, with its write-ahead log, a map of the file and prepared statements.

use rusqlite::{Connection, OptionalExtension, params};
use tempfile::TempDir;

use super::super::contender::{CaseError, Contender, FILLED, GoingOn, Promise, Records, Session, failed, key, look};

const NAME: &str = "SQLite";
const GET: &str = "SELECT value FROM records WHERE key = ?1";
const SCAN: &str = "SELECT key, value FROM records WHERE key >= ?1 ORDER BY key LIMIT ?2";
const PUT: &str = "INSERT INTO records (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = ?2";

pub struct Sqlite {
    records: Records,
    promise: Promise,
    folder: TempDir,
}

impl Sqlite {
    /// Opens SQLite in a temporary folder, and fills in the records.
    ///
    /// # Errors
    /// [`CaseError`].
    pub fn fill(records: Records, promise: Promise, going_on: GoingOn<'_>) -> Result<Sqlite, CaseError> {
        let sqlite = Sqlite {
            records,
            promise,
            folder: tempfile::tempdir()?,
        };
        let mut connection = sqlite.connection().map_err(failed(NAME))?;
        let created = connection.execute_batch("CREATE TABLE records (key BLOB PRIMARY KEY, value BLOB NOT NULL)");
        created.map_err(failed(NAME))?;
        let values = records.values(FILLED);
        let mut put = |group: std::ops::Range<u32>| -> rusqlite::Result<()> {
            let transaction = connection.transaction()?;
            for i in group {
                transaction
                    .prepare_cached(PUT)?
                    .execute(params![key(i), values.of(i as usize)])?;
            }
            transaction.commit()
        };
        for group in records.groups() {
            going_on()?;
            put(group).map_err(failed(NAME))?;
        }
        Ok(sqlite)
    }

    fn connection(&self) -> rusqlite::Result<Connection> {
        let connection = Connection::open(self.folder.path().join("records.sqlite"))?;
        connection.busy_timeout(std::time::Duration::from_secs(10))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "mmap_size", self.records.room() as i64)?;
        let synchronous = match self.promise {
            Promise::Visible => "OFF",
            Promise::Durable => "FULL",
        };
        connection.pragma_update(None, "synchronous", synchronous)?;
        Ok(connection)
    }
}

impl Contender for Sqlite {
    fn name(&self) -> &'static str {
        NAME
    }

    fn session(&self) -> Result<Box<dyn Session + '_>, CaseError> {
        Ok(Box::new(self.connection().map_err(failed(NAME))?))
    }
}

fn get(connection: &Connection, key: &[u8]) -> rusqlite::Result<Option<()>> {
    let mut statement = connection.prepare_cached(GET)?;
    let look_at = |row: &rusqlite::Row<'_>| {
        look(row.get_ref(0)?.as_blob()?);
        Ok(())
    };
    statement.query_row([key], look_at).optional()
}

fn scan(connection: &Connection, key: &[u8], count: usize) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(SCAN)?;
    let mut rows = statement.query(params![key, count as i64])?;
    while let Some(row) = rows.next()? {
        look(row.get_ref(0)?.as_blob()?);
        look(row.get_ref(1)?.as_blob()?);
    }
    Ok(())
}

impl Session for Connection {
    fn gets(&mut self, keys: &[Vec<u8>]) -> Result<(), CaseError> {
        // A single statement is a transaction; several need one around them.
        if let [key] = keys {
            return get(self, key).map_err(failed(NAME))?.ok_or(CaseError::Missing);
        }
        let transaction = self.transaction().map_err(failed(NAME))?;
        for key in keys {
            get(&transaction, key)
                .map_err(failed(NAME))?
                .ok_or(CaseError::Missing)?;
        }
        transaction.commit().map_err(failed(NAME))
    }

    fn scan(&mut self, key: &[u8], count: usize) -> Result<(), CaseError> {
        scan(self, key, count).map_err(failed(NAME))
    }

    fn puts(&mut self, keys: &[Vec<u8>], value: &[u8]) -> Result<(), CaseError> {
        let put = |key: &Vec<u8>| self.prepare_cached(PUT)?.execute(params![key, value]).map(drop);
        let all = || match keys {
            [key] => put(key),
            keys => {
                self.execute_batch("BEGIN IMMEDIATE")?;
                keys.iter().try_for_each(put)?;
                self.execute_batch("COMMIT")
            }
        };
        all().map_err(failed(NAME))
    }
}
