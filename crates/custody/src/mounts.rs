//! Where the hierarchies of control groups are mounted (cgroups(7)).

use std::path::{Path, PathBuf};

/// Mount point of the version 1 hierarchy with `controller`, or of the unified one for `None`.
pub fn mount_point(controller: Option<&str>, mountinfo: &str) -> Option<PathBuf> {
    let wanted = |mount: &Mount| match controller {
        Some(controller) => mount.kind == "cgroup" && mount.options.split(',').any(|it| it == controller),
        None => mount.kind == "cgroup2",
    };
    let mount = mountinfo.lines().filter_map(Mount::parse).find(wanted)?;
    Some(PathBuf::from(mount.point))
}

/// Mount points of all cgroup hierarchies.
pub fn mount_points(mountinfo: &str) -> Vec<PathBuf> {
    let mounts = mountinfo.lines().filter_map(Mount::parse);
    let groups = mounts.filter(|mount| matches!(mount.kind, "cgroup" | "cgroup2"));
    groups.map(|mount| PathBuf::from(mount.point)).collect()
}

/// A line of a mountinfo file.
pub struct Mount<'a> {
    /// The folder of the file system that is mounted.
    root: &'a str,
    /// Where it is mounted.
    pub point: &'a str,
    /// Type of the file system: `cgroup` for version 1, `cgroup2` for version 2.
    pub kind: &'a str,
    /// Options of the file system, separated by commas; those of version 1 name the controllers.
    pub options: &'a str,
}

impl<'a> Mount<'a> {
    /// Parses "36 35 98:0 /root /point rw,noatime optional... - kind source options" (proc_pid_mountinfo(5)).
    pub fn parse(line: &'a str) -> Option<Mount<'a>> {
        let (place, what) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let mut what = what.split(' ');
        Some(Mount {
            root: place.next()?,
            point: place.next()?,
            kind: what.next()?,
            options: what.nth(1)?,
        })
    }

    /// The folder of `group` below the mount point, without the part that is not mounted (as in containers).
    pub fn folder_of(&self, group: &str) -> PathBuf {
        let below = Path::new(group).strip_prefix(self.root).unwrap_or(Path::new(""));
        // Outside of this process's cgroup namespace, the kernel shows paths with "..": only the mount point is known
        // then.
        let hidden = below.components().any(|part| part == std::path::Component::ParentDir);
        Path::new(self.point).join(if hidden { Path::new("") } else { below })
    }
}
