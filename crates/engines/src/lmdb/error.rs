//! Translates errors of LMDB and of the operating system into causes with a remedy.

use std::io;
use std::path::Path;

use heed::MdbError;
use punctual_store::engine::EngineError;

/// Free bytes below which a disk counts as full after a short write; also the distance of a file from its maximum
/// length. LMDB reports a short write as a bare `EIO` (mdb_page_flush), because the kernel names the cause only on the
/// next attempt.
const FULL_BELOW_BYTES: u64 = 1 << 20;

/// Facts about the open store for a message.
#[derive(Clone, Copy)]
pub(super) struct ErrorContext<'a> {
    pub path: &'a Path,
    pub quota: usize,
    pub readers_max: u32,
}

/// The action of opening a store's map.
pub(super) const OPEN: &str = "open the store";

/// The store's error when the operating system refuses `action` on `path`.
pub(super) fn io<'a>(path: &'a Path, action: &'static str) -> impl Fn(io::Error) -> EngineError + Copy + 'a {
    move |source| {
        let path = path.to_path_buf();
        match source.raw_os_error() {
            // Of what opening takes, only the map is as large as that.
            Some(libc::ENOMEM) if action == OPEN => EngineError::Io {
                path,
                action: "reserve as many addresses as store.map_bytes says (ask for fewer)",
                source,
            },
            Some(libc::EACCES | libc::EPERM | libc::EROFS) => EngineError::ReadOnly { path },
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => EngineError::DiskFull { path },
            Some(libc::EIO) if free_bytes(&path).is_some_and(|free| free < FULL_BELOW_BYTES) || at_limit(&path) => {
                EngineError::DiskFull { path }
            }
            _ => EngineError::Io { path, action, source },
        }
    }
}

/// The store's error when LMDB refuses `action`.
pub(super) fn engine<'a>(
    place: ErrorContext<'a>,
    action: &'static str,
) -> impl Fn(heed::Error) -> EngineError + Copy + 'a {
    move |error| {
        let path = || place.path.to_path_buf();
        match error {
            heed::Error::Io(source) => io(place.path, action)(source),
            // `Lmdb::quota_full` adds the reader that keeps the most pages, where it is known.
            heed::Error::Mdb(MdbError::MapFull) => EngineError::QuotaFull {
                path: path(),
                quota: place.quota as u64,
                holder: None,
            },
            heed::Error::Mdb(MdbError::TxnFull) => EngineError::TransactionTooLarge { path: path() },
            heed::Error::Mdb(MdbError::ReadersFull) => EngineError::ReadersFull {
                path: path(),
                max: place.readers_max,
            },
            heed::Error::Mdb(MdbError::BadTxn) => EngineError::TransactionLost { path: path() },
            heed::Error::Mdb(MdbError::Panic) => EngineError::Broken { path: path() },
            heed::Error::EnvAlreadyOpened => EngineError::InUse {
                path: path(),
                pid: Some(std::process::id()),
            },
            heed::Error::Mdb(damage) => EngineError::Corrupt {
                path: path(),
                reason: format!("{action}: {damage}"),
            },
            heed::Error::Encoding(source) | heed::Error::Decoding(source) => EngineError::Io {
                path: path(),
                action,
                source: io::Error::other(source),
            },
        }
    }
}

/// Whether the store in `directory` is about as large as a file of this process may be (`RLIMIT_FSIZE`).
fn at_limit(directory: &Path) -> bool {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: `limit` is valid for the call, which writes to it.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    let len = std::fs::metadata(directory.join(super::DATA_FILE)).map_or(0, |about| about.len());
    limit.rlim_cur != libc::RLIM_INFINITY && len.saturating_add(FULL_BELOW_BYTES) > limit.rlim_cur
}

/// Room on the disk that an unprivileged user can still fill, in bytes.
pub(super) fn free_bytes(path: &Path) -> Option<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut stat = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `path` is a NUL-terminated string and `stat` is writable memory of the right size.
    let answer = unsafe { libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) };
    // SAFETY: statvfs has filled the structure when it answers 0.
    (answer == 0)
        .then(|| unsafe { stat.assume_init() })
        .map(|stat| stat.f_bavail * stat.f_frsize)
}
