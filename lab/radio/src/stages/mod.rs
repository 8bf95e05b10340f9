//! The stages: the state of each between frames, and its work on a frame.

mod demodulator;
mod ends;
mod filter;
mod frames;
mod join;
mod load;
mod low_pass;

pub use demodulator::{Demodulator, DemodulatorState};
pub use ends::{Sink, SinkState, Source, SourceState};
pub use filter::{Band, Filter, FilterState};
pub(crate) use frames::{each_frame, samples_mut};
pub use join::Sum;
pub use load::{LoadState, WorkStage};
pub use low_pass::{LowPass, LowPassState};

/// Version of a state: that of its format, and the number of taps, because a filter cannot continue from the line of
/// one with another length.
const fn version(format: u16, taps: usize) -> u32 {
    assert!(taps < 1 << 16);
    (format as u32) << 16 | taps as u32
}
