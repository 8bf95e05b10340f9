//! The bands become one sound again.

/// The sum of all inputs, sample by sample, in the order of the ports.
#[derive(Clone, Copy, Debug)]
pub struct Sum;

impl Sum {
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
