//! Syncing: a new store reaches the medium as a whole, and after a failed sync the store is read only.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use heed::EnvFlags;
use punctual_store::engine::{Durability, EngineError};

use super::life::End;
use super::{DATA_FILE, LOCK_FILE, Lmdb, LmdbOptions, checked, error, owner, sum};
use crate::directory;

/// Folder in which a new store is made, before its file gets its final name.
pub(super) const NEW: &str = "new";

/// Creates an empty store if there is none. The file is made in a folder of its own, synced, and renamed last, so that
/// a power cut leaves a whole store or none: an empty file, or a table of readers without data, is a lost store.
pub(super) fn create(options: LmdbOptions, at: &Path) -> Result<(), EngineError> {
    let data = at.join(DATA_FILE);
    let lost = |what| {
        let path = at.to_path_buf();
        Err(EngineError::DataMissing { path, what })
    };
    match fs::metadata(&data) {
        Ok(about) if about.len() > 0 => return Ok(()),
        Ok(_) => return lost("is empty"),
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => {
            if at.join(LOCK_FILE).exists() {
                return lost("is missing beside its lock.mdb");
            }
        }
        Err(refused) => return Err(error::io(&data, "look at the store's file")(refused)),
    }
    let folder = at.join(NEW);
    let fail = |action| error::io(&folder, action);
    fs::create_dir(&folder).map_err(fail("create the folder of a new store"))?;
    let made = create_in(options, &folder);
    let named = made.and_then(|()| {
        directory::name(&folder.join(DATA_FILE), &data).map_err(error::io(&data, "give the new store its name"))
    });
    // Best effort: the next open removes a folder that is left.
    let _ = clear(&folder);
    named
}

fn create_in(options: LmdbOptions, folder: &Path) -> Result<(), EngineError> {
    let options = LmdbOptions {
        durability: Durability::Durable,
        ..options
    };
    super::reserve_lock_file(&folder.join(LOCK_FILE), options.slots())?;
    let env = options.open_env(folder, EnvFlags::empty())?;
    let place = options.place(folder);
    let [_, temporal, main] = super::create_tables(&env, place)?;
    sum::settle(&env, [main, temporal], place, options.checksums, options.quota as u64)?;
    env.prepare_for_closing().wait();
    Ok(())
}

/// Removes the unfinished folder of a killed program that was creating or rewriting a store.
pub(super) fn clear_unfinished(directory: &Path) -> Result<(), EngineError> {
    let folder = directory.join(NEW);
    if !folder.is_dir() {
        return Ok(());
    }
    clear(&folder).map_err(error::io(
        &folder,
        "remove what is left of a store that was not finished",
    ))
}

/// Removes the folder of an unfinished store.
pub(super) fn clear(folder: &Path) -> io::Result<()> {
    clear_files(folder)?;
    directory::gone(fs::remove_file(folder.join(owner::FILE_NAME)))?;
    directory::gone(fs::remove_dir(folder))
}

/// Removes the files in `folder`, except the one that is locked meanwhile.
pub(super) fn clear_files(folder: &Path) -> io::Result<()> {
    directory::gone(fs::remove_file(folder.join(DATA_FILE)))?;
    directory::gone(fs::remove_file(folder.join(LOCK_FILE)))?;
    directory::gone(fs::remove_file(folder.join(checked::FILE_NAME)))?;
    let inner = folder.join(NEW);
    if inner.is_dir() { clear(&inner) } else { Ok(()) }
}

impl Lmdb {
    /// The error for a store that this process cannot use.
    #[cold]
    pub(super) fn unusable(&self) -> EngineError {
        let path = self.directory.clone();
        match self.life.end() {
            End::Forked => EngineError::Forked { path },
            End::Broken => EngineError::SyncFailed { path },
        }
    }

    /// Refuses reads of a store that is not sound, unless a failed sync is the reason: the newest durable commit does
    /// not depend on what that sync has lost. This is not shown for [`Durability::NoMetaSync`], where the failed sync
    /// may have lost the meta page of the newest commit: a kernel that reads that page from the medium anew shows an
    /// older commit, whose pages may have been written over.
    #[cold]
    pub(super) fn readable(&self) -> Result<(), EngineError> {
        match self.life.end() {
            End::Forked => Err(self.unusable()),
            End::Broken => Ok(()),
        }
    }

    pub(super) fn sync_all(&self) -> Result<(), EngineError> {
        if !self.life.is_sound() {
            return Err(self.unusable());
        }
        if self.options.durability == Durability::Volatile {
            let path = self.directory.clone();
            return Err(EngineError::Volatile { path });
        }
        self.env.force_sync().map_err(|refused| {
            // For every reason: the next sync would not report the pages that this one has lost.
            self.life.break_off();
            self.lost(&refused)
        })
    }

    /// The store's error for a refused commit; after a failed sync no write is accepted.
    #[cold]
    pub(super) fn commit_refused(&self, refused: heed::Error) -> EngineError {
        if let heed::Error::Io(source) = &refused
            && self.options.durability != Durability::Volatile
            && self.sync_failed(source)
        {
            self.life.break_off();
            return self.lost(&refused);
        }
        self.change_refused(refused, "commit a transaction")
    }

    fn lost(&self, refused: &heed::Error) -> EngineError {
        let path = self.directory.clone();
        match refused {
            heed::Error::Io(_) => EngineError::SyncFailed { path },
            _ => EngineError::Broken { path },
        }
    }

    /// Whether a commit failed in its sync, not in a write. LMDB reports both alike; but the kernel reports a failed
    /// sync once to each open file (`errseq_t`), and the witness was opened for that.
    fn sync_failed(&self, source: &io::Error) -> bool {
        let full = matches!(
            error::io(&self.directory, "")(io::Error::from_raw_os_error(source.raw_os_error().unwrap_or(0))),
            EngineError::DiskFull { .. }
        );
        !full || self.witness.sync_data().is_err()
    }
}

/// Opens the store's data file, to detect failed syncs later.
pub(super) fn witness(directory: &Path) -> Result<File, EngineError> {
    let path: PathBuf = directory.join(DATA_FILE);
    File::open(&path).map_err(error::io(&path, "open the store's file"))
}
