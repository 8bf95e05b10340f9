//! Carries out the steps that the ledger's table decides.
//!
//! A setting that another program has changed meanwhile is left as it is, which [`super::journal::Journal::restore`]
//! and `punctual doctor --restore` report; the guardian cannot report. A file or an affinity gets its next
//! value only if it still has the value that it was given last, by a hash of what was read after that. The text that
//! was written counts as ours, too: since Linux 5.3 a clock limit takes effect after the write, so that the value read
//! next may be the former one. So does a clock limit below it while a cooling device is at work, because the kernel
//! then lowers limits by itself. A thread with some of the cores that it was given counts as ours: the kernel takes the
//! others away when the thread's group is narrowed, and they must not be missing for good when the group is widened. So
//! a program that chose some of these cores by affinity loses that choice.
//!
//! The guardian does so in a process forked from a multi-threaded one, where a thread that no longer exists may hold
//! the allocator's lock without end. So **everything reachable from [`carry_out`] and from the table's steps
//! (`ledger/table.rs`) makes plain system calls only**: no allocation, no lock of the C library, no panic.

use std::ffi::CStr;
use std::io::Write;

use punctual_os::Tid;
use punctual_os::linux::errno;
use punctual_os::linux::thread::{policy_of, set_policy};
use punctual_units::fnv1a;

use super::core_mask::{self, CoreMask, affinity_of};
use super::ledger::{Content, LastValue, LedgerAction, NOT_OURS, number, parse_list};
use super::stat::{STAT_BYTES, read_file, start_time};

/// A kernel directory stays busy until the last task in it has died: number of attempts to remove it...
const RMDIR_TRIES: u32 = 200;
/// ...and the pause between them: 2 s in all.
const RMDIR_PAUSE_NANOS: libc::c_long = 10_000_000;
/// Passes over a list of tasks: tasks may be started while it is emptied.
const MOVE_ROUNDS: u32 = 64;
/// Attempts to lock a file: the kernel may close a dead process's copy of it last...
const LOCK_TRIES: u32 = 20;
/// ...and the pause between them: 0.2 s in all.
const LOCK_PAUSE_NANOS: libc::c_long = 10_000_000;
/// Deepest nesting of a temporary folder that is removed, and the most readings of one folder to empty it.
const TREE_DEPTH: u32 = 16;
const TREE_ROUNDS: u32 = 100_000;

/// Longest content of a file that is compared, in bytes.
const VALUE_BYTES: usize = 512;
/// Number of cooling devices that are looked at: as many as a board with one for each of 64 cores has.
const COOLING_DEVICES_MAX: u32 = 64;

/// An error number of the kernel (errno(3)).
pub(crate) type Errno = i32;

/// Whether undoing waits for obstacles that may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Waits for the last tasks of a group to die.
    Waits,
    /// Tries once, without a pause.
    Tries,
}

/// Carries `step` out by system calls.
///
/// # Errors
/// [`NOT_OURS`]: another program has changed the thing; it is unchanged. Else the kernel's error.
pub(crate) fn carry_out(step: LedgerAction<'_>, patience: Patience) -> Result<(), Errno> {
    match step {
        LedgerAction::Keep => Ok(()),
        LedgerAction::Write {
            path,
            text,
            content,
            last,
            wish,
            expected,
        } => {
            if !is_ours(path, content, last, wish, expected) {
                return Err(NOT_OURS);
            }
            last.set(LastValue::UNKNOWN);
            write_file(path, text)?;
            // The kernel may carry a write out later, and shows the former value until then: such a value is no one's.
            let (now, written) = (value_of(path, content), hash_as(text, content));
            last.set(if now == written { now } else { LastValue::UNKNOWN });
            Ok(())
        }
        LedgerAction::Affinity {
            stat,
            started,
            mask,
            last,
        } => set_affinity(stat, started, &mask, last),
        LedgerAction::Scheduling {
            stat,
            started,
            policy,
            priority,
            last,
        } => set_scheduling(stat, started, (policy, priority), last),
        LedgerAction::MoveTasks { from, to } => move_tasks(from, to),
        LedgerAction::RemoveDir { path } => remove_dir(path, patience),
        LedgerAction::RemoveTree { path } => remove_tree(path),
        LedgerAction::ClearWord { path, user, at } => clear_word(path, user, at, patience),
    }
}

