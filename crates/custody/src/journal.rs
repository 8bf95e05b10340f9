//! Restoring the machine: every change is recorded here before it is made.
//!
//! **Problem.** A run turns knobs that outlive it: a governor, a clock limit, a cgroup. They must be restored on exit,
//! on Ctrl-C, on a panic and after a kill, but not while another process still wants the change. **Method.** A
//! [`Journal`] is a holder in the ledger that all processes share (`ledger/mod.rs`). It records how to undo a change
//! *before* the change is made; [`Journal::restore`], or dropping the last clone, undoes all of its changes, newest
//! first: a value that no other holder wants changed is restored, otherwise the remaining holders' value is set. If the
//! process dies without destructors, the guardian (`guardian.rs`) runs the same code on the same records. If both die,
//! the next process that opens a journal does so (`recovery.rs`). Each record is removed once undone, so restoring
//! twice is harmless, in whichever process.
//!
//! There is one record per thing: the ledger keeps a file's original content, however often and by however many
//! processes it is written afterwards. Its start time distinguishes a thread from a later one of the same number.
//!
//! Limits: the kernel takes a restored thread's affinity as its own choice, although it may have come from its group
//! before; widening the group later does not widen it. Records of threads that have ended are removed only once the
//! table is full.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_os::linux::thread::{policy_of, set_policy, set_scheduling};
use punctual_os::{Scheduling, Tid};
use punctual_units::CoreId;

use super::core_mask::{CoreMask, affinity_of, allowed_to, set_affinity};
use super::guardian::Watch;
use super::ledger::{
    self, CHANGES, Conflict, Entrant, Guard, HOLDERS, HolderId, Kind, LastValue, Ledger, NOT_OURS, Table,
};
use super::recovery;
use super::stat::{self, flags, start_time};
use super::tree::{read_trimmed, write_existing};
use super::undo::{Errno, Patience, carry_out, hash_of, hash_of_policy};
use super::{KernelTree, heirs, refused};
use crate::Refusal;

/// The changes of this process, and how to undo them. Clones share the records.
#[derive(Clone, Debug)]
pub struct Journal(Arc<Records>);

/// A point in the life of a [`Journal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u64);

#[derive(Debug)]
struct Records {
    ledger: Arc<Ledger>,
    holder: HolderId,
    /// For each change, by its index in the table: the serial at which this journal first wanted it.
    since: Mutex<HashMap<usize, u64>>,
    /// Files that this journal has written and not restored since, with their changes: their originals are recorded.
    written: Mutex<HashMap<PathBuf, usize>>,
    guardian: Option<Watch>,
    /// The process that opened the journal: a forked child inherits this value, but must not restore.
    owner: u32,
}

impl Journal {
    /// Opens a journal in this user's ledger, with a guardian if asked for; restores what dead processes have left
    /// changed. Open it before loading much data: see `guardian.rs`.
    ///
    /// # Errors
    /// [`Refusal`] if no ledger is available, all its entries are taken, or the kernel refuses the guardian.
    pub fn open(guardian: bool) -> Result<Journal, Refusal> {
        Journal::open_in(&ledger::folder(), guardian)
    }

    /// Opens a journal as [`Journal::open`] does, in the ledger in `folder`.
    ///
    /// # Errors
    /// As for [`Journal::open`].
    pub fn open_in(folder: &Path, guardian: bool) -> Result<Journal, Refusal> {
        Journal::within(Ledger::open(folder)?, guardian)
    }

    /// Opens a journal in a private ledger: for changes that need no recovery.
    ///
    /// # Errors
    /// [`Refusal`] where the kernel refuses the memory.
    pub fn alone() -> Result<Journal, Refusal> {
        Journal::within(Ledger::alone()?, false)
    }

    fn within(ledger: Ledger, guardian: bool) -> Result<Journal, Refusal> {
        let ledger = Arc::new(ledger);
        let holder = {
            let mut table = ledger.lock()?;
            recovery::recover(&mut table, Patience::Tries);
            enter(&mut table)?
        };
        let mut records = Records {
            ledger,
            holder,
            since: Mutex::default(),
            written: Mutex::default(),
            guardian: None,
            owner: std::process::id(),
        };
        if guardian {
            records.guardian = Some(Watch::start(&records.ledger, holder)?);
        }
        Ok(Journal(Arc::new(records)))
    }

