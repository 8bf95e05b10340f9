//! Channel from the emulator's process to the profiler's: memory that both have mapped.
//!
//! **Why memory.** A pipe is a file descriptor, and descriptors belong to the program that runs in the emulator:
//! daemons and shells close all that they do not know. A mapping stays, and its contents survive a process that is
//! killed: no count is lost.
//!
//! **Layout**, in words of 8 bytes: counters ([`Field`]), the geometry, the open window, and a ring of complete
//! windows. One process writes (under the recorder's lock), one reads. A window consists of its instructions, its
//! requests, and its distances. The writer of window n waits until window n - [`RING`] was read, then fills its slot,
//! then publishes n + 1; the reader takes the windows between its own count and the published one.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::geometry::{Geometry, WAYS_MAX};
use crate::recorder::Window;

/// Bound on complete windows that wait to be read: at 100 windows a second, two and a half seconds of a delayed reader.
pub const RING: u64 = 256;
/// Pause of the writer before it checks for room again. It checks without limit: the writer's process ends with the
/// reader's.
const FULL_PAUSE: Duration = Duration::from_millis(1);

const GEOMETRY: usize = 16;
const OPEN: usize = 32;
const WINDOW_WORDS: usize = 2 + WAYS_MAX as usize;
const WINDOWS: usize = OPEN + WINDOW_WORDS;
const WORDS: usize = WINDOWS + WINDOW_WORDS * RING as usize;
const BYTES: usize = WORDS * size_of::<u64>();

/// Indices of the counters, each in a word of its own.
#[derive(Clone, Copy, Debug)]
enum Field {
    /// 1 once the plugin counts.
    Installed,
    /// 1 once the program has ended and everything is counted.
    Ended,
    /// Number of windows completed by the writer, and number taken by the reader.
    Written,
    Read,
    /// Instructions in all complete windows.
    Instructions,
    /// Numbers of threads, child processes and attempts to become another program.
    Threads,
    Children,
    Replacements,
    /// Number of threads over the bound, which are not counted.
    Uncounted,
}

/// Progress of the program and its processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether the plugin was loaded and counts.
    pub installed: bool,
    /// Whether the program has ended and everything is counted.
    pub ended: bool,
    /// Number of instructions so far, in steps of [`STEP`](crate::STEP) for each thread.
    pub instructions: u64,
    /// Number of threads so far, the first included.
    pub threads: u64,
    /// Number of threads beyond those that can be counted.
    pub uncounted_threads: u64,
    /// Number of child processes, which are not counted.
    pub children: u64,
    /// Number of attempts of the program to become another, by `execve`.
    pub replacements: u64,
}

/// Errors of a file that should carry windows.
#[derive(Debug)]
pub enum ChannelError {
    /// The file could not be resized or mapped.
    Map(io::Error),
    /// The file was not written by a profiler.
    Contents,
}

/// Memory that two processes share; each calls only its own half of the methods.
#[derive(Debug)]
pub struct Channel {
    words: NonNull<AtomicU64>,
}

// SAFETY: the mapping belongs to the channel until it is dropped, and is reached through atomics only.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

unsafe extern "C" {
    fn mmap(
        address: *mut c_void,
        length: usize,
        protection: c_int,
        flags: c_int,
        file: c_int,
        offset: i64,
    ) -> *mut c_void;
    fn munmap(address: *mut c_void, length: usize) -> c_int;
}

/// mmap(2) on every architecture that Linux runs on, except for a few that no user profiles on.
const PROT_READ_WRITE: c_int = 1 | 2;
const MAP_SHARED: c_int = 1;

/// Methods for the profiler, which creates the channel.
impl Channel {
    /// Makes `file` a channel for a program on `geometry`.
    ///
    /// # Errors
    /// [`ChannelError::Map`] if the file cannot be resized or mapped.
    pub fn create(file: &File, geometry: &Geometry) -> Result<Channel, ChannelError> {
        file.set_len(0).map_err(ChannelError::Map)?;
        file.set_len(BYTES as u64).map_err(ChannelError::Map)?;
        let channel = Channel::map(file)?;
        for (place, word) in geometry.to_words().into_iter().enumerate() {
            channel.word(GEOMETRY + place).store(word, Ordering::Relaxed);
        }
        Ok(channel)
    }

    /// Progress of the program so far.
    pub fn progress(&self) -> Progress {
        let at = |field| self.field(field).load(Ordering::Acquire);
        Progress {
            installed: at(Field::Installed) != 0,
            ended: at(Field::Ended) != 0,
            instructions: at(Field::Instructions) + self.word(OPEN).load(Ordering::Relaxed),
            threads: at(Field::Threads),
            uncounted_threads: at(Field::Uncounted),
            children: at(Field::Children),
            replacements: at(Field::Replacements),
        }
    }

