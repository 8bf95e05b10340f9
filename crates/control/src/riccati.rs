//! The discrete algebraic Riccati equation, by structure-preserving doubling.
//!
//! **Problem.** The cheapest way to bring x(k+1) = A x(k) + B u(k) to rest, where a step costs x'Q x + u'R u, costs
//! x'X x from the state x. X is the stabilising solution of
//!
//! ```text
//! A'X A - X - A'X B (R + B'X B)^-1 B'X A + Q = 0
//! ```
//!
//! **Method.** Doubling (SDA): with G = B R^-1 B' and H = Q, each step replaces the problem over 2^k samples by the
//! one over 2^(k+1), so H converges quadratically to X. E. K.-W. Chu, H.-Y. Fan, W.-W. Lin and C.-S. Wang,
//! "Structure-preserving algorithms for periodic discrete-time algebraic Riccati equations", International Journal of
//! Control 77(8), 2004. It needs one LU factorisation of the size of A per step and no ordered Schur form. A singular
//! A (pure delays) is no special case.
//!
//! Doubling loses digits where A is unstable and its modes hardly react to the inputs. Newton steps (G. Hewer, "An
//! iterative technique for the computation of the steady state gains for the discrete optimal regulator", IEEE
//! Transactions on Automatic Control 16(4), 1971) get them back; they are written as corrections, which need not be
//! accurate themselves.
//!
//! **Checks.** `solvable.rs` decides beforehand whether a stabilising X exists, so that the error can name the mode at
//! fault; the residual of the equation is computed afterwards and bounded.

use nalgebra::DMatrix;

use crate::error::{ControlError, refused};
use crate::solvable::{check_solvable, positive_definite};

/// Bound on doubling steps. A step squares the closed loop, so 60 of them reach poles 1e-17 short of the unit circle,
/// closer than doubles can resolve.
const DOUBLINGS_MAX: usize = 60;

/// Doubling ends once H changes by less than this, relatively; as convergence is quadratic, H is then exact to
/// rounding.
const CONVERGED: f64 = 1e-14;

/// Least residual that causes a Newton step.
const REFINED_FROM: f64 = 1e-13;

/// Bound on Newton steps; each squares the error, so an error that two do not mend is due to the problem.
const REFINEMENTS_MAX: usize = 2;

/// Largest accepted residual, |A'XA - X - ... + Q| / |X| in the Frobenius norm.
const RESIDUAL_MAX: f64 = 1e-9;

/// The stabilising solution of a discrete algebraic Riccati equation.
#[derive(Clone, Debug, PartialEq)]
pub struct Riccati {
    /// The solution X: symmetric, positive semidefinite.
    pub x: DMatrix<f64>,
    /// Frobenius norm of the equation's left-hand side over that of X.
    pub residual: f64,
    /// Number of doubling steps.
    pub iterations: usize,
}

/// Solves A'XA - X - A'XB (R + B'XB)^-1 B'XA + Q = 0 for the X whose law makes A - BK stable.
///
/// A is n x n, B is n x m, Q is n x n symmetric positive semidefinite, R is m x m symmetric positive definite.
///
/// ```
/// use punctual_control::{DMatrix, dare};
/// // x(k+1) = x(k) + u(k) with unit weights: X is the golden ratio.
/// let one = DMatrix::identity(1, 1);
/// let solved = dare(&one, &one, &one, &one).unwrap();
/// assert!((solved.x[(0, 0)] - (1.0 + 5f64.sqrt()) / 2.0).abs() < 1e-12);
/// ```
///
/// # Errors
/// [`ControlError`]: shapes, entries that are not finite, weights of the wrong sign, a mode that cannot be stabilised
/// or is not weighted, and numerical failure (never a silently inaccurate X).
pub fn dare(a: &DMatrix<f64>, b: &DMatrix<f64>, q: &DMatrix<f64>, r: &DMatrix<f64>) -> Result<Riccati, ControlError> {
    check_solvable(a, b, q, r)?;
    let equation = Equation { a, b, q, r };
    let (mut x, iterations) = equation.double()?;
    let mut residual = equation.residual(&x)?;
    for _ in 0..REFINEMENTS_MAX {
        if residual <= REFINED_FROM {
            break;
        }
        let refined = equation.refine(&x)?;
        let residual_refined = equation.residual(&refined)?;
        if residual_refined.total_cmp(&residual).is_ge() {
            break;
        }
        (x, residual) = (refined, residual_refined);
    }
    if residual <= RESIDUAL_MAX {
        Ok(Riccati {
            x,
            residual,
            iterations,
        })
    } else {
        refused(format!(
            "the solution leaves a relative residual of {residual:e}, more than {RESIDUAL_MAX:e}: the problem is too \
             badly conditioned; bring the units of states and inputs closer to 1"
        ))
    }
}

/// The gain (R + B'XB)^-1 B'XA of the law that belongs to X.
///
/// # Errors
/// [`ControlError`] if R + B'XB, positive definite by construction, is not so in doubles.
pub(crate) fn gain(
    a: &DMatrix<f64>,
    b: &DMatrix<f64>,
    r: &DMatrix<f64>,
    x: &DMatrix<f64>,
) -> Result<DMatrix<f64>, ControlError> {
    let bx = b.transpose() * x;
    let curvature = symmetric_part(&(r + &bx * b));
    let factored = curvature
        .cholesky()
        .ok_or_else(|| ControlError::badly_scaled("the gain"))?;
    Ok(factored.solve(&(bx * a)))
}

