//! Undoes the changes of a holder, including masks that other threads inherited from them.
//!
//! **Problem.** If a core is kept by the affinity of every thread, a thread that a confined program starts inherits the
//! narrow mask. A process that keeps the core finds such *heirs* in its sweeps and records them like all other threads,
//! but not those started since the last sweep, nor those that a program starts while its own mask is being restored.
//! After a kill, no process sweeps at all. **Method.** Before anything is undone, the masks that confined threads have,
//! and those that they will get, are noted ([`Confinements`]). After all of them were restored, every thread of the
//! machine is examined: a thread that was started after the holder, and has exactly a mask that the holder gave, is an
//! heir. It gets its parent's mask, if that is one of the noted wide ones; otherwise (the parent has ended, and the
//! kernel names an adopting process) the widest noted mask that goes with its own. By then this holder confines no
//! thread any more, so no new heir appears; later looks find those that were being started during the first. Heirs of a
//! thread that was pinned to a core belong to its process or are children of it: others may have chosen that core.
//!
//! Control groups need none of this: a child is in its parent's group, and returns with it.
//!
//! Limits: a fork that takes longer than these looks leaves its child confined. A thread that was started meanwhile,
//! and has chosen exactly the mask of a confined one, is taken for an heir. Threads of the holder, of processes that
//! claim a core, and of their children are never heirs: these processes place their own threads. A process in the
//! ledger that claims nothing yet has inherited its mask like any other program: it is about to ask for a core, perhaps
//! the one that is released here.
//!
//! The guardian runs this: plain system calls only (see `undo.rs`).

use punctual_os::Tid;

use super::core_mask::{CoreMask, affinity_of, set_affinity};
use super::groups;
use super::ledger::{Holder, Table, number};
use super::stat::{self, PATH_BYTES, proc_path, read_file};
use super::undo::{Errno, Patience, carry_out, each_number, hash_of, sleep};

/// Upper bound on the pairs of masks that are noted: a machine has few different ones.
const PAIRS_MAX: usize = 32;
/// Upper bound on looks at all threads: heirs may have started others meanwhile.
const LOOKS_MAX: usize = 8;
/// Pauses before the second and later looks: a fork copies its parent's mask long before the child is visible, and on a
/// busy machine the parent may be preempted in between.
const PAUSES_NANOS: [libc::c_long; 4] = [2_000_000, 8_000_000, 32_000_000, 128_000_000];
/// Longest `status` of a thread up to its mask, in bytes, on a machine with 1024 cores.
const STATUS_BYTES: usize = 4096;

/// Undoes the changes of the holder at `place` that are `meant`, and with `claims` its claims, too. `failed` gets each
/// change that could not be undone, which stays recorded.
pub(crate) fn give_back(
    table: &mut Table,
    place: usize,
    claims: bool,
    meant: &dyn Fn(&Table, usize) -> bool,
    patience: Patience,
    failed: &mut dyn FnMut(&Table, usize, Errno),
) {
    let confined = Confinements::of(table, place, meant);
    if claims {
        table.release_all(place);
    }
    table.give_back(place, meant, &mut |step| carry_out(step, patience), failed);
    confined.free_heirs(table);
}

/// The narrow mask, the wide one, and the process whose threads and children alone are heirs; 0: all processes.
type Pair = (CoreMask, CoreMask, i32);

/// Masks that a holder gave to threads, and the masks that they get when it leaves.
struct Confinements {
    pairs: [Pair; PAIRS_MAX],
    used: usize,
    /// Process id of the holder.
    holder: i32,
    /// Start time of the holder, in ticks since boot: an older thread has inherited nothing.
    since: u64,
}

impl Confinements {
    fn of(table: &Table, place: usize, meant: &dyn Fn(&Table, usize) -> bool) -> Confinements {
        let mut noted = Confinements {
            pairs: [(CoreMask::default(), CoreMask::default(), 0); PAIRS_MAX],
            used: 0,
            holder: table.holder_at(place).map_or(0, Holder::pid),
            since: table.holder_at(place).map_or(u64::MAX, Holder::started),
        };
        // Only groups that keep a core rule heirs out: a holder may have a group for its own threads and confine others
        // one by one.
        let confines = !table.moves_tasks(place, groups::keeps_a_core);
        for change in table.changes_of(place).filter(|change| meant(table, *change)) {
            if let Some((narrow, wide)) = table.narrowed(change, place) {
                match pinned(table, change, &narrow) {
                    Some((mask, process)) => noted.note((mask, wide, process)),
                    None if confines => noted.note((narrow, wide, 0)),
                    None => {}
                }
            }
        }
        noted
    }

    fn note(&mut self, pair: Pair) {
        if pair.0 != pair.1
            && !self.pairs().contains(&pair)
            && let Some(room) = self.pairs.get_mut(self.used)
        {
            *room = pair;
            self.used = self.used.saturating_add(1);
        }
    }

