//! What the kernel itself does on a core and can do elsewhere: interrupts, and work that is bound to no core.
//!
//! Interrupts by `/proc/irq/<n>/smp_affinity_list` (Documentation/core-api/irq/irq-affinity.rst), unbound work by the
//! mask in `/sys/devices/virtual/workqueue/cpumask` (Documentation/core-api/workqueue.rst). The core's own timer, and
//! interrupts that the kernel manages itself (those of many multi-queue devices), stay.

use punctual_units::CoreId;

use super::super::journal::Journal;
use super::super::tree::read_trimmed;
use super::super::{KernelTree, cores};

const WORK: &str = "/sys/devices/virtual/workqueue/cpumask";

/// How many interrupts left `core`, and how many would not. The journal's process claims the core.
pub(super) fn move_interrupts(tree: &KernelTree, journal: &Journal, core: CoreId) -> (usize, usize) {
    let (mut moved, mut kept) = (0, 0);
    for entry in std::fs::read_dir(tree.path("/proc/irq"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let file = entry.path().join("smp_affinity_list");
        match journal.keep_off_list(&file, core) {
            Ok(true) => moved += 1,
            Ok(false) => {}
            Err(_) if on(&file).contains(&core) => kept += 1,
            Err(_) => {} // it has no list, or the interrupt is gone
        }
    }
    (moved, kept)
}

fn on(file: &std::path::Path) -> Vec<CoreId> {
    cores::parse_list(&read_trimmed(file).unwrap_or_default())
}

/// Keeps work that is bound to no core off `core`; whether that worked. Where the kernel does so already, as for an
/// isolated partition, nothing is written: the kernel would take it for a wish that outlives the partition.
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
        assert_eq!(move_interrupts(&tree, &journal, CoreId(1)), (2, 0));
        assert!(move_unbound_work(&tree, &journal, CoreId(1)));
        let on = |irq: u32| tree.read(format!("/proc/irq/{irq}/smp_affinity_list")).unwrap();
        assert_eq!((on(24), on(36), on(40)), ("0".into(), "0".into(), "0".into()));
        assert_eq!(journal.restore(), []);
        assert_eq!((on(24), on(36), on(40)), ("0-1".into(), "1".into(), "0".into()));
        assert_eq!(tree.read(WORK).unwrap(), "3");
    }
}
