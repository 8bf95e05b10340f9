//! The ledger's table: the cores and announced tasks of each holder, and each change with its holders and its original
//! value.
//!
//! **Terms.** A *holder* is a process that keeps cores or turns knobs. A *change* is one thing of the machine (a file,
//! a thread, a group), with its original value and the set of holders that want it changed. **Method.** The thing's
//! value at any time is a function of the original and of those holders ([`Table::step`]): a set of cores loses all
//! cores that they claim; a plain value is their newest wish. So the order in which holders leave does not matter: the
//! last one to leave restores the original.
//!
//! The steps decide, the caller acts: [`Table::give_back`] hands each [`LedgerAction`] to a function that carries it
//! out (`undo.rs`; a map in tests). A thing gets its next value *before* the holder is removed from it, and each entry
//! is made and removed by one store: if a process dies between any two instructions, the next one can go on from the
//! table.
//!
//! Everything here also runs in the guardian: no allocation, no lock, no panic (see `undo.rs`).

use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use punctual_units::{CoreId, Nanos};

use super::super::core_mask::CoreMask;
use super::super::undo::{Errno, hash_of, until_zero};
use super::text::{TEXT_BYTES, number, parse_list, print_list, print_words};

mod tasks;

/// Upper bound on holders, including the entry [`LEFT`] for changes that dead processes have left.
pub(crate) const HOLDERS: usize = 64;
/// Upper bound on changes at the same time: two files for each of 256 cpufreq policies, and the affinities of as many
/// threads as a busy desktop has.
pub(crate) const CHANGES: usize = 4096;
/// Upper bound on plain values wished for at the same time: four files of 256 cpufreq policies, by two holders.
pub(crate) const WISHES: usize = 2048;
/// Upper bound on announced tasks at the same time: those of four runtimes that are full.
pub(crate) const TASKS: usize = 1024;
/// Attempts at a failing write: as many as groups are nested, if they were recorded in the worst order.
const WRITE_PASSES: usize = 8;
/// Longest path, with its terminating zero, in bytes: several times that of a user's cgroup under systemd.
pub(crate) const PATH_BYTES: usize = 512;
/// Longest plain value, with its terminating zero, in bytes.
const WISH_BYTES: usize = 256;
/// Longest name of a process, with its terminating zero, in bytes (proc_pid_comm(5)).
const NAME_BYTES: usize = 16;
/// Longest affinity mask in hexadecimal digits: for 1024 cores.
const MASK_DIGITS: usize = 2 * libc::CPU_SETSIZE as usize / 8;
/// Index that stands for the holder of a change that could not be undone when its last holder left. No process has it,
/// so the next recovery tries again.
pub(crate) const LEFT: usize = 0;

/// Kinds of changed things; the kind decides the thing's value and how it is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// A file with a plain value: the newest holder's wish, else the original.
    Write = 1,
    /// A file that was switched on: it stays on as long as a holder wants it; then the original is written, which
    /// switches it off.
    Switch = 2,
    /// A file with a list of cores: the wish of the newest holder that has one; else the original without the claimed
    /// cores; if no core would be left, the cores that no holder claims.
    OffList = 3,
    /// A file with a mask of cores, in hexadecimal words: treated as a list.
    OffWords = 4,
    /// A file with a list of cores: the original cores and the claimed ones.
    OnList = 5,
    /// The affinity of a thread, named by the path of its `stat`; treated as a list. The original is the thread's start
    /// time, a blank, and the mask as hexadecimal bytes.
    Affinity = 6,
    /// A group to which tasks were moved: undoing moves every task listed in the file at the path to the file in the
    /// text.
    MoveTasks = 7,
    /// A directory of the kernel's: undoing removes it; it is empty by then.
    MakeDir = 8,
    /// A directory of this user: undoing removes it with its content.
    MakeTree = 9,
    /// The scheduling of a thread, named by the path of its `stat`. The original is the thread's start time, its policy
    /// and its priority, as numbers with blanks between.
    Scheduling = 10,
    /// A word of a file that stands for the process that has the file locked (flock(2)): undoing sets it to 0. The
    /// original is the file's user and the place of the four bytes, as numbers with a blank between.
    LockedWord = 11,
}

