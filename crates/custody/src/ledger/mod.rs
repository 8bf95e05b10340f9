//! The ledger: one file with the cores, tasks and changes of all processes of this program on this machine.
//!
//! **Problem.** The changes of one process (interrupts, groups, clock limits) outlive it, and other processes take them
//! for the machine's own state. A table per process does not help: the order in which processes end would decide which
//! changes stay, and after the death of a process and its guardian no record is left. **Method.** One table for all
//! ([`Table`]), in a file in the folder for run-time data, mapped by every process and changed only under its lock
//! (flock(2)). The kernel releases the lock when a process dies; the records stay until the machine is off.
//!
//! The header names the boot, because a reboot undoes all changes, and the layout. Limits: a process that is stopped
//! (SIGSTOP) while it has the lock makes others wait, for [`LOCK_WAIT`] at most. So does a process that dies there
//! while a child that it forked without executing lives on. If the process with the lock makes progress, for example
//! slowly on a busy machine, others wait longer, and so they do if several processes have it one after the other
//! ([`LOCK_WAIT_MAX`]).

mod table;
mod text;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use punctual_os::linux::mapping::{Mapping, allocate, memory_file};
use punctual_units::Nanos;

use super::refused;
use super::undo::sleep;
use crate::Refusal;

pub use table::AnnouncedTask;
#[cfg(test)]
pub(crate) use table::WISHES;
pub(crate) use table::{
    CHANGES, Conflict, Content, Entrant, HOLDERS, Holder, HolderId, Kind, LEFT, LastValue, LedgerAction, NOT_OURS,
    TASKS, Table, affinity, scheduling,
};
pub(crate) use text::{TEXT_BYTES, number, parse_list, print_list};

/// The environment variable that names the ledger's folder, for tests and for machines on which the usual one cannot be
/// written.
pub const FOLDER: &str = "PUNCTUAL_RUN_DIR";
/// Folder of the superuser's ledger (file-hierarchy(7)).
pub(crate) const SYSTEM: &str = "/run/punctual";
const NAME: &str = "ledger";
/// Version of the file's layout: raised with every change of a type in `table.rs`.
const LAYOUT: u32 = 5;
const MAGIC: [u8; 8] = *b"punctual";
/// Longest wait for the lock while the process that has it makes no progress: longer than a group takes to become empty
/// (`undo.rs`).
pub(crate) const LOCK_WAIT: Nanos = Nanos::from_millis(5000);
/// Longest wait for the lock in all.
const LOCK_WAIT_MAX: Nanos = Nanos::from_millis(60_000);
const LOCK_PAUSE: Nanos = Nanos::from_millis(1);

#[repr(C)]
struct Header {
    layout: u32,
    size: u32,
    /// Id of the boot as the kernel prints it, in 36 bytes.
    boot: [u8; 40],
    /// Written last, so that the header is valid only once it is complete.
    magic: [u8; 8],
}

#[repr(C)]
struct Image {
    header: Header,
    table: Table,
}

/// The mapped ledger of this process.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// An [`Image`], read or written only under the lock.
    mapping: Mapping,
    /// The file, opened for its lock only.
    lock: File,
    /// Excludes threads that share the descriptor, between which the file's lock does not distinguish.
    threads: Mutex<()>,
    /// Folder of the file; `None` for an unnamed ledger.
    folder: Option<PathBuf>,
}

/// The folder of this user's ledger: the one that the environment names ([`FOLDER`]); `/run/punctual` for the
/// superuser; else `punctual` in the user's folder for run-time data, or in the temporary folder.
pub fn folder() -> PathBuf {
    let value = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let named = |name| value(name).map(PathBuf::from);
    if let Some(folder) = named(FOLDER) {
        return folder;
    }
    // SAFETY: takes nothing.
    let user = unsafe { libc::geteuid() };
    let own = || match user {
        0 => Some(PathBuf::from(SYSTEM)).filter(|folder| folder.is_dir() || writable(Path::new("/run"))),
        _ => named("XDG_RUNTIME_DIR").map(|folder| folder.join("punctual")),
    };
    own().unwrap_or_else(|| std::env::temp_dir().join(format!("punctual-{user}")))
}

fn writable(folder: &Path) -> bool {
    super::tree::writable(folder).is_ok()
}

