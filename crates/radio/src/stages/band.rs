//! One band of the sound, louder or quieter.

use crate::filters::{Fir, Line};

/// A linear-phase band-pass with a gain.
#[derive(Clone, Debug)]
pub struct Band {
    fir: Fir,
}

impl Band {
    /// A band of these `taps` (see [`crate::filters::bands`]), its gain in decibels.
    pub fn new(taps: &[f64], gain: f64) -> Band {
        let gain = libm::pow(10.0, gain / 20.0);
        let taps: Vec<f64> = taps.iter().map(|tap| tap * gain).collect();
        Band {
            fir: Fir::new(&taps, 1),
        }
    }

    /// Before the first sample.
    pub fn start(&self) -> Line {
        self.fir.line()
    }

    /// Filters `input` into as many samples.
    pub fn filter(&mut self, line: &mut Line, input: &[f32], output: &mut [f32]) {
        self.fir.run(line, input, output);
    }
}