impl Kind {
    const ALL: [Kind; 11] = [
        Kind::Write,
        Kind::Switch,
        Kind::OffList,
        Kind::OffWords,
        Kind::OnList,
        Kind::Affinity,
        Kind::MoveTasks,
        Kind::MakeDir,
        Kind::MakeTree,
        Kind::Scheduling,
        Kind::LockedWord,
    ];

    /// Whether undoing is a write to a file, which may succeed once other changes are undone.
    fn is_write(self) -> bool {
        matches!(
            self,
            Kind::Write | Kind::Switch | Kind::OffList | Kind::OffWords | Kind::OnList
        )
    }
}

/// How the content of a file is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Text,
    /// A list of cores.
    List,
    /// A mask of cores, in hexadecimal words.
    Words,
}

/// Hash of the value that a thing had after the last action on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastValue<'a>(&'a AtomicU64);

impl LastValue<'_> {
    /// A value that is not known. It is not compared.
    pub(crate) const UNKNOWN: u64 = 0;
    /// A value that changes without another program. It is not compared, and no later one is noted.
    const VARIES: u64 = u64::MAX;

    /// The hash; `None` if the value is not compared.
    pub(crate) fn get(self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire)).filter(|hash| ![Self::UNKNOWN, Self::VARIES].contains(hash))
    }

    /// Notes that the thing has a value with this hash.
    pub(crate) fn set(self, hash: u64) {
        if self.0.load(Ordering::Acquire) != Self::VARIES {
            self.0.store(hash, Ordering::Release);
        }
    }

    /// Notes that the thing's value is not compared from now on.
    pub(crate) fn varies(self) {
        self.0.store(Self::VARIES, Ordering::Release);
    }
}

/// Result of an action whose thing has another value than it was given last: another program has changed it since, and
/// it was left as it is.
pub(crate) const NOT_OURS: Errno = libc::ESTALE;

/// An action that gives a thing its next value, if it has its last one still. The action notes the next one as the
/// last; in between none is known, so that a process can end at any instant.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LedgerAction<'a> {
    /// Leaves the thing unchanged.
    Keep,
    Write {
        path: &'a CStr,
        text: &'a [u8],
        content: Content,
        last: LastValue<'a>,
        /// The text that was written last; empty where it is not recorded.
        wish: &'a [u8],
        /// Hash of the set of cores that the present holders give the file; [`LastValue::UNKNOWN`] for other kinds.
        expected: u64,
    },
    Affinity {
        stat: &'a CStr,
        started: &'a [u8],
        mask: CoreMask,
        last: LastValue<'a>,
    },
    Scheduling {
        stat: &'a CStr,
        started: &'a [u8],
        policy: i32,
        priority: i32,
        last: LastValue<'a>,
    },
    MoveTasks {
        from: &'a CStr,
        to: &'a CStr,
    },
    RemoveDir {
        path: &'a CStr,
    },
    RemoveTree {
        path: &'a CStr,
    },
    /// Sets four bytes of a file to 0, unless a process has it locked.
    ClearWord {
        path: &'a CStr,
        user: libc::uid_t,
        at: libc::off_t,
    },
}

/// A process that holds cores or changes.
#[repr(C)]
pub(crate) struct Holder {
    /// Serial number of the holder; 0: the entry is free.
    id: AtomicU64,
    pid: i32,
    /// Start time of the process, in ticks since boot: distinguishes it from a later one of the same number.
    started: u64,
    name: [u8; NAME_BYTES],
    exclusive: CoreMask,
    /// Not 0: it has announced tasks, perhaps none.
    announced: u32,
    /// The process that announced tasks last on a core with tasks of this holder; 0: none did.
    joined_by: i32,
    joined_core: u32,
    joined_name: [u8; NAME_BYTES],
    /// All cores of the machine, as this holder knows it.
    machine: CoreMask,
}

/// A holder, distinguished from a later one at the same index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HolderId {
    pub(crate) place: usize,
    number: u64,
}

/// A process that asks to be entered as a holder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entrant<'a> {
    pub(crate) pid: i32,
    /// Start time, in ticks since boot.
    pub(crate) started: u64,
    /// Cut to `NAME_BYTES` - 1 bytes.
    pub(crate) name: &'a [u8],
}