    /// Whether the guardian is running now.
    pub fn guarded(&self) -> bool {
        self.0.guardian.as_ref().is_some_and(Watch::watching)
    }

    /// Claims `cores`, out of those of the `machine`, for this process alone, until they are released or all is
    /// restored.
    ///
    /// # Errors
    /// [`Refusal`] where another process claims one of them or has announced tasks there, or none would be left to
    /// others.
    pub fn claim(&self, cores: &[CoreId], machine: &[CoreId]) -> Result<(), Refusal> {
        let [claimed, machine] = [cores, machine].map(|cores| cores.iter().copied().collect());
        let mut table = self.0.ledger.lock()?;
        recovery::recover(&mut table, Patience::Tries);
        let answer = table.claim(self.0.holder, &claimed, &machine);
        answer.map_err(|conflict| refuse_claim(&table, cores, conflict))
    }

    /// Withdraws the claims to `cores`.
    pub fn release(&self, cores: &[CoreId]) {
        // Without the lock, the claims last until this journal is dropped.
        if let (Ok(mut table), true) = (self.0.ledger.lock(), self.0.owned()) {
            table.release(self.0.holder, &cores.iter().copied().collect());
        }
    }

    /// Writes `content` into the kernel file at `path`, after recording its original content.
    ///
    /// If this journal has written the file before and another process or thread holds the ledger's lock, the file is
    /// written without the ledger: a real-time thread that turns a knob waits for no ordinary one. Until the next
    /// write, the ledger's newest wish is then the previous one.
    ///
    /// # Errors
    /// [`Refusal`] where the file cannot be read or written; it is unchanged then.
    pub fn write(&self, path: &Path, content: &str) -> Result<(), Refusal> {
        let mut table = match self.0.ledger.try_lock() {
            None if let Some(change) = self.written().get(path).copied() => {
                self.0.ledger.note_unknown(change);
                return write_existing(path, content).map_err(|why| refuse_write(path, content, why));
            }
            None => self.0.ledger.lock()?,
            Some(table) => table,
        };
        let change = self.write_wish(&mut table, Kind::Write, path, content)?;
        let mut written = self.written();
        if !written.contains_key(path) {
            written.insert(path.to_owned(), change.place);
        }
        Ok(())
    }

    /// Keeps work off the cores that this process claims, by the list of cores in the kernel file at `path`, if the
    /// list contains `core`, one of them, now or in its original state. Returns whether it does.
    ///
    /// # Errors
    /// [`Refusal`] where the file cannot be read or written; it is unchanged then.
    pub fn keep_off_list(&self, path: &Path, core: CoreId) -> Result<bool, Refusal> {
        self.keep_off(Kind::OffList, path, core, |text| ledger::parse_list(text.as_bytes()))
    }

    /// As [`Journal::keep_off_list`], for a file with a mask in hexadecimal words.
    ///
    /// # Errors
    /// [`Refusal`] where the file cannot be read or written; it is unchanged then.
    pub fn keep_off_words(&self, path: &Path, core: CoreId) -> Result<bool, Refusal> {
        self.keep_off(Kind::OffWords, path, core, CoreMask::parse)
    }

    fn keep_off(
        &self,
        kind: Kind,
        path: &Path,
        core: CoreId,
        parse: impl Fn(&str) -> Option<CoreMask>,
    ) -> Result<bool, Refusal> {
        let refusal = |why: std::io::Error| refuse_write(path, UNCLAIMED, why);
        let mut table = self.0.ledger.lock()?;
        let now = read_trimmed(path).map_err(refusal)?;
        let original = find(&table, kind, path).map(|change| table.original(change).to_string_lossy().into_owned());
        let mut has = false;
        for text in [Some(now), original].into_iter().flatten() {
            let cores = parse(&text).ok_or_else(|| refusal(std::io::ErrorKind::InvalidData.into()))?;
            has |= cores.has(core);
        }
        if has {
            let change = self.join_file(&mut table, kind, path, UNCLAIMED)?;
            self.act(&mut table, change).map_err(refusal)?;
        }
        Ok(has)
    }

