//! Resting points of a model: the outputs that settings lead to.
//!
//! With the settings held, y(k+1) = y(k) gives, in deviations from the operating point and with A and B the sums of
//! the A_i and B_j,
//!
//! ```text
//! y = G u + (I - A)^-1 drift,   G = (I - A)^-1 B
//! ```
//!
//! **Another pace.** A model identified at one sampling time is needed at a shorter one. Exact resampling takes the
//! n-th root of A. That does not help here: at the paces in use a machine settles within one sample, A is within its
//! own error of zero (or negative, and has no real root), and the root turns 0.01 into 0.63 for n = 10. But the slow
//! record does determine G. [`quasi_static`] keeps G and drops A: the machine is assumed to settle within one of the
//! new, shorter samples. That is exact for jobs that do not overlap, each of which answers to the settings that it ran
//! under.
//!
//! *Errors of this assumption are safe.* Let the true machine move slower than that, y(k+1) = a y(k) + (1 - a) g u(k) +
//! d with 0 <= a < 1, and let an integral law made from the quasi-static model set u(k) = u(k-1) + (l / g) (goal -
//! y(k)), l in (0, 1]. The loop's characteristic polynomial is z^2 - (a + 1 - l (1 - a)) z + a, and Jury's conditions
//! |a| < 1, l (1 - a) > 0 and l (1 - a) < 2 (1 + a) all hold. So the unknown pole makes the loop slower, never
//! unstable.

use nalgebra::DMatrix;

use crate::arx::{ArxModel, Fit};
use crate::error::{ControlError, require};

/// Singular values of G below this, relative to the largest, count as zero: the goals depend on each other.
const RANK_TOLERANCE: f64 = 1e-9;

/// Bound on the iterations of the singular value decomposition.
const ITERATIONS_MAX: usize = 1000;

/// Steady-state gain of a model, and the outputs at rest.
#[derive(Clone, Debug, PartialEq)]
pub struct SteadyState {
    /// Steady-state gain G; ny x nu.
    gain: DMatrix<f64>,
    /// Outputs at rest under u0, absolute.
    rest: Vec<f64>,
}

/// Computes G: the change of each output in the long run per lasting unit change of each input; ny x nu.
///
/// # Errors
/// [`ControlError`] for a mode at 1.
pub fn steady_gain(model: &ArxModel) -> Result<DMatrix<f64>, ControlError> {
    Ok(settle(model)? * effects(model))
}

/// (I - A)^-1, with A the sum of all A_i.
fn settle(model: &ArxModel) -> Result<DMatrix<f64>, ControlError> {
    let ny = model.outputs().len();
    let a = model.a().iter().fold(DMatrix::zeros(ny, ny), |sum, a| sum + a);
    (DMatrix::identity(ny, ny) - a)
        .try_inverse()
        .filter(|inverse| inverse.iter().all(|v| v.is_finite()))
        .ok_or_else(accumulates)
}

/// The error for a mode of the model at 1.
fn accumulates() -> ControlError {
    ControlError::Refused(
        "the model accumulates: under constant settings its outputs never come to rest; identify it again".into(),
    )
}

/// B, the sum of all B_j.
fn effects(model: &ArxModel) -> DMatrix<f64> {
    let (ny, nu) = (model.outputs().len(), model.inputs().len());
    model.b().iter().fold(DMatrix::zeros(ny, nu), |sum, b| sum + b)
}

impl SteadyState {
    /// Computes the resting points of `model`.
    ///
    /// ```
    /// use punctual_control::{ArxModel, DMatrix, SteadyState};
    /// let [a, b] = [0.5, -0.25].map(|v| vec![DMatrix::from_element(1, 1, v)]);
    /// let model = ArxModel::from_matrices(vec!["clock".into()], vec!["tardiness".into()], a, b).unwrap();
    /// let rests = SteadyState::of(&model).unwrap();
    /// assert_eq!((rests.gain()[(0, 0)], rests.rest()), (-0.5, &[0.0][..]));
    /// ```
    ///
    /// # Errors
    /// [`ControlError`] for a mode at 1 or dependent knobs.
    pub fn of(model: &ArxModel) -> Result<SteadyState, ControlError> {
        let ny = model.outputs().len();
        let settle = settle(model)?;
        let drift = DMatrix::from_column_slice(ny, 1, model.drift());
        let rest = &settle * drift + DMatrix::from_column_slice(ny, 1, model.y0());
        let gain = settle * effects(model);
        require(has_full_row_rank(&gain), || {
            "the knobs cannot hold all outputs at goals of their own: in the long run their effects are the same up \
             to a factor; leave an output out of the model, or use other knobs"
                .into()
        })?;
        let rest = rest.iter().copied().collect();
        Ok(SteadyState { gain, rest })
    }

    /// G: change of each output in the long run per unit of each input; ny x nu.
    pub fn gain(&self) -> &DMatrix<f64> {
        &self.gain
    }

    /// The outputs at rest at the operating point, absolute.
    pub fn rest(&self) -> &[f64] {
        &self.rest
    }
}

/// Makes the model of a machine that has the resting points of `model` and reaches them within one sample, for samples
/// `finer` times as frequent (see the module's text).
///
/// R^2 stays that of the record. The residuals grow by sqrt(finer): a mean of n jobs scatters that much less than a
/// job, if jobs miss their mean independently of each other.
///
/// # Errors
/// [`ControlError`] as for `SteadyState::of`.
pub fn quasi_static(model: &ArxModel, finer: f64) -> Result<ArxModel, ControlError> {
    let rests = SteadyState::of(model)?;
    let ny = model.outputs().len();
    let fit = model.fit().map(|fit| Fit {
        residual_std: fit.residual_std.iter().map(|std| std * finer.max(1.0).sqrt()).collect(),
        ..fit.clone()
    });
    model
        .with_dynamics(DMatrix::zeros(ny, ny), rests.gain, rests.rest, fit)
        .map_err(|_| accumulates())
}

fn has_full_row_rank(gain: &DMatrix<f64>) -> bool {
    if gain.ncols() < gain.nrows() || !gain.iter().all(|v| v.is_finite()) {
        return false;
    }
    let svd = gain.clone().try_svd(false, false, f64::EPSILON, ITERATIONS_MAX);
    svd.is_some_and(|svd| svd.singular_values.min() > RANK_TOLERANCE * svd.singular_values.max())
}
