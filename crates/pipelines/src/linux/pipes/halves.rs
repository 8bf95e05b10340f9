//! The stages at the two ends of a pipe. They have no state to save, because a pipe cannot be read twice.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use punctual_os::LinuxOs;
use punctual_units::{Clock, Nanos, Time};

use super::{LOOK, Orders};
use crate::{AnyStage, Failure, Frames, Head};

/// Greatest number of frames under way in a program whose times are kept. Beyond that the oldest times are dropped, and
/// frames get the times of later ones.
const UNDER_WAY_MAX: usize = 1024;

/// The functions of a stage without a state.
macro_rules! without_state {
    () => {
        fn version(&self) -> u32 {
            0
        }

        fn begin(&mut self) {}

        fn load(&mut self, _: u32, _: &[u8]) -> Result<(), Failure> {
            Ok(())
        }

        fn save(&self, _: &mut [u8]) -> Result<usize, Failure> {
            Ok(0)
        }
    };
}

/// Nanoseconds of the current step in which it waited for the pipe or file.
pub(super) type WaitTime = Arc<AtomicU64>;

/// State of a pipe or file at one of its ends.
#[derive(Default)]
pub(super) struct PipeEnd {
    /// Number of frames read or written, including those of previous programs.
    pub(super) frames: u64,
    pub(super) waited: WaitTime,
    /// Whether the other end is closed: the stream has ended, or is no longer read.
    pub(super) closed: bool,
    pub(super) failure: Option<String>,
}

/// A stage that passes on the bytes that it reads.
pub(super) struct ReadingStage {
    pub(super) from: Box<dyn Read + Send>,
    pub(super) stamps: Stamps,
    pub(super) end: PipeEnd,
}

impl ReadingStage {
    pub(super) fn new(from: Box<dyn Read + Send>, stamps: Stamps) -> ReadingStage {
        ReadingStage {
            from,
            stamps,
            end: PipeEnd::default(),
        }
    }

    /// Continues with the output of another program.
    pub(super) fn reopen(&mut self, from: Box<dyn Read + Send>) {
        (self.from, self.end.closed) = (from, false);
    }
}

/// Source of the times of frames.
pub(super) enum Stamps {
    /// The clock, when the frame was read.
    Clock {
        period: Nanos,
        deadline: Nanos,
        next: Time,
        orders: Arc<Orders>,
    },
    /// The frames that the program was given.
    Given(UnansweredFrames),
}

impl Stamps {
    /// Waits until the next frame may begin, or sources must end; returns the time waited.
    fn pace(&mut self) -> Nanos {
        let began = LinuxOs.now();
        if let Stamps::Clock {
            period, next, orders, ..
        } = self
            && *period > Nanos::ZERO
        {
            while LinuxOs.now() < *next && !orders.sources_end() {
                LinuxOs.sleep_until((*next).min(LinuxOs.now() + LOOK));
            }
            *next = *next + *period;
        }
        LinuxOs.now().since(began)
    }

    /// Whether to stop reading, even if more could be read.
    fn are_over(&self) -> bool {
        matches!(self, Stamps::Clock { orders, .. } if orders.sources_end())
    }

    fn head(&mut self, sequence: u64) -> Head {
        match self {
            Stamps::Clock { deadline, .. } => {
                let captured_at = LinuxOs.now();
                Head {
                    sequence,
                    captured_at,
                    due_by: captured_at + *deadline,
                }
            }
            Stamps::Given(given) => Head {
                sequence,
                ..given.next()
            },
        }
    }
}

/// Times of the frames that a program was given and has not answered.
#[derive(Clone, Debug)]
pub(super) struct UnansweredFrames(Arc<Mutex<(VecDeque<Head>, Head)>>);

impl UnansweredFrames {
    pub(super) fn none() -> UnansweredFrames {
        UnansweredFrames(Arc::new(Mutex::new((
            VecDeque::with_capacity(UNDER_WAY_MAX),
            Head::default(),
        ))))
    }

    fn add(&self, head: Head) {
        let mut it = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if it.0.len() == UNDER_WAY_MAX {
            it.0.pop_front();
        }
        it.0.push_back(head);
    }

    /// Removes the oldest times; returns the last ones again if none are left.
    fn next(&self) -> Head {
        let mut it = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        it.1 = it.0.pop_front().unwrap_or(it.1);
        it.1
    }
}

impl AnyStage for ReadingStage {
    without_state!();

    /// Reads one frame: as much as its room holds, or up to the end of the stream.
    fn step(&mut self, frames: &mut Frames<'_>) -> Result<(), Failure> {
        let paced = self.stamps.pace();
        self.end.waited.fetch_add(paced.0, Ordering::Relaxed);
        self.end.closed |= self.stamps.are_over();
        let room = frames.output(0);
        let (mut length, mut head) = (0, Head::default());
        while length < room.len() && !self.end.closed {
            match self.from.read(&mut room[length..]) {
                Ok(0) => self.end.closed = true,
                Ok(read) => {
                    if length == 0 {
                        head = self.stamps.head(self.end.frames);
                    }
                    length += read;
                }
                Err(why) => {
                    self.end.closed = true;
                    self.end.failure = Some(why.to_string());
                }
            }
        }
        if length > 0 {
            self.end.frames += 1;
            frames.make(0, length, head);
        }
        Ok(())
    }
}

/// A stage that writes its frames.
pub(super) struct Feeding {
    pub(super) to: Box<dyn Write + Send>,
    /// Receives the frames' times, for a program that answers.
    pub(super) given: Option<UnansweredFrames>,
    /// Number of frames not written, because the pipe was closed.
    pub(super) refused: u64,
    pub(super) end: PipeEnd,
}

impl Feeding {
    pub(super) fn new(to: Box<dyn Write + Send>, given: Option<UnansweredFrames>) -> Feeding {
        Feeding {
            to,
            given,
            refused: 0,
            end: PipeEnd::default(),
        }
    }

    /// Continues with the input of another program.
    pub(super) fn reopen(&mut self, to: Box<dyn Write + Send>) {
        (self.to, self.end.closed) = (to, false);
    }
}

impl AnyStage for Feeding {
    without_state!();

    fn step(&mut self, frames: &mut Frames<'_>) -> Result<(), Failure> {
        for number in 0..frames.count(0) {
            if let Some(given) = self.given.as_ref().filter(|_| !self.end.closed) {
                given.add(frames.head(0, number));
            }
            let written = match self.end.closed {
                true => Ok(false),
                false => self.to.write_all(frames.input(0, number)).map(|()| true),
            };
            match written {
                Ok(true) => self.end.frames += 1,
                Ok(false) => self.refused += 1,
                Err(why) => {
                    (self.end.closed, self.refused) = (true, self.refused + 1);
                    // The exit status of a program that takes no more tells whether it has failed.
                    if why.kind() != std::io::ErrorKind::BrokenPipe {
                        self.end.failure = Some(why.to_string());
                    }
                }
            }
        }
        Ok(())
    }
}
