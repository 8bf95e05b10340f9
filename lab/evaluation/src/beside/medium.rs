//! The medium behind a folder: its file system and device, and whether that device is memory.

use std::path::{Path, PathBuf};

use serde::Serialize;

/// Alternative to the folder for temporary files. Its content outlives a restart, so it lies on a device
/// (file-hierarchy(7)).
const LASTING: &str = "/var/tmp";

/// The medium to which the film is recorded and which the busy disk's writer uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Medium {
    /// The file system and its device, as the kernel names them.
    pub name: String,
    /// Whether the medium is memory: then no thread waits for a device there.
    pub in_memory: bool,
}

impl Medium {
    /// Finds the file system of `path`, absolute and without links, in `mountinfo` (proc_pid_mountinfo(5)).
    fn of(path: &Path, mountinfo: &str) -> Option<Medium> {
        let mount = |line: &str| {
            let (place, file_system) = line.split_once(" - ")?;
            let point = place.split(' ').nth(4)?.replace("\\040", " ");
            let mut names = file_system.split(' ');
            let (kind, source) = (names.next()?.to_owned(), names.next()?.to_owned());
            path.starts_with(&point).then_some((point.len(), kind, source))
        };
        // Of several mounts on one point the last hides the others; `max_by_key` returns the last of equals.
        let (_, kind, source) = mountinfo.lines().filter_map(mount).max_by_key(|mount| mount.0)?;
        Some(Medium {
            in_memory: matches!(kind.as_str(), "tmpfs" | "ramfs")
                || source.starts_with("/dev/zram")
                || source.starts_with("/dev/ram"),
            name: if source == kind || source == "none" {
                kind
            } else {
                format!("{kind} on {source}")
            },
        })
    }
}

/// Chooses the first of `temporary` and `LASTING` that is not memory; `temporary` where both are memory or `mountinfo`
/// has neither.
pub(super) fn folder(temporary: PathBuf, mountinfo: &str) -> (PathBuf, Medium) {
    let medium = |folder: &Path| Medium::of(&folder.canonicalize().ok()?, mountinfo);
    let candidates = [temporary.clone(), PathBuf::from(LASTING)];
    let known = candidates
        .into_iter()
        .filter_map(|folder| Some((medium(&folder)?, folder)));
    let device = known.into_iter().find(|(medium, _)| !medium.in_memory);
    let unknown = || Medium {
        name: "a medium that the kernel does not name".into(),
        in_memory: false,
    };
    match device {
        Some((medium, folder)) => (folder, medium),
        None => {
            let medium = medium(&temporary).unwrap_or_else(unknown);
            (temporary, medium)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:26 / /tmp rw,nosuid - tmpfs tmpfs rw,size=8g
31 30 254:17 / /tmp/my\\040disk rw - xfs /dev/vdb rw
32 22 0:40 / /over rw - overlay overlay rw,lowerdir=/a
33 22 0:41 / /again rw - ext4 /dev/vdc rw
34 33 0:42 / /again rw - tmpfs none rw
";

    #[test]
    fn the_innermost_mount_counts_and_of_two_on_one_point_the_later() {
        let of = |path: &str| Medium::of(Path::new(path), MOUNTS).map(|medium| (medium.name, medium.in_memory));
        assert_eq!(of("/var/tmp"), Some(("ext4 on /dev/vda1".into(), false)));
        assert_eq!(of("/tmp/x"), Some(("tmpfs".into(), true)));
        assert_eq!(of("/tmpfoo"), Some(("ext4 on /dev/vda1".into(), false)));
        assert_eq!(of("/tmp/my disk/x"), Some(("xfs on /dev/vdb".into(), false)));
        assert_eq!(of("/over"), Some(("overlay".into(), false)));
        assert_eq!(of("/again"), Some(("tmpfs".into(), true)));
        assert_eq!(Medium::of(Path::new("/x"), "nonsense"), None);
    }

    #[test]
    fn memory_is_left_for_a_device_where_there_is_one() {
        let chosen = |root: &str, tmp: &str| {
            let mounts = format!("1 0 0:1 / / rw - {root} x rw\n2 1 0:2 / /tmp rw - {tmp} x rw");
            let (folder, medium) = folder("/tmp".into(), &mounts);
            (folder, medium.in_memory)
        };
        assert_eq!(chosen("ext4", "xfs"), ("/tmp".into(), false));
        assert_eq!(chosen("ext4", "tmpfs"), ("/var/tmp".into(), false));
        assert_eq!(chosen("tmpfs", "tmpfs"), ("/tmp".into(), true), "and that is said");
    }
}
