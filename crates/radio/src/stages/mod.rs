//! The stages: what each keeps between frames, and what it makes of one.

mod band;
mod demodulator;
mod low_pass;
mod sum;

pub use band::Band;
pub use demodulator::{Demodulator, DemodulatorState};
pub use low_pass::{LowPass, LowPassState};
pub use sum::Sum;
