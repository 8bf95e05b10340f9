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
//! Doubling loses digits where A is unstable and its modes hardly react to the inputs. A Newton step (G. Hewer, "An
//! iterative technique for the computation of the steady state gains for the discrete optimal regulator", IEEE
//! Transactions on Automatic Control 16(4), 1971) gets them back: it computes what the law of the present X costs, a sum of
//! positive terms, and that is the next X.
//!
//! **Checks.** That a stabilising X exists is decided beforehand by the Popov-Belevitch-Hautus (PBH) rank test, so the
//! error can name the mode at fault; the residual of the equation is computed afterwards and bounded.

use nalgebra::{Complex, DMatrix, SymmetricEigen};

use crate::spectrum::{NoSpectrum, Pole, poles};

/// Bound on doubling steps. A step squares the closed loop, so 60 of them reach poles 1e-17 short of the unit circle,
/// closer than doubles can tell.
const DOUBLINGS_MAX: usize = 60;

/// Doubling ends once H changes by less than this, relatively; convergence being quadratic, H is then exact to
/// rounding.
const CONVERGED: f64 = 1e-14;

/// A residual above this is worth a Newton step.
const REFINED_FROM: f64 = 1e-13;

/// Bound on Newton steps; each squares the error, so what two do not mend is due to the problem.
const REFINEMENTS_MAX: usize = 2;

/// Largest accepted residual, |A'XA - X - ... + Q| / |X| in the Frobenius norm.
const RESIDUAL_MAX: f64 = 1e-9;

/// Asymmetry (and negative curvature) of a weight below this, relative to its largest entry, is rounding.
const WEIGHT_ROUNDING: f64 = 1e-12;

/// Modes with at least this modulus must be moved and seen. The eigenvalues of a double mode at 1 carry the square
/// root of the rounding error, so this is a little inside of the unit circle.
const MUST_BE_MOVED_FROM: f64 = 1.0 - 1e-7;

/// A PBH matrix whose smallest singular value is below this, relative to its scale, has lost rank.
const RANK_TOLERANCE: f64 = 1e-11;

/// Bound on the iterations of the symmetric eigenvalue and singular value decompositions, per row.
const ITERATIONS_PER_ROW: usize = 100;

/// The stabilising solution of a discrete algebraic Riccati equation.
#[derive(Clone, Debug, PartialEq)]
pub struct Riccati {
    /// The solution X: symmetric, positive semidefinite.
    pub x: DMatrix<f64>,
    /// Frobenius norm of the equation's left-hand side over that of X.
    pub residual: f64,
    /// Doubling steps taken.
    pub iterations: usize,
}

/// Why a Riccati equation was not solved.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RiccatiError {
    /// The matrices do not fit together.
    #[error("{matrix} is {rows}x{columns} but must be {rows_needed}x{columns_needed} to fit A and B")]
    Shape {
        /// Which of A, B, Q, R.
        matrix: &'static str,
        /// Its rows.
        rows: usize,
        /// Its columns.
        columns: usize,
        /// Rows that would fit.
        rows_needed: usize,
        /// Columns that would fit.
        columns_needed: usize,
    },
    /// A matrix holds a NaN or an infinity.
    #[error("{matrix} holds {value} in row {row}, column {column}: every entry must be finite")]
    NotFinite {
        /// Which of A, B, Q, R.
        matrix: &'static str,
        /// Row, from 0.
        row: usize,
        /// Column, from 0.
        column: usize,
        /// The value found.
        value: f64,
    },
    /// A weight is not symmetric.
    #[error("the weight {matrix} is not symmetric: a quadratic cost has a symmetric weight")]
    NotSymmetric {
        /// Which of Q, R.
        matrix: &'static str,
    },
    /// Q rewards some state: the cheapest law would be to run away.
    #[error("the state weight Q has the negative eigenvalue {eigenvalue:e}: it must be positive semidefinite")]
    NegativeStateWeight {
        /// The most negative eigenvalue of Q.
        eigenvalue: f64,
    },
    /// R leaves some input free of cost.
    #[error("the input weight R is not positive definite: every input, and every mix of inputs, must cost something")]
    FreeInput,
    /// A mode that does not die out by itself cannot be moved by any input.
    #[error(
        "not stabilisable: the mode {mode} does not die out and no input moves it; remove it from the model, or add \
         an input that moves it"
    )]
    NotStabilisable {
        /// The eigenvalue of A that no input moves.
        mode: Pole,
    },
    /// A mode that does not die out by itself costs nothing, so no law bothers to move it.
    #[error(
        "not detectable: the mode {mode} does not die out and the state weight Q does not see it; give it a weight"
    )]
    NotDetectable {
        /// The eigenvalue of A that Q does not see.
        mode: Pole,
    },
    /// Eigenvalues, singular values or a factorisation failed.
    #[error(
        "the Riccati equation is too badly scaled to be solved in {step}: bring the units of states and inputs \
         closer to 1"
    )]
    Numerics {
        /// The computation that failed.
        step: &'static str,
    },
    /// Doubling did not settle within its bound.
    #[error("doubling did not converge within {iterations} steps: a closed-loop pole is too close to the unit circle")]
    NoConvergence {
        /// Steps taken.
        iterations: usize,
    },
    /// The candidate solution does not solve the equation.
    #[error(
        "the solution leaves a relative residual of {residual:e}, more than {accepted:e}: the problem is too badly \
         conditioned; bring the units of states and inputs closer to 1"
    )]
    Residual {
        /// The residual found.
        residual: f64,
        /// The largest one accepted.
        accepted: f64,
    },
}

