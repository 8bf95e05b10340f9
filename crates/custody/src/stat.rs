//! The kernel's record of a thread, `/proc/TID/stat` (proc_pid_stat(5)): whether it has ended, and since when it runs.
//!
//! The guardian reads it: plain system calls only (see `undo.rs`).

use std::ffi::CStr;
use std::io::Write;

use punctual_os::linux::errno;

use super::undo::{Errno, Fd};

/// Indices of a thread's state, flags, start time, core, priority and policy in its `stat`, counted behind the
/// program's name (proc_pid_stat(5), fields 3, 9, 22 and 39 to 41).
const STATE: usize = 0;
const FLAGS: usize = 6;
const START_TIME: usize = 19;
const CORE: usize = 36;
const PRIORITY: usize = 37;
const POLICY: usize = 38;

/// Number of the policy (linux/sched.h), which libc lacks for some C libraries.
const SCHED_DEADLINE: u32 = 6;

/// Longest path below `/proc` that is made here, with its terminating zero, in bytes.
pub(crate) const PATH_BYTES: usize = 64;

/// Longest `stat` of a thread, in bytes.
pub const STAT_BYTES: usize = 1024;

/// Content of the file, at most as much as the buffer holds.
pub fn read_file<'a>(path: &CStr, into: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    let file = Fd::open(libc::AT_FDCWD, path, libc::O_RDONLY)?;
    // SAFETY: the buffer is valid for its length.
    let read = unsafe { libc::read(file.0, into.as_mut_ptr().cast(), into.len()) };
    let read = usize::try_from(read).map_err(|_| errno())?;
    Ok(into.get(..read).unwrap_or(&[]))
}

/// The start time in a thread's `stat`, in ticks since boot.
pub fn start_time(stat: &[u8]) -> Option<&[u8]> {
    field(stat, START_TIME)
}

/// The kernel's flags in a thread's `stat`.
pub fn flags(stat: &[u8]) -> Option<u32> {
    std::str::from_utf8(field(stat, FLAGS)?).ok()?.parse().ok()
}

/// Whether a thread's `stat` says that it has ended; a zombie counts as ended, and a text without a state.
pub fn ended(stat: &[u8]) -> bool {
    matches!(field(stat, STATE), Some(b"Z" | b"X" | b"x") | None)
}

fn field(stat: &[u8], number: usize) -> Option<&[u8]> {
    // The program's name is in parentheses and may contain some itself.
    let behind_name = stat.iter().rposition(|byte| *byte == b')')?.checked_add(2)?;
    stat.get(behind_name..)?.split(|byte| *byte == b' ').nth(number)
}

/// Whether thread or process `number` has ended (a zombie counts as ended), and its start time in ticks since boot;
/// `None` where there is none.
pub fn of(number: i32) -> Option<(bool, u64)> {
    let (mut path, mut stat) = ([0; PATH_BYTES], [0; STAT_BYTES]);
    let stat = read_file(proc_path(number, c"stat", &mut path)?, &mut stat).ok()?;
    Some((ended(stat), started(stat)?))
}

/// Whether thread `number` runs or is ready to run.
pub fn is_ready(number: i32) -> bool {
    let (mut path, mut stat) = ([0; PATH_BYTES], [0; STAT_BYTES]);
    let stat = proc_path(number, c"stat", &mut path).and_then(|path| read_file(path, &mut stat).ok());
    stat.is_some_and(|stat| field(stat, STATE) == Some(b"R"))
}

/// The core on which a real-time thread runs or is ready to run, and its rank among such threads: its priority, 1 to
/// 99, or 100 under `SCHED_DEADLINE`. `None` for any other thread.
pub fn ready_in_real_time(stat: &[u8]) -> Option<(u32, u32)> {
    let number = |index| std::str::from_utf8(field(stat, index)?).ok()?.parse::<u32>().ok();
    let rank = match number(POLICY)? {
        SCHED_DEADLINE => 100,
        _ => number(PRIORITY)?,
    };
    let ready = field(stat, STATE) == Some(b"R") && rank > 0;
    ready.then(|| Some((number(CORE)?, rank))).flatten()
}

/// Writes the path `/proc/NUMBER/FILE` into `room`.
pub(crate) fn proc_path<'a>(number: i32, file: &CStr, room: &'a mut [u8; PATH_BYTES]) -> Option<&'a CStr> {
    let mut left = room.as_mut_slice();
    write!(left, "/proc/{number}/").ok()?;
    left.write_all(file.to_bytes_with_nul()).ok()?;
    CStr::from_bytes_until_nul(room).ok()
}

/// Start time in a process's `stat`, in ticks since boot.
pub fn started(stat: &[u8]) -> Option<u64> {
    std::str::from_utf8(start_time(stat)?).ok()?.parse().ok()
}
