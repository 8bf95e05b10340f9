//! Events that the kernel writes to a ring in memory (perf_event_open(2), linux/perf_event.h).

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use punctual_os::linux::mapping::Mapping;

use super::last_error;

/// `struct perf_event_attr` up to its fifth version.
#[repr(C)]
#[derive(Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    configs: [u64; 2],
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

/// An event that counts nothing, with a record for each thread switch, written backwards.
pub(super) const SWITCHES: (u32, u64, u64, u64) = {
    const SOFTWARE: u32 = 1;
    const DUMMY: u64 = 9;
    const TID: u64 = 1 << 1;
    const SAMPLE_ID_ALL: u64 = 1 << 18;
    const CONTEXT_SWITCH: u64 = 1 << 26;
    const WRITE_BACKWARD: u64 = 1 << 27;
    (SOFTWARE, DUMMY, TID, SAMPLE_ID_ALL | CONTEXT_SWITCH | WRITE_BACKWARD)
};

/// A tracepoint, with a record of its fields each time.
pub(super) fn tracepoint(id: u16) -> (u32, u64, u64, u64) {
    const TRACEPOINT: u32 = 2;
    const RAW: u64 = 1 << 10;
    (TRACEPOINT, id.into(), RAW, 0)
}

/// Opens an event of kind, number, content of a sample and flags, stamped with our clock: of `thread` on any core, or,
/// for -1, of all threads on `core`.
pub(super) fn open(event: (u32, u64, u64, u64), thread: i32, core: i32) -> io::Result<OwnedFd> {
    const TIME: u64 = 1 << 2;
    const USE_CLOCK: u64 = 1 << 25;
    const FD_CLOEXEC: libc::c_ulong = 1 << 3;
    let (kind, config, sample_type, flags) = event;
    let attr = Attr {
        kind,
        size: size_of::<Attr>() as u32,
        config,
        sample_period: 1,
        sample_type: sample_type | TIME,
        flags: flags | USE_CLOCK,
        clock: libc::CLOCK_MONOTONIC,
        ..Attr::default()
    };
    // SAFETY: `attr` is as perf_event_open(2) wants it and valid for the call; the other arguments are numbers. A new
    // descriptor is ours.
    unsafe {
        match i32::try_from(libc::syscall(
            libc::SYS_perf_event_open,
            &attr,
            thread,
            core,
            -1,
            FD_CLOEXEC,
        )) {
            Ok(event) if event >= 0 => Ok(OwnedFd::from_raw_fd(event)),
            _ => Err(last_error()),
        }
    }
}

/// Size of a page in bytes.
pub(super) fn page() -> usize {
    // SAFETY: takes and returns numbers.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// The kernel's write position in a ring, whose first page `mapped` begins with.
pub(super) fn head(mapped: &Mapping) -> u64 {
    /// Offset in `struct perf_event_mmap_page`.
    const DATA_HEAD: usize = 1024;
    // SAFETY: the page is mapped for as long as `mapped` is, and the field lies in it, aligned. The mapping may be
    // read-only, for which an atomic type must not be used.
    let head = unsafe { mapped.base().as_ptr().add(DATA_HEAD).cast::<u64>().read_volatile() };
    fence(Ordering::Acquire);
    head
}

/// Copies the words of a ring from position `from` to `until`, both multiples of 8 and at most the ring apart. Without
/// a reference: a core may be writing.
pub(super) fn copied(mapped: &Mapping, from: u64, until: u64) -> Vec<u8> {
    let ring = mapped.bytes() - page();
    let mut copy = Vec::with_capacity((until - from) as usize);
    for at in (from..until).step_by(size_of::<u64>()) {
        // SAFETY: the ring is mapped behind its page, and the word lies in it, aligned.
        let word = unsafe {
            mapped
                .base()
                .as_ptr()
                .add(page() + at as usize % ring)
                .cast::<u64>()
                .read_volatile()
        };
        copy.extend(word.to_ne_bytes());
    }
    copy
}

/// Lets the kernel write again up to `tail`, as far as a ring was read that `mapped` may write.
pub(super) fn release(mapped: &Mapping, tail: u64) {
    /// Offset in `struct perf_event_mmap_page`.
    const DATA_TAIL: usize = 1032;
    fence(Ordering::Release);
    // SAFETY: as for `head`; the caller has mapped the page to write.
    unsafe { mapped.base().as_ptr().add(DATA_TAIL).cast::<u64>().write_volatile(tail) };
}