    /// Writes into the file at `path`, of a group of ours, those of `cores` that no process using the group claims.
    ///
    /// # Errors
    /// [`Refusal`] where the file cannot be written.
    pub fn list_unclaimed(&self, path: &Path, cores: &str) -> Result<(), Refusal> {
        let mut table = self.0.ledger.lock()?;
        let change = self.join(&mut table, Kind::OffList, path, cores.as_bytes())?;
        self.act(&mut table, change)
            .map_err(|why| refuse_write(path, UNCLAIMED, why))
    }

    /// Other processes with exclusive cores, and these cores.
    pub fn neighbours(&self) -> Vec<(i32, CoreMask)> {
        let Ok(table) = self.0.ledger.lock() else {
            return Vec::new(); // the next sweep asks again
        };
        let others = table.holders().filter(|(id, _)| id.place != self.0.holder.place);
        let others = others.filter(|(_, holder)| !holder.exclusive().is_empty());
        others.map(|(_, holder)| (holder.pid(), *holder.exclusive())).collect()
    }

    /// All processes in the ledger, this one included: each places its own threads.
    pub fn processes(&self) -> Vec<i32> {
        let table = self.0.ledger.lock().ok(); // without it the next sweep asks again
        let places = table.iter().flat_map(|table| table.holders());
        places.map(|(_, holder)| holder.pid()).collect()
    }

    /// The cores that other processes claim for themselves alone, each with a refusal that names the process.
    pub fn claims_of_others(&self) -> Vec<(CoreId, Refusal)> {
        let table = self.0.ledger.lock();
        table.map_or_else(|_| Vec::new(), |table| self.claims(&table)) // the claim itself is refused then
    }

    /// Writes `core` alone, which this process claims, as the list of cores in the kernel file at `path`, even while
    /// other processes keep it off their cores.
    ///
    /// # Errors
    /// [`Refusal`] where the file cannot be read or written; it is unchanged then.
    pub fn list_only(&self, path: &Path, core: CoreId) -> Result<(), Refusal> {
        let mut table = self.0.ledger.lock()?;
        self.write_wish(&mut table, Kind::OffList, path, &core.to_string())
            .map(drop)
    }

    /// Adds the cores that this process claims to the list in the kernel file at `path`.
    ///
    /// # Errors
    /// [`Refusal`] where the file cannot be read or written; it is unchanged then.
    pub fn add_to_list(&self, path: &Path) -> Result<(), Refusal> {
        let what = "the exclusive cores as well";
        let mut table = self.0.ledger.lock()?;
        let change = self.join_file(&mut table, Kind::OnList, path, what)?;
        self.act(&mut table, change)
            .map_err(|why| refuse_write(path, what, why))
    }

    /// Writes `on` into a kernel file that is restored by writing `off`, not its former content.
    ///
    /// # Errors
    /// [`Refusal`] where the file cannot be written; it is unchanged then.
    pub fn switch(&self, path: &Path, on: &str, off: &str) -> Result<(), Refusal> {
        let mut table = self.0.ledger.lock()?;
        let change = self.join(&mut table, Kind::Switch, path, off.as_bytes())?;
        super::tree::write_existing(path, on).map_err(|why| {
            self.withdraw(&mut table, change);
            refuse_write(path, on, why)
        })
    }

    /// As [`Journal::switch`], for a file that is on already: if another process has switched it on, it stays on as
    /// long as this one needs it.
    ///
    /// # Errors
    /// [`Refusal`] where that cannot be recorded.
    pub fn stays_on(&self, path: &Path, off: &str) -> Result<(), Refusal> {
        let mut table = self.0.ledger.lock()?;
        match table.find(Kind::Switch, absolute(path).as_os_str().as_bytes(), off.as_bytes()) {
            Some(_) => self.join(&mut table, Kind::Switch, path, off.as_bytes()).map(drop),
            None => Ok(()),
        }
    }

    /// Makes a directory of the kernel's (a cgroup), and removes it on restore. An existing one is taken over.
    ///
    /// # Errors
    /// [`Refusal`] where it cannot be made.
    pub fn make_dir(&self, path: &Path) -> Result<(), Refusal> {
        self.made_dir(path, true)
    }

