//! Emulated kernel trees for tests.

use std::fs;

use super::KernelTree;

/// A folder for emulated kernel files, in memory where possible: ext4 flushes a file that is truncated and rewritten,
/// which kernel files, rewritten all the time, do not.
pub(super) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// A tree of the given kernel paths and contents. Each content ends with a newline, as the kernel's do.
pub(super) fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, KernelTree) {
    let folder = folder();
    let tree = KernelTree::at(folder.path());
    for (path, content) in files {
        let path = tree.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{content}\n")).unwrap();
    }
    (folder, tree)
}
