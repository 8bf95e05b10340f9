//! What was changed on the machine, in a form that any process that is left can undo.
//!
//! A table of slots in shared memory: the process appends to it before each change, and the guardian, which shares
//! the mapping, finds there what to undo when the process has died. Undoing therefore runs in a process forked from a
//! multi-threaded one, where a lock of the allocator may be held for ever by a thread that no longer exists. So
//! **everything reachable from [`Table::undo_all`] makes plain system calls only**: no allocation, no lock, no panic.

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, Ordering};

use super::last_error;

/// Changes that one journal remembers: two files for each of 256 cpufreq policies, and the cores of as many threads as
/// a busy desktop has.
pub(super) const SLOTS: usize = 4096;
/// The longest path, with its terminating zero: several times that of a user's cgroup under systemd.
pub(super) const PATH_BYTES: usize = 512;
/// The longest content or second path, with its terminating zero.
pub(super) const TEXT_BYTES: usize = 512;

/// A directory of the kernel stays busy until the last task in it has died: try again this often...
const RMDIR_TRIES: u32 = 200;
/// ...after this long: 2 s in all.
const RMDIR_PAUSE_NANOS: libc::c_long = 10_000_000;
/// Passes over a list of tasks: threads may be started while it is emptied.
const MOVE_ROUNDS: u32 = 64;
/// How deep a temporary folder may be nested, and how many readings of one folder it takes to empty it.
const TREE_DEPTH: u32 = 16;
const TREE_ROUNDS: u32 = 100_000;

/// An error number of the kernel (errno(3)).
pub(super) type Errno = i32;

/// How to take one change back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Kind {
    /// Write the text into the file.
    Write = 1,
    /// Move every task listed in the file at the path to the file at the text.
    MoveTasks = 2,
    /// Remove the empty directory.
    RemoveDir = 3,
    /// Remove the directory, which belongs to this user, with all that is in it.
    RemoveTree = 4,
    /// Let the thread whose `/proc/<tid>/stat` is at the path run on the cores of the text: when the thread started, a
    /// blank, and the mask as hexadecimal bytes.
    Affinity = 5,
}

/// One change. Published by `state`; filled in only while that is free.
#[repr(C)]
pub(super) struct Slot {
    state: AtomicU32,
    kind: AtomicU32,
    /// How many changes the table had seen before this one.
    serial: AtomicU32,
    path: UnsafeCell<[u8; PATH_BYTES]>,
    text: UnsafeCell<[u8; TEXT_BYTES]>,
}

const FREE: u32 = 0;
const PENDING: u32 = 1;

/// The table in shared memory. All zeros is an empty one.
#[repr(C)]
pub(super) struct Table {
    len: AtomicU32,
    /// Changes appended so far.
    appended: AtomicU32,
    slots: [Slot; SLOTS],
}

// SAFETY: a slot's bytes are written only by `Table::append`, which its callers serialise, while the slot is free;
// they are read only once `state` says that it is pending (release, acquire).
unsafe impl Sync for Table {}

impl Slot {
    pub(super) fn pending(&self) -> bool {
        self.state.load(Ordering::Acquire) == PENDING
    }

    pub(super) fn retire(&self) {
        self.state.store(FREE, Ordering::Release);
    }

    pub(super) fn kind(&self) -> Option<Kind> {
        match self.kind.load(Ordering::Relaxed) {
            1 => Some(Kind::Write),
            2 => Some(Kind::MoveTasks),
            3 => Some(Kind::RemoveDir),
            4 => Some(Kind::RemoveTree),
            5 => Some(Kind::Affinity),
            _ => None,
        }
    }

    /// Whether the change was made when the table had seen `mark` changes, or later.
    pub(super) fn since(&self, mark: u32) -> bool {
        self.serial.load(Ordering::Relaxed) >= mark
    }

    /// The path of a pending slot.
    pub(super) fn path(&self) -> &CStr {
        // SAFETY: the bytes of a pending slot do not change.
        until_zero(unsafe { &*self.path.get() })
    }

