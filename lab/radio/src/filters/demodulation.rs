//! From a carrier's phase to audio: discriminator and de-emphasis.

use std::f32;
use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use super::vectors::widest;

/// Samples over which the carrier's power is averaged: 4 ms at 250,000 samples/s.
const POWER_SAMPLES: f32 = 1000.0;

/// Least mean power of a carrier, in squared steps of the converter. The output of an idle converter (one half in
/// either part) has 0.5; weaker carriers drown in rounding. Set by hand.
const POWER_MIN: f32 = 1.0;

/// Samples whose angles are found side by side.
const BLOCK: usize = 64;

/// Coefficients of atan(x) / x in x², the highest power first: fitted for the least greatest error where x is 0 to 1,
/// 4e-8 before rounding.
const ARCTANGENT: [f32; 8] = [
    -0.004_054_56,
    0.021_862_93,
    -0.055_912_286,
    0.096_421_94,
    -0.139_086_28,
    0.199_465_65,
    -0.333_298_6,
    0.999_999_34,
];

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

    /// Sets each of `angles` to the angle from the sample before to this one of `input`, in radians, -π to π; 0 without
    /// a carrier. Both have one length.
    pub fn run(&mut self, input: &[[f32; 2]], angles: &mut [f32]) {
        for (input, angles) in input.chunks(BLOCK).zip(angles.chunks_mut(BLOCK)) {
            let (mut ys, mut xs) = ([0.0; BLOCK], [0.0; BLOCK]);
            for (sample, (y, x)) in input.iter().zip(ys.iter_mut().zip(&mut xs)) {
                (*y, *x) = self.step(*sample);
            }
            widest(
                #[inline(always)]
                || {
                    let mut found = [0.0; BLOCK];
                    for at in 0..BLOCK {
                        found[at] = angle(ys[at], xs[at]);
                    }
                    angles.copy_from_slice(&found[..angles.len()]);
                },
            );
        }
    }

    /// The sample times the conjugate of the one before, its imaginary part first; zero without a carrier.
    fn step(&mut self, [re, im]: [f32; 2]) -> (f32, f32) {
        let [re_before, im_before] = self.before;
        self.before = [re, im];
        self.power += (re * re + im * im - self.power) * (1.0 / POWER_SAMPLES);
        if self.power < POWER_MIN {
            return (0.0, 0.0);
        }
        (im * re_before - re * im_before, re * re_before + im * im_before)
    }
}

/// Angle of the point (x, y) in radians, -π to π, within 4e-7 of the true one; 0 at (0, 0).
#[inline(always)]
fn angle(y: f32, x: f32) -> f32 {
    let (least, greatest) = (y.abs().min(x.abs()), y.abs().max(x.abs()));
    let slope = if greatest > 0.0 { least / greatest } else { 0.0 };
    let squared = slope * slope;
    let mut series = 0.0;
    for coefficient in ARCTANGENT {
        series = series * squared + coefficient;
    }
    let octant = series * slope;
    let quadrant = if y.abs() > x.abs() {
        f32::consts::FRAC_PI_2 - octant
    } else {
        octant
    };
    let half = if x < 0.0 { f32::consts::PI - quadrant } else { quadrant };
    half.copysign(y)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn angles_are_those_of_double_precision() {
        for step in -3_000..=3_000 {
            let truth = f64::from(step) / 3_000.0 * PI;
            for radius in [1e-6, 1.0, 5e4] {
                let (y, x) = ((radius * truth.sin()) as f32, (radius * truth.cos()) as f32);
                let apart = f64::from(angle(y, x)) - f64::from(y).atan2(x.into());
                assert!(apart.abs() < 4e-7, "{truth}: {apart:e} apart");
            }
        }
        assert_eq!(angle(0.0, 0.0), 0.0);
    }
}
