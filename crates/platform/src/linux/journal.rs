//! Putting the machine back: every change is written down here before it is made.
//!
//! **Problem.** A run turns knobs that outlive it: a governor, a clock limit, a cgroup. They must be put back on exit,
//! on Ctrl-C, on a panic and after a kill. **Method.** A [`Journal`] records how to take a change back *before* the
//! change is made; [`Journal::restore`], or dropping the last clone, takes them back newest first. For deaths without
//! destructors there is the guardian (`guardian.rs`), which reads the same records from shared memory and runs the same
//! code. Each record is withdrawn once undone, so restoring twice is harmless, whichever process does it.
//!
//! One record per thing: the journal remembers a file as it was found, however often it is written afterwards. Its
//! start time distinguishes a thread from a later one of the same number.
//!
//! Limits: a thread that is put back has chosen its cores for itself in the kernel's eyes, although before it may have
//! had them from its group; widening the group later does not widen it. Records of threads that have ended are
//! forgotten only once the table is full.

use std::ffi::{CStr, OsStr};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::core_mask::{CoreMask, allowed_to, set_affinity};
use super::guardian::Guardian;
use super::thread::Tid;
use super::tree::{read_trimmed, write_existing};
use super::undo::{Errno, Kind, SLOTS, Slot, Table, flags, start_time};
use super::{KernelTree, last_error, refused};
use crate::Refusal;

/// What was changed and how to take it back. Clones share the records.
#[derive(Clone, Debug)]
pub struct Journal(Arc<Records>);

/// A point in the life of a [`Journal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u32);

#[derive(Debug)]
struct Records {
    table: SharedTable,
    /// Serialises the threads that append to the table.
    appending: Mutex<()>,
    guardian: Option<Guardian>,
    /// A process forked by the user's code inherits this value, but not the duty.
    owner: u32,
}

impl Journal {
    /// An empty journal, with a guardian if asked for. Open it before loading much data: see `guardian.rs`.
    ///
    /// # Errors
    /// [`Refusal`] where the kernel refuses the memory or the process for it.
    pub fn open(guardian: bool) -> Result<Journal, Refusal> {
        let table = SharedTable::new()?;
        let guardian = guardian.then(|| Guardian::start(&table)).transpose()?;
        Ok(Journal(Arc::new(Records {
            table,
            appending: Mutex::new(()),
            guardian,
            owner: std::process::id(),
        })))
    }

    /// Whether a guardian is watching right now.
    pub fn guarded(&self) -> bool {
        self.0.guardian.as_ref().is_some_and(Guardian::watching)
    }

    /// Writes `content` into the kernel file at `path`, having remembered how it was found.
    ///
    /// # Errors
    /// [`Refusal`] where the file cannot be read or written; it is unchanged then.
    pub fn write(&self, path: &Path, content: &str) -> Result<(), Refusal> {
        let refusal = |why: std::io::Error| refuse_write(path, content, why);
        let record = if self.0.table.find(Kind::Write, path).is_some() {
            None
        } else {
            let found = read_trimmed(path).map_err(refusal)?;
            Some(self.record(Kind::Write, path, found.as_bytes())?)
        };
        write_existing(path, content).map_err(|why| {
            self.withdraw(record);
            refusal(why)
        })
    }

    /// Writes `on` into a kernel file that is not put back by its former content, but by writing `off`.
    ///
    /// # Errors
    /// [`Refusal`] where the file cannot be written; it is unchanged then.
    pub fn switch(&self, path: &Path, on: &str, off: &str) -> Result<(), Refusal> {
        let record = self.record(Kind::Write, path, off.as_bytes())?;
        write_existing(path, on).map_err(|why| {
            self.withdraw(Some(record));
            refuse_write(path, on, why)
        })
    }

    /// Makes a directory of the kernel's (a cgroup), to be removed again. One that is there already is taken over.
    ///
    /// # Errors
    /// [`Refusal`] where it cannot be made.
    pub fn make_dir(&self, path: &Path) -> Result<(), Refusal> {
        let record = self.record(Kind::RemoveDir, path, b"")?;
        match fs::create_dir(path) {
            Err(why) if why.kind() != std::io::ErrorKind::AlreadyExists => {
                self.withdraw(Some(record));
                Err(refused(
                    format!("making {}", path.display()),
                    why,
                    "run as root, or let the folder above belong to this user",
                ))
            }
            _ => Ok(()),
        }
    }

    /// From here on, putting back also moves all tasks listed in `from` into `to`; both are files of the kernel.
    ///
    /// # Errors
    /// [`Refusal`] where that cannot be recorded.
    pub fn move_tasks_back(&self, from: &Path, to: &Path) -> Result<(), Refusal> {
        self.record(Kind::MoveTasks, from, to.as_os_str().as_bytes())
            .map(|_| ())
    }

