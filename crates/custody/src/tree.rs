//! The root under which kernel files are read.

use std::ffi::CString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

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

    /// Major and minor number of the kernel ("6.12" of "6.12.1-amd64"): for properties that a trial cannot reveal.
    pub fn release(&self) -> Option<(u32, u32)> {
        let release = self.read("/proc/sys/kernel/osrelease").ok()?;
        let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
        Some((numbers.next()?, numbers.next()?))
    }
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
    fn kernel_paths_land_below_the_root() {
        assert_eq!(KernelTree::default().path("/proc/stat"), Path::new("/proc/stat"));
        assert_eq!(
            KernelTree::at("/tmp/recorded").path("/proc/stat"),
            Path::new("/tmp/recorded/proc/stat")
        );
    }
}
