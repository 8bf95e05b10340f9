//! Putting the machine back: every change is written down here before it is made.
//!
//! **Problem.** A run turns knobs that outlive it: a governor, a clock limit, a cgroup. They must be put back on exit,
//! on Ctrl-C, on a panic and after a kill, and not while another process wants them so. **Method.** A [`Journal`] is a
//! holder in the ledger that all processes share (`ledger/mod.rs`). It records how to take a change back *before* the
//! change is made; [`Journal::restore`], or dropping the last clone, gives all of its changes back, newest first: what
//! no other holder wants is put back as it was found, what others want becomes what they want. For deaths without
//! destructors there is the guardian (`guardian.rs`), which runs the same code on the same records. For deaths of both,
//! whichever process opens a journal next does so (`recovery.rs`). Each record goes once undone, so restoring twice is
//! harmless, whichever process does it.
//!
//! One record per thing: the ledger remembers a file as it was found, however often it is written afterwards, and by
//! however many processes. Its start time distinguishes a thread from a later one of the same number.
//!
//! Limits: a thread that is put back has chosen its cores for itself in the kernel's eyes, although before it may have
//! had them from its group; widening the group later does not widen it. Records of threads that have ended are
//! forgotten only once the table is full.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, OsStr};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_units::CoreId;

use super::core_mask::{CoreMask, allowed_to, set_affinity};
use super::guardian::Watch;
use super::ledger::{self, CHANGES, Claim, Conflict, Entrant, HOLDERS, HolderId, Kind, Ledger, Locked, Table};
use super::recovery::{self, Recovered};
use super::thread::Tid;
use super::tree::{read_trimmed, write_existing};
use super::undo::{Errno, Patience, carry_out, flags, start_time};
use super::{KernelTree, heirs, refused};
use crate::Refusal;

/// What was changed and how to take it back. Clones share the records.
#[derive(Clone, Debug)]
pub struct Journal(Arc<Records>);

/// A point in the life of a [`Journal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u64);

#[derive(Debug)]
struct Records {
    ledger: Arc<Ledger>,
    holder: HolderId,
    /// When this journal wanted each change for the first time, by the change's place.
    since: Mutex<HashMap<usize, u64>>,
    /// Files that this journal has written, and not put back since: their originals are recorded.
    written: Mutex<HashSet<PathBuf>>,
    guardian: Option<Watch>,
    recovered: Recovered,
    /// A process forked by the user's code inherits this value, but not the duty.
    owner: u32,
}

impl Journal {
    /// A journal in this user's ledger, with a guardian if asked for; puts back what dead processes have left. Open it
    /// before loading much data: see `guardian.rs`.
    ///
    /// # Errors
    /// [`Refusal`] where there is no ledger to be had, no place in it, or the kernel refuses the process.
    pub fn open(guardian: bool) -> Result<Journal, Refusal> {
        Journal::open_in(&ledger::folder(), guardian)
    }

    /// As [`Journal::open`], in the ledger of that folder.
    ///
    /// # Errors
    /// As for [`Journal::open`].
    pub fn open_in(folder: &Path, guardian: bool) -> Result<Journal, Refusal> {
        Journal::within(Ledger::open(folder)?, guardian)
    }

    /// A journal in a ledger that no other process knows: for what needs no recovery.
    ///
    /// # Errors
    /// [`Refusal`] where the kernel refuses the memory.
    pub fn alone() -> Result<Journal, Refusal> {
        Journal::within(Ledger::alone()?, false)
    }

    fn within(ledger: Ledger, guardian: bool) -> Result<Journal, Refusal> {
        let ledger = Arc::new(ledger);
        let (holder, recovered) = {
            let mut table = ledger.lock()?;
            let recovered = recovery::recover(&mut table, Patience::Tries);
            (enter(&mut table)?, recovered)
        };
        let mut records = Records {
            ledger,
            holder,
            since: Mutex::default(),
            written: Mutex::default(),
            guardian: None,
            recovered,
            owner: std::process::id(),
        };
        if guardian {
            records.guardian = Some(Watch::start(&records.ledger, holder)?);
        }
        Ok(Journal(Arc::new(records)))
    }