    /// Makes a directory of the kernel's as [`make_dir`](Self::make_dir) does, but for one that exists.
    ///
    /// # Errors
    /// [`Refusal`] where it cannot be made, or exists.
    pub fn make_own_dir(&self, path: &Path) -> Result<(), Refusal> {
        self.made_dir(path, false)
    }

    fn made_dir(&self, path: &Path, adopts: bool) -> Result<(), Refusal> {
        let mut table = self.0.ledger.lock()?;
        let change = self.join(&mut table, Kind::MakeDir, path, b"")?;
        match fs::create_dir(path) {
            Err(why) if !adopts || why.kind() != std::io::ErrorKind::AlreadyExists => {
                self.withdraw(&mut table, change);
                let remedy = "run as root, or let the folder above belong to this user";
                Err(refused(format!("making {}", path.display()), why, remedy))
            }
            _ => Ok(()),
        }
    }

    /// Records that restoring must move all tasks listed in `from` into `to`; both are files of the kernel.
    ///
    /// # Errors
    /// [`Refusal`] where that cannot be recorded.
    pub fn move_tasks_back(&self, from: &Path, to: &Path) -> Result<(), Refusal> {
        let mut table = self.0.ledger.lock()?;
        self.join(&mut table, Kind::MoveTasks, from, to.as_os_str().as_bytes())
            .map(drop)
    }

    /// Records that restoring sets the four bytes at `at` of the file of `user` at `path` to 0: they stand for this
    /// process while it has the file locked (flock(2)), and for the next one once that has it locked.
    ///
    /// # Errors
    /// [`Refusal`] where that cannot be recorded.
    pub fn clears_word(&self, path: &Path, user: u32, at: usize) -> Result<(), Refusal> {
        let mut table = self.0.ledger.lock()?;
        let text = format!("{user} {at}");
        self.join(&mut table, Kind::LockedWord, path, text.as_bytes()).map(drop)
    }

    /// Withdraws that record: this process has set the bytes to 0.
    pub fn word_is_clear(&self, path: &Path) {
        // Without the lock, restoring finds them at 0, or of the next process.
        if let (Ok(mut table), true) = (self.0.ledger.lock(), self.0.owned())
            && let Some(change) = find(&table, Kind::LockedWord, path)
        {
            table.withdraw(self.0.holder.place, change);
        }
    }

    /// Records the cores on which `thread`, of any process, may run; restoring lets it run there again, unless it has
    /// ended.
    ///
    /// # Errors
    /// [`Refusal`] if there is no such thread, the kernel binds it to its core (as its own threads), or recording
    /// fails.
    pub fn remember_affinity(&self, thread: Tid) -> Result<(), Refusal> {
        let found = allowed_to(&KernelTree::default(), thread);
        let recorded = found.and_then(|found| self.record_affinity(thread, &found));
        let what = || format!("remembering where thread {thread} runs");
        let change = recorded.map_err(|why| refused(what(), why, "it has ended, or must stay"))?;
        // What moves the thread is its group or the kernel: there is no value of ours to compare with.
        if let Ok(table) = self.0.ledger.lock() {
            table.last(change.place).into_iter().for_each(LastValue::varies);
        }
        Ok(())
    }

    /// Restricts `thread` to the cores of `wanted`; restoring lets it run on those of `found`, unless another mask is
    /// recorded already.
    ///
    /// # Errors
    /// The kernel's error: `ESRCH` if the thread has ended, `EINVAL` if the kernel binds it to its core, `EPERM` if
    /// this user may not move it. Its cores are unchanged then.
    pub fn confine(&self, thread: Tid, found: &CoreMask, wanted: &CoreMask) -> std::io::Result<()> {
        let change = self.record_affinity(thread, found)?;
        let done = set_affinity(thread, wanted);
        self.settle(change, done.is_ok(), || Some(hash_of(&affinity_of(thread).ok()?)));
        done
    }

    /// Records the value that a change had as its result, or withdraws a refused one. Without the lock, the value
    /// stays unknown, and a refused change recorded.
    fn settle(&self, change: OwnChange, is_done: bool, now: impl Fn() -> Option<u64>) {
        let Ok(mut table) = self.0.ledger.lock() else { return };
        match (is_done, table.last(change.place).zip(now())) {
            (true, Some((last, now))) => last.set(now),
            (true, None) => {}
            (false, _) => self.withdraw(&mut table, change),
        }
    }

