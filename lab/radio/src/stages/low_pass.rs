//! The channel filter: received bytes become complex samples of the wanted station alone.

use punctual_pipelines::{Failure, Frames, Stage, State};
use serde::{Deserialize, Serialize};

use super::frames::{FOREIGN, each_frame};
use crate::filters::{Fir, Line, low_pass};
use crate::options::{CHANNEL_CUTOFF, CHANNEL_TAPS, IQ_BYTES, IQ_RATE};

/// IQ samples that are split into parts at a time.
const BLOCK: usize = 256;

/// Output of the converter without a signal, in its steps.
const ZERO: f32 = 127.5;

/// Low-pass that selects the station at 0 Hz.
#[derive(Clone, Debug)]
pub struct LowPass {
    fir: Fir,
    parts: [[f32; BLOCK]; 2],
    filtered: [[f32; BLOCK]; 2],
}

/// State of the channel filter: the last samples before a frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LowPassState {
    re: Line,
    im: Line,
}

impl LowPass {
    /// A filter for the station at 0 Hz, with an empty line.
    pub fn new() -> LowPass {
        let taps = low_pass(CHANNEL_TAPS, CHANNEL_CUTOFF, IQ_RATE.into()).expect("constants that fit each other");
        LowPass {
            fir: Fir::new(&taps, 1),
            parts: [[0.0; BLOCK]; 2],
            filtered: [[0.0; BLOCK]; 2],
        }
    }

    /// Filters `input` into as many samples, in steps of the converter around 0.
    pub fn filter(&mut self, state: &mut LowPassState, input: &[[u8; IQ_BYTES]], output: &mut [[f32; 2]]) {
        for (input, output) in input.chunks(BLOCK).zip(output.chunks_mut(BLOCK)) {
            self.block(state, input, output);
        }
    }

    fn block(&mut self, state: &mut LowPassState, input: &[[u8; IQ_BYTES]], output: &mut [[f32; 2]]) {
        let [re, im] = &mut self.parts;
        for (at, [i, q]) in input.iter().enumerate() {
            re[at] = f32::from(*i) - ZERO;
            im[at] = f32::from(*q) - ZERO;
        }
        let lines = [&mut state.re, &mut state.im];
        for ((line, part), filtered) in lines.into_iter().zip(&self.parts).zip(&mut self.filtered) {
            self.fir.run(line, &part[..input.len()], filtered);
        }
        let [re, im] = &self.filtered;
        for (at, sample) in output.iter_mut().enumerate() {
            *sample = [re[at], im[at]];
        }
    }
}

impl Default for LowPass {
    fn default() -> LowPass {
        LowPass::new()
    }
}

impl State for LowPassState {
    const VERSION: u32 = super::version(1, CHANNEL_TAPS);
}

impl Stage for LowPass {
    type State = LowPassState;

    fn begin(&self) -> LowPassState {
        LowPassState {
            re: self.fir.line(),
            im: self.fir.line(),
        }
    }

    fn step(&mut self, state: &mut LowPassState, frames: &mut Frames<'_>) -> Result<(), Failure> {
        if !(self.fir.takes(&state.re) && self.fir.takes(&state.im)) {
            return Err(Failure(FOREIGN.into()));
        }
        each_frame(frames, |input, output| {
            self.filter(state, input, &mut output[..input.len()]);
            input.len()
        })
    }
}
