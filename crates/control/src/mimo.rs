//! Design of the LQR-PI control law: several knobs hold several meters at their goals.
//!
//! **Terms.** The error e(k) = r - y(k) is the goal minus the measurement; the accumulated error is
//! v(k+1) = v(k) + e(k). The law of QeDB (equation 7) is proportional-integral:
//!
//! ```text
//! u(k) = -[K_P K_I] [e(k); v(k)]          in deviations from the operating point, u_abs = u0 + u
//! ```
//!
//! **Method.** The gains are those of the linear quadratic regulator on the state [e; v]. Because e = r - y, an input
//! that raises y lowers e, so B enters with a minus sign; for a first-order model y(k+1) = A y(k) + B u(k)
//!
//! ```text
//! [e; v](k+1) = [A 0; I I] [e; v](k) + [-B; 0] u(k)
//! ```
//!
//! The constants left over (the goal's distance from the operating point, the drift, a steady disturbance) are not in
//! the model: the accumulated error finds them, as integral action does.
//!
//! **Higher orders.** The state also holds the rest that the future depends on, e(k-1) .. e(k-na+1) and u(k-1) ..
//! u(k-nb+1), all of it known, and the law gains a term for each. No state is reduced or observed. For na = nb = 1
//! there are no such terms and the law is exactly the one above.
//!
//! **Stability.** The poles of the closed loop are computed from the gains and the model, and so are those of the loops
//! that remain while some knobs are pinned at a limit (see [`LqrPi`](crate::LqrPi)). A knob at its limit is an ordinary
//! state of the machines that we control, not an exception.

use nalgebra::DMatrix;
use serde::{Deserialize, Serialize};

use crate::antiwindup::{KNOBS_MAX, knobs_of, relief};
use crate::arx::ArxModel;
use crate::error::{ControlError, refused, require};
use crate::fingerprint::Fingerprint;
use crate::lqr::{closed_loop_poles, dlqr};
use crate::rows;
use crate::spectrum::{Pole, Stability, poles};
use crate::state_space::StateSpace;

/// The price of errors and effort, one number per output or input: the diagonals of Q = diag(error, accumulated) and
/// R = diag(effort). Only ratios matter. A weight applies to a squared deviation in the unit of its knob or meter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Weights {
    /// Price of each output's error; 0 or more.
    pub error: Vec<f64>,
    /// Price of each output's accumulated error; more than 0. When knobs at their limits cannot hold all goals, the
    /// goal with the smallest price is abandoned first.
    pub accumulated: Vec<f64>,
    /// Price of moving each input from its operating point; more than 0.
    pub effort: Vec<f64>,
}

/// A designed law, with the proof of its stability and the model that it belongs to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Design {
    /// Names of the knobs, in the order of the rows of all gains.
    pub inputs: Vec<String>,
    /// Names of the meters, in the order of the columns of `kp` and `ki`.
    pub outputs: Vec<String>,
    /// K_P, on e(k); nu x ny.
    #[serde(with = "rows::one")]
    pub kp: DMatrix<f64>,
    /// Gains on e(k-1) .. e(k-na+1), each nu x ny; empty for na = 1.
    #[serde(with = "rows::many")]
    pub kp_past: Vec<DMatrix<f64>>,
    /// Gains on u(k-1) .. u(k-nb+1), each nu x nu; empty for nb = 1.
    #[serde(with = "rows::many")]
    pub ku_past: Vec<DMatrix<f64>>,
    /// K_I, on v(k); nu x ny.
    #[serde(with = "rows::one")]
    pub ki: DMatrix<f64>,
    /// The operating point that u is a deviation from, in the units of the knobs.
    pub u0: Vec<f64>,
    /// The weights that the design minimises.
    pub weights: Weights,
    /// Relative residual of the Riccati equation.
    pub residual: f64,
    /// Poles of the closed loop, every knob free.
    pub poles: Vec<Pole>,
    /// Whether these poles are stable.
    pub verdict: Stability,
    /// The loops that remain while some, but not all, knobs are pinned at a limit.
    pub pinned: Vec<ReducedLoop>,
    /// Fingerprint of the model that the law was designed for.
    pub model: Fingerprint,
}