    /// States that the file at `path`, which this journal has changed, is written by this process without the journal
    /// from now on: its value is not compared when it is restored.
    pub fn writes_itself(&self, path: &Path) {
        let Ok(table) = self.0.ledger.lock() else { return };
        let kinds = [Kind::Write, Kind::OffList];
        let changes = kinds.into_iter().filter_map(|kind| find(&table, kind, path));
        changes
            .filter_map(|change| table.last(change))
            .for_each(LastValue::varies);
    }

    /// Records that restoring sets the affinity of `thread` to `mask`, unless one is recorded already.
    fn record_affinity(&self, thread: Tid, mask: &CoreMask) -> std::io::Result<OwnChange> {
        let (stat, content) = stat_of(thread)?;
        // A mask that cannot be set could not be restored either.
        if flags(&content).is_none_or(|flags| flags & PF_NO_SETAFFINITY != 0) {
            return Err(std::io::Error::from_raw_os_error(libc::EINVAL));
        }
        let started = start_time(&content).unwrap_or_default();
        let mut text = String::from_utf8_lossy(started).into_owned() + " ";
        mask.iter().for_each(|byte| text.push_str(&format!("{byte:02x}")));
        self.record_thread(Kind::Affinity, &stat, started, &text)
    }

    /// Records a thread's state as `text`, which begins with its start time, unless one is recorded already.
    fn record_thread(&self, kind: Kind, stat: &Path, started: &[u8], text: &str) -> std::io::Result<OwnChange> {
        let mut table = self.0.ledger.lock().map_err(std::io::Error::other)?;
        if let Some(change) = find(&table, kind, stat)
            && started_in(&table, change) != started
        {
            table.forget(change); // of a thread that has ended
        }
        if let Some(last) = find(&table, kind, stat).and_then(|change| table.last(change)) {
            last.set(LastValue::UNKNOWN);
        }
        let joined = self.join(&mut table, kind, stat, text.as_bytes());
        let joined = joined.or_else(|_| {
            forget_ended(&mut table);
            self.join(&mut table, kind, stat, text.as_bytes())
        });
        joined.map_err(std::io::Error::other)
    }

    /// Gives `thread`, of any process, real-time scheduling (`SCHED_FIFO`) at `priority`, 1 to 99; threads that it
    /// starts are ordinary ones. Restoring gives it the scheduling that it had at first, unless it has ended.
    ///
    /// # Errors
    /// [`Refusal`] without permission, or if there is no such thread; its scheduling is unchanged then.
    pub fn run_in_real_time(&self, thread: Tid, priority: u8) -> Result<(), Refusal> {
        let gone = |why: std::io::Error| refused(format!("scheduling thread {thread}"), why, "it has ended");
        let (stat, content) = stat_of(thread).map_err(gone)?;
        let started = start_time(&content).unwrap_or_default();
        let (policy, found) = policy_of(thread).map_err(|errno| gone(std::io::Error::from_raw_os_error(errno)))?;
        let text = format!("{} {policy} {found}", String::from_utf8_lossy(started));
        let change = self
            .record_thread(Kind::Scheduling, &stat, started, &text)
            .map_err(gone)?;
        let wanted = (libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, i32::from(priority));
        // The first call knows how to say why it is refused.
        let done = set_scheduling(thread, Scheduling::Fifo(priority)).map(|()| {
            // Cannot fail after the first; the thread has real time in any case.
            let _ = set_policy(thread, wanted);
        });
        self.settle(change, done.is_ok(), || policy_of(thread).ok().map(hash_of_policy));
        done
    }

    /// Makes a temporary folder in `within`, readable by this user only; restoring removes it with its content.
    ///
    /// # Errors
    /// [`Refusal`] where it cannot be made.
    pub fn temporary_dir(&self, within: &Path) -> Result<PathBuf, Refusal> {
        // 64 random bits: the name is recorded before the folder exists, so it must belong to no other process.
        let name = RandomState::new().hash_one(std::process::id());
        let path = within.join(format!("punctual-{name:016x}"));
        let mut table = self.0.ledger.lock()?;
        let change = self.join(&mut table, Kind::MakeTree, &path, b"")?;
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(|why| {
            self.withdraw(&mut table, change);
            let what = format!("making the temporary folder {}", path.display());
            let remedy = "set TMPDIR to a folder that can be written";
            refused(what, why, remedy)
        })?;
        Ok(path)
    }

