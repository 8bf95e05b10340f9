//! Programs that may still run on an exclusive core, and the reasons.

use std::collections::BTreeMap;

use punctual_custody::core_mask::{CoreMask, affinity_of};
use punctual_custody::stat::flags;
use punctual_units::CoreId;

use super::super::thread::Tid;
use super::population::{INIT, Status, threads};
use super::{KernelTree, STAYS_MAX};
use crate::{Stay, Why};

/// Flag of kernel threads (`PF_KTHREAD` in the kernel's linux/sched.h).
const PF_KTHREAD: u32 = 0x0020_0000;

/// Upper bound on the programs of each kind that the text names.
const NAMED_MAX: usize = 8;

/// A thread that may run on the core in question.
pub(super) struct Present<'t> {
    pub(super) thread: Tid,
    pub(super) status: &'t Status,
    /// Whether the thread is a kernel thread.
    pub(super) of_kernel: bool,
    pub(super) mask: CoreMask,
}

/// The programs with threads that may run on `core`, by kind; at most [`STAYS_MAX`] and one entry for the rest. `judge`
/// returns the reason why a thread is there; `None` for threads that do not count: those of the process itself, and of
/// programs that the next sweep moves.
pub(super) fn programs_on(tree: &KernelTree, core: CoreId, judge: impl Fn(&Present) -> Option<Why>) -> Vec<Stay> {
    // Sorted by kind, then by the number of cores that the program may use, then by pid.
    let mut found: BTreeMap<(Why, u32, i32), Stay> = BTreeMap::new();
    for thread in threads(tree) {
        let Some(mask) = affinity_of(thread).ok().filter(|mask| mask.has(core)) else {
            continue;
        };
        let Some(status) = Status::read(tree, thread) else {
            continue; // it has ended
        };
        let of_kernel = of_the_kernel(tree, thread);
        let present = Present {
            thread,
            status: &status,
            of_kernel,
            mask,
        };
        let Some(why) = judge(&present) else { continue };
        let process = Status::read(tree, Tid(status.process));
        let key = (why, mask.len(), status.process);
        let stay = found.entry(key).or_insert_with(|| Stay {
            core,
            name: process.map_or(status.name, |process| process.name),
            process: status.process,
            threads: 0,
            why,
        });
        stay.threads += 1;
    }
    bounded(found.into_values().collect())
}

/// The first [`STAYS_MAX`] entries, and one entry for the rest.
fn bounded(mut stays: Vec<Stay>) -> Vec<Stay> {
    let rest = stays.split_off(stays.len().min(STAYS_MAX));
    let threads = rest.iter().map(|stay| stay.threads).sum();
    stays.extend(rest.into_iter().next_back().map(|last| Stay {
        name: "others".into(),
        process: 0,
        threads,
        ..last
    }));
    stays
}

fn of_the_kernel(tree: &KernelTree, thread: Tid) -> bool {
    let stat = std::fs::read(tree.path(format!("/proc/{thread}/stat"))).unwrap_or_default();
    flags(&stat).is_some_and(|flags| flags & PF_KTHREAD != 0)
}

/// The programs that may still run on `core`, which process `holder` keeps, as another process sees them: it cannot
/// distinguish a program that borrows the core at this instant from one that was spared.
pub fn staying(tree: &KernelTree, holder: i32, core: CoreId) -> Vec<Stay> {
    let holders_user = Status::read(tree, Tid(holder)).map(|status| status.user);
    programs_on(tree, core, |present| match present.status {
        status if status.process == holder => None,
        _ if present.of_kernel => Some(Why::Bound),
        status if status.parent == holder => Some(Why::Own),
        status if status.process == INIT => Some(Why::Init),
        status if [Some(0), Some(status.user)].contains(&holders_user) => Some(Why::Spared),
        _ => Some(Why::NotPermitted),
    })
}

/// Describes `stays`, all of one core: by kind, with the first eight programs of each.
pub fn told(stays: &[Stay]) -> String {
    let kinds = stays.chunk_by(|a, b| a.why == b.why).filter_map(|kind| {
        let threads: usize = kind.iter().map(|stay| stay.threads).sum();
        let named = |stay: &&Stay| stay.process != 0;
        let names: Vec<String> = kind.iter().filter(named).take(NAMED_MAX).map(name).collect();
        let further = kind.iter().skip(names.len());
        let more = match further.map(|stay| if named(&stay) { 1 } else { stay.threads }).sum() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let names = names.join(", ") + &more;
        Some(match kind.first()?.why {
            Why::Bound => format!("{threads} threads that are bound ({names})"),
            Why::Spared => format!("spared: {names}"),
            Why::Init => format!("process 1: {names}"),
            Why::Own => format!("children: {names}"),
            Why::Shares => format!("of groups that share it: {names}"),
            Why::NotPermitted => format!("{threads} threads that are not this user's to move ({names})"),
        })
    });
    let kinds: Vec<String> = kinds.collect();
    match kinds.is_empty() {
        true => "no other program".into(),
        false => kinds.join("; "),
    }
}

fn name(stay: &Stay) -> String {
    match (stay.why, stay.threads) {
        (Why::Bound | Why::Init, _) => stay.name.clone(),
        (_, 1) => format!("{} ({})", stay.name, stay.process),
        (_, threads) => format!("{} ({}, {threads} threads)", stay.name, stay.process),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stay(name: &str, process: i32, threads: usize, why: Why) -> Stay {
        Stay {
            core: CoreId(1),
            name: name.into(),
            process,
            threads,
            why,
        }
    }

    #[test]
    fn programs_are_named_by_kind_and_not_without_end() {
        let kernel = (0..99).map(|number| stay(&format!("kworker/1:{number}"), 20 + number, 1, Why::Bound));
        let others = [
            stay("systemd", 1, 1, Why::Init),
            stay("chronyd", 412, 1, Why::Spared),
            stay("watcher", 413, 3, Why::Spared),
        ];
        let all = bounded(others.into_iter().chain(kernel).collect());
        assert_eq!(all.len(), STAYS_MAX + 1);
        let text = told(&all);
        let parts: Vec<&str> = text.split("; ").collect();
        assert_eq!(parts.len(), 3, "{text}");
        assert!(parts[0].starts_with("process 1: systemd"), "{text}");
        assert!(parts[1].ends_with("chronyd (412), watcher (413, 3 threads)"), "{text}");
        assert!(
            parts[2].starts_with("99 threads") && parts[2].ends_with("kworker/1:7 and 91 more)"),
            "{text}"
        );
        assert_eq!(told(&[]), "no other program");
    }

    #[test]
    fn a_thread_of_another_program_is_found_on_the_cores_that_it_may_use() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (tree, process) = (KernelTree::default(), child.id() as i32);
        let core = *super::super::cores::usable(&tree).first().unwrap();
        let found = staying(&tree, std::process::id() as i32, core);
        child.kill().unwrap();
        child.wait().unwrap();
        let its: Vec<&Stay> = found.iter().filter(|stay| stay.process == process).collect();
        assert!(
            matches!(its.as_slice(), [stay] if stay.why == Why::Own && stay.threads == 1),
            "{found:?}"
        );
        let own = std::process::id() as i32;
        assert!(found.len() <= STAYS_MAX + 1 && found.iter().all(|stay| stay.process != own));
    }
}
