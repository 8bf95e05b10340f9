//! Putting the machine back: every change is written down here before it is made.
//!
//! **Problem.** A run turns knobs that outlive it: a governor, a clock limit, a cgroup. They must be put back on exit,
//! on Ctrl-C, on a panic and after a kill. **Method.** A [`Journal`] records how to take a change back *before* the
//! change is made; [`Journal::restore`], or dropping the last clone, takes them back newest first. For deaths without
//! destructors there is the guardian (`guardian.rs`), which reads the same records from shared memory and runs the
//! same code. Each record is withdrawn once undone, so restoring twice is harmless, whoever does it.
//!
//! One record per thing: what is remembered of a file is how it was found, however often it is written afterwards.

use std::ffi::{CStr, OsStr};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::guardian::Guardian;
use super::thread::{CoreMask, Tid, affinity_of, set_affinity};
use super::tree::{read_trimmed, write_existing};
use super::undo::{Errno, Kind, SLOTS, Slot, Table, start_time};
use super::{last_error, refused};
use crate::Refusal;

/// What was changed and how to take it back. Clones share the records.
#[derive(Clone, Debug)]
pub struct Journal(Arc<Records>);

#[derive(Debug)]
struct Records {
    table: SharedTable,
    /// Serialises those who append to the table.
    appending: Mutex<()>,
    guardian: Option<Guardian>,
    /// A process forked by the user's code inherits this value, but not the duty.
    owner: u32,
}