/// Real-time work on one core that is not exclusive, as its process announces it to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnouncedTask {
    pub core: CoreId,
    /// Longest time that one job keeps the core; `None`: unknown.
    pub execution: Option<Nanos>,
    /// From a job's release.
    pub deadline: Nanos,
    /// Least time between two releases.
    pub period: Nanos,
}

#[repr(C)]
struct Task {
    /// Index of the holder; 0: the entry is free.
    holder: AtomicU32,
    core: u32,
    /// The times in nanoseconds; an execution time of 0 is unknown.
    execution: u64,
    deadline: u64,
    period: u64,
    /// Serial number of the announcement since which the holder has had tasks on this core.
    since: u64,
}

#[repr(C)]
struct Change {
    /// The holders that want the change, a bit each; 0: the entry is free.
    holders: AtomicU64,
    /// Serial number of the entry: later entries have higher ones.
    serial: u64,
    /// See [`LastValue`].
    last: AtomicU64,
    kind: u32,
}

#[repr(C)]
struct Texts {
    path: [u8; PATH_BYTES],
    original: [u8; TEXT_BYTES],
}

#[repr(C)]
struct Wish {
    /// Index of the holder; 0: the entry is free.
    holder: AtomicU32,
    change: u32,
    serial: u64,
    text: [u8; WISH_BYTES],
}

/// The table, in shared memory. All zeros is an empty one.
#[repr(C)]
pub(crate) struct Table {
    /// Serial number, raised by each entry and each step of progress: see [`Table::goes_on`].
    serial: AtomicU64,
    /// Number of leading entries of `changes` that were ever used.
    used: u64,
    holders: [Holder; HOLDERS],
    changes: [Change; CHANGES],
    wishes: [Wish; WISHES],
    tasks: [Task; TASKS],
    texts: [Texts; CHANGES],
}

impl Table {
    /// Offset of the number that [`Table::goes_on`] raises, in bytes.
    pub(super) const GOES_ON_AT: usize = std::mem::offset_of!(Table, serial);
}

/// Reason why a core cannot be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conflict {
    /// The holder at index `by` claims the core.
    Claimed { core: CoreId, by: usize },
    /// A task of the holder at index `by`, of another process, runs on the core.
    Occupied { core: CoreId, by: usize },
    /// No core would be left unclaimed.
    NoneLeft,
    /// The table no longer has the holder.
    Gone,
}

impl Wish {
    /// Holder and change; the holder is 0 where there is no wish.
    fn of(&self) -> (usize, usize) {
        (self.holder.load(Ordering::Acquire) as usize, self.change as usize)
    }
}

impl Holder {
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    pub(crate) fn name(&self) -> &CStr {
        until_zero(&self.name)
    }

    pub(crate) fn exclusive(&self) -> &CoreMask {
        &self.exclusive
    }

    /// Whether the holder has announced its tasks, even if these are none.
    pub(crate) fn has_announced(&self) -> bool {
        self.announced != 0
    }

    /// The process that announced tasks last on a core of this holder's tasks: its name, number and that core.
    pub(crate) fn joined(&self) -> Option<(&CStr, i32, CoreId)> {
        let joined = (until_zero(&self.joined_name), self.joined_by, CoreId(self.joined_core));
        (self.joined_by != 0).then_some(joined)
    }
}

impl Table {
    /// Enters a holder; `None` if all entries are taken.
    pub(crate) fn enter(&mut self, entrant: Entrant<'_>) -> Option<HolderId> {
        let serial = self.next_serial();
        let places = self.holders.iter_mut().enumerate().skip(LEFT.saturating_add(1));
        let (place, holder) = { places }.find(|(_, holder)| holder.id.load(Ordering::Acquire) == 0)?;
        holder.pid = entrant.pid;
        holder.started = entrant.started;
        let name = entrant.name.get(..NAME_BYTES - 1).unwrap_or(entrant.name);
        fill(&mut holder.name, name);
        (holder.exclusive, holder.machine) = (CoreMask::default(), CoreMask::default());
        (holder.announced, holder.joined_by) = (0, 0);
        holder.id.store(serial, Ordering::Release);
        Some(HolderId { place, number: serial })
    }

