//! The stages: what each keeps between frames, and what it makes of one.

mod band;
mod demodulator;
mod ends;
mod frames;
mod load;
mod low_pass;
mod sum;

pub use band::{Band, BandState};
pub use demodulator::{Demodulator, DemodulatorState};
pub use ends::{Sink, SinkState, Source, SourceState};
pub use load::{Load, LoadState};
pub use low_pass::{LowPass, LowPassState};
pub use sum::Sum;

/// The version of a state: its format's, and the number of taps, because a filter cannot go on from the line of another
/// one.
const fn version(format: u16, taps: usize) -> u32 {
    assert!(taps < 1 << 16);
    (format as u32) << 16 | taps as u32
}
