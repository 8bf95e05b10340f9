//! The linear quadratic regulator of a discrete-time system.
//!
//! For x(k+1) = A x(k) + B u(k) the law u(k) = -K x(k) with K = (R + B'XB)^-1 B'XA, X solving the Riccati equation
//! ([`dare`]), spends the least sum of x'Q x + u'R u; that sum is x(0)'X x(0).

use nalgebra::DMatrix;

use crate::error::ControlError;
use crate::riccati::{dare, gain};
use crate::spectrum::{Pole, Stability, poles};

/// The optimal law, its cost and its closed loop.
#[derive(Clone, Debug, PartialEq)]
pub struct Lqr {
    /// The gain K of u = -K x; m x n.
    pub k: DMatrix<f64>,
    /// The Riccati solution X: from the state x on the law spends x'X x.
    pub x: DMatrix<f64>,
    /// Eigenvalues of A - B K.
    pub poles: Vec<Pole>,
    /// Whether the poles are stable.
    pub verdict: Stability,
    /// Relative residual of the Riccati equation.
    pub residual: f64,
}

/// Designs the regulator for A (n x n), B (n x m) and the weights Q (n x n) and R (m x m).
///
/// ```
/// use punctual_control::{DMatrix, dlqr};
/// // A mass that is pushed: position and speed, 0.1 s per sample.
/// let a = DMatrix::from_row_slice(2, 2, &[1.0, 0.1, 0.0, 1.0]);
/// let b = DMatrix::from_row_slice(2, 1, &[0.005, 0.1]);
/// let law = dlqr(&a, &b, &DMatrix::identity(2, 2), &DMatrix::identity(1, 1)).unwrap();
/// assert!(law.verdict.is_stable());
/// ```
///
/// # Errors
/// As for [`dare`].
pub fn dlqr(a: &DMatrix<f64>, b: &DMatrix<f64>, q: &DMatrix<f64>, r: &DMatrix<f64>) -> Result<Lqr, ControlError> {
    let solved = dare(a, b, q, r)?;
    let k = gain(a, b, r, &solved.x)?;
    let poles = closed_loop_poles(a, b, &k).map_err(|_| ControlError::badly_scaled("the eigenvalues"))?;
    let verdict = Stability::of(&poles);
    Ok(Lqr {
        k,
        x: solved.x,
        poles,
        verdict,
        residual: solved.residual,
    })
}

/// Eigenvalues of A - B K, the closed loop.
///
/// # Errors
/// [`ControlError`] if the eigenvalues cannot be computed.
pub(crate) fn closed_loop_poles(
    a: &DMatrix<f64>,
    b: &DMatrix<f64>,
    k: &DMatrix<f64>,
) -> Result<Vec<Pole>, ControlError> {
    poles(&(a - b * k))
}
