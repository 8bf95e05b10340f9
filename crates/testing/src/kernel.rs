//! Emulated kernel trees.

use std::fs;

use tempfile::TempDir;

/// A folder in memory where possible: ext4 flushes a file that is truncated and rewritten, which kernel files,
/// rewritten all the time, do not.
///
/// # Panics
/// Where no folder can be made.
pub fn shared_folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a folder for a test")
}

/// A folder with files at the given kernel paths. Each content ends with a newline, as the kernel's do.
///
/// # Panics
/// Where a file cannot be written.
pub fn kernel_files(files: &[(&str, &str)]) -> TempDir {
    let folder = shared_folder();
    for (path, content) in files {
        let path = folder.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().expect("a path of a file")).expect("a folder for a test");
        fs::write(path, format!("{content}\n")).expect("a file for a test");
    }
    folder
}