struct Equation<'m> {
    a: &'m DMatrix<f64>,
    b: &'m DMatrix<f64>,
    q: &'m DMatrix<f64>,
    r: &'m DMatrix<f64>,
}

impl Equation<'_> {
    /// The doubling iteration; Chu et al. 2004, with W = I + G H:
    /// A <- A W^-1 A, G <- G + A W^-1 G A', H <- H + A' H W^-1 A.
    fn double(&self) -> Result<(DMatrix<f64>, usize), ControlError> {
        let n = self.a.nrows();
        let input_cost = positive_definite(self.r)?;
        let (mut a, mut h) = (self.a.clone(), symmetric_part(self.q));
        let mut g = symmetric_part(&(self.b * input_cost.solve(&self.b.transpose())));
        for iteration in 1..=DOUBLINGS_MAX {
            let w = (DMatrix::identity(n, n) + &g * &h).lu();
            let singular = || ControlError::badly_scaled("a doubling step");
            let w_a = w.solve(&a).ok_or_else(singular)?;
            let w_g = w.solve(&g).ok_or_else(singular)?;
            let later = symmetric_part(&(a.transpose() * &h * &w_a));
            g += symmetric_part(&(&a * w_g * a.transpose()));
            a = &a * w_a;
            h += &later;
            if later.norm() <= CONVERGED * h.norm() {
                return Ok((h, iteration));
            }
        }
        refused(format!(
            "doubling did not converge within {DOUBLINGS_MAX} steps: a closed-loop pole is too close to the unit circle"
        ))
    }

    /// A Newton step: X + D, where D = M'D M + E solves for the error that leaves the left-hand side E, to first
    /// order; M = A - BK. D is the sum of M'^i E M^i, computed by doubling the number of terms.
    fn refine(&self, x: &DMatrix<f64>) -> Result<DMatrix<f64>, ControlError> {
        let k = gain(self.a, self.b, self.r, x)?;
        let mut power = self.a - self.b * k;
        let mut correction = symmetric_part(&self.left_hand_side(x)?);
        for _ in 0..DOUBLINGS_MAX {
            let later = power.transpose() * &correction * &power;
            correction += &later;
            power = &power * &power;
            if later.norm() <= CONVERGED * correction.norm() {
                break;
            }
        }
        Ok(x + symmetric_part(&correction))
    }

    /// A'XA - X - A'XB (R + B'XB)^-1 B'XA + Q.
    fn left_hand_side(&self, x: &DMatrix<f64>) -> Result<DMatrix<f64>, ControlError> {
        let k = gain(self.a, self.b, self.r, x)?;
        let xa = x * self.a;
        Ok(self.a.transpose() * &xa - x - xa.transpose() * self.b * k + self.q)
    }

    fn residual(&self, x: &DMatrix<f64>) -> Result<f64, ControlError> {
        let (left, scale) = (self.left_hand_side(x)?.norm(), x.norm());
        // X = 0 exactly if Q = 0 and A is stable; the residual is then absolute.
        Ok(if scale > 0.0 { left / scale } else { left })
    }
}

/// (M + M') / 2: removes the asymmetry that rounding adds to a symmetric result.
pub(crate) fn symmetric_part(m: &DMatrix<f64>) -> DMatrix<f64> {
    (m + m.transpose()) * 0.5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newton_steps_mend_an_inaccurate_solution() {
        let (a, b) = (
            DMatrix::from_row_slice(2, 2, &[1.2, 0.3, 0.1, 1.1]),
            DMatrix::from_row_slice(2, 1, &[0.0, 0.5]),
        );
        let (q, r) = (DMatrix::identity(2, 2), DMatrix::identity(1, 1));
        let right = dare(&a, &b, &q, &r).unwrap().x;
        let equation = Equation {
            a: &a,
            b: &b,
            q: &q,
            r: &r,
        };
        let wrong = &right * (1.0 + 1e-5);
        let mended = equation.refine(&wrong).unwrap();
        assert!((mended - &right).norm() < 1e-9 * right.norm());
    }

    /// Planted fault: a solution that is off by a millionth must not pass the residual check.
    #[test]
    fn a_wrong_solution_leaves_a_residual() {
        let (a, b) = (
            DMatrix::from_row_slice(2, 2, &[1.0, 0.1, 0.0, 1.0]),
            DMatrix::from_row_slice(2, 1, &[0.0, 0.1]),
        );
        let (q, r) = (DMatrix::identity(2, 2), DMatrix::identity(1, 1));
        let right = dare(&a, &b, &q, &r).unwrap().x;
        let equation = Equation {
            a: &a,
            b: &b,
            q: &q,
            r: &r,
        };
        let wrong = &right + DMatrix::identity(2, 2) * (1e-6 * right.norm());
        assert!(equation.residual(&right).unwrap() <= RESIDUAL_MAX);
        assert!(equation.residual(&wrong).unwrap() > RESIDUAL_MAX);
    }
}
