//! The kernel's own work that can leave a core: interrupts, and work that is bound to no core.
//!
//! Interrupts leave by `/proc/irq/<n>/smp_affinity_list` (Documentation/core-api/irq/irq-affinity.rst), unbound work by
//! the mask in `/sys/devices/virtual/workqueue/cpumask` (Documentation/core-api/workqueue.rst). The core's own timer,
//! and interrupts that the kernel manages itself (those of many multi-queue devices), stay. Interrupts of the task's
//! own device are steered onto the core instead.

use std::path::PathBuf;

use punctual_custody::journal::Journal;
use punctual_custody::tree::entries;
use punctual_units::CoreId;

use super::super::{KernelTree, cores, refused};
use crate::Refusal;

/// Upper bound on interrupt names in a refusal: as many as a small machine has.
const NAMES_MAX: usize = 24;

const WORK: &str = "/sys/devices/virtual/workqueue/cpumask";

/// An interrupt to be steered onto an exclusive core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interrupt {
    number: u32,
    /// The name or number by which the user asked for it.
    name: String,
}

/// The interrupts with these numbers or names. A name is searched in the last column of `/proc/interrupts`; it includes
/// the queues of its device: `eth0` finds `eth0-rx-0`, `virtio0` finds `virtio0-input.0`.
///
/// # Errors
/// [`Refusal`] if one does not exist, with a list of those that do.
pub(super) fn named(tree: &KernelTree, names: &[String]) -> Result<Vec<Interrupt>, Refusal> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let table = tree.text("/proc/interrupts");
    let there = listed(&table);
    let mut found = Vec::new();
    for name in names {
        let meant = |(number, actions): &&(u32, Vec<&str>)| {
            let of_device = |action: &&str| {
                let rest = action.strip_prefix(name.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            };
            name.parse() == Ok(*number) || actions.iter().any(of_device)
        };
        let before = found.len();
        found.extend(there.iter().filter(meant).map(|(number, _)| Interrupt {
            number: *number,
            name: name.clone(),
        }));
        if found.len() == before {
            let all = there
                .iter()
                .map(|(number, actions)| format!("{number} ({})", actions.join(", ")));
            let all: Vec<String> = all.take(NAMES_MAX).collect();
            let what = format!("steering the interrupt \"{name}\" onto an exclusive core");
            let remedy = format!("name one of {}", all.join(", "));
            return Err(refused(what, "there is none of this number or name", remedy));
        }
    }
    Ok(found)
}

/// The numbered interrupts of `/proc/interrupts`, with the names of their handlers (kernel/irq/proc.c,
/// `show_interrupts`: they come last, after two blanks).
fn listed(table: &str) -> Vec<(u32, Vec<&str>)> {
    table.lines().filter_map(interrupt).collect()
}

fn interrupt(line: &str) -> Option<(u32, Vec<&str>)> {
    let (number, rest) = line.split_once(':')?;
    let (_, actions) = rest.trim_end().rsplit_once("  ")?;
    Some((number.trim().parse().ok()?, actions.split(',').map(str::trim).collect()))
}

/// Steers the interrupts onto `core`; returns the labels of those that moved, and the refusals of the others. The
/// journal's process must have claimed the core.
pub(super) fn steer(
    tree: &KernelTree,
    journal: &Journal,
    core: Option<&CoreId>,
    interrupts: &[Interrupt],
) -> (Vec<String>, Vec<Refusal>) {
    let (mut there, mut refusals) = (Vec::new(), Vec::new());
    for (Interrupt { number, name }, core) in interrupts.iter().zip(core.into_iter().cycle()) {
        let label = format!("{number} ({name})");
        match journal.list_only(&list_of(tree, *number), *core) {
            Ok(()) => there.push(label),
            Err(why) => refusals.push(refused(
                format!("interrupt {label} onto core {core}"),
                why.why,
                "the kernel or its driver places this interrupt; leave it out of exclusive.interrupts",
            )),
        }
    }
    (there, refusals)
}

fn list_of(tree: &KernelTree, interrupt: u32) -> PathBuf {
    tree.path(format!("/proc/irq/{interrupt}/smp_affinity_list"))
}

/// Moves interrupts off `core`, except those that are `steered` onto a core; returns the numbers of moved and of
/// immovable ones. The journal's process must have claimed the core.
pub(super) fn move_interrupts(
    tree: &KernelTree,
    journal: &Journal,
    core: CoreId,
    steered: &[Interrupt],
) -> (usize, usize) {
    let (mut moved, mut kept) = (0, 0);
    for entry in entries(&tree.path("/proc/irq")) {
        let file = entry.path().join("smp_affinity_list");
        if steered.iter().any(|it| list_of(tree, it.number) == file) {
            continue;
        }
        match journal.keep_off_list(&file, core) {
            Ok(true) => moved += 1,
            Ok(false) => {}
            Err(_) if cores::in_file(&file).contains(&core) => kept += 1,
            Err(_) => {} // it has no list, or the interrupt was removed
        }
    }
    (moved, kept)
}

