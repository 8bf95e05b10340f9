//! Spectra of the sound and of the input, for the live view and the page.

use std::f32::consts::PI;
use std::fmt;
use std::sync::Arc;

use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};

use crate::options::{AUDIO_RATE, IQ_BYTES};

/// Samples of one spectrum: 82 ms, 12 Hz apart.
const SIZE: usize = 2048;

/// Lowest pitch shown, in hertz.
const FROM: f32 = 40.0;

/// Least level shown, in decibels below full scale: 16-bit sound has no more.
const FLOOR: f32 = -96.0;

/// Level of a full-scale carrier above a sine, in one half of the transform, in decibels: four times the power.
const CARRIER: f32 = 6.020_6;

/// Measures the power of the latest sound in bands of equal width on a logarithmic scale.
#[derive(Clone)]
pub struct Spectrum {
    fft: Arc<dyn Fft<f32>>,
    /// First line of each band, and one past the last.
    edges: Vec<usize>,
    window: Vec<f32>,
    values: Vec<Complex<f32>>,
    scratch: Vec<Complex<f32>>,
}

impl Spectrum {
    /// Number of samples in a measurement, the last ones given.
    pub const SAMPLES: usize = SIZE;

    /// A spectrum of `bands` bands, at most 64, between 40 Hz and half of [`AUDIO_RATE`].
    pub fn new(bands: usize) -> Spectrum {
        let bands = bands.clamp(1, 64);
        let fft = FftPlanner::new().plan_fft_forward(SIZE);
        let scratch = vec![Complex::default(); fft.get_inplace_scratch_len()];
        Spectrum {
            fft,
            edges: edges(bands),
            window: (0..SIZE).map(hann).collect(),
            values: vec![Complex::default(); SIZE],
            scratch,
        }
    }

    /// Edges of the bands in hertz, one more than there are bands.
    pub fn edges(&self) -> impl Iterator<Item = f32> {
        self.edges
            .iter()
            .map(|&line| line as f32 * AUDIO_RATE as f32 / SIZE as f32)
    }

    /// Measures the power of each band in decibels: 0 for a sine of full scale, at least -96. Covers the last
    /// [`Spectrum::SAMPLES`] samples, with silence before them.
    pub fn measure(&mut self, sound: &[f32], powers: &mut Vec<f32>) {
        let sound = &sound[sound.len().saturating_sub(SIZE)..];
        self.values.fill(Complex::default());
        let begin = SIZE - sound.len();
        for ((value, &window), &sample) in self.values[begin..].iter_mut().zip(&self.window[begin..]).zip(sound) {
            value.re = window * sample;
        }
        self.fft.process_with_scratch(&mut self.values, &mut self.scratch);
        powers.clear();
        powers.extend(
            self.edges
                .windows(2)
                .map(|edge| decibels(&self.values[edge[0]..edge[1]])),
        );
    }
}

impl fmt::Debug for Spectrum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spectrum")
            .field("edges", &self.edges)
            .finish_non_exhaustive()
    }
}

/// Measures the power of the received signal along its frequencies.
#[derive(Clone)]
pub struct InputSpectrum {
    fft: Arc<dyn Fft<f32>>,
    lines: usize,
    window: Vec<f32>,
    values: Vec<Complex<f32>>,
    scratch: Vec<Complex<f32>>,
}

impl InputSpectrum {
    /// Number of samples in a measurement, the last ones given.
    pub const SAMPLES: usize = SIZE;

    /// A spectrum of `lines` lines, a power of two of at most 2048, from half of [`crate::IQ_RATE`] below the station
    /// to half of it above.
    pub fn new(lines: usize) -> InputSpectrum {
        let fft = FftPlanner::new().plan_fft_forward(SIZE);
        let scratch = vec![Complex::default(); fft.get_inplace_scratch_len()];
        InputSpectrum {
            fft,
            lines: lines.next_power_of_two().clamp(1, SIZE),
            window: (0..SIZE).map(hann).collect(),
            values: vec![Complex::default(); SIZE],
            scratch,
        }
    }

    /// Measures the power of each line in decibels: 0 for a carrier of full scale, at least -96. Covers the last
    /// [`InputSpectrum::SAMPLES`] samples as received, with no signal before them.
    pub fn measure(&mut self, input: &[[u8; IQ_BYTES]], powers: &mut Vec<f32>) {
        let input = &input[input.len().saturating_sub(SIZE)..];
        self.values.fill(Complex::default());
        let begin = SIZE - input.len();
        for ((value, &window), &[i, q]) in self.values[begin..].iter_mut().zip(&self.window[begin..]).zip(input) {
            let part = |byte: u8| window * (f32::from(byte) - 127.5) / 127.5;
            *value = Complex::new(part(i), part(q));
        }
        self.fft.process_with_scratch(&mut self.values, &mut self.scratch);
        // The transform begins at 0 Hz; negative frequencies are its second half.
        self.values.rotate_right(SIZE / 2);
        powers.clear();
        // A carrier is in one half of the transform only, with twice the amplitude of a sine's.
        powers.extend(
            self.values
                .chunks(SIZE / self.lines)
                .map(|lines| (decibels(lines) - CARRIER).max(FLOOR)),
        );
    }
}

impl fmt::Debug for InputSpectrum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputSpectrum")
            .field("lines", &self.lines)
            .finish_non_exhaustive()
    }
}

/// Lines between the bands: each band has at least one, so the lowest are wider than on an even scale.
fn edges(bands: usize) -> Vec<usize> {
    let per_line = AUDIO_RATE as f32 / SIZE as f32;
    let (first, last) = (FROM / per_line, SIZE as f32 / 2.0);
    let mut edges: Vec<usize> = Vec::with_capacity(bands + 1);
    for band in 0..=bands {
        let even = first * (last / first).powf(band as f32 / bands as f32);
        let after = edges.last().map_or(0, |line| line + 1);
        edges.push((even.round() as usize).max(after));
    }
    edges
}

/// Power of `lines` in decibels of full scale. A sine of full scale has the power 1/2, and the window keeps 3/8 of all
/// power; half of a sine's power is in the half of the transform that is measured.
fn decibels(lines: &[Complex<f32>]) -> f32 {
    let power: f32 = lines.iter().map(Complex::norm_sqr).sum();
    let full = 0.25 * 0.375 * (SIZE * SIZE) as f32;
    (10.0 * (power / full).max(1e-30).log10()).max(FLOOR)
}

fn hann(at: usize) -> f32 {
    0.5 - 0.5 * (2.0 * PI * at as f32 / SIZE as f32).cos()
}
