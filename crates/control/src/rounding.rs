//! What the rounding of knobs does to the outputs, so that a law does not take it for an error.
//!
//! A knob that alternates between two settings moves the outputs at every sample. A law that answers these moves turns
//! the knob further than rounding alone would: a limit cycle several steps wide. The rounding is known, and so is what
//! the model makes of it,
//!
//! ```text
//! x(k+1) = A x(k) + B (w(k) - s(k))          w wanted, s set
//! ```
//!
//! so the law is given y + x: what the outputs would be if the knobs had gone where they were asked to. Because the sum
//! of w - s is bounded (`actuator.rs`), x is zero on average, and holding y + x at the goal holds the mean of y there.

use nalgebra::DMatrix;

use crate::arx::ArxModel;

/// The outputs' distance from where unrounded knobs would have put them, by a first-order model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RoundingEffect {
    a: DMatrix<f64>,
    b: DMatrix<f64>,
    x: Vec<f64>,
    /// Room for the next x.
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

    /// Nothing was rounded so far.
    pub(crate) fn forget(&mut self) {
        self.x.fill(0.0);
    }

    /// x.
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
