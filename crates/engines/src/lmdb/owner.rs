//! Lets one process at a time open a store, and each process once.
//!
//! LMDB itself would let processes share a file. The real-time side must not: freshness, admission and the write lock
//! are the state of one process. A POSIX record lock on a file beside the data keeps other processes out (fcntl(2),
//! `F_SETLK`). The kernel drops it with the process, whatever ended it, and does not give it to a forked child, which
//! would otherwise keep the store closed after its parent has died. The process id in that file only serves to name the
//! holder.
//!
//! Such a lock belongs to the process as a whole, and closing any descriptor of the file drops it. So a table in the
//! process lists the locked files, and a locked file is not opened again.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::mem::ManuallyDrop;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use punctual_store::engine::EngineError;

use super::{error, lock};

pub(super) const FILE_NAME: &str = "owner.pid";

/// Device and inode of a file.
type Identity = (u64, u64);

/// The locked files, and the process that locked them: a forked child has a copy of the table and no lock.
static LOCKED: Mutex<BTreeMap<Identity, u32>> = Mutex::new(BTreeMap::new());

fn locked() -> MutexGuard<'static, BTreeMap<Identity, u32>> {
    // A poisoned table is usable: it changes by one insertion or removal, so a panic elsewhere leaves it whole.
    LOCKED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ownership of an open store; dropping it lets the next process in.
#[derive(Debug)]
pub(super) struct Owner {
    file: ManuallyDrop<File>,
    identity: Identity,
}

impl Owner {
    /// Takes ownership of the store in `directory` for this process.
    pub(super) fn take(directory: &Path) -> Result<Owner, EngineError> {
        let path = directory.join(FILE_NAME);
        let io = |action| error::io(&path, action);
        let in_use = |pid| EngineError::InUse {
            path: directory.to_path_buf(),
            pid,
        };
        let own = std::process::id();
        let mut locked = locked();
        let known = fs::metadata(&path).ok().and_then(|about| locked.get(&identity(&about)));
        match known {
            Some(pid) if *pid == own => return Err(in_use(Some(own))),
            Some(_) => {
                return Err(EngineError::Forked {
                    path: directory.to_path_buf(),
                });
            }
            None => {}
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options
            .open(&path)
            .map_err(io("open the file that names the store's owner"))?;
        let about = file.metadata();
        let identity = identity(&about.map_err(io("look at the file that names the store's owner"))?);
        let is_ours = lock::set(&file, libc::F_SETLK, &lock::whole());
        let is_ours = is_ours.map_err(io("lock the file that names the store's owner"))?;
        // A process that made no store may have removed the file before it was locked here.
        if !is_ours || !fs::metadata(&path).is_ok_and(|there| self::identity(&there) == identity) {
            return Err(in_use(holder(&mut file)));
        }
        // A failure is ignored: the lock decides, and without the pid only a message says less.
        let _ = name_holder(&mut file);
        locked.insert(identity, own);
        Ok(Owner {
            file: ManuallyDrop::new(file),
            identity,
        })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let mut locked = locked();
        locked.remove(&self.identity);
        // SAFETY: dropped only here. Within the table's mutex, so that no thread locks the file in between.
        unsafe { ManuallyDrop::drop(&mut self.file) };
    }
}

/// Whether this process has the store in `directory` open.
pub(super) fn is_ours(directory: &Path) -> bool {
    let about = fs::metadata(directory.join(FILE_NAME)).ok();
    about.is_some_and(|about| locked().get(&identity(&about)) == Some(&std::process::id()))
}

/// The process that has the store in `directory` open. Must not be called by that process itself: closing the file
/// would drop its lock.
pub(super) fn of(directory: &Path) -> Option<u32> {
    if is_ours(directory) {
        return None;
    }
    let mut options = OpenOptions::new();
    let opened = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(directory.join(FILE_NAME));
    let mut file = opened.ok()?;
    let process = lock::holder(&file, lock::whole()).ok().flatten()?;
    // The kernel does not report the id of a process in another namespace; the file does.
    u32::try_from(process)
        .ok()
        .filter(|pid| *pid != 0)
        .or_else(|| holder(&mut file))
}

fn identity(about: &fs::Metadata) -> Identity {
    (about.dev(), about.ino())
}

/// Writes the pid in place, with a fixed length: on a full disk the file may not be able to grow again.
fn name_holder(file: &mut File) -> io::Result<()> {
    file.rewind()?;
    writeln!(file, "{:<10}", std::process::id())
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
