//! Identification and feedback control: from a record of knobs and meters to a control law with its proof of stability.
//!
//! **Problem.** A machine has knobs (clock, admitted share of updates, backlog bound) and meters (tardiness, data
//! response ratio, service delay). The effect of a knob depends on the machine and on its load. One knob moves several
//! meters, and the load changes without notice. A fixed setting is either late or wasteful.
//!
//! **Terms.** y(k) are the meters (*outputs*) and u(k) the knobs (*inputs*) at sample k; the *operating point* (u0, y0)
//! is where the model is linear; models and gains are about deviations from it. The *error* is the goal minus the
//! output. A *pole* is an eigenvalue of a closed loop; inside the unit circle means stable. A *law* (control law)
//! computes u from errors. Matrices keep the letters of the literature: A, B of the model; Q, R the weights of states
//! and inputs; X the solution of the Riccati equation; K the gain.
//!
//! **Method.** Four steps, those of "QeDB with MIMO control" (W. Kang and J. Chung, section 4.3):
//! 1. [`Excitation`] moves all knobs at once through every combination of their levels, and the caller records.
//! 2. [`identify`] fits an [`ArxModel`] by least squares; a fit below R^2 = 0.8 is refused by [`ArxModel::check_fit`].
//! 3. [`design`] solves a Riccati equation ([`dlqr`], [`dare`]) for the gains of a proportional-integral law and
//!    reports the poles, of the free loop and of those with knobs pinned at a limit.
//! 4. [`LqrPi`] is the law at work: limits, anti-windup, settings that the machine rounds or refuses.
//!
//! Beyond the paper, the law rounds to the steps of knobs ([`Actuator`]) and feeds set points forward
//! ([`LqrPi::with_model`], [`SteadyState`]). Models can be converted to a shorter sample ([`quasi_static`]). A
//! [`Supervisor`] detects a wrong model, a [`Pacer`] sets the clock while a job runs, and a [`Tail`] computes the mean
//! at which only a given share of jobs is late. A [`Plant`] gives the gains of the law with which Chronos-C holds a
//! delay.
//!
//! The crate is pure: values in, values out, no clock, no file, no randomness. Models and designs are serde values, and
//! a [`Fingerprint`] ties a design to its model. Choose units in which knobs and meters are of the order of 1
//! (gigahertz, not hertz): weights are then comparable, and the numerics stay accurate.
//!
//! ```
//! use punctual_control::*;
//!
//! // A machine: tardiness falls with the clock (GHz) and rises with the admitted share of updates; the data response
//! // ratio rises with both. It starts at rest with 1 GHz and everything admitted.
//! let plant = |y: &[f64], clock: f64, share: f64| {
//!     vec![0.3 * y[0] + 1.0 - 0.6 * clock + 0.4 * share, 0.2 * y[1] + 0.1 * clock + 0.3 * share]
//! };
//!
//! // Identify: excite both knobs, record, fit.
//! let plan = Excitation::covering(vec![vec![0.8, 1.0, 1.2], vec![0.6, 0.8, 1.0]], 1).unwrap();
//! let [inputs, outputs] = [["clock", "share"], ["tardiness", "drr"]].map(|names| names.map(String::from).to_vec());
//! let mut record = Recording { inputs, outputs, ..Default::default() };
//! let mut y = vec![1.0, 0.5];
//! for u in (0..2 * plan.period()).map(|k| plan.at(k)) {
//!     record.y.push(y.clone());
//!     y = plant(&y, u[0], u[1]);
//!     record.u.push(u);
//! }
//! let model = identify(&record, Orders::FIRST, &OperatingPoint::Mean).unwrap();
//! model.check_fit(R2_ACCEPTED).unwrap();
//!
//! // Design: tardiness matters more than the data response ratio.
//! let weights = Weights { error: vec![10.0, 1.0], accumulated: vec![10.0, 1.0], effort: vec![1.0, 1.0] };
//! let law = design(&model, &weights).unwrap();
//! assert!(law.verdict.is_stable());
//!
//! // Run: hold tardiness at 0.85 and the ratio at 0.4.
//! let knobs = vec![Knob::new(0.2, 2.0, 0.0).unwrap(), Knob::new(0.5, 1.0, 0.0).unwrap()];
//! let mut law = LqrPi::new(&law, knobs).unwrap();
//! for _ in 0..60 {
//!     let u = law.step(&y, &[0.85, 0.4]).unwrap();
//!     y = plant(&y, u[0], u[1]);
//! }
//! assert!((y[0] - 0.85).abs() < 1e-3 && (y[1] - 0.4).abs() < 1e-3);
//! ```

mod actuator;
mod antiwindup;
mod arx;
mod box_qp;
mod error;
mod excitation;
mod feed_forward;
mod fingerprint;
mod gains;
mod identify;
pub mod intervals;
mod knob;
mod lqr;
mod lqr_pi;
mod mimo;
mod pacing;
mod riccati;
mod rounding;
mod rows;
mod solvable;
mod spectrum;
mod state_space;
mod steady;
mod supervisor;
mod tail;

/// The matrix type of this crate's interface.
pub use nalgebra::DMatrix;

pub use actuator::Actuator;
pub use arx::{ArxModel, Fit, R2_ACCEPTED};
pub use error::ControlError;
pub use excitation::Excitation;
pub use fingerprint::{Fingerprint, NotAFingerprint};
pub use gains::{Gains, Integration, Plant};
pub use identify::{OperatingPoint, Orders, Recording, identify};
pub use knob::Knob;
pub use lqr::{Lqr, dlqr};
pub use lqr_pi::{LqrPi, StepError};
pub use mimo::{Design, ReducedLoop, Weights, design};
pub use pacing::{LEARNT, PARTS_MAX, PRIOR, Pacer, SLOW_DOWN_MAX, TOLERANCE};
pub use riccati::{Riccati, dare};
pub use spectrum::{Pole, SETTLED, Stability};
pub use state_space::StateSpace;
pub use steady::{SteadyState, quasi_static, steady_gain};
pub use supervisor::{
    BAD_BY, BAD_MAX, Doubt, Effect, MEMORY, OFF_MAX, OFF_SAMPLE_MAX, SWING_PART, SWING_SAMPLES, SWINGS_MAX, Supervisor,
};
pub use tail::{
    AIM, BURST, CLIP, HEADROOM_MAX, HELD, PRIOR_JOBS, PRIOR_SPREAD, SPREAD_MIN, SURPLUS_MAX, SURPLUS_MIN, TAIL_FROM,
    TAIL_MEMORY, Tail,
};
