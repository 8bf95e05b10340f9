//! Instructions and accesses of one thread: its private caches, and their requests to the LLC.

use crate::block::Block;
use crate::geometry::{Geometry, LINE_BYTES};
use crate::private::PrivateCaches;
use crate::recorder::Recorder;

/// Bound on the instructions that a stream collects before it reports to the recorder: the grain at which threads of a
/// program are interleaved in front of the LLC. About 0.1 to 1 ms of emulation, so that taking turns costs nothing.
pub const STEP: u64 = 10_000;

/// State of one thread of the program.
#[derive(Debug)]
pub struct Stream {
    caches: PrivateCaches,
    /// Instructions since the last report, and the number at which the next is due.
    instructions: u64,
    due_at: u64,
    /// Lines requested from the LLC since the last report, in order.
    requests: Vec<u64>,
}

impl Stream {
    /// Makes a thread that has not run yet; its first report, due at its first block, learns how long the window still
    /// is.
    pub fn new(geometry: &Geometry) -> Stream {
        Stream {
            caches: PrivateCaches::new(geometry),
            instructions: 0,
            due_at: 0,
            requests: Vec::new(),
        }
    }

    /// Whether [`Stream::report`] is due; checked between blocks.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.instructions >= self.due_at
    }

    /// Counts a block's instructions and fetches its lines.
    #[inline]
    pub fn enter(&mut self, block: Block) {
        self.instructions += block.instructions();
        for line in block.lines() {
            if self.caches.fetch(line) {
                self.requests.push(line);
            }
        }
    }

    /// Loads or stores `bytes` (at least 1) at `address`.
    #[inline]
    pub fn access(&mut self, address: u64, bytes: u64) {
        let (first, last) = (address / LINE_BYTES, address.wrapping_add(bytes - 1) / LINE_BYTES);
        self.access_line(first);
        if last != first {
            self.access_line(last);
        }
    }

    #[inline]
    fn access_line(&mut self, line: u64) {
        if self.caches.access(line) {
            self.requests.push(line);
        }
    }

    /// Reports instructions and requests since the last report to the recorder; `true` if that completed a window.
    pub fn report(&mut self, recorder: &mut Recorder) -> bool {
        let complete = recorder.add(self.instructions, self.requests.drain(..));
        self.instructions = 0;
        // The caller takes a complete window before the next block, so the next window is still whole.
        self.due_at = if complete {
            recorder.window_instructions()
        } else {
            recorder.remaining()
        }
        .min(STEP);
        complete
    }

    /// Drops all counts and stops reports: this is a copy of the thread in a child process.
    pub fn mute(&mut self) {
        self.requests = Vec::new();
        self.instructions = 0;
        self.due_at = STEP;
    }
}
