//! The root under which kernel files are read.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::mounts::mount_point;

/// A root folder for `/proc` and `/sys`.
///
/// All code here that parses kernel files takes a tree, so that a recorded or an emulated tree (ordinary files, laid
/// out as the kernel lays out its own) can stand in for a machine elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelTree {
    /// `/` on a running machine, any folder for a recorded tree.
    pub root: PathBuf,
}

impl Default for KernelTree {
    fn default() -> Self {
        KernelTree {
            root: PathBuf::from("/"),
        }
    }
}

impl KernelTree {
    /// A recorded or emulated tree under `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        KernelTree { root: root.into() }
    }

    /// Whether this is the running kernel's tree, so that system calls and files describe the same machine.
    pub fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }

    /// The path of a kernel file named as on a running machine, e.g. `/proc/stat`.
    pub fn path(&self, kernel_path: impl AsRef<Path>) -> PathBuf {
        let kernel_path = kernel_path.as_ref();
        self.root.join(kernel_path.strip_prefix("/").unwrap_or(kernel_path))
    }

    /// The content of a kernel file, without the newline at its end.
    ///
    /// # Errors
    /// The system's error; bytes that are not UTF-8 are replaced, not refused.
    pub fn read(&self, kernel_path: impl AsRef<Path>) -> io::Result<String> {
        read_trimmed(&self.path(kernel_path))
    }

    /// The content of a kernel file as of [`KernelTree::read`]; empty where it cannot be read.
    pub fn text(&self, kernel_path: impl AsRef<Path>) -> String {
        self.read(kernel_path).unwrap_or_default()
    }

    /// Path of the mount point of the version 1 hierarchy of control groups with `controller`, or of the unified one
    /// for `None`.
    pub fn hierarchy(&self, controller: Option<&str>) -> Option<PathBuf> {
        let mounts = self.text("/proc/self/mountinfo");
        mount_point(controller, &mounts).map(|point| self.path(point))
    }

    /// Major and minor number of the kernel ("6.12" of "6.12.1-amd64"): for properties that a trial cannot reveal.
    pub fn release(&self) -> Option<(u32, u32)> {
        let release = self.read("/proc/sys/kernel/osrelease").ok()?;
        let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
        Some((numbers.next()?, numbers.next()?))
    }
}

/// Entries of the folder at `path`; none where it cannot be listed.
pub fn entries(path: &Path) -> impl Iterator<Item = fs::DirEntry> + use<> {
    fs::read_dir(path).into_iter().flatten().flatten()
}

/// Folders within the folder at `path`; none where it cannot be listed.
pub fn folders_in(path: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let folders = entries(path).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path())
}

/// The entries of `path` whose name is `prefix` and a number, by that number; sysfs has links among them.
pub fn numbered(path: &Path, prefix: &str) -> Vec<PathBuf> {
    let number = |name: &OsStr| name.to_str()?.strip_prefix(prefix)?.parse::<u32>().ok();
    let folders = entries(path).filter_map(|entry| Some((number(&entry.file_name())?, entry.path())));
    folders.collect::<BTreeMap<_, _>>().into_values().collect()
}

/// The number that a file holds.
///
/// # Errors
/// The file, and why it cannot be read, or what it holds instead.
pub fn number<T: FromStr>(path: &Path) -> Result<T, String> {
    let (shown, text) = (path.display(), read_trimmed(path));
    let text = text.map_err(|why| format!("{shown}: {why}"))?;
    text.parse().map_err(|_| format!("{shown}: '{text}' is no number"))
}

/// Value of the field `name` in a text of lines `name: value`, such as `/proc/PID/status` (proc_pid_status(5)).
pub fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let value = |line: &'t str| line.strip_prefix(name)?.strip_prefix(':');
    text.lines().find_map(value).map(str::trim)
}

/// Whether a file of words with spaces between them holds `word`.
pub fn has_word(path: &Path, word: &str) -> bool {
    read_trimmed(path).is_ok_and(|text| text.split(' ').any(|it| it == word))
}

/// The content of the file at `path`, without white space at its end.
pub fn read_trimmed(path: &Path) -> io::Result<String> {
    let bytes = fs::read(path)?;
    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

/// Writes `content` in one `write`, as kernel files require; never creates the file.
pub fn write_existing(path: &Path, content: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).truncate(true).open(path)?;
    file.write_all(content.as_bytes())
}

/// Checks whether the calling thread may write the file, or make files in the folder, at `path`; writes nothing.
pub fn writable(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `path` ends with a zero. AT_EACCESS: checks the effective rights, as a write would.
    match unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) } {
        0 => Ok(()),
        _ => Err(super::last_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_their_first_two_numbers() {
        for (text, expected) in [
            ("6.1.0-56-amd64", Some((6, 1))),
            ("6.12.117+deb12-amd64", Some((6, 12))),
            ("7.0-rc1", Some((7, 0))),
            ("strange", None),
        ] {
            let folder = punctual_testing::kernel_files(&[("/proc/sys/kernel/osrelease", text)]);
            assert_eq!(KernelTree::at(folder.path()).release(), expected);
        }
        assert!(KernelTree::default().release() > Some((3, 0)));
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let status = "Name:\tpunctual\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\nUid:\t1\t1\n";
        let found = ["Name", "Cpus_allowed", "Cpus_allowed_list", "Uid"].map(|name| field(status, name));
        assert_eq!(found, [Some("punctual"), Some("3"), Some("0-1"), Some("1\t1")]);
        assert_eq!(field(status, "Cpus"), None);
    }

    #[test]
    fn kernel_paths_land_below_the_root() {
        assert_eq!(KernelTree::default().path("/proc/stat"), Path::new("/proc/stat"));
        assert_eq!(
            KernelTree::at("/tmp/recorded").path("/proc/stat"),
            Path::new("/tmp/recorded/proc/stat")
        );
    }
}
