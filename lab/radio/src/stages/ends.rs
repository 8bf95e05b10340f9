//! Source and sink of frames: pinned stages, because a recording and a loudspeaker are in one place.

use punctual_pipelines::{Failure, Frames, Head, Stage, State};
use serde::{Deserialize, Serialize};

use super::frames::samples;
use crate::input::{InputError, Recording};
use crate::options::{IQ_BYTES, Options};

/// Reads a recording, frame by frame.
///
/// A process that takes over opens the recording anew and skips the part that was passed on; from a pipe, it continues
/// with the bytes that come.
pub struct Source<S> {
    recording: Recording,
    /// Length of a frame, in bytes.
    bytes: usize,
    stamp: S,
    complain: Option<ErrorCallback>,
    /// Position in `recording`, in bytes.
    position: u64,
}

/// Callback that receives the error of a recording.
type ErrorCallback = Box<dyn FnMut(InputError)>;

/// Position of the source in its stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceState {
    frames: u64,
    bytes: u64,
}

impl<S: FnMut(u64) -> Head> Source<S> {
    /// Reads `recording`, from its beginning, in the frames of `options`. `stamp` gets the number of each frame, from
    /// 0, once it is read: it may wait, and returns when the frame was captured and is due.
    pub fn new(recording: Recording, options: &Options, stamp: S) -> Source<S> {
        Source {
            recording,
            bytes: options.frame * IQ_BYTES,
            stamp,
            complain: None,
            position: 0,
        }
    }

    /// Ends the stream if the recording cannot be read further, after calling `complain`: the part that was read is
    /// still played to its end. Without this, such a recording ends the pipeline at once.
    #[must_use]
    pub fn ending(self, complain: impl FnMut(InputError) + 'static) -> Source<S> {
        Source {
            complain: Some(Box::new(complain)),
            ..self
        }
    }

    /// Reads the next frame; returns its length in bytes, 0 at the end.
    fn read(&mut self, state: &SourceState, room: &mut [u8]) -> Result<usize, InputError> {
        let missing = state.bytes.saturating_sub(self.position);
        if missing > 0 {
            self.recording.skip(missing)?;
            self.position = state.bytes;
        }
        self.recording.read(room)
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
        let room = &mut frames.output(0)[..self.bytes];
        let read = match (self.read(state, room), &mut self.complain) {
            (Ok(read), _) => read,
            (Err(why), None) => return Err(Failure(why.to_string())),
            (Err(why), Some(complain)) => {
                complain(why);
                0
            }
        };
        if read == 0 {
            frames.end();
            return Ok(());
        }
        let head = (self.stamp)(state.frames);
        self.position += read as u64;
        state.bytes += read as u64;
        state.frames += 1;
        frames.make(0, read, head);
        Ok(())
    }
}

/// Passes the sound to a callback.
pub struct Sink<D> {
    deliver: D,
}

/// Number of frames that the sink has passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SinkState {
    frames: u64,
}

impl<D: FnMut(Head, &[f32]) -> Result<(), Failure>> Sink<D> {
    /// Calls `deliver` with each frame's metadata, and its samples of full scale 1.
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
