//! What one thread does: its caches, and what they ask of the LLC.

use crate::block::Block;
use crate::geometry::{Geometry, LINE_BYTES};
use crate::private::PrivateCaches;
use crate::recorder::Recorder;

/// The most instructions that a stream keeps to itself before it reports to the recorder: how finely the threads of a
/// program are interleaved in front of the LLC. About 0.1 to 1 ms of emulation, so that taking turns costs nothing.
pub const STEP: u64 = 10_000;

/// One thread of the program.
#[derive(Debug)]
pub struct Stream {
    caches: PrivateCaches,
    /// Instructions since the last report, and at how many the next is due.
    instructions: u64,
    due_at: u64,
    /// Lines asked of the LLC since the last report, in order.
    requests: Vec<u64>,
}

impl Stream {
    /// A thread that has done nothing yet; its first block is its first report, which learns how far the window is.
    pub fn new(geometry: &Geometry) -> Stream {
        Stream {
            caches: PrivateCaches::new(geometry),
            instructions: 0,
            due_at: 0,
            requests: Vec::new(),
        }
    }

    /// Whether [`Stream::report`] is due; asked between blocks.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.instructions >= self.due_at
    }

    /// Enters a block.
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

    /// Hands over to the recorder what happened since the last report; `true` if that completed a window.
    pub fn report(&mut self, recorder: &mut Recorder) -> bool {
        let complete = recorder.add(self.instructions, self.requests.drain(..));
        self.instructions = 0;
        // A window that is complete is taken before the next block, so the next one is all ahead.
        self.due_at = if complete {
            recorder.window_instructions()
        } else {
            recorder.remaining()
        }
        .min(STEP);
        complete
    }

    /// Forgets what happened and reports no more: this is a copy of the thread in a child process.
    pub fn mute(&mut self) {
        self.requests = Vec::new();
        self.instructions = 0;
        self.due_at = STEP;
    }
}
