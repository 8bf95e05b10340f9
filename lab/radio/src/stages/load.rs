//! A stage with adjustable work and state size, for measuring the cost of migration.

use punctual_pipelines::{Failure, Frames, Stage, State};
use serde::{Deserialize, Serialize};

use super::frames::FOREIGN;
use crate::saved::Samples;

/// Passes frames on unchanged, with a fixed amount of work for each and a state of a fixed size.
#[derive(Clone, Copy, Debug)]
pub struct WorkStage {
    values: usize,
    multiply_adds: u64,
}

/// State that every frame changes, as a function of the frames so far alone, so that a lost or doubled frame shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadState {
    frames: u64,
    values: Samples,
}

impl WorkStage {
    /// Greatest length of the state, in bytes: 64 MiB.
    pub const STATE_MAX: usize = 64 << 20;
    /// Greatest number of multiply-adds for a frame: about a second.
    pub const WORK_MAX: u64 = 1 << 30;

    /// A load with a state of `state_bytes`, rounded up to 4 and at most [`WorkStage::STATE_MAX`], and `multiply_adds`
    /// for each frame, at most [`WorkStage::WORK_MAX`].
    pub fn new(state_bytes: usize, multiply_adds: u64) -> WorkStage {
        WorkStage {
            values: state_bytes.min(WorkStage::STATE_MAX).div_ceil(4).max(1),
            multiply_adds: multiply_adds.min(WorkStage::WORK_MAX),
        }
    }

    /// Does the work for one frame: the numbers change in turn, each pulled towards the frame's number.
    pub fn work(self, state: &mut LoadState) {
        let towards = (state.frames % 1024) as f32;
        let length = state.values.0.len() as u64;
        let mut left = self.multiply_adds;
        let mut begin = (state.frames.wrapping_mul(self.multiply_adds) % length) as usize;
        while left > 0 {
            let end = (begin as u64 + left).min(length) as usize;
            for value in &mut state.values.0[begin..end] {
                *value = *value * 0.5 + towards;
            }
            left -= (end - begin) as u64;
            begin = 0;
        }
        state.frames += 1;
    }
}

impl LoadState {
    /// Value that differs if a frame was lost, doubled or out of order.
    pub fn fingerprint(&self) -> u64 {
        let mix = |sum: u64, value: &f32| sum.rotate_left(7) ^ u64::from(value.to_bits());
        self.values.0.iter().fold(self.frames, mix)
    }
}

impl State for LoadState {
    const VERSION: u32 = 1;
}

impl Stage for WorkStage {
    type State = LoadState;

    fn begin(&self) -> LoadState {
        LoadState {
            frames: 0,
            values: Samples(vec![0.0; self.values]),
        }
    }

    fn step(&mut self, state: &mut LoadState, frames: &mut Frames<'_>) -> Result<(), Failure> {
        if state.values.0.len() != self.values {
            return Err(Failure(FOREIGN.into()));
        }
        for number in 0..frames.count(0) {
            self.work(state);
            let input = frames.input(0, number);
            frames.output(0)[..input.len()].copy_from_slice(input);
            frames.make(0, input.len(), frames.head(0, number));
        }
        Ok(())
    }
}