/// The loop that remains while some knobs are pinned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReducedLoop {
    /// Names of the pinned knobs.
    pub knobs: Vec<String>,
    /// Whether the loop settles with the other knobs alone.
    pub verdict: Stability,
}

/// Designs the law for `model`.
///
/// ```
/// use punctual_control::{ArxModel, DMatrix, Weights, design};
/// // The clock lowers the tardiness, the admitted share of updates raises it; both raise the data response ratio.
/// let model = ArxModel::from_matrices(
///     vec!["clock".into(), "admitted".into()],
///     vec!["tardiness".into(), "drr".into()],
///     vec![DMatrix::from_row_slice(2, 2, &[0.3, 0.1, 0.0, 0.4])],
///     vec![DMatrix::from_row_slice(2, 2, &[-0.6, 0.3, 0.1, 0.2])],
/// ).unwrap();
/// let weights = Weights { error: vec![10.0, 1.0], accumulated: vec![10.0, 1.0], effort: vec![1.0, 1.0] };
/// let law = design(&model, &weights).unwrap();
/// assert!(law.verdict.is_stable() && law.pinned.iter().all(|loop_| loop_.verdict.is_stable()));
/// ```
///
/// # Errors
/// [`ControlError`]: weights, dimensions, or a model that cannot be controlled. A verdict is not an error: read it.
pub fn design(model: &ArxModel, weights: &Weights) -> Result<Design, ControlError> {
    check(model, weights)?;
    let system = ErrorSystem::from(model);
    let (q, r) = system.weights(weights);
    let law = dlqr(&system.a, &system.b, &q, &r).map_err(explain)?;
    let (ny, nu) = (model.outputs().len(), model.inputs().len());
    let past_inputs = model.a().len() * ny;
    let gain_on = |start: usize, width: usize| law.k.columns(start, width).into_owned();
    let ki = gain_on(system.accumulated(), ny);
    Ok(Design {
        inputs: model.inputs().to_vec(),
        outputs: model.outputs().to_vec(),
        kp: gain_on(0, ny),
        kp_past: (1..model.a().len()).map(|lag| gain_on(lag * ny, ny)).collect(),
        ku_past: (0..model.b().len() - 1)
            .map(|lag| gain_on(past_inputs + lag * nu, nu))
            .collect(),
        u0: model.u0().to_vec(),
        weights: weights.clone(),
        residual: law.residual,
        pinned: system.pinned(&law.k, &ki, weights, model.inputs())?,
        ki,
        poles: law.poles,
        verdict: law.verdict,
        model: model.fingerprint(),
    })
}

impl Design {
    /// All gains side by side, in the order of the state: e, past e, past u, v. u = -K \[..\].
    ///
    /// # Errors
    /// [`ControlError`] for gains of different sizes, as in a file written by hand.
    pub(crate) fn gain(&self) -> Result<DMatrix<f64>, ControlError> {
        let (nu, ny) = (self.inputs.len(), self.outputs.len());
        let lists: [(&str, &[DMatrix<f64>], usize); 4] = [
            ("K_P", std::slice::from_ref(&self.kp), ny),
            ("the gain on past errors", &self.kp_past, ny),
            ("the gain on past inputs", &self.ku_past, nu),
            ("K_I", std::slice::from_ref(&self.ki), ny),
        ];
        let mut columns = Vec::new();
        for (gain, blocks, width) in lists {
            for block in blocks {
                if block.shape() != (nu, width) || !block.iter().all(|v| v.is_finite()) {
                    return unfit(gain);
                }
                columns.extend(block.column_iter().map(|column| column.into_owned()));
            }
        }
        if columns.is_empty() {
            unfit("K_P")
        } else {
            Ok(DMatrix::from_columns(&columns))
        }
    }

    /// Refuses a model other than the one that the law was designed for.
    ///
    /// # Errors
    /// [`ControlError`] with both fingerprints.
    pub fn check_model(&self, model: &ArxModel) -> Result<(), ControlError> {
        let (designed_for, given) = (self.model, model.fingerprint());
        require(designed_for == given, || {
            format!("the controller was designed for model {designed_for}, but this is model {given}: design it again")
        })
    }