    /// All holders, with their indices and numbers.
    pub(crate) fn holders(&self) -> impl Iterator<Item = (HolderId, &Holder)> {
        let entered = |(place, holder): (usize, &'_ Holder)| match holder.id.load(Ordering::Acquire) {
            0 => None,
            number => Some(HolderId { place, number }),
        };
        let places = self.holders.iter().enumerate();
        places.filter_map(move |(place, holder)| Some((entered((place, holder))?, holder)))
    }

    /// The holder at index `place`.
    pub(crate) fn holder_at(&self, place: usize) -> Option<&Holder> {
        self.holders
            .get(place)
            .filter(|holder| holder.id.load(Ordering::Acquire) != 0)
    }

    /// Whether the table still has this holder.
    pub(crate) fn knows(&self, id: HolderId) -> bool {
        let holder = self.holders.get(id.place);
        holder.is_some_and(|holder| holder.id.load(Ordering::Acquire) == id.number)
    }

    fn holder(&mut self, id: HolderId) -> Option<&mut Holder> {
        let known = self.knows(id);
        self.holders.get_mut(id.place).filter(|_| known)
    }

    /// Claims `cores` for the holder alone, or names the conflict. `machine` is all cores, of which at least one must
    /// be left.
    pub(crate) fn claim(&mut self, id: HolderId, cores: &CoreMask, machine: &CoreMask) -> Result<(), Conflict> {
        let clash = |holder: &Holder| holder.exclusive.first_shared(cores);
        let others = self.holders().filter(|(other, _)| other.place != id.place);
        if let Some((core, by)) = { others }.find_map(|(other, holder)| Some((clash(holder)?, other.place))) {
            return Err(Conflict::Claimed { core, by });
        }
        let pid = self.holder(id).ok_or(Conflict::Gone)?.pid;
        if let Some((by, task)) = self.tasks_of_others(pid).find(|(_, task)| cores.has(task.core)) {
            return Err(Conflict::Occupied { core: task.core, by });
        }
        if machine.without(&self.claimed()).without(cores).is_empty() {
            return Err(Conflict::NoneLeft);
        }
        let holder = self.holder(id).ok_or(Conflict::Gone)?;
        holder.machine = *machine;
        holder.exclusive = holder.exclusive.with(cores);
        Ok(())
    }

    /// Withdraws the holder's claims to `cores`.
    pub(crate) fn release(&mut self, id: HolderId, cores: &CoreMask) {
        if let Some(holder) = self.holder(id) {
            holder.exclusive = holder.exclusive.without(cores);
        }
    }

    /// All cores that are claimed exclusively.
    pub(crate) fn claimed(&self) -> CoreMask {
        let claims = self.holders().map(|(_, holder)| &holder.exclusive);
        claims.fold(CoreMask::default(), |all, claim| all.with(claim))
    }

    /// Withdraws all claims and announced tasks of the holder at `place`, before its changes are undone: the cores that
    /// its threads get back then include these.
    pub(crate) fn release_all(&mut self, place: usize) {
        self.withdraw_tasks(place);
        if let Some(holder) = self.holders.get_mut(place) {
            (holder.exclusive, holder.announced) = (CoreMask::default(), 0);
        }
    }

    /// Removes a holder after its changes were undone. Changes that could not be undone stay, held by `LEFT`.
    pub(crate) fn strike(&mut self, place: usize) {
        self.withdraw_tasks(place);
        for change in 0..self.used() {
            if self.wants(change, place) {
                let holders = self.wanted_by(change);
                self.set_holders(change, holders & !bit(place) | bit(LEFT));
            }
        }
        self.drop_wishes(|holder, _| holder == place);
        if let Some(holder) = self.holders.get_mut(place) {
            holder.id.store(0, Ordering::Release);
        }
    }
}

impl Table {
    /// The current serial number: later entries have this number or a higher one.
    pub(crate) fn next_serial(&mut self) -> u64 {
        self.goes_on();
        self.serial.load(Ordering::Relaxed)
    }