    /// Remembers on which cores `thread`, of any process, may run: putting back lets it run there again, unless it has
    /// ended.
    ///
    /// # Errors
    /// [`Refusal`] where there is no such thread, or it is bound where it runs (as the kernel's own are), or that
    /// cannot be recorded.
    pub fn remember_affinity(&self, thread: Tid) -> Result<(), Refusal> {
        let found = allowed_to(&KernelTree::default(), thread);
        let recorded = found.and_then(|found| self.record_affinity(thread, &found));
        recorded.map(drop).map_err(|why| {
            refused(
                format!("remembering where thread {thread} runs"),
                why,
                "it has ended, or must stay",
            )
        })
    }

    /// Lets `thread` run on the cores of `wanted` only; putting back lets it run on those of `found`, unless something
    /// else is remembered of it.
    ///
    /// # Errors
    /// What the kernel answers: `ESRCH` of a thread that has ended, `EINVAL` of one that is bound where it runs,
    /// `EPERM` of one that is not ours to move. Its cores are unchanged then.
    pub(super) fn confine(&self, thread: Tid, found: &CoreMask, wanted: &CoreMask) -> std::io::Result<()> {
        let record = self.record_affinity(thread, found)?;
        set_affinity(thread, wanted).inspect_err(|_| self.withdraw(record))
    }

    /// Records that `thread` is to run on the cores of `mask` again. `None` where that is recorded already.
    fn record_affinity(&self, thread: Tid, mask: &CoreMask) -> std::io::Result<Option<usize>> {
        let stat = PathBuf::from(format!("/proc/{thread}/stat"));
        let content = fs::read(&stat).map_err(|why| match why.kind() {
            std::io::ErrorKind::NotFound => std::io::Error::from_raw_os_error(libc::ESRCH),
            _ => why,
        })?;
        // What cannot be set could not be put back either.
        if flags(&content).is_none_or(|flags| flags & PF_NO_SETAFFINITY != 0) {
            return Err(std::io::Error::from_raw_os_error(libc::EINVAL));
        }
        let started = start_time(&content).unwrap_or_default();
        if let Some(record) = self.0.table.find(Kind::Affinity, &stat) {
            if started_in(record) == started {
                return Ok(None);
            }
            record.retire(); // of a thread that has ended
        }
        let mut text = String::from_utf8_lossy(started).into_owned() + " ";
        mask.iter().for_each(|byte| text.push_str(&format!("{byte:02x}")));
        let record = || self.record(Kind::Affinity, &stat, text.as_bytes());
        let recorded = record().or_else(|_| {
            self.forget_ended();
            record()
        });
        recorded.map(Some).map_err(std::io::Error::other)
    }

    /// Withdraws what is remembered of threads that have ended.
    fn forget_ended(&self) {
        let ended = |slot: &&Slot| {
            let stat = fs::read(OsStr::from_bytes(slot.path().to_bytes())).unwrap_or_default();
            start_time(&stat) != Some(started_in(slot))
        };
        let threads = self.0.table.slots().iter();
        let threads = threads.filter(|slot| slot.pending() && slot.kind() == Some(Kind::Affinity));
        threads.filter(ended).for_each(Slot::retire);
    }

    /// Makes a temporary folder in `within`, readable by this user only, to be removed with all that is in it.
    ///
    /// # Errors
    /// [`Refusal`] where it cannot be made.
    pub fn temporary_dir(&self, within: &Path) -> Result<PathBuf, Refusal> {
        // 64 random bits, so that the name recorded before the folder exists can belong to no other process.
        let name = RandomState::new().hash_one(std::process::id());
        let path = within.join(format!("punctual-{name:016x}"));
        let record = self.record(Kind::RemoveTree, &path, b"")?;
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(|why| {
            self.withdraw(Some(record));
            refused(
                format!("making the temporary folder {}", path.display()),
                why,
                "set TMPDIR to a folder that can be written",
            )
        })?;
        Ok(path)
    }

    /// Takes back every change, newest first, and returns what could not be taken back; that stays recorded.
    /// In a process forked from the one that opened the journal it does nothing.
    pub fn restore(&self) -> Vec<Refusal> {
        self.restore_below(Path::new("/"))
    }

    /// As [`Journal::restore`], for changes at and below `folder` alone.
    pub fn restore_below(&self, folder: &Path) -> Vec<Refusal> {
        let folder = absolute(folder);
        self.restore_if(|slot| Path::new(OsStr::from_bytes(slot.path().to_bytes())).starts_with(&folder))
    }

    /// Where the journal stands, for [`Journal::restore_since`].
    pub fn mark(&self) -> Mark {
        Mark(self.0.table.mark())
    }

    /// As [`Journal::restore`], for things that were changed for the first time since `mark`, by whichever thread.
    pub fn restore_since(&self, mark: Mark) -> Vec<Refusal> {
        self.restore_if(|slot| slot.since(mark.0))
    }

    fn restore_if(&self, meant: impl Fn(&Slot) -> bool) -> Vec<Refusal> {
        if !self.0.owned() {
            return Vec::new();
        }
        let mut left_over = Vec::new();
        let _serial = self.appending();
        self.0
            .table
            .undo_all(meant, |slot, errno| left_over.push(left_changed(slot, errno)));
        left_over
    }