impl Ledger {
    /// Opens the ledger in `folder`; creates it if it is missing.
    ///
    /// # Errors
    /// [`Refusal`] if it cannot be created or mapped, belongs to another user, or has another layout.
    pub(crate) fn open(folder: &Path) -> Result<Ledger, Refusal> {
        let path = folder.join(NAME);
        let cannot = |why: io::Error| {
            let what = format!("opening the ledger of changes, {}", path.display());
            let remedy = format!("set {FOLDER} to a folder of this user that can be written");
            refused(what, why, remedy)
        };
        if !folder.is_dir() {
            let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(folder);
            made.map_err(cannot)?;
        }
        check_kind(&path)?;
        let options = { OpenOptions::new() }
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(&path);
        let file = options.map_err(cannot)?;
        let mut ledger = Ledger::map(file).map_err(cannot)?;
        ledger.folder = Some(folder.to_owned());
        ledger.prepare(&path)?;
        Ok(ledger)
    }

    /// Copies the present table of the ledger in `folder`, for any user that may read it; `None` if there is no ledger,
    /// or one of another boot.
    ///
    /// # Errors
    /// [`Refusal`] where it cannot be read or has another layout.
    pub(crate) fn read(folder: &Path) -> Result<Option<LedgerCopy>, Refusal> {
        let path = folder.join(NAME);
        let cannot = |why: io::Error| {
            let what = format!("reading the ledger of changes, {}", path.display());
            refused(what, why, "run as the file's owner, or as root")
        };
        check_kind(&path)?;
        let opened = { OpenOptions::new() }
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&path);
        let mut file = match opened {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(cannot)?,
        };
        // SAFETY: all zeros are a valid image.
        let mut image: Box<Image> = unsafe { zeroed() };
        // SAFETY: any bytes are a valid image, and the slice has its size.
        let bytes = unsafe { std::slice::from_raw_parts_mut((&raw mut *image).cast::<u8>(), size_of::<Image>()) };
        if !wait_for_lock(file.as_raw_fd(), libc::LOCK_SH) {
            return Err(busy());
        }
        let read = file.read_exact(bytes);
        let known = image.header.magic == MAGIC && image.header.boot == this_boot();
        match read {
            _ if !known => Ok(None),
            Ok(()) if image.header.layout == LAYOUT => Ok(Some(LedgerCopy(image))),
            _ => Err(other_layout(&path, image.header.layout)),
        }
    }

    /// Makes an unnamed ledger: only this process and its guardian know it.
    ///
    /// # Errors
    /// [`Refusal`] where the kernel refuses the memory.
    pub(crate) fn alone() -> Result<Ledger, Refusal> {
        let mapped = memory_file(c"punctual-ledger").and_then(Ledger::map);
        mapped.map_err(|why| {
            let remedy = "raise the limits on memory (ulimit -v, ulimit -l)";
            refused("mapping 5 MB for the ledger of changes", why, remedy)
        })
    }

    fn map(file: File) -> io::Result<Ledger> {
        // SAFETY: takes nothing.
        let user = unsafe { libc::geteuid() };
        let found = file.metadata()?;
        if !found.is_file() || found.uid() != user {
            return Err(io::Error::other("it is no file of this user"));
        }
        // Allocates all of the file now, so that no later write meets a full file system.
        allocate(&file, size_of::<Image>())?;
        let mapping = Mapping::of(&file, size_of::<Image>(), true)?;
        // Opens the file once more for its lock: the mapping holds the first open file, and so does the guardian, which
        // inherits it. A lock on that one would outlive the process.
        let again = { OpenOptions::new() }
            .read(true)
            .write(true)
            .open(format!("/proc/self/fd/{}", file.as_raw_fd()));
        Ok(Ledger {
            mapping,
            lock: again?,
            threads: Mutex::new(()),
            folder: None,
        })
    }

    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The mapped image; any bytes are a valid one.
    fn image(&self) -> NonNull<Image> {
        self.mapping.base().cast()
    }

    /// Empties a ledger of another boot, refuses one of another layout, writes the header of a new one.
    fn prepare(&self, path: &Path) -> Result<(), Refusal> {
        let locked = self.lock()?;
        // SAFETY: mapped and locked, and any bytes are a valid header.
        let header = unsafe { &mut (*locked.image.as_ptr()).header };
        let (boot, size) = (this_boot(), size_of::<Image>() as u32);
        match header.magic == MAGIC && header.boot == boot {
            true if (header.layout, header.size) == (LAYOUT, size) => return Ok(()),
            true => return Err(other_layout(path, header.layout)),
            false => {}
        }
        *header = Header {
            layout: LAYOUT,
            size,
            boot,
            magic: [0; 8],
        };
        // A reboot has undone all changes of an earlier boot.
        // SAFETY: mapped, locked, and the table is valid as all zeros.
        unsafe { std::ptr::write_bytes(&raw mut (*locked.image.as_ptr()).table, 0, 1) };
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        header.magic = MAGIC;
        Ok(())
    }

    /// Waits until no other process or thread reads or changes the table.
    ///
    /// # Errors
    /// [`Refusal`] if the process that has it makes no progress for [`LOCK_WAIT`], and after [`LOCK_WAIT_MAX`] in all.
    pub(crate) fn lock(&self) -> Result<Guard<'_>, Refusal> {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the descriptor is that of the mapping and lives as long as the lock.
        let locked = unsafe { Guard::wait(self.image(), self.lock.as_raw_fd(), Some(threads)) };
        locked.ok_or_else(busy)
    }

    /// The table; `None` if another process or thread has it at this instant.
    pub(crate) fn try_lock(&self) -> Option<Guard<'_>> {
        let threads = match self.threads.try_lock() {
            Err(TryLockError::WouldBlock) => return None,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Ok(threads) => threads,
        };
        let file = self.lock.as_raw_fd();
        try_for_lock(file, libc::LOCK_EX).then(|| Guard {
            image: self.image(),
            file,
            _threads: Some(threads),
        })
    }

    /// Notes that the value of a thing is unknown, without the lock: for a real-time thread that writes a value of a
    /// change that its process wants, while another process or thread has the table.
    pub(crate) fn note_unknown(&self, change: usize) {
        // SAFETY: mapped while this lives. The entry is an atomic number, and every access to it is atomic.
        let last = unsafe { Table::last_at(&raw const (*self.image().as_ptr()).table, change) };
        if let Some(last) = last {
            last.set(LastValue::UNKNOWN);
        }
    }

    /// The mapping and the descriptor that a guardian needs.
    pub(crate) fn handle(&self) -> Handle {
        Handle {
            image: self.image(),
            file: self.lock.as_raw_fd(),
        }
    }
}

