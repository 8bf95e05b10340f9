//! Emulated kernel trees for tests.

pub(super) use punctual_testing::shared_folder as folder;

use punctual_custody::journal::Journal;
use punctual_units::CoreId;

use super::KernelTree;

/// A journal in a private ledger.
pub(super) fn journal() -> Journal {
    Journal::alone().unwrap()
}

/// A journal in a private ledger, which claims `cores` of a machine with `machine` cores.
pub(super) fn journal_claiming(cores: &[u32], machine: u32) -> Journal {
    let journal = journal();
    let cores: Vec<CoreId> = cores.iter().copied().map(CoreId).collect();
    let machine: Vec<CoreId> = (0..machine).map(CoreId).collect();
    journal.claim(&cores, &machine).unwrap();
    journal
}

/// Two journals in one ledger, each claiming one core of a machine with `machine` cores.
pub(super) fn journals_claiming(cores: [u32; 2], machine: u32) -> [Journal; 2] {
    let folder = folder();
    let machine: Vec<CoreId> = (0..machine).map(CoreId).collect();
    cores.map(|core| {
        let journal = Journal::open_in(folder.path(), false).unwrap();
        journal.claim(&[CoreId(core)], &machine).unwrap();
        journal
    })
}

/// A tree of the given kernel paths and contents.
pub(super) fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, KernelTree) {
    let folder = punctual_testing::kernel_files(files);
    let tree = KernelTree::at(folder.path());
    (folder, tree)
}

/// Runs `body` on a thread of a user without rights; `None` if this process may not change users. To the kernel, user
/// and rights belong to a thread (setresuid(2)); the C library's wrapper would change the whole process.
pub(super) fn as_user_without_rights<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    const OTHER_USER: libc::uid_t = 65_534;
    let thread = std::thread::spawn(move || {
        // SAFETY: plain numbers; only this thread, which ends here, is another user's from now on.
        let changed = unsafe {
            libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()) == 0
                && libc::syscall(libc::SYS_setresgid, OTHER_USER, OTHER_USER, OTHER_USER) == 0
                && libc::syscall(libc::SYS_setresuid, OTHER_USER, OTHER_USER, OTHER_USER) == 0
        };
        changed.then(body)
    });
    thread.join().unwrap()
}
