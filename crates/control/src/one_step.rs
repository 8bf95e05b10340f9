//! The one-step law: the settings that, according to the model, put the next outputs on their goals.
//!
//! **Problem.** [`LqrPi`](crate::LqrPi) answers an error with a fixed part of it per sample; however fast the machine
//! answers, the error needs several samples to go. When the model says that the next sample obeys the settings chosen
//! now, one can ask for the goal at once.
//!
//! **Method.** The model is used as a prediction of the next sample, in absolute values,
//!
//! ```text
//! y^(k+1) = f(k) + B u(k) + d^(k),     f(k) = y0 + drift + A (y(k) - y0) - B u0 + W (w(k) - w0)
//! ```
//!
//! with w a *measured disturbance*, if the model has inputs beyond the knobs, and d^ everything that the model does
//! not say: interference, another workload, gains that are a little off. It is integrated from what the last
//! prediction missed (the *innovation*), through a filter with one gain 0 < l <= 1 per output:
//!
//! ```text
//! d^(k) = d^(k-1) + l (y(k) - y^(k))
//! ```
//!
//! The settings are those with the least
//!
//! ```text
//! sum over outputs of weight (goal - y^(k+1))^2  +  sum over knobs of moves (u(k) - u(k-1))^2
//! ```
//!
//! within the knobs' limits and rates, exactly: `box_qp.rs`. This is model predictive control with a horizon of one, in
//! the velocity form whose constant output disturbance makes it offset-free (Muske and Badgwell, "Disturbance modeling
//! for offset-free linear model predictive control", Journal of Process Control 12(5), 2002).
//!
//! **What follows.**
//! - *No offset.* At rest the innovation is zero, so y = y^. Also u = u(k-1), so the price of moves has no slope, and u
//!   is where the goal's price has none: y^ = goal if the limits allow that and B has full row rank. Nothing about d,
//!   or about the gains of the true machine, was assumed.
//! - *No windup.* d^ compares with what was really applied. At a limit it goes on telling the disturbance, not the
//!   time spent there; once the disturbance is gone, so is its estimate, after some 1/l samples.
//! - *Nothing is counted on twice.* A knob that did not follow (admission lets in more than asked for when freshness
//!   needs it) is taken to be at a limit there, and the others do its part.
//! - *Set points are fed forward.* A new goal is asked for in the same sample: no integrator has to find its settings.
//! - *How fast.* Away from the limits, with a true model and no price of moves, y(k+1) - goal = d - d^(k). So an error
//!   shrinks by 1 - l per sample: with l = 0.6 to 40 %, 16 %, 6.4 % of a step. White noise in y reaches the outputs
//!   sqrt(2 / (2 - l)) times as large.
//! - *How robust.* Let the true gain be m times the model's, A = 0. Then d^ moves with the factor 1 - l m per sample:
//!   stable for 0 < m < 2/l, that is up to 3.3 times the model's gain for l = 0.6. With several knobs the eigenvalues
//!   of B_true B^-1 take the place of m. A gain of the wrong sign is never stable, only bounded by the limits; a caller
//!   that runs a law on a model that was not checked lets a [`Supervisor`](crate::Supervisor) watch.
//! - *Prices.* `moves` slows down only what B can hardly do: along a direction in which B'(weight)B has the eigenvalue
//!   s, a step goes the part s / (s + moves) of the way. So noise in an output that the knobs hardly reach does not
//!   throw the knobs from limit to limit.
//!
//! **Steps.** Where knobs have steps, each combination of the two steps around what is wanted is priced, and the
//! cheapest is taken; the other knobs go where they are wanted. What rounding keeps from an output is carried, c <- c +
//! B (wanted - set), and asked for in the next samples: with a single knob that is the rule of `actuator.rs`, with its
//! bounds. To let knobs without steps take up the rounding within the sample was tried and given up. On the simulated
//! machine the admitted share acts on a single job too unevenly, and the jobs were further off their goal than with the
//! clock alone.
//!
//! First-order models only. To invert more past inputs is to invert their zeros, and those may lie outside of the unit
//! circle: the settings would grow while the outputs sit on their goals.

use nalgebra::DMatrix;

use crate::actuator::Actuator;
use crate::antiwindup::is_in;
use crate::arx::ArxModel;
use crate::box_qp::{QP_KNOBS_MAX, Square, Vector, minimise, price};
use crate::lqr_pi::{StepError, check};
use crate::spectrum::{NoSpectrum, Stability, poles};