    /// The content, or the second path, of a pending slot.
    pub(super) fn text(&self) -> &CStr {
        // SAFETY: as for `path`.
        until_zero(unsafe { &*self.text.get() })
    }

    /// Takes the change back. What is gone already needs no taking back.
    pub(super) fn undo(&self) -> Result<(), Errno> {
        let undone = match self.kind() {
            Some(Kind::Write) => write_file(self.path(), self.text().to_bytes()),
            Some(Kind::MoveTasks) => move_tasks(self.path(), self.text()),
            Some(Kind::RemoveDir) => remove_dir(self.path()),
            Some(Kind::RemoveTree) => remove_tree(self.path()),
            Some(Kind::Affinity) => set_affinity(self.path(), self.text().to_bytes()),
            None => Err(libc::EINVAL),
        };
        match undone {
            Err(libc::ENOENT) => Ok(()),
            other => other,
        }
    }
}

impl Table {
    /// Adds a pending change and returns its slot, or `None` where the table is full or `path` or `text` too long.
    /// Callers serialise.
    pub(super) fn append(&self, kind: Kind, path: &[u8], text: &[u8]) -> Option<usize> {
        // Retired slots at the end are free again: a change that is undone and done again takes no further room.
        let mut len = self.len();
        while len > 0 && !self.slots[len - 1].pending() {
            len -= 1;
        }
        // A thread's cores are put back after all else, so its record may stand in any free slot further down: threads
        // come and go.
        let free = |slots: &[Slot]| slots.iter().position(|slot| !slot.pending());
        let place = match kind {
            Kind::Affinity => free(&self.slots[..len]).unwrap_or(len),
            _ => len,
        };
        let slot = self.slots.get(place)?;
        if path.len() >= PATH_BYTES || text.len() >= TEXT_BYTES || path.contains(&0) || text.contains(&0) {
            return None;
        }
        slot.kind.store(kind as u32, Ordering::Relaxed);
        slot.serial
            .store(self.appended.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        // SAFETY: the slot is free and callers serialise, so no other thread touches its bytes; lengths were checked.
        unsafe {
            fill(&mut *slot.path.get(), path);
            fill(&mut *slot.text.get(), text);
        }
        slot.state.store(PENDING, Ordering::Release);
        self.len.store(len.max(place + 1) as u32, Ordering::Release);
        Some(place)
    }

    /// Where the table stands: what is appended from now on is [`Slot::since`] it.
    pub(super) fn mark(&self) -> u32 {
        self.appended.load(Ordering::Relaxed)
    }

    fn len(&self) -> usize {
        (self.len.load(Ordering::Acquire) as usize).min(SLOTS)
    }

    /// The slots in use, oldest first; some may be retired.
    pub(super) fn slots(&self) -> &[Slot] {
        self.slots.get(..self.len()).unwrap_or(&[])
    }

    /// Undoes every pending change that is `meant`, newest first, and tells `failed` what could not be undone, which
    /// stays pending. Writes that fail are tried once more when all else is undone: a group may have a core again only
    /// after the group around it.
    pub(super) fn undo_all(&self, meant: impl Fn(&Slot) -> bool, mut failed: impl FnMut(&Slot, Errno)) {
        let pending = || self.slots().iter().rev().filter(|slot| slot.pending() && meant(slot));
        for slot in pending() {
            match slot.undo() {
                Ok(()) => slot.retire(),
                Err(_) if slot.kind() == Some(Kind::Write) => {}
                Err(errno) => failed(slot, errno),
            }
        }
        for slot in pending().filter(|slot| slot.kind() == Some(Kind::Write)) {
            match slot.undo() {
                Ok(()) => slot.retire(),
                Err(errno) => failed(slot, errno),
            }
        }
    }
}

fn fill(field: &mut [u8], bytes: &[u8]) {
    field.fill(0);
    field[..bytes.len()].copy_from_slice(bytes);
}

fn until_zero(field: &[u8]) -> &CStr {
    CStr::from_bytes_until_nul(field).unwrap_or(c"")
}

fn errno() -> Errno {
    last_error().raw_os_error().unwrap_or(libc::EIO)
}

/// A file descriptor that closes itself.
struct Fd(libc::c_int);

impl Fd {
    fn open(directory: libc::c_int, path: &CStr, flags: libc::c_int) -> Result<Fd, Errno> {
        // SAFETY: `path` ends with a zero.
        match unsafe { libc::openat(directory, path.as_ptr(), flags | libc::O_CLOEXEC) } {
            fd if fd >= 0 => Ok(Fd(fd)),
            _ => Err(errno()),
        }
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours and closed once.
        unsafe { libc::close(self.0) };
    }
}

fn write_file(path: &CStr, content: &[u8]) -> Result<(), Errno> {
    let file = Fd::open(libc::AT_FDCWD, path, libc::O_WRONLY | libc::O_TRUNC)?;
    // SAFETY: the buffer is valid for its length.
    match unsafe { libc::write(file.0, content.as_ptr().cast(), content.len()) } {
        written if written == content.len() as isize => Ok(()),
        written if written >= 0 => Err(libc::EIO), // kernel files take all at once or nothing
        _ => Err(errno()),
    }
}

/// Moves every task listed in `from` into `to`.
fn move_tasks(from: &CStr, to: &CStr) -> Result<(), Errno> {
    move_listed(from, |task| write_file(to, task))
}

/// Hands every task listed in `from` to `put`, until none is listed or none moves any more. One that cannot be moved
/// holds up no other; the first refusal of the last round is answered.
fn move_listed(from: &CStr, mut put: impl FnMut(&[u8]) -> Result<(), Errno>) -> Result<(), Errno> {
    for _ in 0..MOVE_ROUNDS {
        let (mut moved, mut refused) = (false, Ok(()));
        each_line(from, |task| match put(task) {
            Ok(()) => moved = true,
            Err(libc::ESRCH) => {} // died meanwhile
            Err(errno) => refused = refused.and(Err(errno)),
        })?;
        if !moved {
            return refused;
        }
    }
    Ok(()) // removing the directory reports what is still in it
}

/// Calls `each` with every line of the file that is not empty. Lines are shorter than the buffer, which holds some
/// hundred numbers.
fn each_line(path: &CStr, mut each: impl FnMut(&[u8])) -> Result<(), Errno> {
    let file = Fd::open(libc::AT_FDCWD, path, libc::O_RDONLY)?;
    let mut buffer = [0u8; 4096];
    let mut kept = 0; // the beginning of a line that the last read cut off
    loop {
        let room = buffer.get_mut(kept..).unwrap_or(&mut []);
        // SAFETY: the buffer is valid for its length.
        let read = unsafe { libc::read(file.0, room.as_mut_ptr().cast(), room.len()) };
        let Ok(read) = usize::try_from(read) else {
            return Err(errno());
        };
        let filled = kept.saturating_add(read).min(buffer.len());
        let text = buffer.get(..filled).unwrap_or(&[]);
        let whole = match text.iter().rposition(|byte| *byte == b'\n') {
            Some(last) if read > 0 => last.saturating_add(1),
            _ if read > 0 && filled < buffer.len() => 0,
            _ => filled,
        };
        let lines = text.get(..whole).unwrap_or(&[]).split(|byte| *byte == b'\n');
        lines.filter(|line| !line.is_empty()).for_each(&mut each);
        if read == 0 {
            return Ok(());
        }
        buffer.copy_within(whole..filled, 0);
        kept = filled.saturating_sub(whole);
    }
}

fn remove_dir(path: &CStr) -> Result<(), Errno> {
    let pause = libc::timespec {
        tv_sec: 0,
        tv_nsec: RMDIR_PAUSE_NANOS,
    };
    for _ in 0..RMDIR_TRIES {
        // SAFETY: `path` ends with a zero.
        if unsafe { libc::rmdir(path.as_ptr()) } == 0 {
            return Ok(());
        }
        match errno() {
            // SAFETY: `pause` is valid; no remainder is asked for.
            libc::EBUSY => unsafe { libc::nanosleep(&pause, std::ptr::null_mut()) },
            other => return Err(other),
        };
    }
    Err(libc::EBUSY)
}

fn remove_tree(path: &CStr) -> Result<(), Errno> {
    let folder = Fd::open(libc::AT_FDCWD, path, libc::O_DIRECTORY | libc::O_NOFOLLOW)?;
    // SAFETY: an all-zero stat is valid, and the call fills it in.
    let owner = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        if libc::fstat(folder.0, &mut stat) != 0 {
            return Err(errno());
        }
        stat.st_uid
    };
    // SAFETY: takes nothing.
    if owner != unsafe { libc::geteuid() } {
        return Err(libc::EPERM); // not the folder that we made
    }
    empty_folder(&folder, 0)?;
    // SAFETY: `path` ends with a zero.
    if unsafe { libc::rmdir(path.as_ptr()) } == 0 {
        Ok(())
    } else {
        Err(errno())
    }
}

