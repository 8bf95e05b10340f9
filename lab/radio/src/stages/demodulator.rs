//! The demodulator: complex samples of one station become sound.

use punctual_pipelines::{Failure, Frames, Stage, State};
use serde::{Deserialize, Serialize};

use super::frames::{FOREIGN, each_frame};
use crate::filters::{DeEmphasis, Discriminator, Fir, Line, full_scale, low_pass};
use crate::options::{AUDIO_CUTOFF, AUDIO_TAPS, DECIMATION, DEVIATION, IQ_RATE};

/// Samples that are demodulated at a time.
const BLOCK: usize = 256;

/// Discriminator, de-emphasis, and the filter before decimation.
#[derive(Clone, Debug)]
pub struct Demodulator {
    scale: f32,
    emphasis: [f32; 2],
    fir: Fir,
    block: [f32; BLOCK],
}

/// State of the demodulator between two frames.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DemodulatorState {
    discriminator: Discriminator,
    emphasis: DeEmphasis,
    line: Line,
}

impl Demodulator {
    /// A demodulator for stations whose pre-emphasis has a time constant of `emphasis` microseconds; 0 for none.
    pub fn new(emphasis: f64) -> Demodulator {
        let taps = low_pass(AUDIO_TAPS, AUDIO_CUTOFF, IQ_RATE.into()).expect("constants that fit each other");
        Demodulator {
            scale: full_scale(IQ_RATE.into(), DEVIATION),
            emphasis: DeEmphasis::coefficients(emphasis * 1e-6, IQ_RATE.into()),
            fir: Fir::new(&taps, DECIMATION),
            block: [0.0; BLOCK],
        }
    }

    /// Demodulates `input`, whose values are steps of the converter; returns the number of sound samples made, at most
    /// one for each [`DECIMATION`] inputs and one more. Full scale is 1.
    pub fn filter(&mut self, state: &mut DemodulatorState, input: &[[f32; 2]], output: &mut [f32]) -> usize {
        let mut made = 0;
        for input in input.chunks(BLOCK) {
            let block = &mut self.block[..input.len()];
            state.discriminator.run(input, block);
            for sample in block.iter_mut() {
                *sample = state.emphasis.step(self.emphasis, *sample * self.scale);
            }
            made += self.fir.run(&mut state.line, block, &mut output[made..]);
        }
        made
    }
}

impl State for DemodulatorState {
    const VERSION: u32 = super::version(1, AUDIO_TAPS);
}

impl Stage for Demodulator {
    type State = DemodulatorState;

    fn begin(&self) -> DemodulatorState {
        DemodulatorState {
            discriminator: Discriminator::START,
            emphasis: DeEmphasis::START,
            line: self.fir.line(),
        }
    }

    fn step(&mut self, state: &mut DemodulatorState, frames: &mut Frames<'_>) -> Result<(), Failure> {
        if !self.fir.takes(&state.line) {
            return Err(Failure(FOREIGN.into()));
        }
        each_frame(frames, |input, output| self.filter(state, input, output))
    }
}
