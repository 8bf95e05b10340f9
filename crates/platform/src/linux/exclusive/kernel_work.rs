//! What the kernel itself does on a core and can do elsewhere: interrupts, and work that is bound to no core.
//!
//! Interrupts by `/proc/irq/<n>/smp_affinity_list` (Documentation/core-api/irq/irq-affinity.rst), unbound work by the
//! mask in `/sys/devices/virtual/workqueue/cpumask` (Documentation/core-api/workqueue.rst). The core's own timer, and
//! interrupts that the kernel manages itself (those of many multi-queue devices), stay.

use punctual_units::CoreId;

use super::super::journal::Journal;
use super::super::tree::read_trimmed;
use super::super::{KernelTree, cores};
use super::list;

const WORK: &str = "/sys/devices/virtual/workqueue/cpumask";

/// How many interrupts left the core, and how many would not.
pub(super) fn move_interrupts(tree: &KernelTree, journal: &Journal, core: CoreId, others: &[CoreId]) -> (usize, usize) {
    let (mut moved, mut kept) = (0, 0);
    for entry in std::fs::read_dir(tree.path("/proc/irq"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let file = entry.path().join("smp_affinity_list");
        let mut on = cores::parse_list(&read_trimmed(&file).unwrap_or_default());
        if !on.contains(&core) {
            continue;
        }
        on.retain(|it| *it != core);
        let elsewhere = if on.is_empty() { list(others) } else { list(&on) };
        match journal.write(&file, &elsewhere) {
            Ok(()) => moved += 1,
            Err(_) => kept += 1,
        }
    }
    (moved, kept)
}

/// Keeps work that is bound to no core off `core`; whether that worked. Where the kernel does so already, as for an
/// isolated partition, nothing is written: the kernel would take it for a wish that outlives the partition.
pub(super) fn move_unbound_work(tree: &KernelTree, journal: &Journal, core: CoreId) -> bool {
    let found = tree.read(WORK).unwrap_or_default();
    has_not(&found, core) || without(&found, core).is_some_and(|mask| journal.write(&tree.path(WORK), &mask).is_ok())
}

fn words_of(mask: &str) -> Option<Vec<u32>> {
    let word = |word: &str| u32::from_str_radix(word.trim(), 16).ok();
    mask.split(',').map(word).collect()
}

/// Whether `mask` is one, and leaves `core` out.
fn has_not(mask: &str, core: CoreId) -> bool {
    words_of(mask).is_some_and(|words| {
        let word = words.iter().rev().nth(core.index() / 32);
        word.is_none_or(|word| word >> (core.index() % 32) & 1 == 0)
    })
}

/// The mask, as 32-bit words in hexadecimal with the highest first, without `core`; `None` where it is not one, or
/// would be empty.
fn without(mask: &str, core: CoreId) -> Option<String> {
    let mut words = words_of(mask)?;
    let word = words.len().checked_sub(1 + core.index() / 32)?;
    words[word] &= !(1 << (core.index() % 32));
    let words: Vec<String> = words.iter().map(|word| format!("{word:x}")).collect();
    words.iter().any(|word| word != "0").then(|| words.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::testing;

    #[test]
    fn masks_lose_one_core_and_never_their_last() {
        assert_eq!(without("3", CoreId(1)).as_deref(), Some("1"));
        assert_eq!(without("ff,00000001", CoreId(33)).as_deref(), Some("fd,1"));
        assert_eq!(without("2", CoreId(1)), None);
        assert_eq!(without("3", CoreId(40)), None, "a core beyond the mask");
        assert_eq!(without("x", CoreId(0)), None);
    }

    #[test]
    fn work_that_the_kernel_keeps_off_already_is_left_to_it() {
        let (_folder, tree) = testing::tree(&[(WORK, "1,00000007")]);
        let journal = Journal::open(false).unwrap();
        assert!(move_unbound_work(&tree, &journal, CoreId(3)));
        assert!(move_unbound_work(&tree, &journal, CoreId(33)));
        assert_eq!(tree.read(WORK).unwrap(), "1,00000007", "not written");
        assert!(has_not("3", CoreId(40)) && !has_not("3", CoreId(1)) && !has_not("x", CoreId(1)));
    }

    #[test]
    fn interrupts_leave_the_core_and_come_back() {
        let (_folder, tree) = testing::tree(&[
            ("/proc/irq/24/smp_affinity_list", "0-1"),
            ("/proc/irq/36/smp_affinity_list", "1"),
            ("/proc/irq/40/smp_affinity_list", "0"),
            (WORK, "3"),
        ]);
        let journal = Journal::open(false).unwrap();
        assert_eq!(move_interrupts(&tree, &journal, CoreId(1), &[CoreId(0)]), (2, 0));
        assert!(move_unbound_work(&tree, &journal, CoreId(1)));
        let on = |irq: u32| tree.read(format!("/proc/irq/{irq}/smp_affinity_list")).unwrap();
        assert_eq!((on(24), on(36), on(40)), ("0".into(), "0".into(), "0".into()));
        assert_eq!(journal.restore(), []);
        assert_eq!((on(24), on(36), on(40)), ("0-1".into(), "1".into(), "0".into()));
        assert_eq!(tree.read(WORK).unwrap(), "3");
    }
}
