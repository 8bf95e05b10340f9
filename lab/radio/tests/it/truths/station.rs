//! Stations whose sound is known exactly: modulated by formula, never recorded.

use std::f64::consts::PI;

use punctual_radio::{AUDIO_RATE, DEVIATION, IQ_RATE};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// What is sent: a sweep through all pitches, and tones that come and go. Full scale is 1.
pub struct Programme {
    sweep: [f64; 3],
    tones: Vec<[f64; 4]>,
}

impl Programme {
    pub fn new(seed: u64) -> Programme {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut tone = || {
            let (pitch, phase) = (rng.random_range(60.0..9000.0), rng.random_range(0.0..6.0));
            [0.03, pitch, phase, rng.random_range(0.3..4.0)]
        };
        let tones = (0..8).map(|_| tone()).collect();
        Programme {
            sweep: [
                0.18,
                50.0 + 10.0 * (seed % 7) as f64,
                4000.0 + 100.0 * (seed % 11) as f64,
            ],
            tones,
        }
    }

    /// The sound at a time in seconds.
    pub fn at(&self, time: f64) -> f64 {
        let [loud, from, per_second] = self.sweep;
        let sweep = loud * (2.0 * PI * (from * time + per_second / 2.0 * time * time)).sin();
        let tones = self.tones.iter().map(|[loud, pitch, phase, beat]| {
            let swell = 0.5 + 0.5 * (2.0 * PI * beat * time).sin();
            loud * swell * (2.0 * PI * pitch * time + phase).sin()
        });
        sweep + tones.sum::<f64>()
    }

    /// What a perfect receiver plays.
    pub fn sound(&self, seconds: f64) -> Vec<f32> {
        let rate = f64::from(AUDIO_RATE);
        (0..(seconds * rate) as usize)
            .map(|at| self.at(at as f64 / rate) as f32)
            .collect()
    }

    /// The carrier's phase in turns at each IQ sample. Pre-emphasis adds the derivative, of which the integral is the
    /// sound itself; the sound is integrated by Simpson's rule.
    fn phase(&self, seconds: f64, emphasis: f64) -> Vec<f64> {
        let step = 1.0 / f64::from(IQ_RATE);
        let mut integral = 0.0;
        (0..(seconds / step) as usize)
            .map(|at| {
                let time = at as f64 * step;
                let (now, middle, next) = (self.at(time), self.at(time + step / 2.0), self.at(time + step));
                let phase = DEVIATION * (integral + emphasis * 1e-6 * now);
                integral += step / 6.0 * (now + 4.0 * middle + next);
                phase
            })
            .collect()
    }
}

/// A recording of the programme, with another station 100 kHz away at a tenth of its amplitude, and noise 30 dB below.
pub fn recording(programme: &Programme, seconds: f64, emphasis: f64, seed: u64) -> Vec<[u8; 2]> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x5eed);
    let neighbour = Programme::new(seed + 1000).phase(seconds, emphasis);
    let carriers = programme.phase(seconds, emphasis).into_iter().zip(neighbour);
    let level = 95.0;
    // Uniform noise of the same power in each part: its variance is a twelfth of its squared width.
    let width = level * (12.0 * 0.5e-3f64).sqrt();
    carriers
        .enumerate()
        .map(|(at, (own, other))| {
            let other = other + 0.4 * at as f64;
            [0.0, 0.25].map(|quarter| {
                let wave = |turns: f64| (2.0 * PI * (turns - quarter)).cos();
                let noise = width * (rng.random::<f64>() - 0.5);
                (127.5 + level * (wave(own) + 0.1 * wave(other)) + noise).round() as u8
            })
        })
        .collect()
}