/// The longest affinity mask: of 1024 cores.
const MASK_BYTES: usize = 128;
/// Which fields of a thread's `stat` tell its flags and when it started, counted behind the program's name
/// (proc_pid_stat(5), fields 9 and 22).
const FLAGS: usize = 6;
const START_TIME: usize = 19;

/// Lets a thread run again where it did. A thread of the same number that was started later is another one: it is left
/// alone. So is one that runs there already: setting the same would make it the thread's own choice, and threads that
/// the kernel binds take no setting.
fn set_affinity(stat: &CStr, text: &[u8]) -> Result<(), Errno> {
    let mut content = [0u8; 1024];
    let file = match Fd::open(libc::AT_FDCWD, stat, libc::O_RDONLY) {
        Err(libc::ESRCH) => return Ok(()),
        other => other?,
    };
    // SAFETY: the buffer is valid for its length.
    let read = unsafe { libc::read(file.0, content.as_mut_ptr().cast(), content.len()) };
    let Ok(read) = usize::try_from(read) else {
        return Ok(()); // died meanwhile
    };
    let blank = text.iter().position(|byte| *byte == b' ').ok_or(libc::EINVAL)?;
    let (started, mask) = (text.get(..blank), text.get(blank + 1..).unwrap_or(&[]));
    if start_time(content.get(..read).unwrap_or(&[])) != started {
        return Ok(());
    }
    let tid = stat
        .to_bytes()
        .rsplit(|byte| *byte == b'/')
        .nth(1)
        .ok_or(libc::EINVAL)?;
    let tid = tid.iter().try_fold(0i32, |tid, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        tid.checked_mul(10)?.checked_add(i32::from(digit))
    });
    let mut bytes = [0u8; MASK_BYTES];
    for (byte, pair) in bytes.iter_mut().zip(mask.chunks(2)) {
        *byte = pair.iter().fold(0, |byte, digit| byte << 4 | hex_digit(*digit));
    }
    let (tid, mut now) = (tid.ok_or(libc::EINVAL)?, [0u8; MASK_BYTES]);
    // SAFETY: the masks are valid for their sizes.
    let set = unsafe {
        if libc::sched_getaffinity(tid, now.len(), now.as_mut_ptr().cast()) == 0 && now == bytes {
            return Ok(());
        }
        libc::sched_setaffinity(tid, bytes.len(), bytes.as_ptr().cast())
    };
    match (set, errno()) {
        (0, _) | (_, libc::ESRCH) => Ok(()),
        (_, errno) => Err(errno),
    }
}

fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => 0,
    }
}

/// When the thread of this `stat` started, in ticks since boot.
pub(super) fn start_time(stat: &[u8]) -> Option<&[u8]> {
    field(stat, START_TIME)
}

/// The kernel's flags of the thread of this `stat`.
pub(super) fn flags(stat: &[u8]) -> Option<u32> {
    std::str::from_utf8(field(stat, FLAGS)?).ok()?.parse().ok()
}

fn field(stat: &[u8], number: usize) -> Option<&[u8]> {
    // The program's name is in parentheses and may contain some itself.
    let behind_name = stat.iter().rposition(|byte| *byte == b')')?.checked_add(2)?;
    stat.get(behind_name..)?.split(|byte| *byte == b' ').nth(number)
}

/// Where the fields of a `linux_dirent64` lie (getdents64(2)).
const DIRENT_LENGTH: usize = 16;
const DIRENT_NAME: usize = 19;

/// Removes all that is in `folder`; follows no symbolic link.
fn empty_folder(folder: &Fd, depth: u32) -> Result<(), Errno> {
    if depth >= TREE_DEPTH {
        return Err(libc::ELOOP);
    }
    let mut entries = [0u8; 2048];
    for _ in 0..TREE_ROUNDS {
        // Removing entries moves the position in the folder; start over, so that none is skipped.
        // SAFETY: the descriptor is ours; the kernel fills at most the buffer.
        let read = unsafe {
            libc::lseek(folder.0, 0, libc::SEEK_SET);
            libc::syscall(libc::SYS_getdents64, folder.0, entries.as_mut_ptr(), entries.len())
        };
        let Ok(read) = usize::try_from(read) else {
            return Err(errno());
        };
        let mut left = entries.get(..read).unwrap_or(&[]);
        let mut removed = false;
        while let (Some(&[low, high]), Some(name)) =
            (left.get(DIRENT_LENGTH..DIRENT_LENGTH + 2), left.get(DIRENT_NAME..))
        {
            let name = until_zero(name);
            if name != c"." && name != c".." {
                remove_entry(folder, name, depth)?;
                removed = true;
            }
            let length = usize::from(u16::from_ne_bytes([low, high])).max(1);
            left = left.get(length..).unwrap_or(&[]);
        }
        if !removed {
            return Ok(());
        }
    }
    Err(libc::EBUSY)
}