    fn pairs(&self) -> &[Pair] {
        self.pairs.get(..self.used).unwrap_or(&[])
    }

    /// The mask for a thread with `mask` whose parent has `parents`, of one of the processes `from` or a child of one;
    /// `None` if `mask` is not inherited.
    fn inherited(&self, mask: &CoreMask, parents: Option<CoreMask>, from: [i32; 2]) -> Option<CoreMask> {
        let gives_it = |pair: &&Pair| pair.0 == *mask && (pair.2 == 0 || from.contains(&pair.2));
        let wide = self.pairs().iter().filter(gives_it).map(|(_, wide, _)| *wide);
        // A thread that had only exclusive cores was given others: its mask may be any thread's choice.
        let wider = wide.clone().filter(|wide| mask.without(wide).is_empty());
        let parents = wide.clone().find(|wide| parents == Some(*wide));
        parents.or_else(|| wider.max_by_key(CoreMask::len))
    }

    fn free_heirs(&self, table: &Table) {
        if self.used == 0 {
            return;
        }
        for look in 0..LOOKS_MAX {
            if let Some(pause) = look.checked_sub(1).and_then(|passed| PAUSES_NANOS.get(passed)) {
                sleep(*pause);
            }
            table.goes_on();
            let mut freed = 0u32;
            // A failure means that there is no readable /proc to find heirs in.
            let _ = each_number(c"/proc", &mut |process| {
                let mut path = [0; PATH_BYTES];
                let Some(tasks) = proc_path(process, c"task", &mut path) else {
                    return;
                };
                // A process that has ended meanwhile has no heirs.
                let _ = each_number(tasks, &mut |thread| {
                    freed = freed.saturating_add(u32::from(self.free(table, thread, process)));
                });
            });
            if freed == 0 && look >= PAUSES_NANOS.len() {
                return;
            }
        }
    }

    /// Widens the mask of an heir; returns whether the thread is one.
    fn free(&self, table: &Table, thread: i32, process: i32) -> bool {
        // Most threads have a core that no heir has: one call excludes them.
        let without_it = |now: &CoreMask| {
            let lacks = |pair: &Pair| pair.1.without(&pair.0).first_shared(now).is_none();
            self.pairs().iter().any(lacks)
        };
        if !affinity_of(Tid(thread)).is_ok_and(|now| without_it(&now)) {
            return false;
        }
        let Some((mask, parent, _)) = of_thread(thread) else {
            return false;
        };
        let placed = |process: i32| process == self.holder || places_its_own(table, process);
        if placed(process) || placed(parent) || !self.pairs().iter().any(|(narrow, ..)| *narrow == mask) {
            return false;
        }
        let above = if thread == process { parent } else { process };
        let wide = self.inherited(&mask, of_thread(above).map(|(mask, ..)| mask), [process, parent]);
        let since = |(_, started): (bool, u64)| started >= self.since;
        wide.is_some_and(|wide| stat::of(thread).is_some_and(since) && set_affinity(Tid(thread), &wide).is_ok())
    }
}

/// The mask and the process of a thread that was pinned: it has exactly the mask that it was given last, not `narrow`.
fn pinned(table: &Table, change: usize, narrow: &CoreMask) -> Option<(CoreMask, i32)> {
    let thread = table.path(change).to_bytes().rsplit(|byte| *byte == b'/').nth(1)?;
    let thread = i32::try_from(number(thread)?).ok()?;
    let now = affinity_of(Tid(thread)).ok().filter(|now| now != narrow)?;
    table.last(change)?.get().filter(|last| *last == hash_of(&now))?;
    let (mask, _, process) = of_thread(thread).filter(|(mask, ..)| mask != narrow)?;
    Some((mask, process))
}

/// Whether the process has claimed cores or announced its tasks, and so places its own threads.
fn places_its_own(table: &Table, process: i32) -> bool {
    let claims = |holder: &Holder| !holder.exclusive().is_empty() || holder.has_announced();
    let mut holders = table.holders();
    holders.any(|(_, holder)| holder.pid() == process && claims(holder))
}

/// The affinity of a thread, inactive cores included, the parent of its process, and that process.
fn of_thread(thread: i32) -> Option<(CoreMask, i32, i32)> {
    let (mut path, mut status) = ([0; PATH_BYTES], [0; STATUS_BYTES]);
    let status = read_file(proc_path(thread, c"status", &mut path)?, &mut status).ok()?;
    let field = |name: &[u8]| {
        let mut lines = status.split(|byte| *byte == b'\n');
        lines.find_map(|line| line.strip_prefix(name)).map(<[u8]>::trim_ascii)
    };
    let mask = CoreMask::parse(std::str::from_utf8(field(b"Cpus_allowed:")?).ok()?)?;
    let process = |name: &[u8]| i32::try_from(number(field(name)?)?).ok();
    Some((mask, process(b"PPid:")?, process(b"Tgid:")?))
}

#[cfg(test)]
mod tests {
    use punctual_units::CoreId;