/// Allocates a zeroed value, never on the stack.
///
/// # Safety
/// All zeros must be a valid value of the type, which must not be zero-sized.
unsafe fn zeroed<T>() -> Box<T> {
    let layout = std::alloc::Layout::new::<T>();
    // SAFETY: by contract; the allocation has the value's layout, as a box wants it.
    unsafe {
        let memory = std::alloc::alloc_zeroed(layout);
        if memory.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        Box::from_raw(memory.cast())
    }
}

/// Refuses anything but a regular file, if there is something at `path`. `O_NONBLOCK` covers what takes its place
/// afterwards: without it, opening a pipe blocks without limit.
fn check_kind(path: &Path) -> Result<(), Refusal> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(refused(
            format!("opening the ledger of changes, {}", path.display()),
            "it is no regular file",
            format!("remove it, or set {FOLDER} to another folder"),
        )),
        _ => Ok(()),
    }
}

fn this_boot() -> [u8; 40] {
    let mut boot = [0u8; 40];
    let found = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let found = found.trim_ascii();
    boot.iter_mut().zip(found).for_each(|(to, from)| *to = *from);
    boot
}

fn busy() -> Refusal {
    refused(
        "changing the machine",
        format!(
            "another process has had the ledger of changes for {LOCK_WAIT} without doing anything, or several have had \
             it in turns for {LOCK_WAIT_MAX}"
        ),
        "see whether a program that uses punctual is stopped (ps -o pid,stat,comm), and continue or end it",
    )
}

fn other_layout(path: &Path, layout: u32) -> Refusal {
    let path = path.display();
    refused(
        format!("reading the ledger of changes, {path}"),
        format!("another version of this program wrote it (layout {layout}, this program has {LAYOUT})"),
        format!("end the programs that use that version and run its `punctual doctor --restore`, then: rm {path}"),
    )
}

