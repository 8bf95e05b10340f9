//! The exclusive core without cgroups: the affinity of every movable thread, one by one.
//!
//! Each thread's mask is recorded, then written without the core (sched_setaffinity(2)). Lending writes the former masks, taking
//! back the narrow ones: two system calls per thread, whose cost is measured like that of any other way.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use punctual_units::CoreId;

use super::super::journal::Journal;
use super::super::thread::{CoreMask, Tid, affinity_of, may_move_others, set_affinity};
use super::super::{KernelTree, refused};
use super::population::{Spared, everybody};
use super::{Census, list};
use crate::Refusal;

/// Everybody else, by their masks.
#[derive(Debug)]
pub(super) struct Affinity {
    tree: KernelTree,
    journal: Journal,
    exclusive: Vec<CoreId>,
    others: CoreMask,
    spared: Spared,
    threads: Mutex<Threads>,
}

#[derive(Debug, Default)]
struct Threads {
    /// The mask of each confined thread as it was found.
    confined: HashMap<Tid, CoreMask>,
    settled: HashSet<Tid>,
    /// The exclusive cores that are lent.
    lent: Vec<CoreId>,
}

impl Affinity {
    /// Confines nobody yet.
    pub(super) fn new(
        tree: &KernelTree,
        journal: &Journal,
        exclusive: &[CoreId],
        others: &[CoreId],
        spared: Spared,
    ) -> Result<Affinity, Refusal> {
        if !tree.is_live() {
            return Err(refused(
                "moving threads off the exclusive core (affinity)",
                "this tree is a record",
                "run on the machine itself",
            ));
        }
        // A core that only some would leave is not kept.
        if !may_move_others() {
            return Err(refused(
                format!("moving threads off core {} (affinity)", list(exclusive)),
                "this user may not move the threads of others",
                "run as root, or grant CAP_SYS_NICE (setcap cap_sys_nice+ep on the program)",
            ));
        }
        let mut mask = CoreMask::default();
        others.iter().for_each(|other| mask.set(*other, true));
        Ok(Affinity {
            tree: tree.clone(),
            journal: journal.clone(),
            exclusive: exclusive.to_vec(),
            others: mask,
            spared,
            threads: Mutex::default(),
        })
    }

    /// Confines everybody who has such a core and may be moved.
    pub(super) fn sweep(&self) -> Census {
        let mut census = Census::default();
        for thread in everybody(&self.tree) {
            let known = |threads: &Threads| threads.confined.contains_key(&thread) || threads.settled.contains(&thread);
            let has = |mask: CoreMask| self.exclusive.iter().any(|core| mask.has(*core));
            if known(&self.threads()) || !affinity_of(thread).is_ok_and(has) {
                continue;
            }
            if self.spared.has(thread) {
                census.spared += 1;
            } else {
                match self.confine(thread) {
                    Ok(()) => {
                        census.moved += 1;
                        continue;
                    }
                    Err(_) => census.kept += 1,
                }
            }
            self.threads().settled.insert(thread);
        }
        census
    }

    /// Puts `thread` among those who get the core lent only.
    pub(super) fn confine(&self, thread: Tid) -> Result<(), Refusal> {
        let refusal = |why: std::io::Error| {
            refused(
                format!("moving thread {thread} off core {}", list(&self.exclusive)),
                why,
                "run as root; threads that belong to a core, as the kernel's do, stay there",
            )
        };
        let found = affinity_of(thread).map_err(refusal)?;
        self.journal.remember_affinity(thread)?;
        let mut threads = self.threads();
        set_affinity(thread, &self.kept_off(&found, &threads.lent)).map_err(refusal)?;
        threads.confined.insert(thread, found);
        Ok(())
    }

    /// Gives everybody `core` who had it, or takes it from them again. Who has ended is forgotten.
    pub(super) fn set_lent(&self, core: CoreId, lent: bool) {
        let mut threads = self.threads();
        threads.lent.retain(|other| *other != core);
        if lent {
            threads.lent.push(core);
        }
        let Threads { confined, lent, .. } = &mut *threads;
        confined.retain(|thread, found| set_affinity(*thread, &self.kept_off(found, lent)).is_ok());
    }

    /// `found` without the cores that are not lent; who had no others gets all others.
    fn kept_off(&self, found: &CoreMask, lent: &[CoreId]) -> CoreMask {
        let mut mask = *found;
        let kept = self.exclusive.iter().filter(|core| !lent.contains(core));
        kept.for_each(|core| mask.set(*core, false));
        if mask.is_empty() { self.others } else { mask }
    }

    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
