//! Stages with several inputs, whose frames are joined sample by sample.

use punctual_pipelines::{Failure, Frames, Stage};

use super::frames::{samples, samples_mut};

/// The sum of all inputs, each with a weight, in the order of the ports.
#[derive(Clone, Debug)]
pub struct Sum {
    weights: Vec<f32>,
}

impl Sum {
    /// A sum of `ports` inputs, at least one, with equal weights.
    pub fn new(ports: usize) -> Sum {
        Sum::weighted(&vec![1.0; ports])
    }

    /// A sum of as many inputs as there are weights, at least one.
    pub fn weighted(weights: &[f32]) -> Sum {
        assert!(!weights.is_empty(), "a sum has inputs");
        Sum {
            weights: weights.to_vec(),
        }
    }

    /// Adds `input`, of the `port`, to `output`, which holds the sum of the ports before it; port 0 overwrites
    /// `output`.
    pub fn add(&self, port: usize, input: &[f32], output: &mut [f32]) {
        let weight = self.weights[port];
        for (sum, sample) in output.iter_mut().zip(input) {
            *sum = if port == 0 {
                weight * sample
            } else {
                *sum + weight * sample
            };
        }
    }
}

impl Stage for Sum {
    type State = ();

    fn begin(&self) {}

    fn step(&mut self, (): &mut (), frames: &mut Frames<'_>) -> Result<(), Failure> {
        for number in 0..frames.count(0) {
            let length = frames.input(0, number).len();
            for port in 0..self.weights.len() {
                let input = samples(same(frames, port, number, length)?)?;
                let output = samples_mut(&mut frames.output(0)[..length])?;
                self.add(port, input, output);
            }
            frames.make(0, length, frames.head(0, number));
        }
        Ok(())
    }
}

/// The frame of `port`; an error unless it exists and is as long as that of the first port.
fn same<'s>(frames: &Frames<'s>, port: usize, number: usize, length: usize) -> Result<&'s [u8], Failure> {
    let there = number < frames.count(port);
    let input = there.then(|| frames.input(port, number));
    input.filter(|input| input.len() == length).ok_or_else(|| {
        Failure(format!(
            "input {port} has no frame of {length} bytes as input 0 has: give all inputs the same frames"
        ))
    })
}
