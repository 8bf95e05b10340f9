//! The running LQR-PI control law: measurements in, knob settings out, once per sample.
//!
//! ```text
//! step(y, goal)   e = goal - y;  u = u0 - K [e; past e; past u; v];  limits;  v <- v + e
//! applied(u)      what the machine really did, if it is not what `step` returned
//! ```
//!
//! Every knob's setting lies within its limits. While the law asks for more than a limit, v is moved to where the law
//! asks exactly the limit (`antiwindup.rs` explains how and why), and the other knobs take that into account in the
//! same sample. The same happens when [`LqrPi::applied`] reports a setting that was refused or cut. Rounding to the
//! nearest setting is not corrected: v goes on accumulating, and the knob alternates between two settings whose mean is
//! the right one.
//!
//! Two extensions are optional. [`LqrPi::on_actuators`] returns settings on the knobs' steps, with the rounding carried
//! (`actuator.rs`). [`LqrPi::with_model`] subtracts the effect of rounding from the error (`rounding.rs`), and feeds
//! goals forward (`feed_forward.rs`): the operating point moves with the goal, to the settings that the new goal needs
//! in the long run. The error is the distance from the *trajectory* t on which the model reaches the goal under these
//! settings,
//!
//! ```text
//! e = t - (y + x);  u = u0 + s(goal) - s(first goal) - K [e; v];  t <- goal + A (t - goal)
//! ```
//!
//! While machine and model agree, a change of the goal within reach is no error and the feedback does nothing; t ends
//! at the goal, so the errors that v accumulates are in the end those from the goal.
//!
//! A step allocates nothing and takes time proportional to the number of gains.

use nalgebra::DMatrix;

use crate::actuator::Actuator;
use crate::antiwindup::{knobs_of, relief};
use crate::arx::ArxModel;
use crate::box_qp::QP_KNOBS_MAX;
use crate::error::{ControlError, require};
use crate::feed_forward::FeedForward;
use crate::knob::Knob;
use crate::mimo::{Design, check_knobs};
use crate::rounding::RoundingEffect;

/// Larger values are refused like infinities. A law that has taken in one of this size recovers in a few samples,
/// because v is set back to the limits each time; after an overflow to NaN it never would.
const MAGNITUDE_MAX: f64 = 1e100;

/// A running law. Its state is the accumulated errors and, for orders above one, past errors and inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct LqrPi {
    /// K of u = -K z.
    gain: DMatrix<f64>,
    /// Settings to which the law adds its deviations: the operating point, or those of feed-forward.
    u0: Vec<f64>,
    actuators: Vec<Actuator>,
    model: Option<ModelInLaw>,
    /// M for each set of pinned knobs, indexed by the set's bits.
    relief: Vec<DMatrix<f64>>,
    /// z = [e; past e; past u; v], deviations.
    state: Vec<f64>,
    layout: Layout,
    /// Last settings before rounding to the knobs' steps, absolute.
    u: Vec<f64>,
    /// Last settings on the knobs' steps, or those that the machine applied.
    set: Vec<f64>,
    /// Settings asked for minus settings possible; scratch space.
    excess: Vec<f64>,
}

/// Parts that a law computes from the model that it was designed for.
#[derive(Clone, Debug, PartialEq)]
struct ModelInLaw {
    feed_forward: FeedForward,
    rounding: RoundingEffect,
}

/// Indices of the parts of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    /// Number of outputs; e(k) comes first.
    outputs: usize,
    /// End of e(k), e(k-1), .. and start of u(k-1), u(k-2), ..
    past_inputs: usize,
    /// End of the past inputs and start of v.
    accumulated: usize,
}