    /// Whether a guardian is watching right now.
    pub fn guarded(&self) -> bool {
        self.0.guardian.as_ref().is_some_and(Watch::watching)
    }

    /// What processes that died without being able to put the machine back had left, when this journal was opened.
    pub fn recovered(&self) -> &Recovered {
        &self.0.recovered
    }

    /// Claims `cores` of those of the `machine` for this process alone, until they are released or all is restored.
    ///
    /// # Errors
    /// [`Refusal`] where another process claims one of them, or none would be left to others.
    pub fn claim(&self, cores: &[CoreId], machine: &[CoreId]) -> Result<(), Refusal> {
        let machine = machine.iter().copied().collect();
        self.claim_as(cores, Claim::Exclusive { machine })
    }

    /// Claims `core` for real-time work beside that of processes that do the same.
    ///
    /// # Errors
    /// [`Refusal`] where another process claims it for itself alone. Where one shares it, both have it, and the refusal
    /// tells so.
    pub fn share(&self, core: CoreId) -> Result<(), Refusal> {
        self.claim_as(&[core], Claim::Shared)?;
        self.sharers(&[core]).pop().map_or(Ok(()), Err)
    }

    /// Other processes that have real-time work on one of `cores`, told as refusals.
    pub fn sharers(&self, cores: &[CoreId]) -> Vec<Refusal> {
        let Ok(table) = self.0.ledger.lock() else {
            return Vec::new(); // what is only told can be left out
        };
        let others = table.holders().filter(|(id, _)| id.place != self.0.holder.place);
        let on = |holder: &ledger::Holder| cores.iter().copied().find(|core| holder.shared().has(*core));
        { others }
            .filter_map(|(_, holder)| Some(shared(on(holder)?, holder)))
            .collect()
    }

    fn claim_as(&self, cores: &[CoreId], claim: Claim) -> Result<(), Refusal> {
        let mut table = self.0.ledger.lock()?;
        recovery::recover(&mut table, Patience::Tries);
        let claimed = table.claim(self.0.holder, &cores.iter().copied().collect(), claim);
        claimed.map_err(|conflict| refuse_claim(&table, cores, conflict))
    }

    /// Gives up the claims to `cores`.
    pub fn release(&self, cores: &[CoreId]) {
        // A lock that is not to be had: the claims go with this journal.
        if let (Ok(mut table), true) = (self.0.ledger.lock(), self.0.owned()) {
            table.release(self.0.holder, &cores.iter().copied().collect());
        }
    }

    /// Writes `content` into the kernel file at `path`, having remembered how it was found.
    ///
    /// A file that this journal has written before is written without the ledger where another process or thread has
    /// that: a real-time thread that turns a knob waits for no ordinary one. Until the next write, what the ledger has
    /// for the newest wish is then the one before.
    ///
    /// # Errors
    /// [`Refusal`] where the file cannot be read or written; it is unchanged then.
    pub fn write(&self, path: &Path, content: &str) -> Result<(), Refusal> {
        let refusal = |why: std::io::Error| refuse_write(path, content, why);
        let mut table = match self.0.ledger.try_lock() {
            None if self.written().contains(path) => return write_existing(path, content).map_err(refusal),
            None => self.0.ledger.lock()?,
            Some(table) => table,
        };
        let change = self.join_file(&mut table, Kind::Write, path, content)?;
        if !table.wish(self.0.holder, change.place, content.as_bytes()) {
            self.withdraw(&mut table, change);
            return Err(full(path));
        }
        self.act(&mut table, change).map_err(refusal)?;
        let mut written = self.written();
        if !written.contains(path) {
            written.insert(path.to_owned());
        }
        Ok(())
    }

    /// Keeps work off the cores that this process claims, by the list of cores in the kernel file at `path`, where the
    /// list has `core`, one of them, or would have it without us; whether that is so.
    ///
    /// # Errors
    /// [`Refusal`] where the file cannot be read or written; it is unchanged then.
    pub fn keep_off_list(&self, path: &Path, core: CoreId) -> Result<bool, Refusal> {
        self.keep_off(Kind::OffList, path, core, |text| ledger::parse_list(text.as_bytes()))
    }