/// Rounding is carried for outputs whose errors cost at least this part of the dearest one's. A lesser output may be
/// off by the effect of a rounding; it does not set the knobs in motion.
const CARRIED_FROM: f64 = 0.5;

/// A knob that does not follow is tried by this part of its range, or one of its steps.
const PROBE: f64 = 0.01;

/// What errors and moves cost, and how fast a disturbance is believed.
#[derive(Clone, Debug, PartialEq)]
pub struct OneStepTuning {
    /// Price of each output's squared error; more than 0. Says which goal is given up first.
    pub error: Vec<f64>,
    /// Price of each knob's squared move; more than 0, and small against `error` times the squared gain.
    pub moves: Vec<f64>,
    /// l, the gain of each output's disturbance filter: above 0, at most 1.
    pub filter: Vec<f64>,
}

/// Why the law cannot be run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OneStepError {
    /// The model looks further back than one sample.
    #[error(
        "the one-step law inverts models of first order, but this one has na = {na}, nb = {nb}: identify with one past \
         output and one past input"
    )]
    Order {
        /// Past outputs.
        na: usize,
        /// Past inputs.
        nb: usize,
    },
    /// More knobs than inputs, or than can be solved for.
    #[error("{knobs} knobs do not fit a model with {inputs} inputs; at least 1, at most {QP_KNOBS_MAX} can be turned")]
    Knobs {
        /// Knobs given.
        knobs: usize,
        /// Inputs of the model.
        inputs: usize,
    },
    /// A list of the tuning has the wrong length or a value out of range.
    #[error("the {what} of the one-step law are out of range: {needed} numbers, {range}")]
    Tuning {
        /// `error prices`, `move prices` or `filter gains`.
        what: &'static str,
        /// How many are needed.
        needed: usize,
        /// What is allowed.
        range: &'static str,
    },
    /// The eigenvalues of the closed loop could not be computed.
    #[error(transparent)]
    Spectrum(#[from] NoSpectrum),
}

/// A direction of a knob.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    Down,
    Up,
}

/// The law at work. A step allocates nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct OneStep {
    a: DMatrix<f64>,
    b: DMatrix<f64>,
    /// W: effects of the measured disturbances; ny x nw.
    measured: DMatrix<f64>,
    /// y0 + drift - A y0 - B u0 - W w0: the constant of the prediction in absolute values.
    constant: Vec<f64>,
    tuning: OneStepTuning,
    /// B' diag(error) B + diag(moves).
    h: Square,
    actuators: Vec<Actuator>,
    /// c: what rounding has kept from each output so far, in its unit.
    carry: Vec<f64>,
    /// Bound of c: half the effect of the widest step; 0 for outputs that matter less.
    carry_max: Vec<f64>,
    /// What each output can be moved by at most, all knobs together.
    span: Vec<f64>,
    verdict: Stability,
    /// d^.
    disturbance: Vec<f64>,
    /// f(k) + d^(k) of the last step: the prediction but for B u(k).
    expected: Vec<f64>,
    /// Whether there was a last step.
    started: bool,
    /// Scratch space for f(k).
    free: Vec<f64>,
    /// The knobs as applied last, absolute.
    u: Vec<f64>,
    /// Where the knobs were wanted last, before steps: what moves are counted from. Counted from a step, a slow move
    /// would be rounded away at every sample.
    wanted: Vector,
    /// Which knobs did not go as far as they were asked to, and in which direction.
    short: [Option<Side>; QP_KNOBS_MAX],
}