    /// Undoes every change, newest first, and every claim. Returns the failures, which stay recorded, and the things
    /// that another program has changed since ([`changed_since`]), which do not. Does nothing in a process forked from
    /// the one that opened the journal.
    pub fn restore(&self) -> Vec<Refusal> {
        self.restore_if(true, &|_, _| true)
    }

    /// Undoes the changes at and below `folder` only, and no claim.
    pub fn restore_below(&self, folder: &Path) -> Vec<Refusal> {
        let folder = absolute(folder);
        self.restore_if(false, &|table, change| path_of(table, change).starts_with(&folder))
    }

    /// The current position, for [`Journal::restore_since`].
    pub fn mark(&self) -> Mark {
        // Without the lock nothing can be changed either.
        Mark(self.0.ledger.lock().map_or(u64::MAX, |mut table| table.next_serial()))
    }

    /// As [`Journal::restore_below`], for changes that any thread first made since `mark`.
    pub fn restore_since(&self, mark: Mark) -> Vec<Refusal> {
        let since = self.since().clone();
        self.restore_if(false, &|_, change| {
            since.get(&change).is_some_and(|since| *since >= mark.0)
        })
    }

    fn restore_if(&self, claims: bool, meant: &dyn Fn(&Table, usize) -> bool) -> Vec<Refusal> {
        if !self.0.owned() {
            return Vec::new();
        }
        let mut left_over = Vec::new();
        match self.0.ledger.lock() {
            Ok(mut table) => {
                self.written().clear();
                self.0.give_back(&mut table, claims, meant, &mut left_over);
            }
            Err(refusal) => left_over.push(refusal),
        }
        left_over
    }

    /// Joins the change of the file at `path`, wishes for `content` in it, and writes what all wishes come to.
    fn write_wish(&self, table: &mut Guard<'_>, kind: Kind, path: &Path, content: &str) -> Result<OwnChange, Refusal> {
        let change = self.join_file(table, kind, path, content)?;
        if !table.wish(self.0.holder, change.place, content.as_bytes()) {
            self.withdraw(table, change);
            return Err(full(path));
        }
        let written = self.act(table, change).map_err(|why| refuse_write(path, content, why));
        written.map(|()| change)
    }

    /// Records that this journal wants the file at `path` changed, with its present content as the original.
    fn join_file(&self, table: &mut Guard<'_>, kind: Kind, path: &Path, content: &str) -> Result<OwnChange, Refusal> {
        let original = match find(table, kind, path) {
            Some(_) => String::new(), // recorded already
            // Writing nothing does not empty a kernel file.
            None => match read_trimmed(path).map_err(|why| refuse_write(path, content, why))? {
                found if found.is_empty() => "\n".into(),
                found => found,
            },
        };
        self.join(table, kind, path, original.as_bytes())
    }

    /// Records a change before it is made.
    fn join(&self, table: &mut Guard<'_>, kind: Kind, path: &Path, original: &[u8]) -> Result<OwnChange, Refusal> {
        let path = absolute(path);
        let bytes = path.as_os_str().as_bytes();
        let had = table.find(kind, bytes, original);
        let had = had.is_some_and(|change| table.wants(change, self.0.holder.place));
        let joined = table.join(self.0.holder, kind, bytes, original);
        let place = joined.ok_or_else(|| full(&path))?;
        if !had {
            let now = table.next_serial();
            self.since().insert(place, now);
        }
        Ok(OwnChange { place, new: !had })
    }

    /// Sets the value that the remaining holders want; on failure withdraws this holder.
    fn act(&self, table: &mut Guard<'_>, change: OwnChange) -> std::io::Result<()> {
        let done = table.carry_out(change.place, &mut |step| carry_out(step, Patience::Tries));
        done.map_err(|errno| {
            self.withdraw(table, change);
            std::io::Error::from_raw_os_error(errno)
        })
    }

    fn withdraw(&self, table: &mut Guard<'_>, change: OwnChange) {
        if change.new {
            table.withdraw(self.0.holder.place, change.place);
        }
    }

