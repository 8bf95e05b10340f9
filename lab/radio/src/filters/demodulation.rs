//! From a carrier's phase to audio: discriminator and de-emphasis.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

/// Samples over which the carrier's power is averaged: 4 ms at 250,000 samples/s.
const POWER_SAMPLES: f32 = 1000.0;

/// Least mean power of a carrier, in squared steps of the converter. The output of an idle converter (one half in
/// either part) has 0.5; weaker carriers drown in rounding. Set by hand.
const POWER_MIN: f32 = 1.0;

/// Outputs of the de-emphasis below this become zero: 24 bits have a step of 1e-7, and numbers below 1e-38 are slow.
const SILENCE: f32 = 1e-15;

/// A quadrature discriminator: the angle from each sample to the next, zero without a carrier.
///
/// Its outputs belong half a sample before their inputs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Discriminator {
    before: [f32; 2],
    power: f32,
}

impl Discriminator {
    /// State before the first sample.
    pub const START: Discriminator = Discriminator {
        before: [0.0; 2],
        power: 0.0,
    };

    /// The angle from the last sample to this one, in radians, -π to π; 0 without a carrier.
    pub fn step(&mut self, [re, im]: [f32; 2]) -> f32 {
        let [re_before, im_before] = self.before;
        self.before = [re, im];
        self.power += (re * re + im * im - self.power) / POWER_SAMPLES;
        if self.power < POWER_MIN {
            return 0.0;
        }
        libm::atan2f(im * re_before - re * im_before, re * re_before + im * im_before)
    }
}

/// A low-pass of one pole that undoes a station's pre-emphasis: H(s) = 1 / (1 + s τ), by the bilinear transform.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeEmphasis {
    input: f32,
    output: f32,
}

impl DeEmphasis {
    /// State before the first sample.
    pub const START: DeEmphasis = DeEmphasis {
        input: 0.0,
        output: 0.0,
    };

    /// The coefficients [b, a] of y\[n\] = b (x\[n\] + x\[n-1\]) - a y\[n-1\] for the time constant `tau` in seconds
    /// and `rate` samples/s. Source: `scipy.signal.bilinear([1], [tau, 1], fs=rate)`.
    pub fn coefficients(tau: f64, rate: f64) -> [f32; 2] {
        let k = 2.0 * rate * tau;
        [(1.0 / (1.0 + k)) as f32, ((1.0 - k) / (1.0 + k)) as f32]
    }

    /// Filters one sample and returns the output.
    pub fn step(&mut self, [b, a]: [f32; 2], input: f32) -> f32 {
        let output = b * (input + self.input) - a * self.output;
        self.input = input;
        self.output = if output.abs() < SILENCE { 0.0 } else { output };
        self.output
    }
}

/// Factor from radians per sample to full scale: 1.0 where the carrier is `deviation` hertz away.
pub fn full_scale(rate: f64, deviation: f64) -> f32 {
    (rate / (2.0 * PI * deviation)) as f32
}
