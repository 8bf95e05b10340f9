//! One instance per store: an advisory lock on a file beside the data, with the holder's pid in it.
//!
//! LMDB itself lets several processes share a store. Deadlines cannot be kept that way: another process's writer
//! would hold the write lock without priority inheritance, outside of our queue. The kernel drops the lock when its
//! holder ends, however it ends, so there is no stale lock to clean up; the pid is only read to name the holder.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;

use punctual_store::engine::EngineError;

use super::error;

const FILE_NAME: &str = "owner.pid";

/// Held while the store is open; dropping it lets the next one in.
#[derive(Debug)]
pub(super) struct Owner(#[expect(dead_code, reason = "the open file is the lock")] File);

impl Owner {
    /// Takes the store in `directory` for this process.
    pub(super) fn take(directory: &Path) -> Result<Owner, EngineError> {
        let path = directory.join(FILE_NAME);
        let io = |action| error::io(&path, action);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options
            .open(&path)
            .map_err(io("open the file that names the store's owner"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(EngineError::InUse {
                    path: directory.to_path_buf(),
                    pid: holder(&mut file),
                });
            }
            Err(TryLockError::Error(source)) => return Err(io("lock the file that names the store's owner")(source)),
        }
        // Not a reason to fail: the lock is what counts, and without the pid a message says less.
        let _ = name_holder(&mut file);
        Ok(Owner(file))
    }
}

/// In place and of fixed length: on a full disk there may be no room for a file to grow again.
fn name_holder(file: &mut File) -> io::Result<()> {
    file.rewind()?;
    writeln!(file, "{:<10}", std::process::id())
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