impl Journal {
    /// An empty journal, with a guardian if asked for. Open it before loading much data: see `guardian.rs`.
    ///
    /// # Errors
    /// [`Refusal`] where the memory or the process for it cannot be had.
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
        let record = if self.0.table.find(Kind::Write, path) {
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

    /// Remembers on which cores `thread`, of any process, may run: putting back lets it run there again, unless it has ended.
    ///
    /// # Errors
    /// [`Refusal`] where there is no such thread, or it is bound where it runs (as the kernel's own are), or that cannot be recorded.
    pub fn remember_affinity(&self, thread: Tid) -> Result<(), Refusal> {
        let gone = |why: std::io::Error| {
            refused(
                format!("reading where thread {thread} runs"),
                why,
                "it has ended, or must stay",
            )
        };
        let mask = affinity_of(thread).map_err(gone)?;
        // What cannot be set now could not be put back either.
        set_affinity(thread, &mask).map_err(gone)?;
        self.remember_mask(thread, &mask)
    }

    /// As [`Journal::remember_affinity`] of a thread that may run on the cores of `mask`, without setting anything now: the kernel would take
    /// it for the thread's own choice.
    ///
    /// # Errors
    /// [`Refusal`] where there is no such thread, or that cannot be recorded.
    pub(super) fn remember_mask(&self, thread: Tid, mask: &CoreMask) -> Result<(), Refusal> {
        let stat = PathBuf::from(format!("/proc/{thread}/stat"));
        if self.0.table.find(Kind::Affinity, &stat) {
            return Ok(());
        }
        let content = fs::read(&stat)
            .map_err(|why| refused(format!("reading when thread {thread} started"), why, "it has ended"))?;
        let started = String::from_utf8_lossy(start_time(&content).unwrap_or_default()).into_owned();
        let text = mask
            .iter()
            .fold(started + " ", |text, byte| format!("{text}{byte:02x}"));
        self.record(Kind::Affinity, &stat, text.as_bytes()).map(drop)
    }

    /// Makes a temporary folder in `within`, readable by this user only, to be removed with all that is in it.
    ///
    /// # Errors
    /// [`Refusal`] where it cannot be made.
    pub fn temporary_dir(&self, within: &Path) -> Result<PathBuf, Refusal> {
        // 64 random bits, so that the name recorded before the folder exists can belong to nobody else.
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
        if !self.0.owned() {
            return Vec::new();
        }
        let folder = absolute(folder);
        let mut left_over = Vec::new();
        let _serial = self.appending();
        self.0.table.undo_all(
            |slot| Path::new(OsStr::from_bytes(slot.path().to_bytes())).starts_with(&folder),
            |slot, errno| left_over.push(left_changed(slot, errno)),
        );
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
        // What is left over is left to the guardian, who tries again at the end of the line without farewell.
        if let (Some(guardian), false) = (self.guardian.take(), left_over) {
            guardian.dismiss();
        }
    }
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

    /// Whether a change of that kind to `path` is pending.
    fn find(&self, kind: Kind, path: &Path) -> bool {
        let path = absolute(path);
        self.slots().iter().any(|slot| {
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
mod tests {
    use super::*;
    use crate::linux::testing;
    use proptest::prelude::*;

    fn unguarded() -> Journal {
        Journal::open(false).unwrap()
    }

    proptest! {
        #[test]
        fn whatever_was_written_restore_puts_every_file_back(
            found in prop::collection::vec("[a-z0-9 ]{0,20}[a-z0-9]", 1..6),
            writes in prop::collection::vec((any::<prop::sample::Index>(), "[a-z0-9]{1,20}"), 0..30),
            restore_after in any::<prop::sample::Index>(),
        ) {
            let folder = testing::folder();
            let paths: Vec<_> = (0..found.len()).map(|i| folder.path().join(i.to_string())).collect();
            for (path, content) in paths.iter().zip(&found) {
                fs::write(path, format!("{content}\n")).unwrap();
            }
            let journal = unguarded();
            let restore_after = restore_after.index(writes.len() + 1);
            for (step, (file, content)) in writes.iter().enumerate() {
                if step == restore_after {
                    prop_assert_eq!(journal.restore(), []);
                }
                let path = file.get(&paths);
                journal.write(path, content).unwrap();
                prop_assert_eq!(&fs::read_to_string(path).unwrap(), content);
            }
            drop(journal);
            for (path, content) in paths.iter().zip(&found) {
                prop_assert_eq!(read_trimmed(path).unwrap(), content.trim_end());
            }
        }
    }

    #[test]
    fn a_file_written_for_ever_takes_one_record() {
        let folder = testing::folder();
        let path = folder.path().join("scaling_setspeed");
        fs::write(&path, "1400000\n").unwrap();
        let journal = unguarded();
        for step in 0..2 * SLOTS {
            journal.write(&path, &step.to_string()).unwrap();
        }
        assert_eq!(journal.restore(), []);
        assert_eq!(read_trimmed(&path).unwrap(), "1400000");
    }

    #[test]
    fn a_failed_write_leaves_no_record_and_says_what_to_do() {
        let folder = testing::folder();
        let journal = unguarded();
        let refusal = journal.write(&folder.path().join("absent"), "1").unwrap_err();
        assert!(refusal.remedy.contains("no such knob"), "{refusal}");
        assert!(!journal.0.table.slots().iter().any(Slot::pending));
    }

    #[test]
    fn a_full_journal_refuses_before_anything_is_changed() {
        let folder = testing::folder();
        let journal = unguarded();
        let file = |i: usize| folder.path().join(i.to_string());
        for i in 0..=SLOTS {
            fs::write(file(i), "found").unwrap();
            assert_eq!(journal.write(&file(i), "changed").is_ok(), i < SLOTS);
        }
        assert_eq!(read_trimmed(&file(SLOTS)).unwrap(), "found");
        let long = folder
            .path()
            .join("x".repeat(200))
            .join("y".repeat(200))
            .join("z".repeat(200));
        assert!(unguarded().make_dir(&long).unwrap_err().remedy.contains("shorten"));
    }

    #[test]
    fn a_temporary_folder_goes_with_all_that_is_in_it_but_follows_no_link_out() {
        let outside = testing::folder();
        fs::write(outside.path().join("kept"), "").unwrap();
        let journal = unguarded();
        let folder = journal.temporary_dir(&std::env::temp_dir()).unwrap();
        let mut deep = folder.clone();
        for level in 0..10 {
            deep.push(format!("level{level}"));
            fs::create_dir(&deep).unwrap();
            for file in 0..50 {
                fs::write(deep.join(format!("a file with a long name, number {file}")), "content").unwrap();
            }
        }
        std::os::unix::fs::symlink(outside.path(), deep.join("link")).unwrap();
        assert_eq!(journal.restore(), []);
        assert!(!folder.exists());
        assert!(outside.path().join("kept").exists());
    }

    #[test]
    fn what_cannot_be_put_back_is_named_and_stays_recorded() {
        let folder = testing::folder();
        let group = folder.path().join("group");
        let journal = unguarded();
        journal.make_dir(&group).unwrap();
        fs::write(group.join("ordinary file"), "").unwrap(); // so that rmdir fails
        let left_over = journal.restore();
        assert_eq!(left_over.len(), 1);
        assert!(left_over[0].remedy.contains("rmdir"), "{}", left_over[0]);
        fs::remove_file(group.join("ordinary file")).unwrap();
        assert_eq!(journal.restore(), []);
        assert!(!group.exists());
    }

    #[test]
    fn what_is_gone_needs_no_putting_back() {
        let folder = testing::folder();
        let path = folder.path().join("hot-unplugged");
        fs::write(&path, "found").unwrap();
        let journal = unguarded();
        journal.write(&path, "changed").unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(journal.restore(), []);
        assert!(!path.exists());
    }

    #[test]
    fn tasks_are_moved_back_one_by_one() {
        let folder = testing::folder();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::write(&from, "12\n34\n").unwrap();
        fs::write(&to, "").unwrap();
        let journal = unguarded();
        journal.move_tasks_back(&from, &to).unwrap();
        assert_eq!(journal.restore(), []);
        assert_eq!(read_trimmed(&to).unwrap(), "34"); // an ordinary file keeps the last of the two writes
    }

    #[test]
    fn a_forked_process_puts_nothing_back() {
        let folder = testing::folder();
        let path = folder.path().join("knob");
        fs::write(&path, "found").unwrap();
        let journal = unguarded();
        journal.write(&path, "changed").unwrap();
        // SAFETY: the forked process looks at memory and exits.
        let forked = unsafe {
            let forked = libc::fork();
            if forked == 0 {
                let left_over = journal.restore();
                libc::_exit(left_over.len() as i32);
            }
            forked
        };
        let mut status = 0;
        // SAFETY: `status` is valid; the child is ours.
        unsafe { libc::waitpid(forked, &mut status, 0) };
        assert_eq!(status, 0);
        assert_eq!(read_trimmed(&path).unwrap(), "changed");
    }

    #[test]
    fn a_guardian_watches_while_the_journal_lives() {
        let journal = Journal::open(true).unwrap();
        assert!(journal.guarded());
        assert!(!unguarded().guarded());
    }
}
