//! Set-point feed-forward for a control law with an integrator: knob settings and output trajectory for a new goal.
//!
//! The settings that suit a goal best in the long run, *s*(goal), are those within the limits with the least sum over
//! the outputs of weight (goal - output at rest)^2. For a goal within reach that is the inverse of the steady state;
//! beyond reach, the weights decide which output gives way, as they do in the law. Only the difference s(goal) -
//! s(first goal) is used: the integrator has found the first goal's settings on the true machine, and a model is better
//! at differences than at absolute values.

use nalgebra::DMatrix;

use crate::arx::ArxModel;
use crate::box_qp::{QP_KNOBS_MAX, Square, Vector, minimise};
use crate::error::ControlError;
use crate::knob::Knob;
use crate::steady::SteadyState;

/// Price of leaving the operating point, relative to the price of outputs: decides only where outputs do not.
const CENTRE: f64 = 1e-9;

/// Settings for a goal, and the trajectory on which a first-order model reaches the goal.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FeedForward {
    rests: SteadyState,
    weights: Vec<f64>,
    a: DMatrix<f64>,
    /// G' diag(weights) G + the price of leaving the operating point.
    h: Square,
    u0: Vec<f64>,
    lower: Vector,
    upper: Vector,
    /// s(first goal) - u0, deviations from the operating point.
    origin: Vector,
    /// u_ff = u0 + s(goal) - s(first goal).
    settings: Vec<f64>,
    /// The trajectory t of the outputs, absolute.
    trajectory: Vec<f64>,
    /// Scratch space for the next t.
    next: Vec<f64>,
    /// Whether the next goal is the first.
    fresh: bool,
}

impl FeedForward {
    /// Makes the feed-forward for the knobs of `model` with these limits, at most [`QP_KNOBS_MAX`] of them.
    pub(crate) fn new(model: &ArxModel, weights: &[f64], knobs: &[Knob]) -> Result<FeedForward, ControlError> {
        debug_assert!(knobs.len() <= QP_KNOBS_MAX && knobs.len() == model.inputs().len());
        let rests = SteadyState::of(model)?;
        let gain = rests.gain();
        let mut h: Square = Default::default();
        for i in 0..knobs.len() {
            for j in 0..knobs.len() {
                h[i][j] = (0..weights.len())
                    .map(|o| weights[o] * gain[(o, i)] * gain[(o, j)])
                    .sum();
            }
        }
        let centre = CENTRE * (0..knobs.len()).map(|i| h[i][i]).fold(f64::MIN_POSITIVE, f64::max);
        let (mut lower, mut upper): (Vector, Vector) = Default::default();
        for (i, knob) in knobs.iter().enumerate() {
            h[i][i] += centre;
            (lower[i], upper[i]) = (knob.min() - model.u0()[i], knob.max() - model.u0()[i]);
        }
        let outputs = vec![0.0; weights.len()];
        Ok(FeedForward {
            rests,
            weights: weights.to_vec(),
            a: model.a()[0].clone(),
            h,
            u0: model.u0().to_vec(),
            lower,
            upper,
            origin: Vector::default(),
            settings: model.u0().to_vec(),
            trajectory: outputs.clone(),
            next: outputs,
            fresh: true,
        })
    }

    /// Starts over: the next goal is the first, and the feedback alone reaches it.
    pub(crate) fn forget(&mut self) {
        self.fresh = true;
    }

    /// Computes the settings for `goal`.
    pub(crate) fn aim(&mut self, goal: &[f64]) {
        let suits = self.suits(goal);
        if self.fresh {
            self.origin = suits;
            self.trajectory.copy_from_slice(goal);
            self.fresh = false;
        }
        for (i, setting) in self.settings.iter_mut().enumerate() {
            *setting = self.u0[i] + suits[i] - self.origin[i];
        }
    }

    /// The operating point u0, to which the settings' differences are added.
    pub(crate) fn operating_point(&self) -> &[f64] {
        &self.u0
    }

    /// The feed-forward settings u_ff, absolute.
    pub(crate) fn settings(&self) -> &[f64] {
        &self.settings
    }

    /// Outputs that are expected now, absolute.
    pub(crate) fn trajectory(&self) -> &[f64] {
        &self.trajectory
    }

    /// t <- goal + A (t - goal): how the model nears a goal whose settings are in force. The trajectory ends at the
    /// goal even where the model's settings do not lead there.
    pub(crate) fn advance(&mut self, goal: &[f64]) {
        for (o, next) in self.next.iter_mut().enumerate() {
            let left = |j: usize| self.a[(o, j)] * (self.trajectory[j] - goal[j]);
            *next = goal[o] + (0..goal.len()).map(left).sum::<f64>();
        }
        std::mem::swap(&mut self.next, &mut self.trajectory);
    }

    /// s(goal) - u0, deviations from the operating point.
    fn suits(&self, goal: &[f64]) -> Vector {
        let mut g = Vector::default();
        let gain = self.rests.gain();
        for (i, g) in g.iter_mut().enumerate().take(self.u0.len()) {
            let asked = |o: usize| self.weights[o] * gain[(o, i)] * (goal[o] - self.rests.rest()[o]);
            *g = (0..goal.len()).map(asked).sum::<f64>();
        }
        minimise(self.u0.len(), &self.h, &g, &self.lower, &self.upper)
    }
}
