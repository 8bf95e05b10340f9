//! Backup and export of an open store, by its owner, while other threads read and write.
//!
//! Copies are of one commit, made from a snapshot that only a full quota ends: a copy then begins anew. Values of
//! temporal objects are committed first, so each is part of the copy.

use std::io::Write;
use std::path::Path;

use punctual_os::Os;
use punctual_units::Share;

use crate::StoreError;
use crate::engine::{CopyCount, FileEngine, TransferError};
use crate::store::Store;

impl<E: FileEngine, O: Os> Store<E, O> {
    /// Copies all records to a new store in the folder `to`, which must be missing or empty. Writes in steps that take
    /// `share` of the time; [`Share::ONE`] makes no pauses.
    ///
    /// # Errors
    /// [`StoreError::Transfer`], those of [`commit_group`](Store::commit_group). Nothing is left at `to`.
    pub fn backup(&self, to: impl AsRef<Path>, share: Share) -> Result<CopyCount, StoreError> {
        self.commit_group()?;
        Ok(self.engine.backup(to.as_ref(), share)?)
    }

    /// Writes all records as text, which `punctual store import` reads. `to` may be slow: the pages are copied first,
    /// into memory, or to `TMPDIR` or `/var/tmp`. Without room there, a full quota may end the export.
    ///
    /// # Errors
    /// [`StoreError::Transfer`], those of [`commit_group`](Store::commit_group). The text lacks its end line.
    pub fn export(&self, to: &mut dyn Write) -> Result<CopyCount, StoreError> {
        self.commit_group()?;
        Ok(self.engine.export(to)?)
    }
}

impl From<TransferError> for StoreError {
    fn from(error: TransferError) -> StoreError {
        match error {
            TransferError::Engine(error) => StoreError::Engine(error),
            other => StoreError::Transfer(Box::new(other)),
        }
    }
}
