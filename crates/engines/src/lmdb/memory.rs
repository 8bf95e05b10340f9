//! Bound on the memory that a copy of a store may take.
//!
//! **Problem.** The pages of a file in memory belong to no process, but are charged to a control group. At the group's
//! bound, the kernel kills the process of the group that has the most memory. That may well be the store's owner, and
//! killing it frees little. The machine's free memory says nothing of that bound.
//!
//! **Method.** A copy gets no memory in a group that is bounded, or whose bound is unknown. In others it gets half of
//! the free memory, at most [`COPY_MAX`], for as long as the copy is read.

use std::fs;
use std::path::Path;

/// Upper bound on the memory of a copy, in bytes.
const COPY_MAX: u64 = 256 << 20;
/// Limits from here on mean "unbounded" in a group of version 1: the largest number of whole pages, or above.
const UNBOUNDED_FROM: u64 = 1 << 60;

/// Memory that a copy may take, in bytes; 0: copy to the medium.
pub(super) fn for_a_copy() -> u64 {
    let groups = fs::read_to_string("/proc/self/cgroup").ok();
    match groups.is_some_and(|groups| !is_bounded(&groups, Path::new("/sys/fs/cgroup"))) {
        true => (free() / 2).min(COPY_MAX),
        false => 0,
    }
}

/// Free memory in bytes, without the page cache.
fn free() -> u64 {
    // SAFETY: the calls read numbers.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_AVPHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0) * u64::try_from(size).unwrap_or(0)
}

/// Whether the memory of one of `groups` or of its ancestors is bounded; true if that is unknown. A line of `groups` is
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
        // Missing in a container that mounts its own group as the root: the bound is then unknown.
        !group.is_dir() || group.ancestors().take_while(|at| at.starts_with(&root)).any(bounds)
    })
}

/// Whether this group itself has a bound. The files are missing at the root, and where memory is not counted.
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
