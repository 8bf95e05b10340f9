//! One band of the sound, louder or quieter.

use punctual_pipeline::{Failure, Frames, Stage, State};
use serde::{Deserialize, Serialize};

use super::frames::{FOREIGN, each_frame};
use crate::filters::{Fir, Line};
use crate::options::BAND_TAPS;

/// A linear-phase band-pass with a gain.
#[derive(Clone, Debug)]
pub struct Band {
    fir: Fir,
}

/// The last samples before a frame. It is the same for all bands and gains: gains may change with an upgrade.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BandState(Line);

impl Band {
    /// A band of these `taps` (see [`crate::filters::bands`]), its gain in decibels.
    pub fn new(taps: &[f64], gain: f64) -> Band {
        let gain = libm::pow(10.0, gain / 20.0);
        let taps: Vec<f64> = taps.iter().map(|tap| tap * gain).collect();
        Band {
            fir: Fir::new(&taps, 1),
        }
    }

    /// Filters `input` into as many samples.
    pub fn filter(&mut self, state: &mut BandState, input: &[f32], output: &mut [f32]) {
        self.fir.run(&mut state.0, input, output);
    }
}

impl State for BandState {
    const VERSION: u32 = super::version(1, BAND_TAPS);
}

impl Stage for Band {
    type State = BandState;

    fn begin(&self) -> BandState {
        BandState(self.fir.line())
    }

    fn step(&mut self, state: &mut BandState, frames: &mut Frames<'_>) -> Result<(), Failure> {
        if !self.fir.takes(&state.0) {
            return Err(Failure(FOREIGN.into()));
        }
        each_frame(frames, |input, output| {
            self.filter(state, input, output);
            input.len()
        })
    }
}