impl OneStep {
    /// The law that inverts `model` for the knobs `actuators`, which are the model's first inputs; any further inputs
    /// are disturbances that will be measured. At rest at the operating point.
    ///
    /// # Errors
    /// [`OneStepError`].
    pub fn new(model: &ArxModel, actuators: Vec<Actuator>, tuning: OneStepTuning) -> Result<OneStep, OneStepError> {
        let (na, nb) = (model.a().len(), model.b().len());
        if (na, nb) != (1, 1) {
            return Err(OneStepError::Order { na, nb });
        }
        let (nu, ny, inputs) = (actuators.len(), model.outputs().len(), model.inputs().len());
        if nu == 0 || nu > inputs || nu > QP_KNOBS_MAX {
            return Err(OneStepError::Knobs { knobs: nu, inputs });
        }
        check_tuning(&tuning, ny, nu)?;
        let a = model.a()[0].clone();
        let b = model.b()[0].columns(0, nu).into_owned();
        let measured = model.b()[0].columns(nu, inputs - nu).into_owned();
        let (y0, u0) = (column(model.y0()), column(model.u0()));
        let constant = &y0 + column(model.drift()) - &a * &y0 - &model.b()[0] * u0;
        let width = |i: usize| actuators[i].knob().max() - actuators[i].knob().min();
        let limited = |(actuator, u0): (&Actuator, &f64)| actuator.knob().clamp(*u0);
        let u: Vec<f64> = actuators.iter().zip(model.u0()).map(limited).collect();
        let mut wanted = Vector::default();
        wanted[..nu].copy_from_slice(&u);
        Ok(OneStep {
            h: hessian(&b, &tuning),
            span: (0..ny)
                .map(|o| (0..nu).map(|i| b[(o, i)].abs() * width(i)).sum())
                .collect(),
            carry: vec![0.0; ny],
            carry_max: carry_max(&b, &actuators, &tuning.error),
            verdict: verdict(&a, &b, &tuning)?,
            disturbance: vec![0.0; ny],
            expected: vec![0.0; ny],
            started: false,
            free: vec![0.0; ny],
            u,
            wanted,
            short: [None; QP_KNOBS_MAX],
            constant: constant.iter().copied().collect(),
            a,
            b,
            measured,
            tuning,
            actuators,
        })
    }

    /// Whether the loop settles on a machine that is as the model says, away from the limits.
    pub fn verdict(&self) -> Stability {
        self.verdict
    }

    /// Forgets the past and goes on from the settings `u`, as if they had held for long: the first measurement is taken
    /// for the whole truth about the disturbance, and without an error the next settings are `u` again.
    ///
    /// # Errors
    /// [`StepError`] if `u` has the wrong length or cannot be used; the law is then unchanged.
    pub fn resume(&mut self, u: &[f64]) -> Result<(), StepError> {
        check("applied setting", u, self.actuators.len())?;
        self.started = false;
        self.disturbance.fill(0.0);
        self.carry.fill(0.0);
        self.short = [None; QP_KNOBS_MAX];
        for ((own, actuator), u) in self.u.iter_mut().zip(&self.actuators).zip(u) {
            *own = actuator.knob().clamp(*u);
        }
        self.wanted[..u.len()].copy_from_slice(&self.u);
        Ok(())
    }

    /// The settings for the coming sample, absolute, on the knobs' steps and within limits and rates, from the outputs
    /// just measured, their goals, and the disturbances just measured (one per further input of the model).
    ///
    /// # Errors
    /// [`StepError`] for a value that cannot be used: nothing changes, and the caller holds the
    /// [`settings`](Self::settings).
    pub fn step(&mut self, y: &[f64], goal: &[f64], measured: &[f64]) -> Result<&[f64], StepError> {
        check("measurement", y, self.disturbance.len())?;
        check("goal", goal, self.disturbance.len())?;
        check("measured disturbance", measured, self.measured.ncols())?;
        for o in 0..y.len() {
            let from = |m: &DMatrix<f64>, x: &[f64]| x.iter().enumerate().map(|(j, x)| m[(o, j)] * x).sum::<f64>();
            self.free[o] = self.constant[o] + from(&self.a, y) + from(&self.measured, measured);
        }
        self.learn(y);
        self.choose(goal);
        Ok(&self.u)
    }

    /// Tells what the machine did, if it is not what [`step`](Self::step) returned. Call it at most once per step,
    /// before the next one.
    ///
    /// # Errors
    /// [`StepError`] if `u` has the wrong length or cannot be used; the law then goes on as if its settings had been
    /// applied.
    pub fn applied(&mut self, u: &[f64]) -> Result<(), StepError> {
        check("applied setting", u, self.actuators.len())?;
        for (i, u) in u.iter().enumerate() {
            let beyond = u - self.u[i];
            self.short[i] = None;
            if beyond.abs() > self.actuators[i].knob().quantum() {
                self.wanted[i] = *u;
                self.short[i] = Some(if beyond > 0.0 { Side::Down } else { Side::Up });
            }
            self.u[i] = *u;
        }
        Ok(())
    }

    /// Goes on from `u`: not a refusal, another loop has moved the knobs with the same goal ([`Pacer`](crate::Pacer)).
    /// The next moves count from there, and nothing is left to carry. Call it at most once per step, before the next
    /// one.
    ///
    /// # Errors
    /// As [`applied`](Self::applied).
    pub fn follow(&mut self, u: &[f64]) -> Result<(), StepError> {
        check("applied setting", u, self.actuators.len())?;
        self.u.copy_from_slice(u);
        self.wanted[..u.len()].copy_from_slice(u);
        self.short = Default::default();
        self.carry.fill(0.0);
        Ok(())
    }