    /// As [`Journal::keep_off_list`], by a mask in hexadecimal words.
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

    /// Has the file at `path`, of a group of ours, list those of `cores` that no process which uses the group claims.
    ///
    /// # Errors
    /// [`Refusal`] where the file cannot be written.
    pub(super) fn list_unclaimed(&self, path: &Path, cores: &str) -> Result<(), Refusal> {
        let mut table = self.0.ledger.lock()?;
        let change = self.join(&mut table, Kind::OffList, path, cores.as_bytes())?;
        self.act(&mut table, change)
            .map_err(|why| refuse_write(path, UNCLAIMED, why))
    }

    /// Other living processes that claim cores for themselves alone, and these cores.
    pub(super) fn neighbours(&self) -> Vec<(i32, CoreMask)> {
        let Ok(table) = self.0.ledger.lock() else {
            return Vec::new(); // the next sweep asks again
        };
        let others = table.holders().filter(|(id, _)| id.place != self.0.holder.place);
        let others = others.filter(|(_, holder)| !holder.exclusive().is_empty());
        others.map(|(_, holder)| (holder.pid(), *holder.exclusive())).collect()
    }

    /// The processes that have a place in the ledger, this one included: each places its own threads.
    pub(super) fn processes(&self) -> Vec<i32> {
        let table = self.0.ledger.lock().ok(); // without it the next sweep asks again
        let places = table.iter().flat_map(|table| table.holders());
        places.map(|(_, holder)| holder.pid()).collect()
    }

    /// The cores that other processes claim for themselves alone, each with a refusal that names the process.
    pub fn claims_of_others(&self) -> Vec<(CoreId, Refusal)> {
        let Ok(table) = self.0.ledger.lock() else {
            return Vec::new(); // then the claim itself is refused
        };
        let others = table.holders().filter(|(id, _)| id.place != self.0.holder.place);
        let claims =
            others.flat_map(|(id, holder)| holder.exclusive().cores().into_iter().map(move |it| (it, id.place)));
        let told = |(core, by)| (core, refuse_claim(&table, &[core], Conflict::Claimed { core, by }));
        claims.map(told).collect()
    }

