//! The stages: what each keeps between frames, and what it makes of one.

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
pub use load::{Load, LoadState};
pub use low_pass::{LowPass, LowPassState};

/// The version of a state: its format's, and the number of taps, because a filter cannot go on from the line of another
/// one.
const fn version(format: u16, taps: usize) -> u32 {
    assert!(taps < 1 << 16);
    (format as u32) << 16 | taps as u32
}