/// Values that a running law refuses. The law is as it was before the call, and [`LqrPi::settings`] still holds the
/// last good settings.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum StepError {
    /// The wrong number of values.
    #[error("{got} values given as {what} but the law has {needed}")]
    Count {
        /// `measurement`, `goal` or `applied setting`.
        what: &'static str,
        /// Number of values given.
        got: usize,
        /// Number of values needed.
        needed: usize,
    },
    /// A NaN, an infinity, or a number so large that the state would overflow.
    #[error("{what} {index} is {value}: the settings are held until it is a number that can be used")]
    NotUsable {
        /// `measurement`, `goal` or `applied setting`.
        what: &'static str,
        /// Index of the value from 0, in the order of the design.
        index: usize,
        /// NaN, an infinity, or beyond the bound.
        value: f64,
    },
}

impl LqrPi {
    /// Makes the law of `design` for knobs with these ranges, at rest at the operating point.
    ///
    /// # Errors
    /// [`ControlError`] if the parts do not fit each other; a design made by [`design`](crate::design) always fits
    /// itself.
    pub fn new(design: &Design, knobs: Vec<Knob>) -> Result<LqrPi, ControlError> {
        LqrPi::on_actuators(design, knobs.into_iter().map(Actuator::from).collect())
    }

    /// Makes the law of `design` for knobs with steps, at rest at the operating point.
    ///
    /// # Errors
    /// As [`LqrPi::new`].
    pub fn on_actuators(design: &Design, actuators: Vec<Actuator>) -> Result<LqrPi, ControlError> {
        let (nu, ny) = (design.inputs.len(), design.outputs.len());
        let gain = design.gain()?;
        let got = actuators.len();
        require(got == nu, || {
            format!(
                "{got} knob ranges are given but the law moves {nu} knobs: give one for each, in the order of the design"
            )
        })?;
        let weights = &design.weights.accumulated;
        let good_point = design.u0.len() == nu && design.u0.iter().all(|v| v.is_finite());
        let good_weights = weights.len() == ny && weights.iter().all(|w| w.is_finite() && *w > 0.0);
        for (what, good) in [("operating point", good_point), ("weights", good_weights)] {
            require(good, || {
                format!("the controller's {what} does not fit its gains, or is not finite or positive: design it again")
            })?;
        }
        check_knobs(nu)?;
        let relief = (0..1 << nu)
            .map(|set| relief(&design.ki, weights, set))
            .collect::<Result<_, _>>()?;
        let past_inputs = ny * (1 + design.kp_past.len());
        let layout = Layout {
            outputs: ny,
            past_inputs,
            accumulated: past_inputs + nu * design.ku_past.len(),
        };
        let state = vec![0.0; gain.ncols()];
        let limited = |(actuator, u0): (&Actuator, &f64)| actuator.knob().clamp(*u0);
        let u: Vec<f64> = actuators.iter().zip(&design.u0).map(limited).collect();
        Ok(LqrPi {
            gain,
            u0: design.u0.clone(),
            actuators,
            model: None,
            relief,
            state,
            layout,
            set: u.clone(),
            u,
            excess: vec![0.0; nu],
        })
    }

    /// Adds `model`, which must be that of `design`, to the law: changes of the goal are fed forward, and the effect of
    /// rounding on the outputs does not count as an error (`rounding.rs`). The first goal, and the first after
    /// [`resume`](Self::resume), are left to the feedback.
    ///
    /// # Errors
    /// [`ControlError`] for another model, a model without resting points or of higher order, or more than three knobs.
    pub fn with_model(self, model: &ArxModel, design: &Design) -> Result<LqrPi, ControlError> {
        design.check_model(model)?;
        let knobs: Vec<Knob> = self.actuators.iter().map(Actuator::knob).collect();
        let (order, inputs) = (model.order(), model.inputs().len());
        require(order == 1 && knobs.len() == inputs && inputs <= QP_KNOBS_MAX, || {
            format!(
                "feed-forward follows models of first order with at most {QP_KNOBS_MAX} inputs, but this one is of \
                 order {order} with {inputs}"
            )
        })?;
        let inside = ModelInLaw {
            feed_forward: FeedForward::new(model, &design.weights.accumulated, &knobs)?,
            rounding: RoundingEffect::new(model),
        };
        Ok(LqrPi {
            model: Some(inside),
            ..self
        })
    }