    /// The verdict on this law around `model`, even if the law was designed for another. Use it on gains that come from
    /// a file, and to judge a law on a machine that has changed.
    ///
    /// # Errors
    /// [`ControlError`] if the gains do not fit the model, or the poles cannot be computed.
    pub fn verdict_on(&self, model: &ArxModel) -> Result<Stability, ControlError> {
        let (k, system) = (self.gain()?, ErrorSystem::from(model));
        if k.shape() != (system.b.ncols(), system.a.nrows()) {
            return unfit("the state");
        }
        Ok(Stability::of(&closed_loop_poles(&system.a, &system.b, &k)?))
    }
}

/// Refuses the gain of this name: it does not fit the model.
fn unfit<T>(gain: &str) -> Result<T, ControlError> {
    refused(format!(
        "{gain} of the controller does not fit the model: it was designed for other inputs, outputs or orders"
    ))
}

/// z(k+1) = A z(k) + B u(k) for z = [e; past e; past u; v].
struct ErrorSystem {
    a: DMatrix<f64>,
    b: DMatrix<f64>,
    outputs: usize,
}

impl From<&ArxModel> for ErrorSystem {
    /// Turns the outputs in the model's state into errors and appends the accumulated errors. Turning x = [y; u_past]
    /// into [-y; u_past], which is the error but for constants, is the change of basis T = diag(-I, I).
    fn from(model: &ArxModel) -> ErrorSystem {
        let plant = StateSpace::from(model);
        let (n, ny, nu) = (plant.a.nrows(), model.outputs().len(), model.inputs().len());
        let past_inputs = model.a().len() * ny;
        let sign = |row: usize| if row < past_inputs { -1.0 } else { 1.0 };
        let (mut a, mut b) = (DMatrix::zeros(n + ny, n + ny), DMatrix::zeros(n + ny, nu));
        a.view_mut((0, 0), (n, n))
            .copy_from(&plant.a.map_with_location(|i, j, v| sign(i) * v * sign(j)));
        a.view_mut((n, 0), (ny, n)).copy_from(&plant.c);
        a.view_mut((n, n), (ny, ny)).fill_with_identity();
        b.view_mut((0, 0), (n, nu))
            .copy_from(&plant.b.map_with_location(|i, _, v| sign(i) * v));
        ErrorSystem { a, b, outputs: ny }
    }
}

impl ErrorSystem {
    /// Index of the first accumulated error in the state.
    fn accumulated(&self) -> usize {
        self.a.nrows() - self.outputs
    }

    /// Builds Q, which prices e and v only, since past errors and inputs have been paid for, and R, which prices u.
    fn weights(&self, weights: &Weights) -> (DMatrix<f64>, DMatrix<f64>) {
        let mut q = DMatrix::zeros(self.a.nrows(), self.a.nrows());
        for (o, (error, accumulated)) in weights.error.iter().zip(&weights.accumulated).enumerate() {
            q[(o, o)] = *error;
            q[(self.accumulated() + o, self.accumulated() + o)] = *accumulated;
        }
        (q, DMatrix::from_diagonal(&weights.effort.clone().into()))
    }

    /// The verdicts on the loops with every mixture of pinned and free knobs.
    fn pinned(
        &self,
        k: &DMatrix<f64>,
        ki: &DMatrix<f64>,
        weights: &Weights,
        names: &[String],
    ) -> Result<Vec<ReducedLoop>, ControlError> {
        let all = (1usize << names.len()) - 1;
        (1..all)
            .map(|set| {
                let moves = self.pinned_loop(k, &relief(ki, &weights.accumulated, set)?, set);
                let knobs = knobs_of(set).map(|i| names[i].clone()).collect();
                Ok(ReducedLoop {
                    knobs,
                    verdict: Stability::of(&poles(&moves)?),
                })
            })
            .collect()
    }

