//! A filter of finite impulse response, on a stream that comes in frames.

use serde::{Deserialize, Serialize};

use super::vectors::widest;
use crate::saved::Samples;

/// Samples that are filtered at a time: with the line before them they stay in the first-level cache.
const BLOCK: usize = 256;

/// Number of partial sums of one output, where outputs are left out. The compiler turns them into vector instructions,
/// and their order is part of the result: it depends on the number of taps alone.
const LANES: usize = 16;

/// Outputs that are summed up side by side, where none is left out: each has the sum of its taps in their order.
const TOGETHER: usize = 32;

/// State of a [`Fir`]: its last inputs, and its position between two outputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// In order of time, the oldest first.
    past: Samples,
    /// Number of inputs before the next output.
    wait: u32,
}

/// A filter with real taps that keeps every n-th output.
#[derive(Clone, Debug)]
pub struct Fir {
    /// In the order of the samples that they are multiplied with, the oldest first.
    taps: Vec<f32>,
    every: u32,
    /// The line, then the current block.
    work: Vec<f32>,
}

impl Fir {
    /// A filter of these `taps`, at least one, the newest sample's first; it keeps the first output and each `every`-th
    /// (at least 1) after it.
    pub fn new(taps: &[f64], every: u32) -> Fir {
        assert!(!taps.is_empty() && every > 0, "a filter has taps and keeps outputs");
        Fir {
            taps: taps.iter().rev().map(|&tap| tap as f32).collect(),
            every,
            work: vec![0.0; taps.len() - 1 + BLOCK],
        }
    }

    /// Line before the first sample: silence.
    pub fn line(&self) -> Line {
        Line {
            past: Samples(vec![0.0; self.taps.len() - 1]),
            wait: 0,
        }
    }

    /// Whether `line` fits this filter.
    pub fn takes(&self, line: &Line) -> bool {
        line.past.0.len() + 1 == self.taps.len() && line.wait < self.every
    }

    /// Greatest number of outputs that `inputs` samples make.
    pub fn outputs_max(&self, inputs: usize) -> usize {
        inputs.div_ceil(self.every as usize)
    }

    /// Filters `input`; returns how many samples of `output`, at least [`Fir::outputs_max`] long, it has set.
    pub fn run(&mut self, line: &mut Line, input: &[f32], output: &mut [f32]) -> usize {
        widest(
            #[inline(always)]
            || {
                let mut made = 0;
                for block in input.chunks(BLOCK) {
                    made += self.block(line, block, &mut output[made..]);
                }
                made
            },
        )
    }

    #[inline(always)]
    fn block(&mut self, line: &mut Line, block: &[f32], output: &mut [f32]) -> usize {
        let past = line.past.0.len();
        self.work[..past].copy_from_slice(&line.past.0);
        self.work[past..past + block.len()].copy_from_slice(block);
        let first = line.wait as usize;
        let made = block.len().saturating_sub(first).div_ceil(self.every as usize);
        let outputs = &mut output[..made];
        if self.every == 1 {
            let rows = self.work.windows(self.taps.len() - 1 + TOGETHER).step_by(TOGETHER);
            for (outputs, samples) in outputs.chunks_mut(TOGETHER).zip(rows) {
                outputs.copy_from_slice(&side_by_side(&self.taps, samples)[..outputs.len()]);
            }
        } else {
            let kept = self.work.windows(self.taps.len()).skip(first);
            for (output, samples) in outputs.iter_mut().zip(kept.step_by(self.every as usize)) {
                *output = dot(&self.taps, samples);
            }
        }
        line.wait = (first + made * self.every as usize - block.len()) as u32;
        line.past.0.copy_from_slice(&self.work[block.len()..block.len() + past]);
        made
    }
}

/// Outputs in a row, from as many samples and those of the line before the first.
#[inline(always)]
fn side_by_side(taps: &[f32], samples: &[f32]) -> [f32; TOGETHER] {
    let mut sums = [0.0; TOGETHER];
    for (tap, samples) in taps.iter().zip(samples.windows(TOGETHER)) {
        for at in 0..TOGETHER {
            sums[at] += tap * samples[at];
        }
    }
    sums
}

/// Sum of products, in lanes that are added pairwise at the end.
#[inline(always)]
fn dot(taps: &[f32], samples: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let ((taps, last_taps), (samples, last_samples)) = (taps.as_chunks::<LANES>(), samples.as_chunks::<LANES>());
    for (taps, samples) in taps.iter().zip(samples) {
        for lane in 0..LANES {
            lanes[lane] += taps[lane] * samples[lane];
        }
    }
    for (lane, (tap, sample)) in last_taps.iter().zip(last_samples).enumerate() {
        lanes[lane] += tap * sample;
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}
