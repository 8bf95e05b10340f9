//! Quality of received sound, compared with the sound that the station was made from.

use rustfft::FftPlanner;
use rustfft::num_complex::Complex;
use thiserror::Error;

use crate::options::AUDIO_RATE;

/// Samples excluded at both ends, where filters begin and end: 0.1 s.
const EDGE: usize = AUDIO_RATE as usize / 10;

/// Greatest length of compared sound, in samples: 10 minutes.
const SAMPLES_MAX: usize = 600 * AUDIO_RATE as usize;

/// Result of comparing sound with its reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quality {
    /// Delay of the sound behind its reference in samples, negative if it is earlier: where the cross-correlation is
    /// greatest.
    pub delay_samples: i64,
    /// Pearson's correlation at that delay, -1 to 1.
    pub correlation: f64,
    /// Power of the part that is a multiple of the reference, over the power of the rest, in decibels.
    pub snr_db: f64,
}

/// Why sound cannot be compared.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum QualityError {
    /// The sound or the reference is too short or too long.
    #[error("{what} has {samples} samples: 0.3 s to 10 min can be compared, {} to {SAMPLES_MAX} samples", 3 * EDGE)]
    Length {
        /// Which of the two: the sound or the reference.
        what: &'static str,
        /// Number of its samples at `AUDIO_RATE`.
        samples: usize,
    },
    /// The sound or the reference is constant, so there is nothing to compare.
    #[error("{0} is silent from beginning to end, so there is nothing to compare")]
    Silent(&'static str),
    /// The two overlap too little at their best delay.
    #[error("the sound fits its reference best {0} samples late, where less than 0.3 s of both overlap")]
    Apart(i64),
}

/// Compares `sound` to the `reference` that it should be a delayed copy of, both at [`AUDIO_RATE`].
///
/// Excludes 0.1 s at either end of their overlap.
///
/// # Errors
/// [`QualityError`] if there is too little to compare.
pub fn quality(sound: &[f32], reference: &[f32]) -> Result<Quality, QualityError> {
    for (what, samples) in [("the sound", sound), ("the reference", reference)] {
        if !(3 * EDGE..=SAMPLES_MAX).contains(&samples.len()) {
            let samples = samples.len();
            return Err(QualityError::Length { what, samples });
        }
        if samples.iter().all(|&sample| sample == samples[0]) {
            return Err(QualityError::Silent(what));
        }
    }
    let delay = delay(sound, reference);
    let (sound, reference) = overlap(sound, reference, delay).ok_or(QualityError::Apart(delay))?;
    let (sound, reference) = (centred(sound), centred(reference));
    let (power, reference_power) = (product(&sound, &sound), product(&reference, &reference));
    let both = product(&sound, &reference);
    let explained = both * both / reference_power;
    Ok(Quality {
        delay_samples: delay,
        correlation: both / (power * reference_power).sqrt(),
        snr_db: 10.0 * (explained / (power - explained).max(f64::MIN_POSITIVE)).log10(),
    })
}

/// Delay with the greatest cross-correlation.
fn delay(sound: &[f32], reference: &[f32]) -> i64 {
    let size = (sound.len() + reference.len()).next_power_of_two();
    let mut planner = FftPlanner::new();
    let forward = planner.plan_fft_forward(size);
    let transformed = |samples: &[f32]| {
        let mut values = vec![Complex::new(0.0f64, 0.0); size];
        for (value, sample) in values.iter_mut().zip(centred(samples)) {
            value.re = sample;
        }
        forward.process(&mut values);
        values
    };
    let mut product = transformed(sound);
    for (value, reference) in product.iter_mut().zip(transformed(reference)) {
        *value *= reference.conj();
    }
    planner.plan_fft_inverse(size).process(&mut product);
    let peak = (0..size)
        .max_by(|&a, &b| product[a].re.total_cmp(&product[b].re))
        .unwrap_or(0);
    // The second half holds the negative delays.
    if peak < sound.len() {
        peak as i64
    } else {
        peak as i64 - size as i64
    }
}

/// The overlap of both at this delay, without its ends.
fn overlap<'s>(sound: &'s [f32], reference: &'s [f32], delay: i64) -> Option<(&'s [f32], &'s [f32])> {
    let skip = delay.unsigned_abs() as usize;
    let (sound, reference) = match delay {
        0.. => (sound.get(skip..)?, reference),
        _ => (sound, reference.get(skip..)?),
    };
    let length = sound.len().min(reference.len());
    let inner = EDGE..length.checked_sub(EDGE)?;
    (inner.len() >= EDGE).then(|| (&sound[inner.clone()], &reference[inner]))
}

fn centred(samples: &[f32]) -> Vec<f64> {
    let mean = samples.iter().map(|&sample| f64::from(sample)).sum::<f64>() / samples.len() as f64;
    samples.iter().map(|&sample| f64::from(sample) - mean).collect()
}

fn product(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