    /// Shows processes that wait for the lock that this one makes progress.
    pub(crate) fn goes_on(&self) {
        self.serial.fetch_add(1, Ordering::Relaxed);
    }

    /// The change of that kind to `path`. Switches of one path also differ by the text that switches them off.
    pub(crate) fn find(&self, kind: Kind, path: &[u8], off: &[u8]) -> Option<usize> {
        let same = |change: &usize| {
            self.kind(*change) == Some(kind)
                && self.wanted_by(*change) != 0
                && self.path(*change).to_bytes() == path
                && (kind != Kind::Switch || self.original(*change).to_bytes() == off)
        };
        (0..self.used()).find(same)
    }

    /// Adds the holder to the change of the thing. `original` counts only if no other holder wants the thing changed
    /// already. `None` if the table is full or a text is too long.
    pub(crate) fn join(&mut self, id: HolderId, kind: Kind, path: &[u8], original: &[u8]) -> Option<usize> {
        if !self.knows(id) {
            return None;
        }
        if let Some(change) = self.find(kind, path, original) {
            let holders = self.wanted_by(change);
            self.set_holders(change, holders | bit(id.place));
            return Some(change);
        }
        if path.len() >= PATH_BYTES || original.len() >= TEXT_BYTES || path.contains(&0) || original.contains(&0) {
            return None;
        }
        let serial = self.next_serial();
        let place = self
            .changes
            .iter()
            .position(|change| change.holders.load(Ordering::Acquire) == 0)?;
        let (change, texts) = (self.changes.get_mut(place)?, self.texts.get_mut(place)?);
        change.serial = serial;
        change.last.store(LastValue::UNKNOWN, Ordering::Release);
        change.kind = kind as u32;
        fill(&mut texts.path, path);
        fill(&mut texts.original, original);
        self.used = self.used.max(place as u64 + 1);
        self.set_holders(place, bit(id.place));
        Some(place)
    }

    /// Records the plain value that the holder wants; returns whether there was room for it.
    pub(crate) fn wish(&mut self, id: HolderId, change: usize, text: &[u8]) -> bool {
        if text.len() >= WISH_BYTES || text.contains(&0) {
            return false;
        }
        let serial = self.next_serial();
        let its = self.wishes.iter().position(|wish| wish.of() == (id.place, change));
        let free = || self.wishes.iter().position(|wish| wish.of().0 == 0);
        let Some(wish) = its.or_else(free).and_then(|place| self.wishes.get_mut(place)) else {
            return false;
        };
        wish.change = change as u32;
        wish.serial = serial;
        fill(&mut wish.text, text);
        wish.holder.store(id.place as u32, Ordering::Release);
        true
    }

    /// Removes the holder from the change, without an action on the thing.
    pub(crate) fn withdraw(&mut self, place: usize, change: usize) {
        self.drop_wishes(|holder, of| (holder, of) == (place, change));
        let holders = self.wanted_by(change);
        self.set_holders(change, holders & !bit(place));
    }

    /// Removes a change without undoing it: the thing no longer exists.
    pub(crate) fn forget(&mut self, change: usize) {
        self.drop_wishes(|_, of| of == change);
        self.set_holders(change, 0);
    }

    /// Removes the wishes for which `meant(holder, change)` holds.
    fn drop_wishes(&self, meant: impl Fn(usize, usize) -> bool) {
        let its = self.wishes.iter().filter(|wish| meant(wish.of().0, wish.of().1));
        its.for_each(|wish| wish.holder.store(0, Ordering::Release));
    }

