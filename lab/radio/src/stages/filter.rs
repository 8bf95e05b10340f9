//! A filter of real samples: a band of the equalizer, or any other.

use punctual_pipelines::{Failure, Frames, Stage, State};
use serde::{Deserialize, Serialize};

use super::frames::{FOREIGN, each_frame};
use crate::filters::{Fir, Line};
use crate::options::BAND_TAPS;

/// A filter of `TAPS` taps. Their number is part of the type, because it is part of the state's version: a filter
/// cannot continue from the line of one with another length.
#[derive(Clone, Debug)]
pub struct Filter<const TAPS: usize> {
    fir: Fir,
}

/// A band of the equalizer.
pub type Band = Filter<BAND_TAPS>;

/// State of a filter: the last samples before a frame. It does not depend on the taps' values: gains may change with an
/// upgrade.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FilterState<const TAPS: usize>(Line);

impl<const TAPS: usize> Filter<TAPS> {
    /// A filter of these `taps`, with a gain in decibels, that keeps the first output and each `every`-th after it.
    ///
    /// # Panics
    /// If the number of taps differs from `TAPS`.
    pub fn new(taps: &[f64], gain: f64, every: u32) -> Filter<TAPS> {
        assert_eq!(taps.len(), TAPS, "taps of a filter");
        let gain = libm::pow(10.0, gain / 20.0);
        let taps: Vec<f64> = taps.iter().map(|tap| tap * gain).collect();
        Filter {
            fir: Fir::new(&taps, every),
        }
    }

    /// Filters `input`; returns how many samples of `output` it has set.
    pub fn filter(&mut self, state: &mut FilterState<TAPS>, input: &[f32], output: &mut [f32]) -> usize {
        self.fir.run(&mut state.0, input, output)
    }
}

impl<const TAPS: usize> State for FilterState<TAPS> {
    const VERSION: u32 = super::version(1, TAPS);
}

impl<const TAPS: usize> Stage for Filter<TAPS> {
    type State = FilterState<TAPS>;

    fn begin(&self) -> FilterState<TAPS> {
        FilterState(self.fir.line())
    }

    fn step(&mut self, state: &mut FilterState<TAPS>, frames: &mut Frames<'_>) -> Result<(), Failure> {
        if !self.fir.takes(&state.0) {
            return Err(Failure(FOREIGN.into()));
        }
        each_frame(frames, |input, output| self.filter(state, input, output))
    }
}
