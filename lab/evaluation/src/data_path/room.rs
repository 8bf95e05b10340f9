//! Memory that is available to keep data in.
//!
//! The minimum of the machine's free memory (`MemAvailable` in proc_meminfo(5)) and the room in the control groups of
//! this process: the limit of each, less the memory that is in use and not merely cached (memory.max in
//! Documentation/admin-guide/cgroup-v2.rst, memory.limit_in_bytes in version 1).

use std::path::Path;

use punctual_platform::Refusal;
use punctual_platform::linux::KernelTree;
use punctual_platform::linux::cgroup::{CgroupVersion, locate_controller, mount_point};

use super::refused;

/// Memory to leave for all other programs, in bytes.
const SPARE_BYTES: u64 = 64 << 20;

/// Refuses `bytes` that cannot be kept in memory now.
pub(crate) fn check_room(bytes: u64) -> Result<(), Refusal> {
    let available = available(&KernelTree::default()).unwrap_or(u64::MAX);
    if bytes > 0 && bytes.saturating_add(SPARE_BYTES) <= available {
        return Ok(());
    }
    let most = available.saturating_sub(SPARE_BYTES);
    let why = format!("between 1 byte and {most} can be kept in memory now");
    let remedy = "leave the data on its device and read it by polling, or ask for less";
    Err(refused(format!("{bytes} bytes in memory"), why, remedy))
}

/// Memory that is free without paging, in bytes; `None` where the kernel does not say.
fn available(tree: &KernelTree) -> Option<u64> {
    [of_machine(tree), of_groups(tree)].into_iter().flatten().min()
}

fn of_machine(tree: &KernelTree) -> Option<u64> {
    let text = tree.read("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

/// The least room in the group of this process and its ancestors, as far as this process sees them.
fn of_groups(tree: &KernelTree) -> Option<u64> {
    let text = |file: &str| tree.read(file).unwrap_or_default();
    let mountinfo = text("/proc/self/mountinfo");
    let home = locate_controller("memory", &text("/proc/self/cgroup"), &mountinfo)?;
    let top = match home.version {
        CgroupVersion::V1 => mount_point(Some("memory"), &mountinfo)?,
        CgroupVersion::V2 => mount_point(None, &mountinfo)?,
    };
    let way = home.folder.ancestors().take_while(|group| group.starts_with(&top));
    way.filter_map(|group| room_in(&tree.path(group), home.version)).min()
}

/// Room in one group, in bytes; `None` where the group has no limit.
fn room_in(group: &Path, version: CgroupVersion) -> Option<u64> {
    let (limit, usage, cached) = match version {
        CgroupVersion::V1 => (
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            ["total_inactive_file ", "total_active_file "],
        ),
        CgroupVersion::V2 => ("memory.max", "memory.current", ["inactive_file ", "active_file "]),
    };
    let text = |file: &str| std::fs::read_to_string(group.join(file));
    let number = |file: &str| text(file).ok()?.trim().parse::<u64>().ok();
    let statistics = text("memory.stat").unwrap_or_default();
    let statistic = |name: &str| -> u64 {
        let value = statistics.lines().find_map(|line| line.strip_prefix(name));
        value.and_then(|value| value.parse().ok()).unwrap_or(0)
    };
    let cached = cached.into_iter().map(statistic).fold(0, u64::saturating_add);
    let used = number(usage)?.saturating_sub(cached);
    Some(number(limit)?.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of the given kernel paths and contents.
    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, KernelTree) {
        let folder = punctual_testing::kernel_files(files);
        let tree = KernelTree::at(folder.path());
        (folder, tree)
    }

    const MEMINFO: (&str, &str) = ("/proc/meminfo", "MemTotal: 9 kB\nMemAvailable:     12 kB");

    #[test]
    fn the_machine_tells_what_it_has() {
        assert_eq!(available(&tree(&[MEMINFO]).1), Some(12 * 1024));
        assert_eq!(available(&tree(&[]).1), None);
        assert!(available(&KernelTree::default()) > Some(0));
    }

    #[test]
    fn more_than_there_is_and_nothing_at_all_are_refused() {
        assert_eq!(
            [0, 1, u64::MAX].map(|bytes| check_room(bytes).is_ok()),
            [false, true, false]
        );
    }

    #[test]
    fn a_group_above_this_process_may_leave_less() {
        let unified = |files: &[(&str, &str)]| {
            let hierarchy = [
                MEMINFO,
                ("/proc/self/mountinfo", "29 23 0:26 / /cg rw - cgroup2 cgroup2 rw"),
                ("/proc/self/cgroup", "0::/outer/inner"),
                ("/cg/outer/inner/memory.max", "max"),
                ("/cg/outer/inner/memory.current", "4000"),
            ];
            available(&tree(&[&hierarchy, files].concat()).1)
        };
        assert_eq!(unified(&[]), Some(12 * 1024), "no limit");
        let outer = [("/cg/outer/memory.max", "8000"), ("/cg/outer/memory.current", "5000")];
        assert_eq!(unified(&outer), Some(3000));
        let cached = [(
            "/cg/outer/memory.stat",
            "anon 1\ninactive_file 700\nactive_file 300\nshmem 9",
        )];
        assert_eq!(
            unified(&[outer.as_slice(), &cached].concat()),
            Some(4000),
            "what is cached can be dropped"
        );
        let over = [("/cg/outer/memory.max", "8000"), ("/cg/outer/memory.current", "9000")];
        assert_eq!(unified(&over), Some(0));
    }

    #[test]
    fn version_1_has_other_names_for_the_same() {
        let (_folder, tree) = tree(&[
            MEMINFO,
            ("/proc/self/mountinfo", "31 24 0:28 / /mem rw - cgroup cgroup rw,memory"),
            ("/proc/self/cgroup", "4:memory:/box"),
            ("/mem/memory.limit_in_bytes", "9223372036854771712"),
            ("/mem/memory.usage_in_bytes", "50"),
            ("/mem/box/memory.limit_in_bytes", "6000"),
            ("/mem/box/memory.usage_in_bytes", "1000"),
            (
                "/mem/box/memory.stat",
                "inactive_file 1\ntotal_inactive_file 500\ntotal_active_file 0",
            ),
        ]);
        assert_eq!(available(&tree), Some(5500));
    }
}
