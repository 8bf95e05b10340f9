//! Effect of rounding knobs on the outputs, so that a control law does not answer it as an error.
//!
//! A knob that alternates between two settings moves the outputs at every sample. A law that answers these moves turns
//! the knob further than rounding alone would: a limit cycle several steps wide. The rounding is known, and the model
//! predicts its effect x on the outputs,
//!
//! ```text
//! x(k+1) = A x(k) + B (w(k) - s(k))          w wanted, s set
//! ```
//!
//! so the law is given y + x: the outputs as they would be without rounding. Because the sum of w - s is bounded
//! (`actuator.rs`), x is zero on average, and holding y + x at the goal holds the mean of y there.

use nalgebra::DMatrix;

use crate::arx::ArxModel;

/// Distance of the outputs from those under unrounded knobs, by a first-order model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RoundingEffect {
    a: DMatrix<f64>,
    b: DMatrix<f64>,
    x: Vec<f64>,
    /// Scratch space for the next x.
    next: Vec<f64>,
}

impl RoundingEffect {
    pub(crate) fn new(model: &ArxModel) -> RoundingEffect {
        let outputs = vec![0.0; model.outputs().len()];
        RoundingEffect {
            a: model.a()[0].clone(),
            b: model.b()[0].clone(),
            x: outputs.clone(),
            next: outputs,
        }
    }

    /// Starts anew, without any rounding so far.
    pub(crate) fn forget(&mut self) {
        self.x.fill(0.0);
    }

    /// The effect x, to be added to each output.
    pub(crate) fn outputs(&self) -> &[f64] {
        &self.x
    }

    /// x <- A x + B (wanted - set).
    pub(crate) fn advance(&mut self, wanted: &[f64], set: &[f64]) {
        for (o, next) in self.next.iter_mut().enumerate() {
            let passed: f64 = self.x.iter().enumerate().map(|(j, x)| self.a[(o, j)] * x).sum();
            let rounded = |(i, (w, s)): (usize, (&f64, &f64))| self.b[(o, i)] * (w - s);
            *next = passed + wanted.iter().zip(set).enumerate().map(rounded).sum::<f64>();
        }
        std::mem::swap(&mut self.next, &mut self.x);
    }
}