    fn written(&self) -> MutexGuard<'_, HashMap<PathBuf, usize>> {
        self.0.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn since(&self) -> MutexGuard<'_, HashMap<usize, u64>> {
        // A poisoned map is usable: every entry is whole, and a panic elsewhere must not prevent restoring.
        self.0.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A change that this journal wants.
#[derive(Clone, Copy, Debug)]
struct OwnChange {
    place: usize,
    /// This journal did not want the change before.
    new: bool,
}

impl Records {
    fn owned(&self) -> bool {
        self.owner == std::process::id()
    }

    fn give_back(
        &self,
        table: &mut Table,
        claims: bool,
        meant: &dyn Fn(&Table, usize) -> bool,
        left_over: &mut Vec<Refusal>,
    ) {
        let mut failed = |table: &Table, change, errno| left_over.push(left_changed(table, change, errno));
        heirs::give_back(table, self.holder.place, claims, meant, Patience::Waits, &mut failed);
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        let guardian = self.guardian.take();
        if !self.owned() {
            // Only the process that opened the journal has the guardian's thread.
            return std::mem::forget(guardian);
        }
        let mut is_done = false; // without the lock
        if let Ok(mut table) = self.ledger.lock() {
            self.give_back(&mut table, true, &|_, _| true, &mut Vec::new());
            // The guardian tries failed changes again once the pipe closes without a farewell, and so does the next
            // recovery.
            is_done = table.changes_of(self.holder.place).next().is_none();
            if is_done || guardian.is_none() {
                table.strike(self.holder.place);
            }
        }
        if let (Some(guardian), true) = (guardian, is_done) {
            guardian.dismiss();
        }
    }
}

/// Enters this process into the table as a holder.
fn enter(table: &mut Table) -> Result<HolderId, Refusal> {
    let refusal = |why: String| {
        let remedy = "end some of the programs that `punctual doctor` lists";
        refused("taking a place in the ledger of changes", why, remedy)
    };
    let text = |file: &str| fs::read(file).unwrap_or_default();
    let (stat, name) = (text("/proc/self/stat"), text("/proc/self/comm"));
    let started = stat::started(&stat).ok_or_else(|| refusal("/proc/self/stat cannot be read".into()))?;
    let entrant = Entrant {
        pid: std::process::id() as i32,
        started,
        name: name.trim_ascii_end(),
    };
    let entered = table.enter(entrant);
    entered.ok_or_else(|| refusal(format!("all {} places are taken", HOLDERS - 1)))
}

fn refuse_claim(table: &Table, wanted: &[CoreId], conflict: Conflict) -> Refusal {
    let list: Vec<String> = wanted.iter().map(|core| core.to_string()).collect();
    let s = if wanted.len() == 1 { "" } else { "s" };
    let what = format!("claiming core{s} {}", list.join(","));
    match conflict {
        Conflict::Claimed { core, by } => refused(
            what,
            format!("{} claims core {core} for itself alone", named_at(table, by)),
            "choose another core, wait until that program has ended, or see what each holds: punctual doctor",
        ),
        Conflict::Occupied { core, by } => refused(
            what,
            format!("{} has real-time work on core {core}", named_at(table, by)),
            "choose another core, wait until that program has ended, or see what each holds: punctual doctor",
        ),
        Conflict::NoneLeft => refused(
            what,
            "no core would be left to everything else",
            "leave at least one core to others; see what is held: punctual doctor",
        ),
        Conflict::Gone => refused(
            what,
            "the ledger does not list this process any more",
            "this is a defect worth reporting",
        ),
    }
}

/// Name and number of the holder at index `place`, for messages.
fn named_at(table: &Table, place: usize) -> String {
    let name = |holder: &ledger::Holder| format!("{} (process {})", holder.name().to_string_lossy(), holder.pid());
    table.holder_at(place).map_or_else(|| "another program".into(), name)
}

fn full(path: &Path) -> Refusal {
    let why = format!("the ledger holds {CHANGES} changes with paths and contents below 512 bytes (values below 256)");
    let remedy = "shorten the path; if there are that many changes, this is a defect worth reporting";
    refused(format!("changing {}", path.display()), why, remedy)
}

/// The change of that kind to `path`, of any holder.
fn find(table: &Table, kind: Kind, path: &Path) -> Option<usize> {
    table.find(kind, absolute(path).as_os_str().as_bytes(), b"")
}

fn path_of(table: &Table, change: usize) -> &Path {
    Path::new(OsStr::from_bytes(table.path(change).to_bytes()))
}

/// Path and content of a thread's `stat`.
fn stat_of(thread: Tid) -> std::io::Result<(PathBuf, Vec<u8>)> {
    let stat = PathBuf::from(format!("/proc/{thread}/stat"));
    let content = fs::read(&stat).map_err(|why| match why.kind() {
        std::io::ErrorKind::NotFound => std::io::Error::from_raw_os_error(libc::ESRCH),
        _ => why,
    })?;
    Ok((stat, content))
}

/// Removes the records of threads that have ended, for all holders.
fn forget_ended(table: &mut Table) {
    let ended = |change: &usize| {
        let stat = fs::read(path_of(table, *change)).unwrap_or_default();
        start_time(&stat) != Some(started_in(table, *change))
    };
    let threads = table
        .all_changes()
        .filter(|change| matches!(table.kind(*change), Some(Kind::Affinity | Kind::Scheduling)));
    let ended: Vec<usize> = threads.filter(ended).collect();
    ended.into_iter().for_each(|change| table.forget(change));
}

/// The content of lists and masks without the claimed cores, for messages.
const UNCLAIMED: &str = "the cores that no process claims";

/// Flag of threads whose cores no process may change (`PF_NO_SETAFFINITY` in the kernel's linux/sched.h).
const PF_NO_SETAFFINITY: u32 = 0x0400_0000;

/// Start time of the thread of a record, the first word of its original.
fn started_in(table: &Table, change: usize) -> &[u8] {
    let words = &mut table.original(change).to_bytes().split(|byte| *byte == b' ');
    words.next().unwrap_or_default()
}

/// Makes `path` absolute: the guardian works at `/`.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The refusal of a write to `path`, with the remedy for its error.
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

const CHANGED_SINCE: &str = "another program has changed it since, so it is left as it is now";

/// Whether `refusal`, of restoring, is about a thing that another program has changed since: no failure.
pub fn changed_since(refusal: &Refusal) -> bool {
    refusal.why == CHANGED_SINCE
}

/// A change that could not be undone, or that another program has made its own, and how to undo it by hand.
pub(crate) fn left_changed(table: &Table, change: usize, errno: Errno) -> Refusal {
    let show = |text: &CStr| String::from_utf8_lossy(text.to_bytes()).into_owned();
    let (path, text) = (show(table.path(change)), show(table.original(change)));
    let (what, by_hand) = match table.kind(change) {
        Some(Kind::Write | Kind::Switch | Kind::OffList | Kind::OffWords | Kind::OnList) => (
            format!("putting {path} back"),
            format!("echo '{}' > {path}", text.trim_end()),
        ),
        Some(Kind::MoveTasks) => (
            format!("moving tasks out of {path}"),
            format!("write each number in {path} to {text}"),
        ),
        Some(Kind::MakeDir) => (format!("removing {path}"), format!("rmdir {path}")),
        Some(Kind::MakeTree) => (format!("removing {path}"), format!("rm -r {path}")),
        Some(Kind::LockedWord) => (
            format!("clearing {path}"),
            format!("rm {path}, and start its programs anew"),
        ),
        Some(Kind::Affinity) => (
            format!("letting the thread of {path} run where it did"),
            "taskset -p, with the number of the thread".to_owned(),
        ),
        Some(Kind::Scheduling) => (
            format!("scheduling the thread of {path} as it was"),
            "chrt -p, with the number of the thread".to_owned(),
        ),
        None => (
            format!("putting {path} back"),
            "this is a defect worth reporting".into(),
        ),
    };
    if errno == NOT_OURS {
        let remedy = format!("if that is not wanted, by hand: {by_hand}");
        return refused(what, CHANGED_SINCE, remedy);
    }
    let why = std::io::Error::from_raw_os_error(errno);
    refused(what, why, format!("by hand: {by_hand}"))
}

mod announced;
mod standing;
pub use announced::Others;
pub use standing::{Property, StandingChange, as_found};

#[cfg(test)]
mod tests;
