//! The record of what a program does to files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A file, whatever its name is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// Something that happened to files, or that the test says happened. Paths count from the recorded folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A file was found in a directory for the first time.
    Created(FileId, PathBuf),
    /// A directory was made.
    DirectoryMade(PathBuf),
    /// Bytes were written at an offset.
    Written(FileId, u64, Vec<u8>),
    /// The file was cut, or filled up with zeros, to this length in bytes.
    Truncated(FileId, u64),
    /// All of the file was synced.
    Synced(FileId),
    /// A write of this offset and length was synced by itself (`O_DSYNC`).
    RangeSynced(FileId, u64, u64),
    /// The entries of a directory were synced.
    DirectorySynced(PathBuf),
    /// A file or directory got another name, and took the place of what had it.
    Renamed(PathBuf, PathBuf),
    /// A file or directory lost its name.
    Removed(PathBuf),
    /// What [`mark`] said.
    Marked(&'static str, u64),
}

struct Recorder {
    root: PathBuf,
    events: Vec<Event>,
    /// By device and inode.
    files: BTreeMap<(u64, u64), FileId>,
    directories: BTreeSet<PathBuf>,
    next: u32,
}

static RECORDER: Mutex<Option<Recorder>> = Mutex::new(None);
static RECORDING: AtomicBool = AtomicBool::new(false);
static SYNCS_TO_FAIL: AtomicU32 = AtomicU32::new(0);
/// LMDB's table of readers and mutexes: it is made anew by the first process that opens the store.
const IGNORED: &str = "lock.mdb";