    /// Has the list of cores in the kernel file at `path` be `core` alone, which this process claims, also while others
    /// keep it off theirs.
    ///
    /// # Errors
    /// [`Refusal`] where the file cannot be read or written; it is unchanged then.
    pub fn list_only(&self, path: &Path, core: CoreId) -> Result<(), Refusal> {
        let list = core.to_string();
        let mut table = self.0.ledger.lock()?;
        let change = self.join_file(&mut table, Kind::OffList, path, &list)?;
        if !table.wish(self.0.holder, change.place, list.as_bytes()) {
            self.withdraw(&mut table, change);
            return Err(full(path));
        }
        self.act(&mut table, change)
            .map_err(|why| refuse_write(path, &list, why))
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

    /// Writes `on` into a kernel file that is not put back by its former content, but by writing `off`.
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

    /// As [`Journal::switch`], for a file that is on already: where another process has switched it on, it stays on as
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

    /// Makes a directory of the kernel's (a cgroup), to be removed again. One that is there already is taken over.
    ///
    /// # Errors
    /// [`Refusal`] where it cannot be made.
    pub fn make_dir(&self, path: &Path) -> Result<(), Refusal> {
        let mut table = self.0.ledger.lock()?;
        let change = self.join(&mut table, Kind::MakeDir, path, b"")?;
        match fs::create_dir(path) {
            Err(why) if why.kind() != std::io::ErrorKind::AlreadyExists => {
                self.withdraw(&mut table, change);
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
        let mut table = self.0.ledger.lock()?;
        self.join(&mut table, Kind::MoveTasks, from, to.as_os_str().as_bytes())
            .map(drop)
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
        let change = self.record_affinity(thread, found)?;
        set_affinity(thread, wanted).inspect_err(|_| {
            if let Ok(mut table) = self.0.ledger.lock() {
                self.withdraw(&mut table, change);
            }
        })
    }

    /// Records that `thread` is to run on the cores of `mask` again, unless something is recorded of it already.
    fn record_affinity(&self, thread: Tid, mask: &CoreMask) -> std::io::Result<Joined> {
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
        let mut table = self.0.ledger.lock().map_err(std::io::Error::other)?;
        if let Some(change) = find(&table, Kind::Affinity, &stat)
            && started_in(&table, change) != started
        {
            table.forget(change); // of a thread that has ended
        }
        let mut text = String::from_utf8_lossy(started).into_owned() + " ";
        mask.iter().for_each(|byte| text.push_str(&format!("{byte:02x}")));
        let joined = self.join(&mut table, Kind::Affinity, &stat, text.as_bytes());
        let joined = joined.or_else(|_| {
            forget_ended(&mut table);
            self.join(&mut table, Kind::Affinity, &stat, text.as_bytes())
        });
        joined.map_err(std::io::Error::other)
    }

    /// Makes a temporary folder in `within`, readable by this user only, to be removed with all that is in it.
    ///
    /// # Errors
    /// [`Refusal`] where it cannot be made.
    pub fn temporary_dir(&self, within: &Path) -> Result<PathBuf, Refusal> {
        // 64 random bits, so that the name recorded before the folder exists can belong to no other process.
        let name = RandomState::new().hash_one(std::process::id());
        let path = within.join(format!("punctual-{name:016x}"));
        let mut table = self.0.ledger.lock()?;
        let change = self.join(&mut table, Kind::MakeTree, &path, b"")?;
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(|why| {
            self.withdraw(&mut table, change);
            refused(
                format!("making the temporary folder {}", path.display()),
                why,
                "set TMPDIR to a folder that can be written",
            )
        })?;
        Ok(path)
    }

    /// Gives back every change, newest first, and every claim, and returns what could not be taken back; that stays
    /// recorded. In a process forked from the one that opened the journal it does nothing.
    pub fn restore(&self) -> Vec<Refusal> {
        self.restore_if(true, &|_, _| true)
    }

    /// Gives back the changes at and below `folder` alone, and no claim.
    pub fn restore_below(&self, folder: &Path) -> Vec<Refusal> {
        let folder = absolute(folder);
        self.restore_if(false, &|table, change| path_of(table, change).starts_with(&folder))
    }

    /// Where the journal stands, for [`Journal::restore_since`].
    pub fn mark(&self) -> Mark {
        // Without the lock nothing can be changed either.
        Mark(self.0.ledger.lock().map_or(u64::MAX, |mut table| table.next_serial()))
    }

    /// As [`Journal::restore_below`], for things that were changed for the first time since `mark`, by any thread.
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

    /// Has this journal want the file at `path` changed, as it is found now.
    fn join_file(&self, table: &mut Locked<'_>, kind: Kind, path: &Path, content: &str) -> Result<Joined, Refusal> {
        let original = match find(table, kind, path) {
            Some(_) => String::new(), // it is recorded
            // Files of the kernel's cannot be emptied by writing nothing.
            None => match read_trimmed(path).map_err(|why| refuse_write(path, content, why))? {
                found if found.is_empty() => "\n".into(),
                found => found,
            },
        };
        self.join(table, kind, path, original.as_bytes())
    }

    /// Records a change that is about to be made.
    fn join(&self, table: &mut Locked<'_>, kind: Kind, path: &Path, original: &[u8]) -> Result<Joined, Refusal> {
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
        Ok(Joined { place, new: !had })
    }

    /// Brings what was changed to what its holders want; withdraws this one where it cannot be done.
    fn act(&self, table: &mut Locked<'_>, change: Joined) -> std::io::Result<()> {
        let done = table.carry_out(change.place, &mut |step| carry_out(step, Patience::Tries));
        done.map_err(|errno| {
            self.withdraw(table, change);
            std::io::Error::from_raw_os_error(errno)
        })
    }

    fn withdraw(&self, table: &mut Locked<'_>, change: Joined) {
        if change.new {
            table.withdraw(self.0.holder.place, change.place);
        }
    }

    fn written(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.0.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn since(&self) -> MutexGuard<'_, HashMap<usize, u64>> {
        // Every entry is whole; a panic elsewhere must not keep the machine from being put back.
        self.0.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A change that this journal wants.
#[derive(Clone, Copy, Debug)]
struct Joined {
    place: usize,
    /// It did not before.
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
            // The process that opened the journal has the guardian's thread, this one has not.
            return std::mem::forget(guardian);
        }
        let mut left_over = Vec::new();
        if let Ok(mut table) = self.ledger.lock() {
            self.give_back(&mut table, true, &|_, _| true, &mut left_over);
            // What is left over is left to the guardian, which tries again at the end of the line without farewell,
            // and to the next recovery.
            if left_over.is_empty() || guardian.is_none() {
                table.strike(self.holder.place);
            }
        }
        if let (Some(guardian), true) = (guardian, left_over.is_empty()) {
            guardian.dismiss();
        }
    }
}

/// Enters this process as a holder.
fn enter(table: &mut Table) -> Result<HolderId, Refusal> {
    let refusal = |why: String| {
        refused(
            "taking a place in the ledger of changes",
            why,
            "end some of the programs that `punctual doctor` lists",
        )
    };
    let text = |file: &str| fs::read(file).unwrap_or_default();
    let (stat, name) = (text("/proc/self/stat"), text("/proc/self/comm"));
    let started = recovery::started(&stat).ok_or_else(|| refusal("/proc/self/stat cannot be read".into()))?;
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
    let what = format!(
        "claiming core{} {}",
        if wanted.len() == 1 { "" } else { "s" },
        list.join(",")
    );
    match conflict {
        Conflict::Claimed { core, by } => {
            let holder = table.holder_at(by);
            let name = holder.map_or_else(|| "another program".into(), named);
            refused(
                what,
                format!("{name} claims core {core} for itself alone"),
                "choose another core, wait until that program has ended, or see what each holds: punctual doctor",
            )
        }
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

fn shared(core: CoreId, holder: &ledger::Holder) -> Refusal {
    refused(
        format!("core {core} for the real-time work of this run only"),
        format!("{} has its real-time work there, so both will be late", named(holder)),
        "wait until it has ended, or run only one at a time on this machine",
    )
}

/// A holder as users know it.
fn named(holder: &ledger::Holder) -> String {
    format!("{} (process {})", holder.name().to_string_lossy(), holder.pid())
}

fn full(path: &Path) -> Refusal {
    refused(
        format!("changing {}", path.display()),
        format!("the ledger holds {CHANGES} changes with paths and contents below 512 bytes (values below 256)"),
        "shorten the path; if there are that many changes, this is a defect worth reporting",
    )
}

/// The change of that kind to `path`, of whichever holders.
fn find(table: &Table, kind: Kind, path: &Path) -> Option<usize> {
    table.find(kind, absolute(path).as_os_str().as_bytes(), b"")
}

fn path_of(table: &Table, change: usize) -> &Path {
    Path::new(OsStr::from_bytes(table.path(change).to_bytes()))
}

/// Forgets what is remembered of threads that have ended, for whichever holders.
fn forget_ended(table: &mut Table) {
    let ended = |change: &usize| {
        let stat = fs::read(path_of(table, *change)).unwrap_or_default();
        start_time(&stat) != Some(started_in(table, *change))
    };
    let threads = table
        .all_changes()
        .filter(|change| table.kind(*change) == Some(Kind::Affinity));
    let ended: Vec<usize> = threads.filter(ended).collect();
    ended.into_iter().for_each(|change| table.forget(change));
}

/// What is written into lists and masks that lose cores, for messages.
const UNCLAIMED: &str = "the cores that no process claims";

/// Set of threads whose cores no process may change (`PF_NO_SETAFFINITY` in the kernel's linux/sched.h).
const PF_NO_SETAFFINITY: u32 = 0x0400_0000;

/// When the thread of an affinity record started.
fn started_in(table: &Table, change: usize) -> &[u8] {
    ledger::affinity(table.original(change).to_bytes()).map_or(b"", |(started, _)| started)
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

/// What could not be put back, and how to do it by hand.
pub(super) fn left_changed(table: &Table, change: usize, errno: Errno) -> Refusal {
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

#[cfg(test)]
mod tests;