    /// Forgets the past and goes on from the settings `u`, as if they had held the goal for long: without an error the
    /// next settings are `u` again, so that taking over a running machine gives no jolt.
    ///
    /// With more knobs than outputs the law cannot ask for every `u`; it then goes on from the nearest that it can ask
    /// for.
    ///
    /// # Errors
    /// [`StepError`] if `u` has the wrong length or cannot be used.
    pub fn resume(&mut self, u: &[f64]) -> Result<(), StepError> {
        check("applied setting", u, self.actuators.len())?;
        self.state.fill(0.0);
        if let Some(model) = &mut self.model {
            model.rounding.forget();
            model.feed_forward.forget();
            self.u0.copy_from_slice(model.feed_forward.operating_point());
        }
        let Layout {
            past_inputs,
            accumulated,
            ..
        } = self.layout;
        for (past, i) in self.state[past_inputs..accumulated]
            .iter_mut()
            .zip((0..u.len()).cycle())
        {
            *past = u[i] - self.u0[i];
        }
        let every = self.relief.len() - 1;
        for (i, u) in u.iter().enumerate() {
            let u = self.actuators[i].knob().clamp(*u);
            self.excess[i] = law(&self.gain, &self.u0, &self.state, i) - u;
            (self.u[i], self.set[i]) = (u, u);
            self.actuators[i].forget();
        }
        self.relieve(every);
        Ok(())
    }

    /// Returns the settings for the coming sample, absolute and within the limits, from the outputs just measured and
    /// their goals. Call once per sample.
    ///
    /// # Errors
    /// [`StepError`] for a value that cannot be used (NaN for an output that was not measured): nothing is
    /// accumulated, nothing shifts, and the caller holds the [`settings`](Self::settings).
    pub fn step(&mut self, y: &[f64], goal: &[f64]) -> Result<&[f64], StepError> {
        check("measurement", y, self.layout.outputs)?;
        check("goal", goal, self.layout.outputs)?;
        match &mut self.model {
            None => {
                for (o, (y, goal)) in y.iter().zip(goal).enumerate() {
                    self.state[o] = goal - y;
                }
            }
            Some(ModelInLaw { feed_forward, rounding }) => {
                feed_forward.aim(goal);
                self.u0.copy_from_slice(feed_forward.settings());
                for (o, (y, target)) in y.iter().zip(feed_forward.trajectory()).enumerate() {
                    self.state[o] = target - (y + rounding.outputs()[o]);
                }
                feed_forward.advance(goal);
            }
        }
        self.settle_within_limits();
        self.advance();
        for (i, actuator) in self.actuators.iter_mut().enumerate() {
            self.set[i] = actuator.set(self.u[i]);
        }
        if let Some(model) = &mut self.model {
            model.rounding.advance(&self.u, &self.set);
        }
        Ok(&self.set)
    }

    /// Reports the settings that the machine applied, if they differ from those of [`step`](Self::step): rounded,
    /// refused or cut. Call at most once per step, before the next one.
    ///
    /// # Errors
    /// [`StepError`] if `u` has the wrong length or cannot be used; the law then goes on as if its settings had been
    /// applied.
    pub fn applied(&mut self, u: &[f64]) -> Result<(), StepError> {
        check("applied setting", u, self.actuators.len())?;
        let mut refused = 0;
        for (i, applied) in u.iter().enumerate() {
            self.set[i] = *applied;
            if !self.actuators[i].knob().is_rounding(self.u[i], *applied) {
                refused |= 1 << i;
            }
            self.excess[i] = self.u[i] - applied;
            if self.layout.past_inputs < self.layout.accumulated {
                self.state[self.layout.past_inputs + i] = applied - self.u0[i];
            }
        }
        self.relieve(refused);
        Ok(())
    }