    /// The closed loop while the knobs in `set` stand still at a deviation of 0 (another constant would not change the
    /// poles): first v moves so that the law asks just that of them, v <- v + M (-K z), then the free knobs follow the
    /// law.
    fn pinned_loop(&self, k: &DMatrix<f64>, relief: &DMatrix<f64>, set: usize) -> DMatrix<f64> {
        let mut moved = DMatrix::identity(self.a.nrows(), self.a.nrows());
        let mut v_rows = moved.rows_mut(self.accumulated(), self.outputs);
        v_rows -= relief * k;
        let mut u = -k * &moved;
        for i in knobs_of(set) {
            u.row_mut(i).fill(0.0);
        }
        &self.a * moved + &self.b * u
    }
}

/// Names dependent goals as the cause: the accumulated errors are modes at 1, and one that no input moves means that
/// the goals depend on each other.
fn explain(error: ControlError) -> ControlError {
    const AT_ONE: f64 = 1e-4;
    ControlError::Refused(match error {
        ControlError::NotStabilisable { mode } if (mode.re - 1.0).hypot(mode.im) < AT_ONE => {
            "the knobs cannot hold all outputs at goals of their own, because in the long run their effects are the \
             same up to a factor: leave an output out of the model, or use other knobs"
                .into()
        }
        other => format!("no law for this model and these weights: {other}"),
    })
}

fn check(model: &ArxModel, weights: &Weights) -> Result<(), ControlError> {
    let (inputs, outputs) = (model.inputs(), model.outputs());
    require(inputs.len() >= outputs.len(), || {
        let (inputs, outputs) = (inputs.len(), outputs.len());
        format!(
            "{inputs} knobs cannot hold {outputs} outputs at goals of their own: leave outputs out of the model, or \
             add knobs"
        )
    })?;
    check_knobs(inputs.len())?;
    check_weights("error", &weights.error, outputs, true)?;
    check_weights("accumulated", &weights.accumulated, outputs, false)?;
    check_weights("effort", &weights.effort, inputs, false)
}

/// Refuses more knobs than a law can pin in every combination.
pub(crate) fn check_knobs(knobs: usize) -> Result<(), ControlError> {
    require(knobs <= KNOBS_MAX, || {
        format!("the model has {knobs} knobs, more than the {KNOBS_MAX} that a law handles")
    })
}

fn check_weights(weights: &str, values: &[f64], names: &[String], zero: bool) -> Result<(), ControlError> {
    let (got, needed) = (values.len(), names.len());
    require(got == needed, || {
        format!("{got} {weights} weights are given but the model needs {needed}: one per name")
    })?;
    match values
        .iter()
        .zip(names)
        .find(|(v, _)| !(v.is_finite() && (**v > 0.0 || (zero && **v == 0.0))))
    {
        Some((value, name)) => {
            let range = if zero { "not negative" } else { "greater than 0" };
            refused(format!(
                "the {weights} weight of `{name}` is {value}: it must be finite and {range}"
            ))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three knobs for one output: two pinned ones cannot both be asked for their limits exactly, and still stand
    /// still.
    #[test]
    fn what_pinned_knobs_would_do_does_not_matter() {
        let names = |prefix: &str, count: usize| (0..count).map(|i| format!("{prefix}{i}")).collect::<Vec<_>>();
        let (a, b) = (
            DMatrix::from_element(1, 1, 0.5),
            DMatrix::from_row_slice(1, 3, &[1.0, 0.5, 0.7]),
        );
        let model = ArxModel::from_matrices(names("u", 3), names("y", 1), vec![a], vec![b]).unwrap();
        let mut system = ErrorSystem::from(&model);
        // Gains that no Riccati equation would give, so that the knobs disagree on what v should be.
        let k = DMatrix::from_row_slice(3, 2, &[-0.3, -0.1, 0.2, -0.2, -0.1, -0.3]);
        let relief = relief(&k.columns(1, 1).into_owned(), &[1.0], 0b011).unwrap();
        let moves = system.pinned_loop(&k, &relief, 0b011);
        system.b.columns_mut(0, 2).fill(7.0);
        assert_eq!(system.pinned_loop(&k, &relief, 0b011), moves);
    }
}
