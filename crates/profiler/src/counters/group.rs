//! A group of counters of the kernel's: perf_event_open(2).

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

use super::cutter::Reading;
use super::error::CountersError;
use super::event::{CounterEvent, EVENTS, Events};

/// `struct perf_event_attr` as its first version had it (PERF_ATTR_SIZE_VER0), which every kernel takes.
#[repr(C)]
#[derive(Debug, Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint_kind: u32,
    config1: u64,
}

/// Bits of the flags.
const DISABLED: u64 = 1 << 0;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const ENABLE_ON_EXEC: u64 = 1 << 12;

/// `PERF_FORMAT_TOTAL_TIME_ENABLED`, `..._RUNNING` and `PERF_FORMAT_GROUP`.
const READ_FORMAT: u64 = 1 | 2 | 8;
/// `PERF_FLAG_FD_CLOEXEC`
const CLOSE_ON_EXEC: libc::c_ulong = 8;

/// Words of a reading: how many events, two times, and the counts.
const WORDS: usize = 3 + EVENTS;

/// The events of one program, counted and read together.
#[derive(Debug)]
pub struct Group {
    leader: File,
    _others: Vec<File>,
}

impl Group {
    /// Opens `events` for the next program that a child of this thread becomes, and for the threads and children of
    /// that. The thread itself is not counted, since it does not become another program.
    ///
    /// # Errors
    /// [`CountersError`], naming the event that this machine does not count.
    pub fn open(events: &Events) -> Result<Group, CountersError> {
        let [first, others @ ..] = &events.0;
        let leader = open(first, DISABLED | ENABLE_ON_EXEC, -1)?;
        let others = others
            .iter()
            .map(|event| open(event, 0, leader.as_raw_fd()))
            .collect::<Result<_, _>>()?;
        Ok(Group {
            leader,
            _others: others,
        })
    }

    /// What has been counted so far.
    ///
    /// # Errors
    /// [`CountersError::System`].
    pub fn read(&self) -> Result<Reading, CountersError> {
        let mut bytes = [0; WORDS * size_of::<u64>()];
        let read = (&self.leader)
            .read(&mut bytes)
            .map_err(CountersError::system("the counters cannot be read"))?;
        if read != bytes.len() {
            let error = io::Error::other(format!("{read} bytes in place of {}", bytes.len()));
            return Err(CountersError::system("the counters cannot be read")(error));
        }
        let (words, _) = bytes.as_chunks::<8>();
        let word = |place: usize| u64::from_ne_bytes(words[place]);
        Ok(Reading {
            enabled_ns: word(1),
            running_ns: word(2),
            counts: std::array::from_fn(|event| word(3 + event)),
        })
    }
}

fn open(event: &CounterEvent, flags: u64, group: RawFd) -> Result<File, CountersError> {
    let attributes = Attributes {
        kind: event.kind,
        size: size_of::<Attributes>() as u32,
        config: event.config,
        read_format: READ_FORMAT,
        flags: flags | INHERIT | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR,
        ..Attributes::default()
    };
    let (this_thread, any_core): (libc::pid_t, libc::c_int) = (0, -1);
    // SAFETY: attributes of the size that they name.
    let file = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            this_thread,
            any_core,
            group,
            CLOSE_ON_EXEC,
        )
    };
    match RawFd::try_from(file) {
        // SAFETY: just opened, and no other owner has it.
        Ok(file) if file >= 0 => Ok(unsafe { File::from_raw_fd(file) }),
        _ => Err(CountersError::of(event.name, io::Error::last_os_error())),
    }
}

/// Whether `events` can be counted here, by trying.
///
/// # Errors
/// [`CountersError`]: which of them cannot, why, and what would help.
pub fn examine(events: &Events) -> Result<(), CountersError> {
    Group::open(events).map(drop)
}
