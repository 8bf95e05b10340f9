//! Decides whether a Riccati equation has a stabilising solution at all.
//!
//! A solution exists if Q is positive semidefinite, R positive definite, and every mode of A that does not die out by
//! itself is moved by some input (stabilisability) and seen by Q (detectability). The last two are decided for each
//! such mode z by the rank test of Popov, Belevitch and Hautus (PBH): the inputs move it exactly if [zI - A, B] has
//! full row rank, and Q sees it exactly if [zI - A', Q] has. A check beforehand can name the mode, which a failed
//! iteration cannot.

use nalgebra::{Cholesky, Complex, DMatrix, Dyn, SymmetricEigen};

use crate::error::{ControlError, refused, require};
use crate::riccati::symmetric_part;
use crate::spectrum::{Pole, poles};

/// Asymmetry (and negative curvature) of a weight below this, relative to its largest entry, is rounding.
const WEIGHT_ROUNDING: f64 = 1e-12;

/// Modes with at least this modulus must be moved and seen. The eigenvalues of a double mode at 1 carry the square
/// root of the rounding error, so this is a little inside of the unit circle.
const MUST_BE_MOVED_FROM: f64 = 1.0 - 1e-7;

/// A PBH matrix whose smallest singular value is below this, relative to its scale, has lost rank.
const RANK_TOLERANCE: f64 = 1e-11;

/// Bound on the iterations of the symmetric eigenvalue and singular value decompositions, per row.
const ITERATIONS_PER_ROW: usize = 100;

/// Refuses matrices that do not fit together, weights of the wrong sign, and modes that cannot be stabilised or that
/// cost nothing.
pub(crate) fn check_solvable(
    a: &DMatrix<f64>,
    b: &DMatrix<f64>,
    q: &DMatrix<f64>,
    r: &DMatrix<f64>,
) -> Result<(), ControlError> {
    check_shapes(a, b, q, r)?;
    check_weights(q, r)?;
    check_modes(a, b, q)
}

fn check_shapes(a: &DMatrix<f64>, b: &DMatrix<f64>, q: &DMatrix<f64>, r: &DMatrix<f64>) -> Result<(), ControlError> {
    let (n, m) = (a.nrows().max(1), b.ncols().max(1));
    for (matrix, value, rows_needed, columns_needed) in [("A", a, n, n), ("B", b, n, m), ("Q", q, n, n), ("R", r, m, m)]
    {
        let (rows, columns) = value.shape();
        require((rows, columns) == (rows_needed, columns_needed), || {
            format!("{matrix} is {rows}x{columns} but must be {rows_needed}x{columns_needed} to fit A and B")
        })?;
        for column in 0..columns {
            for row in 0..rows {
                let value = value[(row, column)];
                require(value.is_finite(), || {
                    format!("{matrix} holds {value} in row {row}, column {column}: every entry must be finite")
                })?;
            }
        }
    }
    Ok(())
}

fn check_weights(q: &DMatrix<f64>, r: &DMatrix<f64>) -> Result<(), ControlError> {
    for (matrix, weight) in [("Q", q), ("R", r)] {
        if (weight - weight.transpose()).amax() > WEIGHT_ROUNDING * weight.amax() {
            return refused(format!(
                "the weight {matrix} is not symmetric: a quadratic cost has a symmetric weight"
            ));
        }
    }
    let eigenvalue = smallest_eigenvalue(q)?;
    if eigenvalue < -WEIGHT_ROUNDING * q.amax() {
        return refused(format!(
            "the state weight Q has the negative eigenvalue {eigenvalue:e}: it must be positive semidefinite"
        ));
    }
    positive_definite(r).map(drop)
}

/// Factors the weight R of the inputs.
///
/// # Errors
/// [`ControlError`] where R leaves some input free of cost.
pub(crate) fn positive_definite(r: &DMatrix<f64>) -> Result<Cholesky<f64, Dyn>, ControlError> {
    let free = "the input weight R is not positive definite: every input, and every mix of inputs, must cost something";
    r.clone().cholesky().ok_or_else(|| ControlError::Refused(free.into()))
}

fn smallest_eigenvalue(symmetric: &DMatrix<f64>) -> Result<f64, ControlError> {
    let iterations = ITERATIONS_PER_ROW * symmetric.nrows();
    let eigen = SymmetricEigen::try_new(symmetric_part(symmetric), f64::EPSILON, iterations)
        .ok_or_else(|| ControlError::badly_scaled("the eigenvalues of Q"))?;
    Ok(eigen.eigenvalues.min())
}

fn check_modes(a: &DMatrix<f64>, b: &DMatrix<f64>, q: &DMatrix<f64>) -> Result<(), ControlError> {
    let (moves, sees) = (unit_columns(b), unit_columns(q));
    let transposed = a.transpose();
    for mode in poles(a).map_err(|_| ControlError::badly_scaled("the eigenvalues"))? {
        if mode.modulus() < MUST_BE_MOVED_FROM {
            continue;
        }
        if loses_rank(a, &moves, mode)? {
            return Err(ControlError::NotStabilisable { mode });
        }
        if loses_rank(&transposed, &sees, mode)? {
            return refused(format!(
                "not detectable: the mode {mode} does not die out and the state weight Q does not see it; give it a \
                 weight"
            ));
        }
    }
    Ok(())
}

fn loses_rank(a: &DMatrix<f64>, beside: &DMatrix<f64>, mode: Pole) -> Result<bool, ControlError> {
    let n = a.nrows();
    let z = Complex::new(mode.re, mode.im);
    let pbh = DMatrix::from_fn(n, n + beside.ncols(), |i, j| match j {
        _ if j >= n => Complex::from(beside[(i, j - n)]),
        _ if i == j => z - a[(i, j)],
        _ => Complex::from(-a[(i, j)]),
    });
    let svd = pbh
        .try_svd(false, false, f64::EPSILON, ITERATIONS_PER_ROW * n)
        .ok_or_else(|| ControlError::badly_scaled("the stabilisability check"))?;
    Ok(svd.singular_values.min() <= RANK_TOLERANCE * (1.0 + a.norm()))
}

/// Scales columns to length 1: the rank stays, and the unit of an input (hertz or gigahertz) no longer matters.
fn unit_columns(m: &DMatrix<f64>) -> DMatrix<f64> {
    let mut scaled = m.clone();
    for mut column in scaled.column_iter_mut() {
        column.try_normalize_mut(0.0);
    }
    scaled
}
