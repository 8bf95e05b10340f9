//! Borrowers of an exclusive core while it is lent (`Lendee`): threads of this process, and groups that the user names.
//!
//! **Problem.** A program that sizes its thread pool by its affinity breaks when that changes: beside leases that
//! changed every thread's affinity, linking failed in 28 of 289 runs (docs/guide/dual.md). **Method.** A lease changes
//! the affinity of borrowers only; all other threads lose the exclusive cores once, when they are taken, and get them
//! back once, at the end.
//!
//! - A *thread* of ours is kept off the exclusive cores by its own affinity. While core `c` is lent, its *residents*,
//!   an equal part of the threads, run on `c` alone: the kernel moves them there at once, where its load balancer would
//!   take milliseconds. The others may run there too.
//! - A *group* gets a new list of cores, through a descriptor that stays open. The load balancer decides which of its
//!   threads use the core, and how soon.
//!
//! Nothing here allocates once the borrowers are known, because the real-time thread lends and takes back.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use punctual_custody::core_mask::{CoreMask, affinity_of, set_affinity};
use punctual_os::linux::sync::PiMutex;
use punctual_units::CoreId;

use super::super::thread::Tid;

/// Longest list of cores that is written, in bytes: 1024 cores, each with its comma.
const LIST_BYTES: usize = 5 * 1024;

/// All borrowers of the exclusive cores of one process.
#[derive(Debug)]
pub(super) struct Lendees {
    exclusive: Vec<CoreId>,
    /// The non-exclusive cores that threads of ours may use.
    others: CoreMask,
    others_len: usize,
    known: PiMutex<BorrowerList>,
}

#[derive(Debug, Default)]
struct BorrowerList {
    /// In the order in which longer lists are written: outer groups first.
    groups: Vec<Group>,
    threads: Vec<Tid>,
    /// For each exclusive core, whether it is lent.
    lent: Vec<bool>,
    /// Cores that other processes claim exclusively.
    elsewhere: CoreMask,
}

/// A control group that borrows the cores.
#[derive(Debug)]
struct Group {
    /// The group's file `cpuset.cpus`, open for writing.
    cpus: File,
    /// The group's cores before the exclusive ones were taken.
    cores: Vec<CoreId>,
}

/// A thread that borrows the cores until this is dropped; then its former affinity is restored.
#[derive(Debug)]
pub struct Lendee {
    lendees: Arc<Lendees>,
    thread: Tid,
    /// The thread's former affinity.
    found: CoreMask,
}

impl Lendees {
    /// Makes the borrowers of `exclusive` cores, without threads; threads of this process may also use `others`.
    /// `groups` are files `cpuset.cpus`, the outer groups first, with the cores that each group had.
    pub(super) fn new(
        exclusive: &[CoreId],
        others: &[CoreId],
        groups: Vec<(PathBuf, Vec<CoreId>)>,
    ) -> io::Result<Lendees> {
        let open = |(cpus, cores): (PathBuf, Vec<CoreId>)| {
            let cpus = File::options().write(true).open(cpus)?;
            Ok(Group { cpus, cores })
        };
        Ok(Lendees {
            exclusive: exclusive.to_vec(),
            others: others.iter().copied().collect(),
            others_len: others.len(),
            known: PiMutex::new(BorrowerList {
                groups: groups.into_iter().map(open).collect::<io::Result<_>>()?,
                threads: Vec::new(),
                lent: vec![false; exclusive.len()],
                elsewhere: CoreMask::default(),
            }),
        })
    }

    /// Whether there is a borrower: else nothing can be lent.
    pub(super) fn any(&self) -> bool {
        let known = self.known.lock();
        !known.groups.is_empty() || !known.threads.is_empty()
    }

    /// Takes `thread`, of this process, off the exclusive cores that are not lent, and adds it to the borrowers.
    pub(super) fn add(self: &Arc<Lendees>, thread: Tid) -> io::Result<Lendee> {
        let found = affinity_of(thread)?;
        let mut known = self.known.lock();
        set_affinity(thread, &self.shared(&known))?;
        known.threads.push(thread);
        Ok(Lendee {
            lendees: Arc::clone(self),
            thread,
            found,
        })
    }

