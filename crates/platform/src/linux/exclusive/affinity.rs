//! The exclusive core without cgroups: the affinity of every movable thread, one by one.
//!
//! Each thread's mask is recorded, then written without the core (sched_setaffinity(2)). Lending writes the former masks, taking
//! back the narrow ones: two system calls per thread, whose cost is measured like that of any other way.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use punctual_units::CoreId;

use super::super::journal::Journal;
use super::super::thread::{CoreMask, Tid, affinity_of, set_affinity};
use super::super::{KernelTree, refused};
use super::Census;
use super::population::{Spared, everybody};
use crate::Refusal;

/// Everybody else, by their masks.
#[derive(Debug)]
pub(super) struct Affinity {
    tree: KernelTree,
    journal: Journal,
    core: CoreId,
    others: CoreMask,
    spared: Spared,
    threads: Mutex<Threads>,
}

#[derive(Debug, Default)]
struct Threads {
    /// The mask of each confined thread as it was found.
    confined: HashMap<Tid, CoreMask>,
    settled: HashSet<Tid>,
}

impl Affinity {
    /// Confines nobody yet.
    pub(super) fn new(
        tree: &KernelTree,
        journal: &Journal,
        core: CoreId,
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
        let mut mask = CoreMask::default();
        others.iter().for_each(|other| mask.set(*other, true));
        Ok(Affinity {
            tree: tree.clone(),
            journal: journal.clone(),
            core,
            others: mask,
            spared,
            threads: Mutex::default(),
        })
    }

    /// Confines everybody who has the core and may be moved.
    pub(super) fn sweep(&self) -> Census {
        let mut census = Census::default();
        for thread in everybody(&self.tree) {
            let known = |threads: &Threads| threads.confined.contains_key(&thread) || threads.settled.contains(&thread);
            if known(&self.threads()) || !affinity_of(thread).is_ok_and(|mask| mask.has(self.core)) {
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
                format!("moving thread {thread} off core {}", self.core),
                why,
                "run as root; threads that belong to a core, as the kernel's do, stay there",
            )
        };
        let found = affinity_of(thread).map_err(refusal)?;
        self.journal.remember_affinity(thread)?;
        set_affinity(thread, &self.without(&found)).map_err(refusal)?;
        self.threads().confined.insert(thread, found);
        Ok(())
    }

    /// Gives everybody their former masks, or takes the core from them again. Who has ended is forgotten.
    pub(super) fn set_lent(&self, lent: bool) {
        let mut threads = self.threads();
        threads.confined.retain(|thread, found| {
            let mask = if lent { *found } else { self.without(found) };
            set_affinity(*thread, &mask).is_ok()
        });
    }

    /// `found` without the core; who had no other gets all others.
    fn without(&self, found: &CoreMask) -> CoreMask {
        let mut mask = *found;
        mask.set(self.core, false);
        if mask.is_empty() { self.others } else { mask }
    }

    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
