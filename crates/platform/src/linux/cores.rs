//! The cores of the machine: online, isolated, usable.

use std::path::Path;

use punctual_custody::tree::{field, read_trimmed};
use punctual_units::CoreId;

use super::{KernelTree, thread};

/// More cores than any machine that Linux is built for (NR_CPUS); bounds the numbers in a malformed list.
const CORES_MAX: u32 = 8_192;

/// Parses a list of cores as the kernel writes it, e.g. "0-3,6" (Documentation/admin-guide/kernel-parameters.rst, "cpu
/// lists"); ascending, without the parts that are no range of cores.
pub fn parse_list(list: &str) -> Vec<CoreId> {
    let mut cores: Vec<CoreId> = list
        .trim()
        .split(',')
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            Some(first..=last.min(CORES_MAX - 1))
        })
        .flatten()
        .map(CoreId)
        .collect();
    cores.sort_unstable();
    cores.dedup();
    cores
}

/// The cores that a file lists; none if it cannot be read.
pub(super) fn in_file(file: &Path) -> Vec<CoreId> {
    parse_list(&read_trimmed(file).unwrap_or_default())
}

/// All cores that are online under `tree`; if a running machine does not list them, those allowed to the calling
/// thread.
pub fn online(tree: &KernelTree) -> Vec<CoreId> {
    let cores = parse_list(&tree.text("/sys/devices/system/cpu/online"));
    if cores.is_empty() && tree.is_live() {
        return thread::allowed_cores(); // containers may hide /sys
    }
    cores
}

/// The online cores that the kernel was booted to keep free (`isolcpus`,
/// Documentation/admin-guide/kernel-parameters.rst): its scheduler places no thread there by itself.
pub fn isolated(tree: &KernelTree) -> Vec<CoreId> {
    let mut cores = parse_list(&tree.text("/sys/devices/system/cpu/isolated"));
    let online = online(tree);
    cores.retain(|core| online.contains(core));
    cores
}

/// The cores that work may be placed on: those online under `tree` and allowed to the calling thread or, in a recorded
/// tree that says so, to the recording process. Isolated cores are in no thread's affinity until it asks for them, so
/// they count if all others are allowed.
pub fn usable(tree: &KernelTree) -> Vec<CoreId> {
    let online = online(tree);
    let allowed = match tree.is_live() {
        true => Some(thread::allowed_cores()),
        false => recorded_as_allowed(tree),
    };
    allowed.map_or(online.clone(), |allowed| within(&online, &allowed, &isolated(tree)))
}

fn within(online: &[CoreId], allowed: &[CoreId], isolated: &[CoreId]) -> Vec<CoreId> {
    let has = |core: &CoreId| allowed.contains(core);
    let unbound = online.iter().all(|core| has(core) || isolated.contains(core));
    let cores = online.iter().copied();
    cores
        .filter(|core| has(core) || unbound && isolated.contains(core))
        .collect()
}

/// Value of the first field `name` in the text of `/proc/cpuinfo`.
pub(super) fn cpuinfo_field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let found = fields.find(|(key, _)| key.trim().eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.trim())
}

fn recorded_as_allowed(tree: &KernelTree) -> Option<Vec<CoreId>> {
    let status = tree.read("/proc/self/status").ok()?;
    field(&status, "Cpus_allowed_list").map(parse_list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        let cores = |list| parse_list(list).iter().map(|core| core.0).collect::<Vec<_>>();
        assert_eq!(cores("0-3,6\n"), [0, 1, 2, 3, 6]);
        assert_eq!(cores("1"), [1]);
        assert!(cores("\n").is_empty());
        assert_eq!(cores("3-1,x,7"), [7]);
        assert_eq!(cores("0-4294967295").len(), CORES_MAX as usize);
    }

    proptest! {
        #[test]
        fn any_set_survives_being_written_and_read(set in prop::collection::btree_set(0u32..CORES_MAX, 0..50)) {
            let list: Vec<String> = set.iter().map(u32::to_string).collect();
            let cores: Vec<u32> = parse_list(&list.join(",")).iter().map(|core| core.0).collect();
            prop_assert_eq!(cores, set.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn no_text_is_too_strange(list in "[0-9,\\- ]{0,40}") {
            prop_assert!(parse_list(&list).is_sorted_by(|a, b| a < b));
        }
    }

    #[test]
    fn isolated_cores_count_where_this_process_is_bound_to_no_others() {
        let cores = |list: &str| parse_list(list);
        assert_eq!(within(&cores("0-3"), &cores("0-1"), &cores("2-3")), cores("0-3"));
        assert_eq!(within(&cores("0-3"), &cores("0"), &cores("2-3")), cores("0"), "taskset");
        assert_eq!(within(&cores("0-3"), &cores("0,3"), &cores("2-3")), cores("0,3"));
        assert_eq!(within(&cores("0-3"), &cores("0-2"), &[]), cores("0-2"));
    }

    #[test]
    fn this_machine_has_a_core_for_us() {
        assert!(!usable(&KernelTree::default()).is_empty());
    }
}