    /// Lends `core` to all borrowers, or takes it back. A failure does not hold up other borrowers; returns the first
    /// one. Threads and groups that no longer exist are skipped.
    pub(super) fn set_lent(&self, core: CoreId, lent: bool) -> io::Result<()> {
        let mut known = self.known.lock();
        let Some(place) = self.exclusive.iter().position(|exclusive| *exclusive == core) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        known.lent[place] = lent;
        self.place_threads(&known);
        let write = |group: &Group| self.write_cores(group, &known);
        // A group's list must contain the lists of the groups inside it.
        match lent {
            true => known.groups.iter().map(write).fold(Ok(()), Result::and),
            false => known.groups.iter().rev().map(write).fold(Ok(()), Result::and),
        }
    }

    /// Takes the threads off the cores in `elsewhere`, which other processes claim exclusively, and returns the cores
    /// that are no longer claimed. Groups follow with the next lease.
    pub(super) fn leave(&self, elsewhere: CoreMask) {
        let mut known = self.known.lock();
        if known.elsewhere != elsewhere {
            known.elsewhere = elsewhere;
            self.place_threads(&known);
        }
    }

    /// Sets each thread's affinity for the present leases: residents of a lent core run on that core alone. Ignores
    /// threads that have ended.
    fn place_threads(&self, known: &BorrowerList) {
        let shared = self.shared(known);
        let part = known
            .threads
            .len()
            .div_ceil(self.others_len + self.exclusive.len())
            .max(1);
        let homes = self.exclusive.iter().zip(&known.lent);
        let homes = homes.flat_map(|home| std::iter::repeat_n(home, part));
        let homes = homes.map(Some).chain(std::iter::repeat(None));
        // The latest thread first: the cost of lending is measured with a thread that is added last.
        for (thread, home) in known.threads.iter().rev().zip(homes) {
            let mask = match home {
                Some((core, true)) => [*core].into_iter().collect(),
                _ => shared,
            };
            let _ = set_affinity(*thread, &mask);
        }
    }

    /// All cores that borrowers may use now.
    fn shared(&self, known: &BorrowerList) -> CoreMask {
        let mut mask = self.others.without(&known.elsewhere);
        let cores = self.exclusive.iter().zip(&known.lent);
        cores
            .filter(|(_, lent)| **lent)
            .for_each(|(core, _)| mask.set(*core, true));
        mask
    }

    fn write_cores(&self, group: &Group, known: &BorrowerList) -> io::Result<()> {
        let kept = |core: &CoreId| {
            let mut ours = self.exclusive.iter().zip(&known.lent);
            known.elsewhere.has(*core) || ours.any(|(it, lent)| it == core && !lent)
        };
        let mut list = [0; LIST_BYTES];
        let mut rest = list.as_mut_slice();
        for core in group.cores.iter().filter(|core| !kept(core)) {
            write!(rest, "{core},")?;
        }
        let length = LIST_BYTES - rest.len();
        // The kernel accepts no comma at the end: replaces it.
        let list = &mut list[..length];
        if let Some(comma) = list.last_mut() {
            *comma = b'\n';
        }
        match group.cpus.write_at(list, 0) {
            Ok(written) if written == list.len() => Ok(()),
            Ok(_) => Err(io::ErrorKind::WriteZero.into()),
            Err(why) if why.raw_os_error() == Some(libc::ENODEV) => Ok(()), // the group was removed
            Err(why) => Err(why),
        }
    }
}

impl Drop for Lendee {
    fn drop(&mut self) {
        let mut known = self.lendees.known.lock();
        known.threads.retain(|thread| *thread != self.thread);
        // If the thread has ended, another process's thread may have its number, and must not be touched.
        // SAFETY: signal 0 sends nothing; plain numbers.
        let is_ours = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.thread.0, 0) } == 0;
        if is_ours {
            let _ = set_affinity(self.thread, &self.found);
        }
    }
}
