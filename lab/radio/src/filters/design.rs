//! Taps of low-pass and band-pass filters, by the window method.

use std::f64::consts::PI;

use thiserror::Error;

/// Greatest number of taps of a filter: 65 ms of audio.
pub const TAPS_MAX: usize = 1 << 14;

/// Why a filter cannot be designed.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum TapsError {
    /// The number of taps is zero or too large.
    #[error("a filter has 1 to {TAPS_MAX} taps, not {0}")]
    Number(usize),
    /// A cutoff is outside of the band.
    #[error("a cutoff lies above 0 and below half of the {rate} samples/s, not at {cutoff} Hz")]
    Cutoff {
        /// Rejected cutoff, in hertz.
        cutoff: f64,
        /// Sample rate of the filter, in hertz.
        rate: f64,
    },
    /// The cutoffs do not rise.
    #[error("the cutoffs of bands rise; {0} Hz does not lie above the one before it")]
    Order(f64),
    /// The number of taps of a band is even, which would delay it by half a sample.
    #[error("bands that sum to a pure delay have an odd number of taps, not {0}")]
    Even(usize),
}

/// Taps of a linear-phase low-pass: a sinc in a Hamming window, of gain 1 at 0 Hz; `cutoff` and `rate` in hertz.
///
/// The delay is `(taps - 1) / 2` samples. Source: `scipy.signal.firwin(taps, cutoff, fs=rate)`, with which it agrees.
///
/// # Errors
/// [`TapsError::Number`] and [`TapsError::Cutoff`].
pub fn low_pass(taps: usize, cutoff: f64, rate: f64) -> Result<Vec<f64>, TapsError> {
    if !(1..=TAPS_MAX).contains(&taps) {
        return Err(TapsError::Number(taps));
    }
    if !(cutoff > 0.0 && cutoff < rate / 2.0) {
        return Err(TapsError::Cutoff { cutoff, rate });
    }
    let taps = sinc_taps(taps, cutoff, rate);
    let gain: f64 = taps.iter().sum();
    Ok(taps.iter().map(|tap| tap / gain).collect())
}

/// Taps of a sinc in a Hamming window, not normalized: the window changes the gain at 0 Hz.
pub(crate) fn sinc_taps(taps: usize, cutoff: f64, rate: f64) -> Vec<f64> {
    let (middle, width) = ((taps - 1) as f64 / 2.0, 2.0 * cutoff / rate);
    (0..taps)
        .map(|tap| width * sinc(width * (tap as f64 - middle)) * hamming(tap, taps))
        .collect()
}

/// Filters for the bands between 0 Hz, the `cutoffs` and half of `rate`, one more than there are cutoffs: see [`band`].
///
/// # Errors
/// The errors of [`band`].
pub fn bands(taps: usize, cutoffs: &[f64], rate: f64) -> Result<Vec<Vec<f64>>, TapsError> {
    (0..=cutoffs.len())
        .map(|number| band(number, taps, cutoffs, rate))
        .collect()
}

/// Filter of band `number`, from 0: the difference of two low-passes; for the last band, that of a pure delay and a
/// low-pass. So all bands together are a pure delay of `(taps - 1) / 2` samples.
///
/// # Errors
/// The errors of [`low_pass`], [`TapsError::Order`] and [`TapsError::Even`].
///
/// # Panics
/// If `number` is greater than the number of cutoffs.
pub fn band(number: usize, taps: usize, cutoffs: &[f64], rate: f64) -> Result<Vec<f64>, TapsError> {
    assert!(number <= cutoffs.len(), "one band more than cutoffs");
    if taps.is_multiple_of(2) {
        return Err(TapsError::Even(taps));
    }
    if let Some(pair) = cutoffs.windows(2).find(|pair| pair[0] >= pair[1]) {
        return Err(TapsError::Order(pair[1]));
    }
    let upper = match cutoffs.get(number) {
        Some(&cutoff) => low_pass(taps, cutoff, rate)?,
        None => delay(taps)?,
    };
    let lower = match number.checked_sub(1).and_then(|below| cutoffs.get(below)) {
        Some(&cutoff) => low_pass(taps, cutoff, rate)?,
        None => vec![0.0; taps],
    };
    Ok(upper.iter().zip(&lower).map(|(upper, lower)| upper - lower).collect())
}

/// Taps of a pure delay of `(taps - 1) / 2` samples.
fn delay(taps: usize) -> Result<Vec<f64>, TapsError> {
    if !(1..=TAPS_MAX).contains(&taps) {
        return Err(TapsError::Number(taps));
    }
    Ok((0..taps).map(|tap| if tap == taps / 2 { 1.0 } else { 0.0 }).collect())
}

/// sin(πx) / (πx), 1 at 0.
fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { libm::sin(PI * x) / (PI * x) }
}

/// Symmetric Hamming window; 1 for a single tap.
fn hamming(tap: usize, taps: usize) -> f64 {
    if taps == 1 {
        return 1.0;
    }
    0.54 - 0.46 * libm::cos(2.0 * PI * tap as f64 / (taps - 1) as f64)
}