    /// Takes the complete windows that were not taken yet, with distances up to `ways`.
    pub fn take(&self, ways: usize, windows: &mut Vec<Window>) {
        let written = self.field(Field::Written).load(Ordering::Acquire);
        let read = self.field(Field::Read).load(Ordering::Relaxed);
        // Whatever the other process writes there, at most a ring is read.
        for number in (read..written).take(RING as usize) {
            windows.push(self.load(Self::place(number), ways));
        }
        self.field(Field::Read).store(written, Ordering::Release);
    }

    /// The window that the other process had open when it ended; complete only after its end.
    pub fn open_window(&self, ways: usize) -> Window {
        self.load(OPEN, ways)
    }
}

/// Methods for the emulator's process.
impl Channel {
    /// Opens the channel in `file`, and returns the geometry to be modelled.
    ///
    /// # Errors
    /// [`ChannelError`] if the file cannot be mapped, or no profiler wrote it.
    pub fn open(file: &File) -> Result<(Channel, Geometry), ChannelError> {
        // Memory mapped past the end of a file must not be touched.
        let bytes = file.metadata().map_err(ChannelError::Map)?.len();
        if bytes != BYTES as u64 {
            return Err(ChannelError::Contents);
        }
        let channel = Channel::map(file)?;
        let words = std::array::from_fn(|place| channel.word(GEOMETRY + place).load(Ordering::Relaxed));
        let geometry = Geometry::from_words(words).ok_or(ChannelError::Contents)?;
        Ok((channel, geometry))
    }

    /// Notes that the plugin counts from now on.
    pub fn set_installed(&self) {
        self.field(Field::Installed).store(1, Ordering::Release);
    }

    /// Notes that the program has ended and everything is counted.
    pub fn set_ended(&self) {
        self.field(Field::Ended).store(1, Ordering::Release);
    }

    /// Counts a thread, as counted or as over the bound.
    pub fn add_thread(&self, counted: bool) {
        let field = if counted { Field::Threads } else { Field::Uncounted };
        self.field(field).fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a child process.
    pub fn add_child(&self) {
        self.field(Field::Children).fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an attempt of the program to become another.
    pub fn add_replacement(&self) {
        self.field(Field::Replacements).fetch_add(1, Ordering::Relaxed);
    }

    /// Publishes the state of the open window.
    pub fn show(&self, open: &Window) {
        self.store(OPEN, open);
    }

    /// Adds a complete window, as soon as there is room.
    pub fn push(&self, window: &Window) {
        let number = self.field(Field::Written).load(Ordering::Relaxed);
        while number - self.field(Field::Read).load(Ordering::Acquire) >= RING {
            std::thread::sleep(FULL_PAUSE);
        }
        self.store(Self::place(number), window);
        self.field(Field::Instructions)
            .fetch_add(window.instructions, Ordering::Relaxed);
        // Killed between these two, the process loses this window; in the other order, it would be read twice.
        self.show(&Window::new(window.distances.len()));
        self.field(Field::Written).store(number + 1, Ordering::Release);
    }
}

impl Channel {
    fn map(file: &File) -> Result<Channel, ChannelError> {
        // SAFETY: a new mapping at a place of the kernel's choice; `file` has BYTES bytes and keeps them.
        let address = unsafe { mmap(ptr::null_mut(), BYTES, PROT_READ_WRITE, MAP_SHARED, file.as_raw_fd(), 0) };
        if address as isize == -1 {
            return Err(ChannelError::Map(io::Error::last_os_error()));
        }
        let words = NonNull::new(address.cast()).ok_or(ChannelError::Contents)?;
        Ok(Channel { words })
    }

    fn place(number: u64) -> usize {
        WINDOWS + (number % RING) as usize * WINDOW_WORDS
    }

    fn store(&self, place: usize, window: &Window) {
        let words = [window.instructions, window.requests]
            .into_iter()
            .chain(window.distances.iter().copied());
        for (offset, word) in words.take(WINDOW_WORDS).enumerate() {
            self.word(place + offset).store(word, Ordering::Relaxed);
        }
    }

    fn load(&self, place: usize, ways: usize) -> Window {
        let word = |offset| self.word(place + offset).load(Ordering::Relaxed);
        Window {
            instructions: word(0),
            requests: word(1),
            distances: (0..ways.min(WAYS_MAX.into()))
                .map(|distance| word(2 + distance))
                .collect(),
        }
    }

    fn field(&self, field: Field) -> &AtomicU64 {
        self.word(field as usize)
    }

    fn word(&self, place: usize) -> &AtomicU64 {
        assert!(place < WORDS, "word {place} of {WORDS}");
        // SAFETY: the place is within the mapping, which is aligned to pages and lives as long as `self`; every bit
        // pattern is an AtomicU64.
        unsafe { self.words.add(place).as_ref() }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and no reference to it outlives `self`.
        unsafe { munmap(self.words.as_ptr().cast(), BYTES) };
    }
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChannelError::Map(error) => write!(f, "memory cannot be shared with the emulator: {error}"),
            ChannelError::Contents => f.write_str("the memory that is shared with the emulator is not of this program"),
        }
    }
}

impl std::error::Error for ChannelError {}