/// A copy of the table at the time of reading.
pub(crate) struct LedgerCopy(Box<Image>);

impl Deref for LedgerCopy {
    type Target = Table;
    fn deref(&self) -> &Table {
        &self.0.table
    }
}

/// The ledger of a forked process: its mapping, and a descriptor of the file.
#[derive(Clone, Copy)]
pub(crate) struct Handle {
    image: NonNull<Image>,
    pub(crate) file: RawFd,
}

impl Handle {
    /// Waits for the ledger, as [`Ledger::lock`] does, by a descriptor that this process opened itself: forked
    /// processes share the locks of inherited ones. Makes plain system calls only.
    ///
    /// # Safety
    /// `own` must be such a descriptor, open while the result lives, and the mapping must be inherited.
    pub(crate) unsafe fn lock<'a>(self, own: RawFd) -> Option<Guard<'a>> {
        // SAFETY: by contract.
        unsafe { Guard::wait(self.image, own, None) }
    }
}

/// Exclusive access to the table, for one thread of one process.
pub(crate) struct Guard<'a> {
    image: NonNull<Image>,
    file: RawFd,
    _threads: Option<MutexGuard<'a, ()>>,
}

impl<'a> Guard<'a> {
    /// # Safety
    /// `file` must be open and `image` mapped while the result lives.
    unsafe fn wait(image: NonNull<Image>, file: RawFd, threads: Option<MutexGuard<'a, ()>>) -> Option<Guard<'a>> {
        let locked = wait_for_lock(file, libc::LOCK_EX).then(|| Guard {
            image,
            file,
            _threads: threads,
        })?;
        locked.goes_on();
        Some(locked)
    }
}

/// The rest of a wait for a lock, counted in pauses.
struct Waits {
    /// The progress number read last.
    seen: u64,
    while_nothing: u64,
    in_all: u64,
}

impl Waits {
    const WHILE_NOTHING: u64 = LOCK_WAIT.0 / LOCK_PAUSE.0;

    fn new(seen: u64) -> Waits {
        Waits {
            seen,
            while_nothing: Waits::WHILE_NOTHING,
            in_all: LOCK_WAIT_MAX.0 / LOCK_PAUSE.0,
        }
    }

    /// Counts a pause, after which the progress number is `shows`; returns whether to wait on.
    fn wait_on(&mut self, shows: u64) -> bool {
        self.while_nothing = match shows == self.seen {
            true => self.while_nothing.saturating_sub(1),
            false => Waits::WHILE_NOTHING,
        };
        self.seen = shows;
        self.in_all = self.in_all.saturating_sub(1);
        self.while_nothing > 0 && self.in_all > 0
    }
}

/// Waits for a lock of this kind; returns whether it was granted.
fn wait_for_lock(file: RawFd, kind: libc::c_int) -> bool {
    let mut waits = Waits::new(shown(file));
    loop {
        if try_for_lock(file, kind) {
            return true;
        }
        sleep(LOCK_PAUSE.0 as libc::c_long);
        if !waits.wait_on(shown(file)) {
            return false;
        }
    }
}

/// The number in the table that changes while the process with the lock makes progress; 0 if it cannot be read.
fn shown(file: RawFd) -> u64 {
    const AT: libc::off_t = (std::mem::offset_of!(Image, table) + Table::GOES_ON_AT) as libc::off_t;
    let mut number = [0; size_of::<u64>()];
    // SAFETY: room for as many bytes.
    unsafe { libc::pread(file, number.as_mut_ptr().cast(), number.len(), AT) };
    u64::from_ne_bytes(number)
}

fn try_for_lock(file: RawFd, kind: libc::c_int) -> bool {
    // SAFETY: plain numbers.
    unsafe { libc::flock(file, kind | libc::LOCK_NB) == 0 }
}

impl Deref for Guard<'_> {
    type Target = Table;
    fn deref(&self) -> &Table {
        // SAFETY: mapped and locked, and any bytes are a valid table.
        unsafe { &(*self.image.as_ptr()).table }
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut Table {
        // SAFETY: as above, and no other reference is given out while this one lives.
        unsafe { &mut (*self.image.as_ptr()).table }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // SAFETY: plain numbers.
        unsafe { libc::flock(self.file, libc::LOCK_UN) };
    }
}

#[cfg(test)]
mod tests;