    /// The settings of the last good step (or start), absolute; where [`applied`](Self::applied) told otherwise, those.
    pub fn settings(&self) -> &[f64] {
        &self.u
    }

    /// d^: what the outputs are estimated to be moved by per sample beyond what the model says, in their units.
    pub fn disturbance(&self) -> &[f64] {
        &self.disturbance
    }

    /// d^ <- d^ + l (y - y^). The first sample after a start or [`resume`](Self::resume) has no prediction: what the
    /// model misses if y had held for long is then the disturbance.
    ///
    /// An innovation beyond all that the knobs could do is taken for that much: the settings are the same, and one
    /// absurd measurement is forgotten in a few samples.
    fn learn(&mut self, y: &[f64]) {
        for (o, y) in y.iter().enumerate() {
            let moved: f64 = self.u.iter().enumerate().map(|(i, u)| self.b[(o, i)] * u).sum();
            let (expected, filter) = if self.started {
                (self.expected[o] + moved, self.tuning.filter[o])
            } else {
                (self.free[o] + moved, 1.0)
            };
            self.disturbance[o] += filter * (y - expected).clamp(-self.span[o], self.span[o]);
        }
    }

    /// Minimises the price of the next sample over what the knobs can reach: first as if there were no steps, then over
    /// the steps around that.
    fn choose(&mut self, goal: &[f64]) {
        let nu = self.actuators.len();
        let (mut g, mut lower, mut upper): (Vector, Vector, Vector) = Default::default();
        for i in 0..nu {
            let asked =
                |o: usize| self.tuning.error[o] * self.b[(o, i)] * (goal[o] - self.free[o] - self.disturbance[o]);
            (lower[i], upper[i]) = self.reach(i);
            g[i] = (0..goal.len()).map(asked).sum::<f64>() + self.tuning.moves[i] * self.wanted[i];
        }
        let wanted = minimise(nu, &self.h, &g, &lower, &upper);
        for (i, g) in g.iter_mut().enumerate().take(nu) {
            let carried = |o: usize| self.tuning.error[o] * self.b[(o, i)] * self.carry[o];
            // On steps, the knobs are to stay near what is wanted: moves are counted from there.
            *g += (0..goal.len()).map(carried).sum::<f64>() + self.tuning.moves[i] * (wanted[i] - self.wanted[i]);
        }
        let set = self.on_steps(nu, &g, &lower, &upper, &wanted);
        self.wanted = wanted;
        self.carry_on(&wanted, &set);
        self.u.copy_from_slice(&set[..nu]);
        for (o, expected) in self.expected.iter_mut().enumerate() {
            *expected = self.free[o] + self.disturbance[o];
        }
        self.started = true;
    }

    /// What knob `i` can be asked for. One that did not follow is asked for a little more than it gave, until it
    /// follows: the others must not count on it.
    fn reach(&self, i: usize) -> (f64, f64) {
        let knob = self.actuators[i].knob();
        let (lower, upper) = self.actuators[i].reach(self.u[i]);
        let probe = (PROBE * (knob.max() - knob.min())).max(knob.quantum());
        match self.short[i] {
            Some(Side::Down) => (knob.clamp(self.u[i] - probe).max(lower), upper),
            Some(Side::Up) => (lower, knob.clamp(self.u[i] + probe).min(upper)),
            None => (lower, upper),
        }
    }

    /// The cheapest settings with every knob that has steps on one of the two around `wanted`, and the others there.
    fn on_steps(&self, nu: usize, g: &Vector, lower: &Vector, upper: &Vector, wanted: &Vector) -> Vector {
        if self.actuators.iter().all(|actuator| actuator.steps().is_empty()) {
            return *wanted;
        }
        let (mut best, mut least) = (*wanted, f64::INFINITY);
        for sides in 0..1usize << nu {
            let mut candidate = *wanted;
            for (i, actuator) in self.actuators.iter().enumerate() {
                if let Some(step) = actuator.beside(wanted[i], (lower[i], upper[i]), is_in(sides, i)) {
                    candidate[i] = step;
                }
            }
            let price = price(nu, &self.h, g, &candidate);
            if price < least {
                (best, least) = (candidate, price);
            }
        }
        best
    }

