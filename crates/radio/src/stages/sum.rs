//! The bands become one sound again.

use punctual_pipeline::{Failure, Frames, Stage};

use super::frames::{samples, samples_mut};

/// The sum of all inputs, sample by sample, in the order of the ports.
#[derive(Clone, Copy, Debug)]
pub struct Sum {
    ports: usize,
}

impl Sum {
    /// Of so many inputs, at least one.
    pub fn new(ports: usize) -> Sum {
        assert!(ports > 0, "a sum has inputs");
        Sum { ports }
    }

    /// Adds `input` to `output`, which holds the inputs before it; the `first` one replaces what is there.
    pub fn add(first: bool, input: &[f32], output: &mut [f32]) {
        if first {
            output.copy_from_slice(input);
            return;
        }
        for (sum, sample) in output.iter_mut().zip(input) {
            *sum += sample;
        }
    }
}

impl Stage for Sum {
    type State = ();

    fn begin(&self) {}

    fn step(&mut self, (): &mut (), frames: &mut Frames<'_>) -> Result<(), Failure> {
        for number in 0..frames.count(0) {
            let length = frames.input(0, number).len();
            for port in 0..self.ports {
                let input = samples(same(frames, port, number, length)?)?;
                let output = samples_mut(&mut frames.output(0)[..length])?;
                Sum::add(port == 0, input, output);
            }
            frames.make(0, length, frames.head(0, number));
        }
        Ok(())
    }
}

/// A frame that must be there and as long as that of the first port.
fn same<'s>(frames: &Frames<'s>, port: usize, number: usize, length: usize) -> Result<&'s [u8], Failure> {
    let there = number < frames.count(port);
    let input = there.then(|| frames.input(port, number));
    input.filter(|input| input.len() == length).ok_or_else(|| {
        Failure(format!(
            "input {port} has no frame of {length} bytes as input 0 has: give all inputs the same frames"
        ))
    })
}