    /// The value that the thing had after the last action on it.
    pub(crate) fn last(&self, change: usize) -> Option<LastValue<'_>> {
        Some(LastValue(&self.changes.get(change)?.last))
    }

    /// As [`Table::last`], of the table at `table`.
    ///
    /// # Safety
    /// The table must be mapped for as long as the result lives; all other accesses to the entry must be atomic.
    pub(super) unsafe fn last_at<'a>(table: *const Table, change: usize) -> Option<LastValue<'a>> {
        if change >= CHANGES {
            return None;
        }
        // SAFETY: by contract, and the index is within the array.
        Some(LastValue(unsafe {
            &(*(&raw const (*table).changes).cast::<Change>().add(change)).last
        }))
    }

    /// Gives the thing the value that its holders want, whatever another program has made of it.
    pub(crate) fn carry_out(
        &self,
        change: usize,
        act: &mut dyn FnMut(LedgerAction<'_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        if let Some(last) = self.last(change) {
            last.set(LastValue::UNKNOWN);
        }
        self.carry_out_for(change, self.wanted_by(change), act)
    }

    fn carry_out_for(
        &self,
        change: usize,
        holders: u64,
        act: &mut dyn FnMut(LedgerAction<'_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut text = [0; TEXT_BYTES];
        act(self.step(change, holders, &mut text).ok_or(libc::EOVERFLOW)?)
    }

    /// Removes the holder at `place` from every change that is `meant`, newest first: each thing gets the value that
    /// the other holders want, or its original. `failed` gets each change that could not be undone, which stays
    /// recorded, and with [`NOT_OURS`] each thing that another program has changed since, which does not. Failed writes
    /// are tried again after all others: a group may have a core again only after the groups around it.
    pub(crate) fn give_back(
        &mut self,
        place: usize,
        meant: &dyn Fn(&Table, usize) -> bool,
        act: &mut dyn FnMut(LedgerAction<'_>) -> Result<(), Errno>,
        failed: &mut dyn FnMut(&Table, usize, Errno),
    ) {
        let mut order = [0u16; CHANGES];
        let count = self.newest_first(place, meant, &mut order);
        for pass in 1..=WRITE_PASSES {
            for change in order.iter().take(count).map(|change| usize::from(*change)) {
                let write = self.kind(change).is_some_and(Kind::is_write);
                if !self.wants(change, place) || pass > 1 && !write {
                    continue;
                }
                let rest = self.wanted_by(change) & !bit(place);
                self.goes_on();
                match self.carry_out_for(change, rest, act) {
                    // A thing that no longer exists needs no undoing.
                    Ok(()) | Err(libc::ENOENT | libc::ENODEV) => self.withdraw(place, change),
                    Err(NOT_OURS) => {
                        failed(self, change, NOT_OURS);
                        self.withdraw(place, change);
                    }
                    Err(_) if write && pass < WRITE_PASSES => {}
                    Err(errno) => failed(self, change, errno),
                }
            }
        }
    }

    fn newest_first(&self, place: usize, meant: &dyn Fn(&Table, usize) -> bool, order: &mut [u16; CHANGES]) -> usize {
        let its = (0..self.used()).filter(|change| self.wants(*change, place) && meant(self, *change));
        let mut count = 0usize;
        for (room, change) in order.iter_mut().zip(its) {
            *room = u16::try_from(change).unwrap_or(u16::MAX);
            count = count.saturating_add(1);
        }
        let serial = |change: &u16| self.changes.get(usize::from(*change)).map_or(0, |change| change.serial);
        if let Some(order) = order.get_mut(..count) {
            order.sort_unstable_by_key(|change| std::cmp::Reverse(serial(change)));
        }
        count
    }

    /// The action for `change` when `holders` want it; `None` if its text is invalid or too long.
    fn step<'a>(&'a self, change: usize, holders: u64, text: &'a mut [u8; TEXT_BYTES]) -> Option<LedgerAction<'a>> {
        let (path, original) = (self.path(change), self.original(change).to_bytes());
        let claimed = self.claimed_by(holders);
        let off = |mask| self.off(mask, holders);
        let last = self.last(change)?;
        let kind = self.kind(change)?;
        let write = |text: &'a [u8]| {
            let content = match kind {
                Kind::OffList | Kind::OnList => Content::List,
                Kind::OffWords => Content::Words,
                _ => Content::Text,
            };
            let wish = self.newest_wish(change, self.wanted_by(change)).unwrap_or_default();
            Some(LedgerAction::Write {
                path,
                text,
                content,
                last,
                wish,
                expected: self.expected(change).map_or(LastValue::UNKNOWN, |mask| hash_of(&mask)),
            })
        };
        let wanted = holders & !bit(LEFT) != 0;
        match kind {
            Kind::Write => write(self.newest_wish(change, holders).unwrap_or(original)),
            Kind::Switch | Kind::MoveTasks | Kind::MakeDir | Kind::MakeTree | Kind::Scheduling | Kind::LockedWord
                if wanted =>
            {
                Some(LedgerAction::Keep)
            }
            Kind::OffList | Kind::OffWords | Kind::OnList if !wanted => write(original),
            Kind::Switch => write(original),
            Kind::OffList => {
                if let Some(wish) = self.newest_wish(change, holders) {
                    return write(wish);
                }
                write(print_list(&off(parse_list(original)?), text)?)
            }
            Kind::OffWords => {
                let mask = CoreMask::parse(std::str::from_utf8(original).ok()?)?;
                let words = original.split(|byte| *byte == b',').count();
                write(print_words(&off(mask), words, text)?)
            }
            Kind::OnList => write(print_list(&parse_list(original)?.with(&claimed), text)?),
            Kind::Affinity => {
                let (started, mask) = affinity(original)?;
                let mask = if wanted { off(mask) } else { mask };
                Some(LedgerAction::Affinity {
                    stat: path,
                    started,
                    mask,
                    last,
                })
            }
            Kind::Scheduling => {
                let (started, policy, priority) = scheduling(original)?;
                Some(LedgerAction::Scheduling {
                    stat: path,
                    started,
                    policy,
                    priority,
                    last,
                })
            }
            Kind::MoveTasks => Some(LedgerAction::MoveTasks {
                from: path,
                to: self.original(change),
            }),
            Kind::MakeDir => Some(LedgerAction::RemoveDir { path }),
            Kind::MakeTree => Some(LedgerAction::RemoveTree { path }),
            Kind::LockedWord => {
                let mut words = original.split(|byte| *byte == b' ').map(number);
                Some(LedgerAction::ClearWord {
                    path,
                    user: words.next()??,
                    at: words.next()??.into(),
                })
            }
        }
    }

    /// `mask` without the cores that `holders` claim; where that leaves none, all others.
    fn off(&self, mask: CoreMask, holders: u64) -> CoreMask {
        match mask.without(&self.claimed_by(holders)) {
            left if left.is_empty() => self.unclaimed(holders),
            left => left,
        }
    }

    /// The set of cores that the present holders give the file; `None` for other kinds.
    fn expected(&self, change: usize) -> Option<CoreMask> {
        let (holders, original) = (self.wanted_by(change), self.original(change).to_bytes());
        match self.kind(change)? {
            Kind::OffList => Some(self.off(parse_list(original)?, holders)),
            Kind::OffWords => Some(self.off(CoreMask::parse(std::str::from_utf8(original).ok()?)?, holders)),
            Kind::OnList => Some(parse_list(original)?.with(&self.claimed_by(holders))),
            _ => None,
        }
    }

    /// The affinity that the change gives its thread now, and the one after the holder at `place` leaves; `None` for
    /// other kinds.
    pub(crate) fn narrowed(&self, change: usize, place: usize) -> Option<(CoreMask, CoreMask)> {
        let wanted = self.wanted_by(change);
        let mask = |holders| {
            let mut text = [0; TEXT_BYTES];
            match self.step(change, holders, &mut text)? {
                LedgerAction::Affinity { mask, .. } => Some(mask),
                _ => None,
            }
        };
        Some((mask(wanted)?, mask(wanted & !bit(place))?))
    }

    /// Whether the holder at `place` has moved threads into or out of a group whose path satisfies `is_meant`.
    pub(crate) fn moves_tasks(&self, place: usize, is_meant: fn(&CStr) -> bool) -> bool {
        let moved = |change: &usize| self.kind(*change) == Some(Kind::MoveTasks);
        let mut moves = self.changes_of(place).filter(moved);
        moves.any(|change| is_meant(self.path(change)))
    }

    /// The cores that these holders claim exclusively.
    fn claimed_by(&self, holders: u64) -> CoreMask {
        let theirs = self.holders().filter(|(id, _)| holders & bit(id.place) != 0);
        theirs.fold(CoreMask::default(), |all, (_, holder)| all.with(&holder.exclusive))
    }

    /// The cores of the machine, as these holders know it, without all exclusively claimed ones.
    fn unclaimed(&self, holders: u64) -> CoreMask {
        let theirs = self.holders().filter(|(id, _)| holders & bit(id.place) != 0);
        let machine = theirs.fold(CoreMask::default(), |all, (_, holder)| all.with(&holder.machine));
        machine.without(&self.claimed())
    }

    fn newest_wish(&self, change: usize, holders: u64) -> Option<&[u8]> {
        let is_meant = |(holder, of): (usize, usize)| holder != 0 && holders & bit(holder) != 0 && of == change;
        let its = self.wishes.iter().filter(|wish| is_meant(wish.of()));
        let newest = its.max_by_key(|wish| wish.serial)?;
        Some(until_zero(&newest.text).to_bytes())
    }

    fn used(&self) -> usize {
        usize::try_from(self.used).unwrap_or(CHANGES).min(CHANGES)
    }

    /// The changes that the holder at `place` wants.
    pub(crate) fn changes_of(&self, place: usize) -> impl Iterator<Item = usize> {
        (0..self.used()).filter(move |change| self.wants(*change, place))
    }

    /// The changes of all holders, `LEFT` included.
    pub(crate) fn all_changes(&self) -> impl Iterator<Item = usize> {
        (0..self.used()).filter(|change| self.wanted_by(*change) != 0)
    }

    /// Whether the holder at `place` wants the change.
    pub(crate) fn wants(&self, change: usize, place: usize) -> bool {
        self.wanted_by(change) & bit(place) != 0
    }

    fn wanted_by(&self, change: usize) -> u64 {
        let holders = self.changes.get(change).map(|change| &change.holders);
        holders.map_or(0, |holders| holders.load(Ordering::Acquire))
    }

    fn set_holders(&mut self, change: usize, holders: u64) {
        if let Some(change) = self.changes.get(change) {
            change.holders.store(holders, Ordering::Release);
        }
    }

    pub(crate) fn kind(&self, change: usize) -> Option<Kind> {
        let number = self.changes.get(change)?.kind;
        Kind::ALL.into_iter().find(|kind| *kind as u32 == number)
    }

    pub(crate) fn path(&self, change: usize) -> &CStr {
        self.texts.get(change).map_or(c"", |texts| until_zero(&texts.path))
    }

    /// The thing's original value; for a switch the text that switches it off, for tasks the file that they go back to.
    pub(crate) fn original(&self, change: usize) -> &CStr {
        self.texts.get(change).map_or(c"", |texts| until_zero(&texts.original))
    }
}

