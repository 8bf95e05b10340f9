//! Other stores, used as their documentation says, with caches that hold all records. Guarantees of their puts:
//!
//! | | a put that is not synced survives | a durable put |
//! |---|---|---|
//! | heed | the process's death (`NO_SYNC`) | default: data and meta page synced |
//! | redb | nothing, but the file stays whole (`Durability::None`) | `Durability::Immediate` |
//! | fjall | the process's death (`PersistMode::Buffer`) | `PersistMode::SyncData` after each |
//! | SQLite | the process's death (WAL, `synchronous = OFF`) | WAL, `synchronous = FULL` |

mod fjall;
mod redb;
mod sqlite;

use super::contender::{CaseError, Contender, GoingOn, Promise, Records};

/// Opens all of them, with their records.
///
/// # Errors
/// [`CaseError`].
pub fn all(records: Records, promise: Promise, going_on: GoingOn<'_>) -> Result<Vec<Box<dyn Contender>>, CaseError> {
    Ok(vec![
        redb::ours(records, promise, going_on)?,
        Box::new(redb::Redb::fill(records, promise, going_on)?),
        Box::new(fjall::Fjall::fill(records, promise, going_on)?),
        Box::new(sqlite::Sqlite::fill(records, promise, going_on)?),
    ])
}