    /// c <- c + B (wanted - set), at most half a step's effect, for the outputs that matter most.
    fn carry_on(&mut self, wanted: &Vector, set: &Vector) {
        for (o, carry) in self.carry.iter_mut().enumerate() {
            let left: f64 = (0..self.u.len()).map(|i| self.b[(o, i)] * (wanted[i] - set[i])).sum();
            *carry = (*carry + left).clamp(-self.carry_max[o], self.carry_max[o]);
        }
    }
}

/// Half of what the widest step of any knob does to each output, where rounding is carried.
fn carry_max(b: &DMatrix<f64>, actuators: &[Actuator], error: &[f64]) -> Vec<f64> {
    let dearest = error.iter().copied().fold(0.0, f64::max);
    let half = |o: usize| {
        let effect = |(i, actuator): (usize, &Actuator)| match actuator.steps() {
            [] => 0.0,
            _ => 0.5 * b[(o, i)].abs() * actuator.knob().quantum(),
        };
        actuators.iter().enumerate().map(effect).fold(0.0, f64::max)
    };
    let carried = |(o, price): (usize, &f64)| if *price >= CARRIED_FROM * dearest { half(o) } else { 0.0 };
    error.iter().enumerate().map(carried).collect()
}

/// B' diag(error) B + diag(moves).
fn hessian(b: &DMatrix<f64>, tuning: &OneStepTuning) -> Square {
    let mut h: Square = Default::default();
    for i in 0..b.ncols() {
        for j in 0..b.ncols() {
            let both = |o: usize| tuning.error[o] * b[(o, i)] * b[(o, j)];
            h[i][j] = (0..b.nrows()).map(both).sum();
        }
        h[i][i] += tuning.moves[i];
    }
    h
}

/// The poles of the loop around a machine as the model says: those of the state [y; u], and 1 - l of each filter,
/// which moves by itself because it compares with what was applied.
///
/// Away from the limits u = E (goal - f - d^) + (I - E B) u(k-1) with E = H^-1 B' diag(error), so with F = I - E B
///
/// ```text
/// [y; u](k) = [A - B E A, B F; -E A, F] [y; u](k-1) + constants
/// ```
fn verdict(a: &DMatrix<f64>, b: &DMatrix<f64>, tuning: &OneStepTuning) -> Result<Stability, NoSpectrum> {
    let (ny, nu) = b.shape();
    let h = hessian(b, tuning);
    let h = DMatrix::from_fn(nu, nu, |i, j| h[i][j]);
    let priced = b.transpose() * DMatrix::from_diagonal(&tuning.error.clone().into());
    let inverse = h.try_inverse().ok_or(NoSpectrum { rows: nu })?;
    let answer = inverse * priced;
    let held = DMatrix::identity(nu, nu) - &answer * b;
    let mut moves = DMatrix::zeros(ny + nu, ny + nu);
    moves.view_mut((0, 0), (ny, ny)).copy_from(&(a - b * &answer * a));
    moves.view_mut((0, ny), (ny, nu)).copy_from(&(b * &held));
    moves.view_mut((ny, 0), (nu, ny)).copy_from(&(-&answer * a));
    moves.view_mut((ny, ny), (nu, nu)).copy_from(&held);
    let filters = tuning
        .filter
        .iter()
        .map(|l| crate::spectrum::Pole { re: 1.0 - l, im: 0.0 });
    let all: Vec<_> = poles(&moves)?.into_iter().chain(filters).collect();
    Ok(Stability::of(&all))
}

fn check_tuning(tuning: &OneStepTuning, ny: usize, nu: usize) -> Result<(), OneStepError> {
    let fits = |values: &[f64], needed: usize, most: f64| {
        values.len() == needed && values.iter().all(|v| v.is_finite() && *v > 0.0 && *v <= most)
    };
    let wrong = |what, needed, range| Err(OneStepError::Tuning { what, needed, range });
    if !fits(&tuning.error, ny, f64::MAX) {
        return wrong("error prices", ny, "each above 0");
    }
    if !fits(&tuning.moves, nu, f64::MAX) {
        return wrong("move prices", nu, "each above 0");
    }
    if !fits(&tuning.filter, ny, 1.0) {
        return wrong("filter gains", ny, "each above 0 and at most 1");
    }
    Ok(())
}

fn column(values: &[f64]) -> DMatrix<f64> {
    DMatrix::from_column_slice(values.len(), 1, values)
}