fn recorder() -> MutexGuard<'static, Option<Recorder>> {
    RECORDER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` and returns what it did to files below `root`, an existing folder. The program must have expanded
/// [`record_files!`](crate::record_files), and records one folder at a time.
///
/// # Panics
/// If `root` does not exist, or another record is under way.
pub fn record<T>(root: &Path, work: impl FnOnce() -> T) -> (Vec<Event>, T) {
    let root = root.canonicalize().expect("the folder to record exists");
    let begun = Recorder {
        root,
        events: Vec::new(),
        files: BTreeMap::new(),
        directories: BTreeSet::from([PathBuf::new()]),
        next: 0,
    };
    assert!(recorder().replace(begun).is_none(), "one record at a time");
    RECORDING.store(true, Ordering::SeqCst);
    let answer = work();
    RECORDING.store(false, Ordering::SeqCst);
    let events = recorder().take().map(|recorder| recorder.events);
    (events.unwrap_or_default(), answer)
}

/// Notes in the record that `what` has come to `number`: a promise, or that something began.
pub fn mark(what: &'static str, number: u64) {
    if let Some(recorder) = &mut *recorder() {
        recorder.events.push(Event::Marked(what, number));
    }
}

/// Lets the next `count` syncs of files below the recorded folder fail with `EIO`; a failed sync keeps nothing.
pub fn fail_syncs(count: u32) {
    SYNCS_TO_FAIL.store(count, Ordering::SeqCst);
}

impl Recorder {
    fn below_root(&self, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix(&self.root).ok()?;
        (below.file_name().is_none_or(|name| name != IGNORED)).then(|| below.to_path_buf())
    }

    /// The file behind a descriptor, if it lies below the root and is an ordinary one.
    fn file(&mut self, path: &Path, identity: (u64, u64)) -> Option<FileId> {
        let path = self.below_root(path)?;
        if let Some(file) = self.files.get(&identity) {
            return Some(*file);
        }
        let file = FileId(self.next);
        self.next += 1;
        self.files.insert(identity, file);
        self.events.push(Event::Created(file, path));
        Some(file)
    }

    /// Notes the files of a directory that have not been met yet: they were created before this.
    fn look_into(&mut self, directory: &Path) {
        use std::os::unix::fs::MetadataExt;
        let Ok(entries) = std::fs::read_dir(self.root.join(directory)) else {
            return;
        };
        for entry in entries.flatten() {
            let Ok(about) = entry.metadata() else { continue };
            if about.is_file() {
                self.file(&entry.path(), (about.dev(), about.ino()));
            }
        }
    }
}

/// What the functions that [`record_files!`](crate::record_files) defines do.
#[doc(hidden)]
pub mod hooks {
    use super::*;
    use std::ffi::{CStr, OsStr, c_char, c_int, c_long, c_void};
    use std::os::fd::RawFd;
    use std::os::unix::ffi::OsStrExt;

    /// Runs `call` with the recorder, which keeps all other recorded calls out, or without one.
    fn recorded(call: impl FnOnce(Option<&mut Recorder>) -> c_long) -> c_long {
        if !RECORDING.load(Ordering::Relaxed) {
            return call(None);
        }
        call(recorder().as_mut())
    }

    /// Path and identity of an open file, and its flags.
    fn about(fd: RawFd) -> Option<(PathBuf, (u64, u64), c_int)> {
        let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
        let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: `stat` is writable memory of the right size.
        if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
            return None;
        }
        // SAFETY: fstat has filled it in.
        let stat = unsafe { stat.assume_init() };
        // SAFETY: plain numbers.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        Some((path, (stat.st_dev, stat.st_ino), flags))
    }

    fn note_write(recorder: &mut Recorder, fd: RawFd, offset: u64, bytes: Vec<u8>) {
        let Some((path, identity, flags)) = about(fd) else {
            return;
        };
        let Some(file) = recorder.file(&path, identity) else {
            return;
        };
        let len = bytes.len() as u64;
        recorder.events.push(Event::Written(file, offset, bytes));
        if flags & libc::O_DSYNC != 0 {
            recorder.events.push(Event::RangeSynced(file, offset, len));
        }
    }

    fn position(fd: RawFd) -> u64 {
        // SAFETY: plain numbers; asks for the position only.
        u64::try_from(unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) }).unwrap_or(0)
    }

    /// # Safety
    /// As `pwrite(2)`.
    pub unsafe fn pwrite(fd: c_int, bytes: *const c_void, len: usize, offset: i64) -> isize {
        recorded(|recorder| {
            // SAFETY: the caller's promise.
            let written = unsafe { libc::syscall(libc::SYS_pwrite64, fd, bytes, len, offset) };
            if let (Some(recorder), Ok(len)) = (recorder, usize::try_from(written)) {
                // SAFETY: the kernel has just read so many bytes there.
                let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len) };
                note_write(recorder, fd, offset as u64, bytes.to_vec());
            }
            written
        }) as isize
    }

    /// # Safety
    /// As `write(2)`.
    pub unsafe fn write(fd: c_int, bytes: *const c_void, len: usize) -> isize {
        recorded(|recorder| {
            let offset = recorder.as_ref().map_or(0, |_| position(fd));
            // SAFETY: the caller's promise.
            let written = unsafe { libc::syscall(libc::SYS_write, fd, bytes, len) };
            if let (Some(recorder), Ok(len)) = (recorder, usize::try_from(written)) {
                // SAFETY: the kernel has just read so many bytes there.
                let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len) };
                note_write(recorder, fd, offset, bytes.to_vec());
            }
            written
        }) as isize
    }

    /// # Safety
    /// As `writev(2)`.
    pub unsafe fn writev(fd: c_int, parts: *const libc::iovec, count: c_int) -> isize {
        recorded(|recorder| {
            let offset = recorder.as_ref().map_or(0, |_| position(fd));
            // SAFETY: the caller's promise.
            let written = unsafe { libc::syscall(libc::SYS_writev, fd, parts, count) };
            if let (Some(recorder), Ok(len)) = (recorder, usize::try_from(written)) {
                // SAFETY: the kernel has just read these parts.
                let parts = unsafe { std::slice::from_raw_parts(parts, count as usize) };
                let mut bytes = Vec::with_capacity(len);
                for part in parts {
                    // SAFETY: as above.
                    bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(part.iov_base.cast(), part.iov_len) });
                }
                bytes.truncate(len);
                note_write(recorder, fd, offset, bytes);
            }
            written
        }) as isize
    }

    /// `fsync` or `fdatasync`: `call` is the number of the system call.
    pub fn sync(fd: c_int, call: c_long) -> c_int {
        recorded(|recorder| {
            let Some(recorder) = recorder else {
                // SAFETY: plain numbers.
                return unsafe { libc::syscall(call, fd) };
            };
            let found = about(fd).and_then(|(path, identity, _)| Some((recorder.below_root(&path)?, path, identity)));
            let Some((below, path, identity)) = found else {
                // SAFETY: plain numbers.
                return unsafe { libc::syscall(call, fd) };
            };
            let fails = SYNCS_TO_FAIL.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            if fails.is_ok() {
                // SAFETY: the thread's own error number.
                unsafe { *libc::__errno_location() = libc::EIO };
                return -1;
            }
            // The system call itself is left out: no test looks at the medium, and thousands of syncs take minutes.
            if path.is_dir() {
                recorder.look_into(&below);
                recorder.events.push(Event::DirectorySynced(below));
            } else if let Some(file) = recorder.file(&path, identity) {
                recorder.events.push(Event::Synced(file));
            }
            0
        }) as c_int
    }

    pub fn ftruncate(fd: c_int, len: i64) -> c_int {
        recorded(|recorder| {
            // SAFETY: plain numbers.
            let answer = unsafe { libc::syscall(libc::SYS_ftruncate, fd, len) };
            if let (Some(recorder), Some((path, identity, _)), 0) = (recorder, about(fd), answer)
                && let Some(file) = recorder.file(&path, identity)
            {
                recorder.events.push(Event::Truncated(file, len as u64));
            }
            answer
        }) as c_int
    }

    /// The path of a C string, whole.
    unsafe fn path(text: *const c_char) -> Option<PathBuf> {
        // SAFETY: the caller's promise: a string that ends with 0.
        let path = PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes()));
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
        Some(folder.join(path.file_name()?))
    }

    /// # Safety
    /// As `rename(2)`.
    pub unsafe fn rename(from: *const c_char, to: *const c_char) -> c_int {
        recorded(|recorder| {
            // SAFETY: the caller's promise.
            let paths = unsafe { (path(from), path(to)) };
            let mut recorder = recorder;
            // A file that was never written to is met here for the first time.
            if let (Some(recorder), (Some(from), _)) = (&mut recorder, &paths)
                && let Some(folder) = from.parent().and_then(|folder| recorder.below_root(folder))
            {
                recorder.look_into(&folder);
            }
            // SAFETY: the caller's promise.
            let answer = unsafe { libc::syscall(libc::SYS_renameat2, libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0) };
            if let (Some(recorder), (Some(from), Some(to)), 0) = (recorder, paths, answer)
                && let (Some(from), Some(to)) = (recorder.below_root(&from), recorder.below_root(&to))
            {
                recorder.events.push(Event::Renamed(from, to));
            }
            answer
        }) as c_int
    }

    /// # Safety
    /// As `unlink(2)` and `rmdir(2)`: `flags` is 0 or `AT_REMOVEDIR`.
    pub unsafe fn remove(name: *const c_char, flags: c_int) -> c_int {
        recorded(|recorder| {
            // SAFETY: the caller's promise.
            let path = unsafe { path(name) };
            let identity = path.as_ref().and_then(|path| std::fs::symlink_metadata(path).ok());
            // SAFETY: the caller's promise.
            let answer = unsafe { libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, name, flags) };
            if let (Some(recorder), Some(path), 0) = (recorder, path, answer)
                && let Some(path) = recorder.below_root(&path)
            {
                use std::os::unix::fs::MetadataExt;
                if let Some(about) = identity {
                    recorder.files.remove(&(about.dev(), about.ino())); // the number may be used again
                }
                recorder.directories.remove(&path);
                recorder.events.push(Event::Removed(path));
            }
            answer
        }) as c_int
    }

    /// # Safety
    /// As `mkdir(2)`.
    pub unsafe fn mkdir(name: *const c_char, mode: libc::mode_t) -> c_int {
        recorded(|recorder| {
            // SAFETY: the caller's promise.
            let path = unsafe { path(name) };
            // SAFETY: the caller's promise.
            let answer = unsafe { libc::syscall(libc::SYS_mkdirat, libc::AT_FDCWD, name, libc::c_uint::from(mode)) };
            if let (Some(recorder), Some(path), 0) = (recorder, path, answer)
                && let Some(path) = recorder.below_root(&path)
                && recorder.directories.insert(path.clone())
            {
                recorder.events.push(Event::DirectoryMade(path));
            }
            answer
        }) as c_int
    }
}

/// Defines, in the program that expands it, the functions of the C library that write, sync and name files: each does
/// what it always does, and tells a running [`record`]. Once, at the top of a test program.
#[macro_export]
macro_rules! record_files {
    () => {
        /// The C library's functions, recorded.
        mod recorded {
            #![allow(missing_docs, clippy::missing_safety_doc, clippy::undocumented_unsafe_blocks)]
            use std::ffi::{c_char, c_int, c_void};
            use $crate::power::hooks;

            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn pwrite(fd: c_int, bytes: *const c_void, len: usize, offset: i64) -> isize {
                unsafe { hooks::pwrite(fd, bytes, len, offset) }
            }
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn pwrite64(fd: c_int, bytes: *const c_void, len: usize, offset: i64) -> isize {
                unsafe { hooks::pwrite(fd, bytes, len, offset) }
            }
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, len: usize) -> isize {
                unsafe { hooks::write(fd, bytes, len) }
            }
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn writev(fd: c_int, parts: *const libc::iovec, count: c_int) -> isize {
                unsafe { hooks::writev(fd, parts, count) }
            }
            #[unsafe(no_mangle)]
            pub extern "C" fn fsync(fd: c_int) -> c_int {
                hooks::sync(fd, libc::SYS_fsync)
            }
            #[unsafe(no_mangle)]
            pub extern "C" fn fdatasync(fd: c_int) -> c_int {
                hooks::sync(fd, libc::SYS_fdatasync)
            }
            #[unsafe(no_mangle)]
            pub extern "C" fn ftruncate(fd: c_int, len: i64) -> c_int {
                hooks::ftruncate(fd, len)
            }
            #[unsafe(no_mangle)]
            pub extern "C" fn ftruncate64(fd: c_int, len: i64) -> c_int {
                hooks::ftruncate(fd, len)
            }
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
                unsafe { hooks::rename(from, to) }
            }
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn unlink(name: *const c_char) -> c_int {
                unsafe { hooks::remove(name, 0) }
            }
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn rmdir(name: *const c_char) -> c_int {
                unsafe { hooks::remove(name, libc::AT_REMOVEDIR) }
            }
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn mkdir(name: *const c_char, mode: libc::mode_t) -> c_int {
                unsafe { hooks::mkdir(name, mode) }
            }
        }
    };
}