/// Whether the file has the value that it was given last, the text that was written, the cores `expected`, or a clock
/// limit that the kernel has lowered since; a value that is not compared counts as such.
fn is_ours(path: &CStr, content: Content, last: LastValue<'_>, wish: &[u8], expected: u64) -> bool {
    let Some(last) = last.get() else { return true };
    let now = value_of(path, content);
    let is_wish = !wish.is_empty() && now == hash_as(wish, content);
    is_wish || [last, expected, LastValue::UNKNOWN].contains(&now) || is_cooled(path, wish)
}

/// Hash of the file's content; [`LastValue::UNKNOWN`] if it cannot be read.
fn value_of(path: &CStr, content: Content) -> u64 {
    let mut buffer = [0u8; VALUE_BYTES];
    read_file(path, &mut buffer).map_or(LastValue::UNKNOWN, |text| hash_as(text, content))
}

/// Hash of `text` as the content of a file.
fn hash_as(text: &[u8], content: Content) -> u64 {
    let mask = match content {
        Content::Text => None,
        Content::List => parse_list(text),
        Content::Words => std::str::from_utf8(text).ok().and_then(CoreMask::parse),
    };
    mask.map_or_else(|| hash(text.trim_ascii_end().iter().copied()), |mask| hash_of(&mask))
}

/// Number of lowest cores whose sets are kept as they are in place of a hash, a bit each.
const CORES_IN_BITS: u32 = 62;
/// Mark of such a set, which so is neither of the values of [`LastValue`] that stand for others.
const IN_BITS: u64 = 1 << 63;

/// Hash of a set of cores; the set itself if it has none above the lowest 62.
pub(crate) fn hash_of(mask: &CoreMask) -> u64 {
    let (low, high) = mask
        .iter()
        .enumerate()
        .fold((0, 0), |(low, high), (number, byte)| match number {
            0..8 => (low | u64::from(byte) << (8 * number), high),
            _ => (low, high | byte),
        });
    match high == 0 && low >> CORES_IN_BITS == 0 {
        true => low | IN_BITS,
        false => hash(mask.iter()) & !IN_BITS,
    }
}

/// Whether the set of cores with the hash `now` has none that the one with the hash `last` lacks; if either is no more
/// than a hash, whether they are the same.
fn is_within(now: u64, last: u64) -> bool {
    now == last || now & last & IN_BITS != 0 && now & !last == 0
}

/// FNV-1a, 64 bits wide, which fits a few bytes; neither of the values of [`LastValue`] that stand for others.
fn hash(bytes: impl Iterator<Item = u8>) -> u64 {
    fnv1a(bytes).clamp(1, u64::MAX - 1)
}

/// Whether the file is a clock limit of cpufreq below the wish of this machine's holders, while a cooling device is at
/// work (Documentation/driver-api/thermal/sysfs-api.rst).
fn is_cooled(path: &CStr, wish: &[u8]) -> bool {
    const LIMITS: &[u8] = b"/sys/devices/system/cpu/cpufreq/";
    let path_bytes = path.to_bytes();
    let Some(root) = path_bytes.windows(LIMITS.len()).position(|part| part == LIMITS) else {
        return false;
    };
    let mut buffer = [0u8; VALUE_BYTES];
    let now = read_file(path, &mut buffer)
        .ok()
        .and_then(|text| number(text.trim_ascii()));
    let lowered = now.zip(number(wish)).is_some_and(|(now, wish)| now < wish);
    let state_of = |device: u32| {
        let (mut path, mut buffer) = ([0; VALUE_BYTES], [0; VALUE_BYTES]);
        let mut left = path.as_mut_slice();
        left.write_all(path_bytes.get(..root)?).ok()?;
        write!(left, "/sys/class/thermal/cooling_device{device}/cur_state\0").ok()?;
        let text = read_file(CStr::from_bytes_until_nul(&path).ok()?, &mut buffer).ok()?;
        number(text.trim_ascii())
    };
    lowered && (0..COOLING_DEVICES_MAX).any(|device| state_of(device).is_some_and(|state| state > 0))
}