/// Keeps unbound work off `core`; returns whether that succeeded. If the kernel does so already, as for an isolated
/// partition, nothing is written: the kernel would take it for a request that outlives the partition.
pub(super) fn move_unbound_work(tree: &KernelTree, journal: &Journal, core: CoreId) -> bool {
    journal.keep_off_words(&tree.path(WORK), core).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::testing;

    #[test]
    fn work_that_the_kernel_keeps_off_already_is_left_to_it() {
        let (_folder, tree) = testing::tree(&[(WORK, "1,00000007")]);
        let journal = testing::journal_claiming(&[3, 33], 64);
        assert!(move_unbound_work(&tree, &journal, CoreId(3)));
        assert!(move_unbound_work(&tree, &journal, CoreId(33)));
        assert_eq!(tree.read(WORK).unwrap(), "1,00000007", "not written");
    }

    #[test]
    fn masks_lose_a_core_but_not_their_last() {
        for (found, core, kept) in [("3", 1, "1"), ("ff,00000001", 33, "fd,1"), ("3", 40, "3")] {
            let (_folder, tree) = testing::tree(&[(WORK, found)]);
            let journal = testing::journal_claiming(&[core], 64);
            assert!(move_unbound_work(&tree, &journal, CoreId(core)));
            assert_eq!(tree.read(WORK).unwrap(), kept);
            assert_eq!(journal.restore(), []);
            assert_eq!(tree.read(WORK).unwrap(), found);
        }
        let (_folder, tree) = testing::tree(&[(WORK, "x")]);
        assert!(!move_unbound_work(
            &tree,
            &testing::journal_claiming(&[1], 2),
            CoreId(1)
        ));
    }

    #[test]
    fn interrupts_leave_the_core_and_come_back() {
        let (_folder, tree) = testing::tree(&[
            ("/proc/irq/24/smp_affinity_list", "0-1"),
            ("/proc/irq/36/smp_affinity_list", "1"),
            ("/proc/irq/40/smp_affinity_list", "0"),
            (WORK, "3"),
        ]);
        let journal = testing::journal_claiming(&[1], 2);
        assert_eq!(move_interrupts(&tree, &journal, CoreId(1), &[]), (2, 0));
        assert!(move_unbound_work(&tree, &journal, CoreId(1)));
        let on = |irq: u32| tree.read(format!("/proc/irq/{irq}/smp_affinity_list")).unwrap();
        assert_eq!((on(24), on(36), on(40)), ("0".into(), "0".into(), "0".into()));
        assert_eq!(journal.restore(), []);
        assert_eq!((on(24), on(36), on(40)), ("0-1".into(), "1".into(), "0".into()));
        assert_eq!(tree.read(WORK).unwrap(), "3");
    }

    const TABLE: &str = "           CPU0       CPU1\n  1:          0          9   IO-APIC   1-edge      i8042\n \
         24:          7          0   PCI-MSI 512000-edge      virtio1-config\n \
         25:          7          0   PCI-MSI 512001-edge      eth0-rx-0, eth0-tx-0\n \
         26:          7          0   PCI-MSI 512002-edge      uio0\nNMI:          0          0   Non-maskable interrupts\n";

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn interrupts_are_found_by_number_name_and_device() {
        let (_folder, tree) = testing::tree(&[("/proc/interrupts", TABLE)]);
        let numbers = |asked: &[&str]| -> Vec<u32> {
            let found = named(&tree, &names(asked)).unwrap();
            found.into_iter().map(|it| it.number).collect()
        };
        assert_eq!(numbers(&["uio0", "1"]), [26, 1]);
        assert_eq!(numbers(&["eth0"]), [25]);
        assert_eq!(numbers(&["virtio1"]), [24]);
        for unknown in ["eth", "NMI", "512002", "uio00", ""] {
            let refusal = named(&tree, &names(&[unknown])).unwrap_err();
            assert!(refusal.remedy.contains("26 (uio0)"), "{unknown}: {refusal}");
        }
    }

    #[test]
    fn a_devices_own_interrupt_comes_and_goes_back_whichever_process_leaves_first() {
        for first in [0, 1] {
            let (_folder, tree) = testing::tree(&[
                ("/proc/interrupts", TABLE),
                ("/proc/irq/26/smp_affinity_list", "0-3"),
                ("/proc/irq/24/smp_affinity_list", "0-3"),
            ]);
            let [ours, other] = testing::journals_claiming([3, 2], 4);
            let steered = named(&tree, &names(&["uio0"])).unwrap();
            assert_eq!(move_interrupts(&tree, &other, CoreId(2), &[]), (2, 0));
            let (there, refusals) = steer(&tree, &ours, Some(&CoreId(3)), &steered);
            assert_eq!((there, refusals), (vec!["26 (uio0)".into()], vec![]));
            assert_eq!(move_interrupts(&tree, &ours, CoreId(3), &steered), (1, 0));
            let on = |irq: u32| tree.read(format!("/proc/irq/{irq}/smp_affinity_list")).unwrap();
            assert_eq!((on(26), on(24)), ("3".into(), "0-1".into()));
            let order = [&ours, &other];
            assert_eq!(order[first].restore(), []);
            let left = [("0-1,3", "0-1,3"), ("3", "0-2")][first];
            assert_eq!((on(26).as_str(), on(24).as_str()), left);
            assert_eq!(order[1 - first].restore(), []);
            assert_eq!((on(26), on(24)), ("0-3".into(), "0-3".into()));
        }
    }

    #[test]
    fn an_interrupt_that_does_not_move_is_told_and_nothing_is_left() {
        let (_folder, tree) = testing::tree(&[("/proc/interrupts", TABLE)]);
        let journal = testing::journal_claiming(&[1], 2);
        let steered = named(&tree, &names(&["uio0"])).unwrap();
        let (there, refusals) = steer(&tree, &journal, Some(&CoreId(1)), &steered);
        assert!(
            there.is_empty() && refusals[0].what.contains("26 (uio0)"),
            "{refusals:?}"
        );
        assert_eq!(journal.restore(), []);
    }
}