fn remove_entry(folder: &Fd, name: &CStr, depth: u32) -> Result<(), Errno> {
    // SAFETY: `name` ends with a zero.
    if unsafe { libc::unlinkat(folder.0, name.as_ptr(), 0) } == 0 {
        return Ok(());
    }
    match errno() {
        libc::EISDIR | libc::EPERM => {} // Linux says the former, POSIX the latter
        libc::ENOENT => return Ok(()),
        other => return Err(other),
    }
    let inner = Fd::open(folder.0, name, libc::O_DIRECTORY | libc::O_NOFOLLOW)?;
    empty_folder(&inner, depth.saturating_add(1))?;
    // SAFETY: `name` ends with a zero.
    match unsafe { libc::unlinkat(folder.0, name.as_ptr(), libc::AT_REMOVEDIR) } {
        0 => Ok(()),
        _ => Err(errno()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use crate::linux::testing;

    #[test]
    fn one_task_that_cannot_be_moved_holds_up_no_other() {
        let folder = testing::folder();
        let path = folder.path().join("tasks");
        let from = CString::new(path.as_os_str().as_bytes()).unwrap();
        // More than one reading of the buffer, so that numbers are cut off at its end.
        let mut members: BTreeSet<u32> = (1..=3000).map(|n| n * 7).collect();
        let list: String = members.iter().map(|task| format!("{task}\n")).collect();
        std::fs::write(&path, list).unwrap();
        let bound = [7, 14, 7 * 1500];
        let moved = move_listed(&from, |task| {
            let task: u32 = std::str::from_utf8(task).unwrap().parse().unwrap();
            assert_eq!(task % 7, 0, "half a number");
            if bound.contains(&task) {
                return Err(libc::EINVAL);
            }
            // The file lists them still; the kernel's would not.
            if members.remove(&task) {
                Ok(())
            } else {
                Err(libc::ESRCH)
            }
        });
        assert_eq!(moved, Err(libc::EINVAL));
        assert_eq!(members, BTreeSet::from(bound));
    }

    #[test]
    fn a_list_without_a_newline_at_its_end_is_read_whole() {
        let folder = testing::folder();
        let path = folder.path().join("tasks");
        let from = CString::new(path.as_os_str().as_bytes()).unwrap();
        let text: Vec<String> = (0..2000).map(|n| n.to_string()).collect();
        std::fs::write(&path, text.join("\n")).unwrap();
        let mut lines = Vec::new();
        each_line(&from, |line| lines.push(String::from_utf8_lossy(line).into_owned())).unwrap();
        assert_eq!(lines, text);
    }
}