impl From<NoSpectrum> for RiccatiError {
    fn from(_: NoSpectrum) -> RiccatiError {
        RiccatiError::Numerics {
            step: "the eigenvalues",
        }
    }
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
/// [`RiccatiError`]: shapes, entries that are not finite, weights of the wrong sign, a mode that cannot be stabilised
/// or is not weighted, and numerical failure (never a silently inaccurate X).
pub fn dare(a: &DMatrix<f64>, b: &DMatrix<f64>, q: &DMatrix<f64>, r: &DMatrix<f64>) -> Result<Riccati, RiccatiError> {
    check_shapes(a, b, q, r)?;
    check_weights(q, r)?;
    check_modes(a, b, q)?;
    let (mut x, iterations) = double(a, b, q, r)?;
    let mut residual = relative_residual(a, b, q, r, &x)?;
    for _ in 0..REFINEMENTS_MAX {
        if residual <= REFINED_FROM {
            break;
        }
        let refined = newton_step(a, b, q, r, &x)?;
        let residual_refined = relative_residual(a, b, q, r, &refined)?;
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
        Err(RiccatiError::Residual {
            residual,
            accepted: RESIDUAL_MAX,
        })
    }
}

/// The gain (R + B'XB)^-1 B'XA of the law that X belongs to.
///
/// # Errors
/// [`RiccatiError::Numerics`] if R + B'XB, positive definite by construction, is not so in doubles.
pub(crate) fn gain(
    a: &DMatrix<f64>,
    b: &DMatrix<f64>,
    r: &DMatrix<f64>,
    x: &DMatrix<f64>,
) -> Result<DMatrix<f64>, RiccatiError> {
    let bx = b.transpose() * x;
    let curvature = symmetric_part(&(r + &bx * b));
    let factored = curvature
        .cholesky()
        .ok_or(RiccatiError::Numerics { step: "the gain" })?;
    Ok(factored.solve(&(bx * a)))
}

/// The doubling iteration; Chu et al. 2004, with W = I + G H:
/// A <- A W^-1 A, G <- G + A W^-1 G A', H <- H + A' H W^-1 A.
fn double(
    a: &DMatrix<f64>,
    b: &DMatrix<f64>,
    q: &DMatrix<f64>,
    r: &DMatrix<f64>,
) -> Result<(DMatrix<f64>, usize), RiccatiError> {
    let n = a.nrows();
    let input_cost = r.clone().cholesky().ok_or(RiccatiError::FreeInput)?;
    let (mut a, mut g, mut h) = (a.clone(), b * input_cost.solve(&b.transpose()), symmetric_part(q));
    for iteration in 1..=DOUBLINGS_MAX {
        let w = (DMatrix::identity(n, n) + &g * &h).lu();
        let failed = RiccatiError::Numerics {
            step: "a doubling step",
        };
        let w_a = w.solve(&a).ok_or_else(|| failed.clone())?;
        let w_g = w.solve(&g).ok_or(failed)?;
        let step = symmetric_part(&(a.transpose() * &h * &w_a));
        g += symmetric_part(&(&a * w_g * a.transpose()));
        a = &a * w_a;
        h += &step;
        if step.norm() <= CONVERGED * h.norm() {
            return Ok((h, iteration));
        }
    }
    Err(RiccatiError::NoConvergence {
        iterations: DOUBLINGS_MAX,
    })
}

/// The cost of the law u = -K x that belongs to `x`: the sum of M'^i (Q + K'RK) M^i with M = A - BK, by doubling the
/// number of terms.
fn newton_step(
    a: &DMatrix<f64>,
    b: &DMatrix<f64>,
    q: &DMatrix<f64>,
    r: &DMatrix<f64>,
    x: &DMatrix<f64>,
) -> Result<DMatrix<f64>, RiccatiError> {
    let k = gain(a, b, r, x)?;
    let mut power = a - b * &k;
    let mut cost = symmetric_part(&(q + k.transpose() * r * k));
    for _ in 0..DOUBLINGS_MAX {
        let later = symmetric_part(&(power.transpose() * &cost * &power));
        cost += &later;
        power = &power * &power;
        if later.norm() <= CONVERGED * cost.norm() {
            break;
        }
    }
    Ok(cost)
}

fn relative_residual(
    a: &DMatrix<f64>,
    b: &DMatrix<f64>,
    q: &DMatrix<f64>,
    r: &DMatrix<f64>,
    x: &DMatrix<f64>,
) -> Result<f64, RiccatiError> {
    let k = gain(a, b, r, x)?;
    let xa = x * a;
    let left_hand_side = a.transpose() * &xa - x - xa.transpose() * b * k + q;
    let scale = x.norm();
    // X = 0 exactly if Q = 0 and A is stable; then nothing is left to compare with.
    Ok(if scale > 0.0 {
        left_hand_side.norm() / scale
    } else {
        left_hand_side.norm()
    })
}

fn check_shapes(a: &DMatrix<f64>, b: &DMatrix<f64>, q: &DMatrix<f64>, r: &DMatrix<f64>) -> Result<(), RiccatiError> {
    let (n, m) = (a.nrows().max(1), b.ncols().max(1));
    for (matrix, value, rows_needed, columns_needed) in [("A", a, n, n), ("B", b, n, m), ("Q", q, n, n), ("R", r, m, m)]
    {
        let (rows, columns) = value.shape();
        if (rows, columns) != (rows_needed, columns_needed) {
            return Err(RiccatiError::Shape {
                matrix,
                rows,
                columns,
                rows_needed,
                columns_needed,
            });
        }
        for column in 0..columns {
            for row in 0..rows {
                let value = value[(row, column)];
                if !value.is_finite() {
                    return Err(RiccatiError::NotFinite {
                        matrix,
                        row,
                        column,
                        value,
                    });
                }
            }
        }
    }
    Ok(())
}

fn check_weights(q: &DMatrix<f64>, r: &DMatrix<f64>) -> Result<(), RiccatiError> {
    for (matrix, weight) in [("Q", q), ("R", r)] {
        if (weight - weight.transpose()).amax() > WEIGHT_ROUNDING * weight.amax() {
            return Err(RiccatiError::NotSymmetric { matrix });
        }
    }
    let eigenvalue = smallest_eigenvalue(q)?;
    if eigenvalue < -WEIGHT_ROUNDING * q.amax() {
        return Err(RiccatiError::NegativeStateWeight { eigenvalue });
    }
    if r.clone().cholesky().is_none() {
        return Err(RiccatiError::FreeInput);
    }
    Ok(())
}

fn smallest_eigenvalue(symmetric: &DMatrix<f64>) -> Result<f64, RiccatiError> {
    let iterations = ITERATIONS_PER_ROW * symmetric.nrows();
    let eigen =
        SymmetricEigen::try_new(symmetric_part(symmetric), f64::EPSILON, iterations).ok_or(RiccatiError::Numerics {
            step: "the eigenvalues of Q",
        })?;
    Ok(eigen.eigenvalues.min())
}

/// PBH: the mode at z is moved by the inputs exactly if [zI - A, B] has full row rank, and seen by Q exactly if
/// [zI - A', Q] has.
fn check_modes(a: &DMatrix<f64>, b: &DMatrix<f64>, q: &DMatrix<f64>) -> Result<(), RiccatiError> {
    let (moves, sees) = (unit_columns(b), unit_columns(q));
    let transposed = a.transpose();
    for mode in poles(a)? {
        if mode.modulus() < MUST_BE_MOVED_FROM {
            continue;
        }
        if loses_rank(a, &moves, mode)? {
            return Err(RiccatiError::NotStabilisable { mode });
        }
        if loses_rank(&transposed, &sees, mode)? {
            return Err(RiccatiError::NotDetectable { mode });
        }
    }
    Ok(())
}

fn loses_rank(a: &DMatrix<f64>, beside: &DMatrix<f64>, mode: Pole) -> Result<bool, RiccatiError> {
    let n = a.nrows();
    let z = Complex::new(mode.re, mode.im);
    let pbh = DMatrix::from_fn(n, n + beside.ncols(), |i, j| match j {
        _ if j >= n => Complex::from(beside[(i, j - n)]),
        _ if i == j => z - a[(i, j)],
        _ => Complex::from(-a[(i, j)]),
    });
    let svd = pbh
        .try_svd(false, false, f64::EPSILON, ITERATIONS_PER_ROW * n)
        .ok_or(RiccatiError::Numerics {
            step: "the stabilisability check",
        })?;
    Ok(svd.singular_values.min() <= RANK_TOLERANCE * (1.0 + a.norm()))
}

/// Columns scaled to length 1: the rank stays, and the unit of an input (hertz or gigahertz) no longer matters.
fn unit_columns(m: &DMatrix<f64>) -> DMatrix<f64> {
    let mut scaled = m.clone();
    for mut column in scaled.column_iter_mut() {
        column.try_normalize_mut(0.0);
    }
    scaled
}

fn symmetric_part(m: &DMatrix<f64>) -> DMatrix<f64> {
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
        let wrong = &right * (1.0 + 1e-5);
        let mended = newton_step(&a, &b, &q, &r, &wrong).unwrap();
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
        let wrong = &right + DMatrix::identity(2, 2) * (1e-6 * right.norm());
        assert!(relative_residual(&a, &b, &q, &r, &right).unwrap() <= RESIDUAL_MAX);
        assert!(relative_residual(&a, &b, &q, &r, &wrong).unwrap() > RESIDUAL_MAX);
    }
}