    /// Goes on from `u`, where another loop with the same goal has moved the knobs ([`Pacer`](crate::Pacer)); not for a
    /// refusal. The accumulated errors move so that the law would have asked for `u` itself, also for the knobs that
    /// were not moved, and the carry of rounding is dropped. Call at most once per step, before the next one.
    ///
    /// # Errors
    /// As for [`applied`](Self::applied).
    pub fn follow(&mut self, u: &[f64]) -> Result<(), StepError> {
        check("applied setting", u, self.actuators.len())?;
        for (i, applied) in u.iter().enumerate() {
            self.excess[i] = self.u[i] - applied;
            (self.u[i], self.set[i]) = (*applied, *applied);
            self.actuators[i].forget();
            if self.layout.past_inputs < self.layout.accumulated {
                self.state[self.layout.past_inputs + i] = applied - self.u0[i];
            }
        }
        if let Some(model) = &mut self.model {
            model.rounding.forget();
        }
        self.relieve(self.relief.len() - 1);
        Ok(())
    }

    /// Settings of the last good step (or start), absolute; on the knobs' steps where these are known.
    pub fn settings(&self) -> &[f64] {
        if self.actuators.iter().any(|actuator| !actuator.steps().is_empty()) {
            &self.set
        } else {
            &self.u
        }
    }

    /// Accumulated error of each output, in the output's unit times samples.
    pub fn accumulated(&self) -> &[f64] {
        &self.state[self.layout.accumulated..]
    }

    /// Computes the settings and moves v until the law asks for them. Each round pins at least one more knob, so there
    /// are at most as many rounds as knobs.
    fn settle_within_limits(&mut self) {
        let mut pinned = 0;
        loop {
            let before = pinned;
            for i in 0..self.actuators.len() {
                let asked = law(&self.gain, &self.u0, &self.state, i);
                self.u[i] = self.actuators[i].knob().clamp(asked);
                self.excess[i] = asked - self.u[i];
                if self.excess[i] != 0.0 {
                    pinned |= 1 << i;
                }
            }
            if pinned == before {
                return;
            }
            self.relieve(pinned);
        }
    }

    /// v <- v + M c for the excess c of the pinned knobs.
    fn relieve(&mut self, pinned: usize) {
        let relief = &self.relief[pinned];
        for (o, v) in self.state[self.layout.accumulated..].iter_mut().enumerate() {
            *v += knobs_of(pinned).map(|i| relief[(o, i)] * self.excess[i]).sum::<f64>();
        }
    }

    /// v(k+1) = v(k) + e(k); everything else becomes one sample older.
    fn advance(&mut self) {
        let Layout {
            outputs,
            past_inputs,
            accumulated,
        } = self.layout;
        for o in 0..outputs {
            self.state[accumulated + o] += self.state[o];
        }
        self.state.copy_within(0..past_inputs - outputs, outputs);
        let knobs = self.actuators.len();
        if past_inputs < accumulated {
            self.state
                .copy_within(past_inputs..accumulated - knobs, past_inputs + knobs);
            for i in 0..knobs {
                self.state[past_inputs + i] = self.u[i] - self.u0[i];
            }
        }
    }
}

/// Setting that the law asks of knob `i`, absolute: u0 - K z.
fn law(gain: &DMatrix<f64>, u0: &[f64], state: &[f64], i: usize) -> f64 {
    u0[i] - state.iter().enumerate().map(|(j, z)| gain[(i, j)] * z).sum::<f64>()
}

/// Refuses values before they can touch the state of a law.
fn check(what: &'static str, values: &[f64], needed: usize) -> Result<(), StepError> {
    if values.len() != needed {
        return Err(StepError::Count {
            what,
            got: values.len(),
            needed,
        });
    }
    match values.iter().position(|v| v.is_nan() || v.abs() > MAGNITUDE_MAX) {
        Some(index) => Err(StepError::NotUsable {
            what,
            index,
            value: values[index],
        }),
        None => Ok(()),
    }
}
