//! How much memory a copy of a store may take.
//!
//! **Problem.** What lies in a file of the memory's belongs to no process, and is charged to a control group. Where it
//! meets the group's bound, the kernel ends the process of the group that has most, which may well be the one that has
//! the store open, and frees little by that. What the machine has free says nothing of the bound.
//!
//! **Method.** A group that is bounded, or of which that cannot be told, gets none. Others get half of what is free, up
//! to [`COPY_MAX`]: it is kept for as long as the copy is read.

use std::fs;
use std::path::Path;

/// The most that a copy takes, in bytes.
const COPY_MAX: u64 = 256 << 20;
/// What says that a group of version 1 has no bound: the largest number of whole pages, or above.
const UNBOUNDED_FROM: u64 = 1 << 60;

/// How much a copy may take, in bytes; none where the medium is to be used.
pub(super) fn for_a_copy() -> u64 {
    let groups = fs::read_to_string("/proc/self/cgroup").ok();
    match groups.is_some_and(|groups| !is_bounded(&groups, Path::new("/sys/fs/cgroup"))) {
        true => (free() / 2).min(COPY_MAX),
        false => 0,
    }
}

/// In bytes; what files have of it in the page cache is not counted as free.
fn free() -> u64 {
    // SAFETY: the calls read numbers.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_AVPHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0) * u64::try_from(size).unwrap_or(0)
}

/// Whether the memory of one of `groups` is bounded, or of one above, or that cannot be told. A line of `groups` is
/// number, controllers and path (cgroups(7)).
fn is_bounded(groups: &str, root: &Path) -> bool {
    groups.lines().any(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            return true;
        };
        let root = match controllers {
            "" => root.to_path_buf(),
            named if named.split(',').any(|name| name == "memory") => root.join("memory"),
            _ => return false,
        };
        let group = root.join(path.trim_start_matches('/'));
        // Where each group of a machine is mounted as the root of its container, the path is none of what is here.
        !group.is_dir() || group.ancestors().take_while(|at| at.starts_with(&root)).any(bounds)
    })
}

/// Whether this group has a bound of its own. The files are missing at the root, and where memory is not counted.
fn bounds(group: &Path) -> bool {
    let files = ["memory.max", "memory.high", "memory.limit_in_bytes"].map(|name| group.join(name));
    files.iter().filter(|file| file.exists()).any(|file| {
        let bound = fs::read_to_string(file).unwrap_or_default();
        let bound = bound.trim();
        bound != "max" && bound.parse().map_or(true, |bytes: u64| bytes < UNBOUNDED_FROM)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_of_a_group_or_of_one_above_it_counts() {
        let root = tempfile::tempdir().unwrap();
        for group in ["robot/store", "memory/robot/store"] {
            fs::create_dir_all(root.path().join(group)).unwrap();
        }
        let bounded = |groups: &str| is_bounded(groups, root.path());
        let (two, one) = ("0::/robot/store\n", "7:cpuset:/elsewhere\n5:cpu,memory:/robot/store\n");
        assert!(!bounded(two) && !bounded(one) && !bounded("") && !bounded("0::/\n"));
        assert!(bounded("0::/not/here\n") && bounded("what is this"));
        let set = |file: &str, to: &str| fs::write(root.path().join(file), to).unwrap();
        for file in ["robot/store/memory.max", "robot/memory.high"] {
            set(file, "max\n");
            assert!(!bounded(two));
            set(file, "4294967296\n");
            assert!(bounded(two) && !bounded(one), "{file}");
            set(file, "max\n");
        }
        set("memory/robot/memory.limit_in_bytes", "9223372036854771712\n");
        assert!(!bounded(one));
        set("memory/robot/memory.limit_in_bytes", "4294967296\n");
        assert!(bounded(one) && !bounded(two));
    }
}