    /// Records how to take back a change that is about to be made.
    fn record(&self, kind: Kind, path: &Path, text: &[u8]) -> Result<usize, Refusal> {
        let path = absolute(path);
        let _serial = self.appending();
        self.0
            .table
            .append(kind, path.as_os_str().as_bytes(), text)
            .ok_or_else(|| {
                refused(
                    format!("changing {}", path.display()),
                    format!("the journal holds {SLOTS} changes with paths and contents below 512 bytes"),
                    "shorten the path; if there are that many changes, this is a defect worth reporting",
                )
            })
    }

    fn withdraw(&self, record: Option<usize>) {
        if let Some(slot) = record.and_then(|slot| self.0.table.slots().get(slot)) {
            slot.retire();
        }
    }

    fn appending(&self) -> MutexGuard<'_, ()> {
        // The lock guards no data of its own; a panic elsewhere must not keep the machine from being put back.
        self.0.appending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Records {
    fn owned(&self) -> bool {
        self.owner == std::process::id()
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        if !self.owned() {
            return;
        }
        let mut left_over = false;
        self.table.undo_all(|_| true, |_, _| left_over = true);
        // What is left over is left to the guardian, which tries again at the end of the line without farewell.
        if let (Some(guardian), false) = (self.guardian.take(), left_over) {
            guardian.dismiss();
        }
    }
}

/// Set of threads whose cores no process may change (`PF_NO_SETAFFINITY` in the kernel's linux/sched.h).
const PF_NO_SETAFFINITY: u32 = 0x0400_0000;

/// When the thread of an affinity record started.
fn started_in(record: &Slot) -> &[u8] {
    let text = record.text().to_bytes();
    text.split(|byte| *byte == b' ').next().unwrap_or_default()
}

/// `path` from the root on: the guardian works at `/`.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// What would help where the file at `path` cannot be written.
fn refuse_write(path: &Path, content: &str, why: std::io::Error) -> Refusal {
    let remedy = match why.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => "run as root, or give this user the right to write the file",
        Some(libc::EROFS) => "mount it writable: containers see /sys and /proc read-only unless told otherwise",
        Some(libc::ENOENT) => "this kernel or this CPU has no such knob",
        Some(libc::EBUSY) => "something else holds the knob: stop other tuning daemons and try again",
        _ => "see what values the kernel documents for the file",
    };
    refused(format!("writing '{content}' to {}", path.display()), why, remedy)
}

fn left_changed(slot: &Slot, errno: Errno) -> Refusal {
    let show = |text: &CStr| String::from_utf8_lossy(text.to_bytes()).into_owned();
    let (path, text) = (show(slot.path()), show(slot.text()));
    let (what, by_hand) = match slot.kind() {
        Some(Kind::Write) => (format!("putting {path} back"), format!("echo '{text}' > {path}")),
        Some(Kind::MoveTasks) => (
            format!("moving tasks out of {path}"),
            format!("write each number in {path} to {text}"),
        ),
        Some(Kind::RemoveDir) => (format!("removing {path}"), format!("rmdir {path}")),
        Some(Kind::RemoveTree) => (format!("removing {path}"), format!("rm -r {path}")),
        Some(Kind::Affinity) => (
            format!("letting the thread of {path} run where it did"),
            "taskset -p, with the number of the thread".to_owned(),
        ),
        None => (
            format!("putting {path} back"),
            "this is a defect worth reporting".into(),
        ),
    };
    refused(
        what,
        std::io::Error::from_raw_os_error(errno),
        format!("by hand: {by_hand}"),
    )
}

/// A [`Table`] in anonymous shared memory.
#[derive(Debug)]
struct SharedTable(NonNull<Table>);

// SAFETY: the mapping is owned by this value and `Table` is `Sync`.
unsafe impl Send for SharedTable {}
// SAFETY: as above.
unsafe impl Sync for SharedTable {}

impl SharedTable {
    fn new() -> Result<SharedTable, Refusal> {
        // SAFETY: a fresh anonymous mapping of a table's size, aligned to a page.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Table>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        match NonNull::new(address.cast::<Table>()) {
            Some(table) if address != libc::MAP_FAILED => Ok(SharedTable(table)),
            _ => Err(refused(
                "mapping 4 MB for the journal of changes",
                last_error(),
                "raise the limits on memory (ulimit -v, ulimit -l)",
            )),
        }
    }

    /// The pending change of that kind to `path`.
    fn find(&self, kind: Kind, path: &Path) -> Option<&Slot> {
        let path = absolute(path);
        self.slots().iter().find(|slot| {
            slot.pending() && slot.kind() == Some(kind) && slot.path().to_bytes() == path.as_os_str().as_bytes()
        })
    }
}

impl std::ops::Deref for SharedTable {
    type Target = Table;
    fn deref(&self) -> &Table {
        // SAFETY: mapped until drop, and zeroed memory is a valid empty table.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for SharedTable {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this size, and unmapped once.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<Table>()) };
    }
}

#[cfg(test)]
mod tests;
