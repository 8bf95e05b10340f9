//! Where frames come from and go: stages that are pinned, because a recording and a loudspeaker are in one place.

use punctual_pipeline::{Failure, Frames, Head, Stage, State};
use serde::{Deserialize, Serialize};

use super::frames::samples;
use crate::input::Recording;
use crate::options::{IQ_BYTES, Options};

/// Reads a recording, frame by frame.
///
/// A process that takes over opens the recording anew and passes over what has been handed on; of a pipe, it goes on
/// with what comes.
pub struct Source<S> {
    recording: Recording,
    /// Bytes of a frame.
    bytes: usize,
    stamp: S,
    /// Bytes that `recording` is past.
    position: u64,
}

/// How far the source is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceState {
    frames: u64,
    bytes: u64,
}

impl<S: FnMut(u64) -> Head> Source<S> {
    /// Reads `recording`, of which nothing has been read, in the frames of `options`. `stamp` gets the number of each
    /// frame, from 0, before it is read: it may wait, and answers when the frame was captured and is due.
    pub fn new(recording: Recording, options: &Options, stamp: S) -> Source<S> {
        Source {
            recording,
            bytes: options.frame * IQ_BYTES,
            stamp,
            position: 0,
        }
    }

    fn seek(&mut self, state: &SourceState) -> Result<(), Failure> {
        let missing = state.bytes.saturating_sub(self.position);
        if missing > 0 {
            self.recording.skip(missing).map_err(|why| Failure(why.to_string()))?;
            self.position = state.bytes;
        }
        Ok(())
    }
}

impl State for SourceState {
    const VERSION: u32 = 1;
}

impl<S: FnMut(u64) -> Head> Stage for Source<S> {
    type State = SourceState;

    fn begin(&self) -> SourceState {
        SourceState::default()
    }

    fn step(&mut self, state: &mut SourceState, frames: &mut Frames<'_>) -> Result<(), Failure> {
        self.seek(state)?;
        let head = (self.stamp)(state.frames);
        let room = &mut frames.output(0)[..self.bytes];
        let read = self.recording.read(room).map_err(|why| Failure(why.to_string()))?;
        self.position += read as u64;
        state.bytes += read as u64;
        if read > 0 {
            frames.make(0, read, head);
            state.frames += 1;
        }
        if read < self.bytes {
            frames.end();
        }
        Ok(())
    }
}

/// Hands the sound on.
pub struct Sink<D> {
    deliver: D,
}

/// How much the sink has handed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SinkState {
    frames: u64,
}

impl<D: FnMut(Head, &[f32]) -> Result<(), Failure>> Sink<D> {
    /// Gives what comes with each frame, and its samples of full scale 1, to `deliver`.
    pub fn new(deliver: D) -> Sink<D> {
        Sink { deliver }
    }
}

impl State for SinkState {
    const VERSION: u32 = 1;
}

impl<D: FnMut(Head, &[f32]) -> Result<(), Failure>> Stage for Sink<D> {
    type State = SinkState;

    fn begin(&self) -> SinkState {
        SinkState::default()
    }

    fn step(&mut self, state: &mut SinkState, frames: &mut Frames<'_>) -> Result<(), Failure> {
        for number in 0..frames.count(0) {
            (self.deliver)(frames.head(0, number), samples(frames.input(0, number))?)?;
            state.frames += 1;
        }
        Ok(())
    }
}
