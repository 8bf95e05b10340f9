//! IQ samples of any rate to the receiver's.

use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Async, FixedAsync, Resampler as _, SincInterpolationParameters, SincInterpolationType, WindowFunction};

use crate::options::IQ_RATE;

/// Taps per output sample at equal rates: a transition band of a few kilohertz.
const TAPS: usize = 64;
/// Cutoff, as a part of half of the lower rate: aliases stay above the channel's filter.
const CUTOFF: f32 = 0.95;
/// Filters between two input samples; linear interpolation between them is good to -80 dB.
const PHASES: usize = 128;

/// A resampler of blocks of equal length, and its account of samples.
pub struct Resampler {
    inner: Async<f32>,
    ratio: f64,
    /// Outputs that are still to be discarded: the filter's delay.
    delay: usize,
    taken: u64,
    made: u64,
    room: Vec<f32>,
}

impl Resampler {
    /// From `rate`, in blocks of `block` samples.
    ///
    /// # Errors
    /// The library's, as text, for a ratio that it does not take.
    pub fn new(rate: f64, block: usize) -> Result<Resampler, String> {
        let ratio = f64::from(IQ_RATE) / rate;
        let parameters = SincInterpolationParameters {
            sinc_len: TAPS * (1.0 / ratio).ceil().max(1.0) as usize,
            f_cutoff: Some(CUTOFF),
            oversampling_factor: PHASES,
            interpolation: SincInterpolationType::Linear,
            window: WindowFunction::BlackmanHarris2,
        };
        let inner =
            Async::new_sinc(ratio, 1.0, &parameters, block, 2, FixedAsync::Input).map_err(|why| why.to_string())?;
        Ok(Resampler {
            delay: inner.output_delay(),
            room: vec![0.0; 2 * inner.output_frames_max()],
            inner,
            ratio,
            taken: 0,
            made: 0,
        })
    }

    /// Adds to `out` what a block becomes; all blocks but the last one have the length of [`Resampler::new`].
    pub fn take(&mut self, block: &[[f32; 2]], out: &mut Vec<[f32; 2]>) -> Result<(), String> {
        self.taken += block.len() as u64;
        self.process(block, out)
    }

    /// Adds the outputs that are still in the filter after the last block.
    pub fn finish(&mut self, out: &mut Vec<[f32; 2]>) -> Result<(), String> {
        while self.made < self.due() {
            self.process(&[], out)?;
        }
        Ok(())
    }

    /// Outputs of all samples taken.
    fn due(&self) -> u64 {
        (self.taken as f64 * self.ratio).round() as u64
    }

    /// Silence follows a block that is shorter than the others.
    fn process(&mut self, block: &[[f32; 2]], out: &mut Vec<[f32; 2]>) -> Result<(), String> {
        let wanted = self.inner.input_frames_next();
        let mut block = block.to_vec();
        block.resize(wanted, [0.0; 2]);
        let frames = self.room.len() / 2;
        let input = InterleavedSlice::new(block.as_flattened(), 2, wanted).map_err(|why| why.to_string())?;
        let mut output = InterleavedSlice::new_mut(&mut self.room, 2, frames).map_err(|why| why.to_string())?;
        let processed = self.inner.process_into_buffer(&input, &mut output, None);
        let (_, made) = processed.map_err(|why| why.to_string())?;
        let discarded = self.delay.min(made);
        self.delay -= discarded;
        let fresh = &self.room.as_chunks::<2>().0[discarded..made];
        let left = self.due().saturating_sub(self.made).min(fresh.len() as u64);
        out.extend_from_slice(&fresh[..left as usize]);
        self.made += left;
        Ok(())
    }
}
