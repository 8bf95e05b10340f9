//! The formats that both sides share, version 1. docs/guide/attach.md describes them for other languages.
//!
//! All numbers are in the machine's byte order; times are nanoseconds of `CLOCK_MONOTONIC`, 0 where not known.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

/// Version of the formats. Rings and folders of another one are refused.
pub const VERSION: u32 = 1;
/// Begin of every ring and of the folder's page.
pub const MAGIC: [u8; 8] = *b"punctjob";
/// Size of a ring and of the page: 10,000 rings take 40 MiB.
pub const BYTES: usize = 4096;
/// Jobs that a ring holds: at 1000 jobs a second, 120 ms of them.
pub const RECORDS: usize = 120;
/// Room for a name, with its terminating zero.
pub const NAME_BYTES: usize = 64;
/// Name of the file that every program of a folder maps: see [`Page`].
pub const PAGE: &str = "jobs";
/// The folder's datagram socket.
pub const SOCKET: &str = "jobs.socket";
/// The message with which a ring is handed over, beside its descriptor.
pub const HELLO: &[u8] = b"ring";

/// The page of a folder, which every program there maps to read.
#[repr(C)]
#[derive(Debug)]
pub struct Page {
    /// [`MAGIC`], written by the first runtime that listens.
    pub magic: [u8; 8],
    /// Version of the page and of rings: [`VERSION`].
    pub version: u32,
    /// Number of the runtime that listens; 0: none does.
    pub epoch: AtomicU32,
    /// Number of the last one that listened.
    pub last_epoch: AtomicU32,
    /// Process of the runtime that listens.
    pub listener: AtomicI32,
}

/// A job that has ended.
#[repr(C)]
#[derive(Debug)]
pub struct JobRecord {
    /// Number of the job: the reporter's jobs count from 0.
    pub number: AtomicU64,
    /// When the job should have begun, as the program says; 0: it does not say.
    pub released: AtomicU64,
    /// When the job began.
    pub begun: AtomicU64,
    /// When the job ended.
    pub ended: AtomicU64,
}

/// A ring: one thread of the program writes it, the runtime reads it.
#[repr(C)]
#[derive(Debug)]
pub struct Ring {
    /// The bytes [`MAGIC`], written before the ring is handed over.
    pub magic: [u8; 8],
    /// Version of the ring's layout: [`VERSION`].
    pub version: u32,
    /// Size of the ring: [`BYTES`].
    pub bytes: u32,
    /// Process and thread of the reporter, as it numbers them.
    pub process: AtomicI32,
    /// The thread that began the first job since the ring was handed over.
    pub thread: AtomicI32,
    /// Time from a release to the deadline; 0: the program does not say.
    pub deadline: AtomicU64,
    /// Least time between two releases; 0: the program does not say.
    pub period: AtomicU64,
    /// Name of the task, UTF-8, ended by a zero.
    pub name: [u8; NAME_BYTES],
    _reserved: [u8; 24],
    /// Number of records written. From here on by the program alone.
    pub head: AtomicU64,
    /// Begin of the job under way; 0: none is.
    pub open_begun: AtomicU64,
    /// Release of the job under way.
    pub open_released: AtomicU64,
    /// Number of the job under way, or of the next one.
    pub number: AtomicU64,
    /// Jobs that found no room.
    pub dropped: AtomicU64,
    /// Begins within a job, and ends without one; both have no other effect.
    pub misused: AtomicU64,
    /// 1 once the program has closed the reporter.
    pub closed: AtomicU32,
    _reserved_too: [u8; 12],
    /// Number of records read: by the runtime alone.
    pub tail: AtomicU64,
    _reserved_last: [u8; 56],
    /// Record `n` is at `n % RECORDS`.
    pub records: [JobRecord; RECORDS],
}

const _: () = assert!(size_of::<Ring>() == BYTES && std::mem::offset_of!(Ring, head) == 128);