pub(crate) fn until_zero(field: &[u8]) -> &CStr {
    CStr::from_bytes_until_nul(field).unwrap_or(c"")
}

/// A file descriptor that closes itself.
pub(crate) struct Fd(pub(crate) libc::c_int);

impl Fd {
    pub(crate) fn open(directory: libc::c_int, path: &CStr, flags: libc::c_int) -> Result<Fd, Errno> {
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

/// Writes `content` in one `write`, as kernel files require. A write of zero bytes does not reach them, so empty
/// content is an empty line: a group that had no list of its own (cpuset.cpus of cgroup version 2) has none again.
pub(crate) fn write_file(path: &CStr, content: &[u8]) -> Result<(), Errno> {
    let content = if content.is_empty() { b"\n" } else { content };
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

/// Calls `put` with every task listed in `from`, until none is listed or none moves any more. A task that cannot be
/// moved does not hold up others; returns the first refusal of the last round.
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
    Ok(()) // removing the directory fails if a task is left
}

/// Calls `each` with every line of the file that is not empty. Each line must be shorter than the buffer, which holds
/// some hundred numbers.
fn each_line(path: &CStr, mut each: impl FnMut(&[u8])) -> Result<(), Errno> {
    let file = Fd::open(libc::AT_FDCWD, path, libc::O_RDONLY)?;
    let mut buffer = [0u8; 4096];
    let mut kept = 0; // bytes of a line that the last read cut off
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

/// Sleeps for `nanos`, less than a second, or until a signal.
pub(crate) fn sleep(nanos: libc::c_long) {
    let pause = libc::timespec {
        tv_sec: 0,
        tv_nsec: nanos,
    };
    // SAFETY: `pause` is valid; no remainder is asked for.
    unsafe { libc::nanosleep(&pause, std::ptr::null_mut()) };
}

fn remove_dir(path: &CStr, patience: Patience) -> Result<(), Errno> {
    let tries = if patience == Patience::Waits { RMDIR_TRIES } else { 1 };
    for _ in 0..tries {
        // SAFETY: `path` ends with a zero.
        if unsafe { libc::rmdir(path.as_ptr()) } == 0 {
            return Ok(());
        }
        match errno() {
            libc::EBUSY => sleep(RMDIR_PAUSE_NANOS),
            other => return Err(other),
        }
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

/// Sets the four bytes at `at` of the file to 0. The superuser acts with the rights of `user` only: a link that this
/// user puts there meanwhile leads to no file that they could not change themselves. If another process has the file
/// locked, the bytes belong to that one by now. A link or a pipe in the file's stead has none.
fn clear_word(path: &CStr, user: libc::uid_t, at: libc::off_t, patience: Patience) -> Result<(), Errno> {
    let clear = || {
        let file = Fd::open(libc::AT_FDCWD, path, libc::O_RDWR | libc::O_NOFOLLOW | libc::O_NONBLOCK)?;
        let mut tries = if patience == Patience::Waits { LOCK_TRIES } else { 1 };
        // SAFETY: the descriptor is open; its lock goes with it.
        while unsafe { libc::flock(file.0, libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            tries -= 1;
            match errno() {
                libc::EWOULDBLOCK if tries == 0 => return Ok(()),
                libc::EWOULDBLOCK => sleep(LOCK_PAUSE_NANOS),
                other => return Err(other),
            }
        }
        // SAFETY: the descriptor is open, and the four bytes are valid.
        match unsafe { libc::pwrite(file.0, [0u8; 4].as_ptr().cast(), 4, at) } {
            4 => Ok(()),
            _ => Err(errno()),
        }
    };
    // SAFETY: takes a number, and concerns the calling thread only (setfsuid(2)).
    let former = unsafe { libc::setfsuid(user) };
    let cleared = clear();
    // SAFETY: as above.
    unsafe { libc::setfsuid(former as libc::uid_t) };
    match cleared {
        Err(libc::ELOOP | libc::ESPIPE) => Ok(()),
        cleared => cleared,
    }
}

/// Restores a thread's affinity, if it has the one that it was given last, or some cores of it. A later thread of the
/// same number is left alone. So is a thread with that affinity already: setting it again would make it the thread's
/// own choice, and threads that the kernel binds accept no setting.
fn set_affinity(stat: &CStr, started: &[u8], mask: &CoreMask, last: LastValue<'_>) -> Result<(), Errno> {
    let Some(tid) = alive(stat, started)? else {
        return Ok(()); // died meanwhile
    };
    let now = affinity_of(tid);
    if now.as_ref().is_ok_and(|now| now == mask) {
        return Ok(());
    }
    let is_ours = |now: &CoreMask| last.get().is_none_or(|last| is_within(hash_of(now), last));
    if now.is_ok_and(|now| !is_ours(&now)) {
        return Err(NOT_OURS);
    }
    last.set(LastValue::UNKNOWN);
    match core_mask::set_affinity(tid, mask).map_err(|why| why.raw_os_error()) {
        Ok(()) => {
            last.set(affinity_of(tid).map_or(LastValue::UNKNOWN, |now| hash_of(&now)));
            Ok(())
        }
        Err(Some(libc::ESRCH)) => Ok(()),
        Err(errno) => Err(errno.unwrap_or(libc::EIO)),
    }
}

/// The thread at `stat`, if it is the one that started at `started`.
fn alive(stat: &CStr, started: &[u8]) -> Result<Option<Tid>, Errno> {
    let mut content = [0u8; STAT_BYTES];
    let content = match read_file(stat, &mut content) {
        Err(libc::ESRCH) => return Ok(None),
        other => other?,
    };
    let tid = stat.to_bytes().rsplit(|byte| *byte == b'/').nth(1);
    let tid = tid.and_then(number).and_then(|tid| i32::try_from(tid).ok());
    let is_it = start_time(content) == Some(started);
    Ok(is_it.then_some(Tid(tid.ok_or(libc::EINVAL)?)))
}

/// Restores a thread's policy and priority, if it has those that it was given last.
fn set_scheduling(stat: &CStr, started: &[u8], found: (i32, i32), last: LastValue<'_>) -> Result<(), Errno> {
    let kept = (found.0 | libc::SCHED_RESET_ON_FORK, found.1);
    let Some(tid) = alive(stat, started)? else {
        return Ok(());
    };
    match policy_of(tid) {
        Err(libc::ESRCH) => return Ok(()),
        now if now == Ok(found) || now == Ok(kept) => return Ok(()),
        now if last
            .get()
            .is_some_and(|last| now.is_ok_and(|now| hash_of_policy(now) != last)) =>
        {
            return Err(NOT_OURS);
        }
        _ => {}
    }
    // Clearing the flag, which concerns the thread's children alone, takes CAP_SYS_NICE (sched(7)).
    let done = match set_policy(tid, found) {
        Err(libc::EPERM) => set_policy(tid, kept),
        done => done,
    };
    match done {
        Err(libc::ESRCH) => Ok(()),
        done => done,
    }
}

/// Hash of a policy and a priority.
pub(crate) fn hash_of_policy((policy, priority): (i32, i32)) -> u64 {
    hash(policy.to_le_bytes().into_iter().chain(priority.to_le_bytes()))
}

/// Calls `each` with every entry of the folder at `path` whose name is a number.
pub(crate) fn each_number(path: &CStr, each: &mut dyn FnMut(i32)) -> Result<(), Errno> {
    let folder = Fd::open(libc::AT_FDCWD, path, libc::O_DIRECTORY)?;
    let mut entries = [0u8; 2048];
    loop {
        let read = entries_of(&folder, &mut entries)?;
        if read.is_empty() {
            return Ok(());
        }
        each_name(read, &mut |name| {
            if let Some(number) = number(name.to_bytes()).and_then(|number| i32::try_from(number).ok()) {
                each(number);
            }
            Ok(())
        })?;
    }
}

/// Offsets of the fields of a `linux_dirent64` (getdents64(2)).
const DIRENT_LENGTH: usize = 16;
const DIRENT_NAME: usize = 19;

/// Removes the content of `folder`; follows no symbolic link.
fn empty_folder(folder: &Fd, depth: u32) -> Result<(), Errno> {
    if depth >= TREE_DEPTH {
        return Err(libc::ELOOP);
    }
    let mut entries = [0u8; 2048];
    for _ in 0..TREE_ROUNDS {
        // Removing entries moves the position in the folder; start over, so that none is skipped.
        // SAFETY: the descriptor is ours.
        unsafe { libc::lseek(folder.0, 0, libc::SEEK_SET) };
        let mut removed = false;
        each_name(entries_of(folder, &mut entries)?, &mut |name| {
            if name != c"." && name != c".." {
                remove_entry(folder, name, depth)?;
                removed = true;
            }
            Ok(())
        })?;
        if !removed {
            return Ok(());
        }
    }
    Err(libc::EBUSY)
}

/// The next entries of `folder` from its position on, as many as the buffer holds; none at the end.
fn entries_of<'a>(folder: &Fd, into: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    // SAFETY: the descriptor is ours; the kernel fills at most the buffer.
    let read = unsafe { libc::syscall(libc::SYS_getdents64, folder.0, into.as_mut_ptr(), into.len()) };
    let read = usize::try_from(read).map_err(|_| errno())?;
    Ok(into.get(..read).unwrap_or(&[]))
}

/// Calls `each` with the name of every entry, until it fails.
fn each_name(entries: &[u8], each: &mut dyn FnMut(&CStr) -> Result<(), Errno>) -> Result<(), Errno> {
    let mut left = entries;
    while let (Some(&[low, high]), Some(name)) = (left.get(DIRENT_LENGTH..DIRENT_LENGTH + 2), left.get(DIRENT_NAME..)) {
        each(until_zero(name))?;
        let length = usize::from(u16::from_ne_bytes([low, high])).max(1);
        left = left.get(length..).unwrap_or(&[]);
    }
    Ok(())
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

    #[test]
    fn one_task_that_cannot_be_moved_holds_up_no_other() {
        let folder = punctual_testing::shared_folder();
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
    fn a_set_of_cores_is_within_one_that_has_all_of_them() {
        use punctual_units::CoreId;
        let of = |cores: &[u32]| hash_of(&cores.iter().copied().map(CoreId).collect());
        let within = |now: &[u32], last: &[u32]| is_within(of(now), of(last));
        assert!(within(&[1], &[1]) && within(&[1], &[0, 1]) && within(&[61], &[3, 61]));
        assert!(!within(&[2], &[0, 1]) && !within(&[0, 1], &[1]));
        // Of larger machines only the same set counts.
        assert!(within(&[1, 62], &[1, 62]) && !within(&[62], &[1, 62]) && !within(&[1], &[1, 900]));
    }

    #[test]
    fn nothing_is_written_as_an_empty_line() {
        let folder = punctual_testing::shared_folder();
        let path = folder.path().join("cpuset.cpus");
        std::fs::write(&path, "0-2").unwrap();
        write_file(&CString::new(path.as_os_str().as_bytes()).unwrap(), b"").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"\n");
    }

    #[test]
    fn a_list_without_a_newline_at_its_end_is_read_whole() {
        let folder = punctual_testing::shared_folder();
        let path = folder.path().join("tasks");
        let from = CString::new(path.as_os_str().as_bytes()).unwrap();
        let text: Vec<String> = (0..2000).map(|n| n.to_string()).collect();
        std::fs::write(&path, text.join("\n")).unwrap();
        let mut lines = Vec::new();
        each_line(&from, |line| lines.push(String::from_utf8_lossy(line).into_owned())).unwrap();
        assert_eq!(lines, text);
    }
}