    use super::*;

    fn mask(cores: &[u32]) -> CoreMask {
        cores.iter().copied().map(CoreId).collect()
    }

    fn noted(pairs: &[(&[u32], &[u32])]) -> Confinements {
        let mut noted = Confinements {
            pairs: [(CoreMask::default(), CoreMask::default(), 0); PAIRS_MAX],
            used: 0,
            holder: 0,
            since: 0,
        };
        pairs
            .iter()
            .for_each(|(narrow, wide)| noted.note((mask(narrow), mask(wide), 0)));
        noted
    }

    #[test]
    fn an_heir_gets_what_its_parent_has_or_the_widest_that_goes_with_its_mask() {
        let mut noted = noted(&[
            (&[0, 1], &[0, 1, 3]),
            (&[0, 1], &[0, 1, 2, 3]),
            (&[0, 1], &[3]),
            (&[2], &[2]),
        ]);
        assert_eq!(noted.used, 3, "an unchanged mask is no confinement");
        let gets = |own: &[u32], parents: Option<&[u32]>| noted.inherited(&mask(own), parents.map(mask), [8, 9]);
        assert_eq!(gets(&[0, 1], Some(&[0, 1, 3])), Some(mask(&[0, 1, 3])));
        assert_eq!(
            gets(&[0, 1], Some(&[3])),
            Some(mask(&[3])),
            "the parent had the exclusive core alone"
        );
        for adopted in [None, Some([7].as_slice())] {
            assert_eq!(gets(&[0, 1], adopted), Some(mask(&[0, 1, 2, 3])));
        }
        assert_eq!(gets(&[0], Some(&[0, 1, 3])), None, "a choice of its own");
        noted.note((mask(&[5]), mask(&[0, 5]), 9));
        for (from, wide) in [
            ([8, 9], Some(mask(&[0, 5]))),
            ([9, 1], Some(mask(&[0, 5]))),
            ([8, 1], None),
        ] {
            assert_eq!(
                noted.inherited(&mask(&[5]), None, from),
                wide,
                "a pinned thread's children"
            );
        }
    }

    #[test]
    fn a_process_in_the_ledger_that_claims_nothing_has_placed_nothing() {
        use super::super::ledger::{Entrant, Ledger};
        let ledger = Ledger::alone().unwrap();
        let mut table = ledger.lock().unwrap();
        let entrant = Entrant {
            pid: 77,
            started: 1,
            name: b"late",
        };
        let holder = table.enter(entrant).unwrap();
        assert!(!places_its_own(&table, 77));
        let machine = mask(&[0, 1, 2, 3]);
        table.claim(holder, &mask(&[3]), &machine).unwrap();
        assert!(places_its_own(&table, 77));
        assert!(!places_its_own(&table, 78));
    }

    #[test]
    fn a_holder_with_its_own_threads_in_a_group_leaves_heirs_all_the_same() {
        use super::super::ledger::{Entrant, Kind, Ledger};
        let ledger = Ledger::alone().unwrap();
        let mut table = ledger.lock().unwrap();
        let entrant = Entrant {
            pid: 77,
            started: 1,
            name: b"own group",
        };
        let holder = table.enter(entrant).unwrap();
        let machine = mask(&[0, 1, 2, 3]);
        table.claim(holder, &mask(&[3]), &machine).unwrap();
        let stat = b"/proc/5/stat";
        table.join(holder, Kind::Affinity, stat, b"1 0f").unwrap();
        let own_group = b"/cpu/punctual-77/tasks";
        table.join(holder, Kind::MoveTasks, own_group, b"/cpu/tasks").unwrap();
        let noted = Confinements::of(&table, holder.place, &|_, _| true);
        assert_eq!(noted.pairs(), [(mask(&[0, 1, 2]), mask(&[0, 1, 2, 3]), 0)]);
        for group in [
            "/cpuset/punctual-pen/tasks",
            "/a.slice/punctual-77-core-3/cgroup.threads",
        ] {
            let change = table
                .join(holder, Kind::MoveTasks, group.as_bytes(), b"/tasks")
                .unwrap();
            assert_eq!(Confinements::of(&table, holder.place, &|_, _| true).used, 0, "{group}");
            table.withdraw(holder.place, change);
        }
    }

    #[test]
    fn the_kernel_tells_of_this_thread_what_it_tells_by_calls() {
        let me = std::process::id() as i32;
        let (mask, parent, process) = of_thread(me).unwrap();
        assert_eq!(process, me);
        assert!(affinity_of(Tid(me)).unwrap().without(&mask).is_empty());
        assert_eq!(parent, std::os::unix::process::parent_id() as i32);
        assert!(stat::of(me).unwrap().1 >= stat::of(1).unwrap().1);
        assert_eq!(of_thread(i32::MAX), None);
        let mut processes = 0;
        each_number(c"/proc", &mut |process| processes += i32::from(process == me)).unwrap();
        assert_eq!(processes, 1);
    }
}
