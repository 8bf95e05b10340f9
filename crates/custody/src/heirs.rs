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
//! thread any more, so no new heir appears; later looks find those that were being started during the first.
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

use std::ffi::CStr;

use punctual_os::Tid;

use super::core_mask::{CoreMask, affinity_of, set_affinity};
use super::groups;
use super::ledger::{Holder, Table, number};
use super::stat::{self, STAT_BYTES, read_file};
use super::undo::{Errno, Patience, carry_out, each_number, sleep};

/// Upper bound on the pairs of masks that are noted: a machine has few different ones.
const PAIRS_MAX: usize = 32;
/// Upper bound on looks at all threads: heirs may have started others meanwhile.
const LOOKS_MAX: usize = 8;
/// Pauses before the second and later looks: a fork copies its parent's mask long before the child is visible, and on a
/// busy machine the parent may be preempted in between.
const PAUSES_NANOS: [libc::c_long; 4] = [2_000_000, 8_000_000, 32_000_000, 128_000_000];
/// Longest `status` of a thread up to its mask, in bytes, on a machine with 1024 cores.
const STATUS_BYTES: usize = 4096;
/// Longest path below `/proc` that is made here, with its terminating zero, in bytes.
const PATH_BYTES: usize = 64;

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

/// Masks that a holder gave to threads, and the masks that they get when it leaves.
struct Confinements {
    /// The narrow mask and the wide one.
    pairs: [(CoreMask, CoreMask); PAIRS_MAX],
    used: usize,
    /// Process id of the holder.
    holder: i32,
    /// Start time of the holder, in ticks since boot: an older thread has inherited nothing.
    since: u64,
}

impl Confinements {
    fn of(table: &Table, place: usize, meant: &dyn Fn(&Table, usize) -> bool) -> Confinements {
        let mut noted = Confinements {
            pairs: [(CoreMask::default(), CoreMask::default()); PAIRS_MAX],
            used: 0,
            holder: table.holder_at(place).map_or(0, Holder::pid),
            since: table.holder_at(place).map_or(u64::MAX, Holder::started),
        };
        // Only groups that keep a core rule heirs out: a holder may have a group for its own threads and confine others
        // one by one.
        if !table.moves_tasks(place, groups::keeps_a_core) {
            let meant = table.changes_of(place).filter(|change| meant(table, *change));
            let narrowed = meant.filter_map(|change| table.narrowed(change, place));
            narrowed.for_each(|pair| noted.note(pair));
        }
        noted
    }

    fn note(&mut self, pair: (CoreMask, CoreMask)) {
        if pair.0 != pair.1
            && !self.pairs().contains(&pair)
            && let Some(room) = self.pairs.get_mut(self.used)
        {
            *room = pair;
            self.used = self.used.saturating_add(1);
        }
    }

    fn pairs(&self) -> &[(CoreMask, CoreMask)] {
        self.pairs.get(..self.used).unwrap_or(&[])
    }

    /// The mask for a thread with `mask` whose parent has `parents`; `None` if `mask` is not inherited.
    fn inherited(&self, mask: &CoreMask, parents: Option<CoreMask>) -> Option<CoreMask> {
        let gives_it = |pair: &&(CoreMask, CoreMask)| pair.0 == *mask;
        let wide = self.pairs().iter().filter(gives_it).map(|(_, wide)| *wide);
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
            let lacks = |pair: &(CoreMask, CoreMask)| pair.1.without(&pair.0).first_shared(now).is_none();
            self.pairs().iter().any(lacks)
        };
        if !affinity_of(Tid(thread)).is_ok_and(|now| without_it(&now)) {
            return false;
        }
        let Some((mask, parent)) = of_thread(thread) else {
            return false;
        };
        let placed = |process: i32| process == self.holder || places_its_own(table, process);
        if placed(process) || placed(parent) || !self.pairs().iter().any(|(narrow, _)| *narrow == mask) {
            return false;
        }
        let above = if thread == process { parent } else { process };
        let wide = self.inherited(&mask, of_thread(above).map(|(mask, _)| mask));
        let since = |started: u64| started >= self.since;
        wide.is_some_and(|wide| started(thread).is_some_and(since) && set_affinity(Tid(thread), &wide).is_ok())
    }
}

/// Whether the process has claimed cores or announced its tasks, and so places its own threads.
fn places_its_own(table: &Table, process: i32) -> bool {
    let claims = |holder: &Holder| !holder.exclusive().is_empty() || holder.has_announced();
    let mut holders = table.holders();
    holders.any(|(_, holder)| holder.pid() == process && claims(holder))
}

/// The affinity of a thread, inactive cores included, and the parent of its process.
fn of_thread(thread: i32) -> Option<(CoreMask, i32)> {
    let (mut path, mut status) = ([0; PATH_BYTES], [0; STATUS_BYTES]);
    let status = read_file(proc_path(thread, c"status", &mut path)?, &mut status).ok()?;
    let field = |name: &[u8]| {
        let mut lines = status.split(|byte| *byte == b'\n');
        lines.find_map(|line| line.strip_prefix(name)).map(<[u8]>::trim_ascii)
    };
    let mask = CoreMask::parse(std::str::from_utf8(field(b"Cpus_allowed:")?).ok()?)?;
    Some((mask, i32::try_from(number(field(b"PPid:")?)?).ok()?))
}

/// Start time of a thread, in ticks since boot.
fn started(thread: i32) -> Option<u64> {
    let (mut path, mut stat) = ([0; PATH_BYTES], [0; STAT_BYTES]);
    let stat = read_file(proc_path(thread, c"stat", &mut path)?, &mut stat).ok()?;
    stat::started(stat)
}

/// Writes the path `/proc/NUMBER/FILE` into `room`.
fn proc_path<'a>(number: i32, file: &CStr, room: &'a mut [u8; PATH_BYTES]) -> Option<&'a CStr> {
    use std::io::Write;
    let mut left = room.as_mut_slice();
    write!(left, "/proc/{number}/").ok()?;
    left.write_all(file.to_bytes_with_nul()).ok()?;
    CStr::from_bytes_until_nul(room).ok()
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
            pairs: [(CoreMask::default(), CoreMask::default()); PAIRS_MAX],
            used: 0,
            holder: 0,
            since: 0,
        };
        pairs
            .iter()
            .for_each(|(narrow, wide)| noted.note((mask(narrow), mask(wide))));
        noted
    }

    #[test]
    fn an_heir_gets_what_its_parent_has_or_the_widest_that_goes_with_its_mask() {
        let noted = noted(&[
            (&[0, 1], &[0, 1, 3]),
            (&[0, 1], &[0, 1, 2, 3]),
            (&[0, 1], &[3]),
            (&[2], &[2]),
        ]);
        assert_eq!(noted.used, 3, "an unchanged mask is no confinement");
        let gets = |own: &[u32], parents: Option<&[u32]>| noted.inherited(&mask(own), parents.map(mask));
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
        assert_eq!(noted.pairs(), [(mask(&[0, 1, 2]), mask(&[0, 1, 2, 3]))]);
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
        let (mask, parent) = of_thread(me).unwrap();
        assert!(affinity_of(Tid(me)).unwrap().without(&mask).is_empty());
        assert_eq!(parent, std::os::unix::process::parent_id() as i32);
        assert!(started(me).unwrap() >= started(1).unwrap());
        assert_eq!(of_thread(i32::MAX), None);
        let mut processes = 0;
        each_number(c"/proc", &mut |process| processes += i32::from(process == me)).unwrap();
        assert_eq!(processes, 1);
    }
}