/// Parses the original of a [`Kind::Affinity`]: the thread's start time, and its mask.
pub(crate) fn affinity(original: &[u8]) -> Option<(&[u8], CoreMask)> {
    let blank = original.iter().position(|byte| *byte == b' ')?;
    let (started, digits) = (original.get(..blank)?, original.get(blank.checked_add(1)?..)?);
    let mut mask = CoreMask::default();
    for (number, digit) in digits.iter().take(MASK_DIGITS).enumerate() {
        let digit = char::from(*digit).to_digit(16)?;
        // The lowest byte comes first, and in each byte the higher digit.
        let lowest = u32::try_from(number / 2).ok()?.checked_mul(8)?;
        let lowest = lowest.checked_add(if number % 2 == 0 { 4 } else { 0 })?;
        for at in (0..4).filter(|at| digit >> at & 1 == 1) {
            mask.set(CoreId(lowest.checked_add(at)?), true);
        }
    }
    Some((started, mask))
}

/// Parses the original of a [`Kind::Scheduling`]: the thread's start time, its policy and its priority.
pub(crate) fn scheduling(original: &[u8]) -> Option<(&[u8], i32, i32)> {
    let mut words = original.split(|byte| *byte == b' ');
    let started = words.next()?;
    let mut next = || i32::try_from(number(words.next()?)?).ok();
    Some((started, next()?, next()?))
}

fn bit(place: usize) -> u64 {
    u32::try_from(place)
        .ok()
        .and_then(|place| 1u64.checked_shl(place))
        .unwrap_or(0)
}

fn fill(field: &mut [u8], bytes: &[u8]) {
    field.fill(0);
    field.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
}
