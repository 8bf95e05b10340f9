//! Eigenvalues of a closed loop, and the verdict on its stability.
//!
//! A discrete-time linear loop x(k+1) = M x(k) dies out from every start exactly if every eigenvalue of M (a *pole*)
//! lies inside the unit circle; the largest modulus, the *spectral radius*, is the factor by which the slowest part
//! of an error shrinks per sample.
//!
//! Poles are computed from the real Schur form. Its double-shift QR iteration is bounded here, and has known cycles: it
//! stands still on a cyclic permutation, and on the pure delay lines that every companion matrix contains. An
//! orthogonal change of basis leaves the eigenvalues alone and breaks the cycle, so a failed attempt is repeated on a
//! reflected matrix.

use std::fmt;

use nalgebra::{DMatrix, DVector, Schur};
use serde::{Deserialize, Serialize};

use crate::error::ControlError;

/// Schur iterations per row and attempt. LAPACK allows 30 per eigenvalue; the iterations here also count deflations.
const ITERATIONS_PER_ROW: usize = 60;

/// Bases in which the Schur form is tried before the computation fails. The second has been enough for every known
/// cycle.
const BASES_TRIED: usize = 4;

/// Rest of a deviation that counts as settled: the 2 % of most textbooks.
pub const SETTLED: f64 = 0.02;

/// Spectral radii from here on count as unstable: so close to 1, rounding decides the side.
const STABLE_BELOW: f64 = 1.0 - 1e-9;

/// An eigenvalue of a closed loop, in the complex plane.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pole {
    pub re: f64,
    pub im: f64,
}

impl Pole {
    /// Distance from the origin; below 1 for a stable pole.
    pub fn modulus(self) -> f64 {
        self.re.hypot(self.im)
    }
}

impl fmt::Display for Pole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.im == 0.0 {
            write!(f, "{:.4}", self.re)
        } else {
            write!(f, "{:.4}{:+.4}i", self.re, self.im)
        }
    }
}

/// Whether a closed loop settles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stability {
    /// Every pole lies inside the unit circle.
    Stable {
        /// Largest modulus of a pole, in 0..1; the smaller, the faster the loop settles.
        spectral_radius: f64,
    },
    /// Some pole lies on the unit circle or outside of it: the loop does not settle.
    Unstable {
        /// Largest modulus of a pole, 1 or more.
        spectral_radius: f64,
    },
}

impl Stability {
    /// The verdict on a loop with these poles. A loop without poles (no state) is stable.
    pub fn of(poles: &[Pole]) -> Stability {
        let spectral_radius = poles.iter().map(|p| p.modulus()).fold(0.0, f64::max);
        if spectral_radius < STABLE_BELOW {
            Stability::Stable { spectral_radius }
        } else {
            Stability::Unstable { spectral_radius }
        }
    }

    /// Whether every pole lies inside the unit circle.
    pub fn is_stable(self) -> bool {
        matches!(self, Stability::Stable { .. })
    }

    /// Samples that the slowest mode takes until [`SETTLED`] of a deviation is left, at least 1; `None` for an unstable
    /// loop.
    pub fn settling_samples(self) -> Option<f64> {
        let samples = || SETTLED.ln() / self.spectral_radius().max(f64::MIN_POSITIVE).ln();
        self.is_stable().then(|| samples().max(1.0))
    }

    /// Largest modulus of a pole.
    pub fn spectral_radius(self) -> f64 {
        match self {
            Stability::Stable { spectral_radius } | Stability::Unstable { spectral_radius } => spectral_radius,
        }
    }
}

impl fmt::Display for Stability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.is_stable() { "stable" } else { "unstable" };
        write!(f, "{word}, spectral radius {:.4}", self.spectral_radius())
    }
}

/// Computes the eigenvalues of a square matrix, in no particular order, conjugates next to each other.
///
/// # Errors
/// [`ControlError`] if an entry is not finite or the bounded iteration fails in every basis tried.
pub(crate) fn poles(matrix: &DMatrix<f64>) -> Result<Vec<Pole>, ControlError> {
    let rows = matrix.nrows();
    if !matrix.iter().all(|v| v.is_finite()) {
        return Err(no_spectrum(rows));
    }
    let mut in_basis = matrix.clone();
    for attempt in 0..BASES_TRIED {
        if let Some(schur) = Schur::try_new(in_basis.clone(), f64::EPSILON, ITERATIONS_PER_ROW * rows) {
            let poles: Vec<Pole> = schur
                .complex_eigenvalues()
                .iter()
                .map(|c| Pole { re: c.re, im: c.im })
                .collect();
            if poles.iter().all(|p| p.modulus().is_finite()) {
                return Ok(poles);
            }
        }
        in_basis = reflected(&in_basis, attempt);
    }
    Err(no_spectrum(rows))
}

/// The error for a matrix of `rows` rows where an iteration did not end within its bound, or an entry is not finite.
pub(crate) fn no_spectrum(rows: usize) -> ControlError {
    ControlError::Refused(format!(
        "no verdict on the law: the eigenvalues of a {rows}x{rows} matrix could not be computed: it holds values that \
         are not finite, or too far apart in size; bring the units of knobs and meters closer to 1"
    ))
}

/// H M H for the Householder reflector H across a direction without symmetries, which differs for each attempt.
fn reflected(matrix: &DMatrix<f64>, attempt: usize) -> DMatrix<f64> {
    let n = matrix.nrows();
    let direction = DVector::from_fn(n, |i, _| 1.0 / (i + 1 + attempt) as f64).normalize();
    let reflector = DMatrix::identity(n, n) - 2.0 * &direction * direction.transpose();
    &reflector * matrix * &reflector
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycle(n: usize) -> DMatrix<f64> {
        DMatrix::from_fn(n, n, |i, j| if (i + 1) % n == j { 1.0 } else { 0.0 })
    }

    #[test]
    fn cyclic_permutations_have_their_poles_on_the_unit_circle() {
        for n in 2..10 {
            for pole in poles(&cycle(n)).unwrap() {
                assert!((pole.modulus() - 1.0).abs() < 1e-12, "n = {n}: {pole:?}");
            }
        }
    }

    #[test]
    fn delay_lines_have_their_poles_at_zero_to_rounding() {
        for n in 2..8 {
            let delay = DMatrix::from_fn(n, n, |i, j| if i == j + 1 { 1.0 } else { 0.0 });
            for pole in poles(&delay).unwrap() {
                // A defective eigenvalue of multiplicity n moves by the n-th root of the rounding error.
                assert!(
                    pole.modulus() < 4.0 * f64::EPSILON.powf(1.0 / n as f64),
                    "n = {n}: {pole:?}"
                );
            }
        }
    }

    #[test]
    fn a_mode_has_settled_when_its_power_is_two_percent() {
        let settling = |spectral_radius| Stability::Stable { spectral_radius }.settling_samples().unwrap();
        let slow = settling(0.9);
        assert!((0.9f64.powf(slow) - SETTLED).abs() < 1e-12, "{slow}");
        assert_eq!([settling(0.0), settling(0.001)], [1.0, 1.0]);
        assert_eq!(Stability::Unstable { spectral_radius: 1.0 }.settling_samples(), None);
    }

    #[test]
    fn the_unit_circle_itself_is_unstable() {
        assert!(!Stability::of(&poles(&cycle(3)).unwrap()).is_stable());
        assert!(Stability::of(&poles(&(0.99 * cycle(3))).unwrap()).is_stable());
        assert!(Stability::of(&[]).is_stable());
    }

    #[test]
    fn an_entry_that_is_not_finite_is_an_error() {
        assert_eq!(poles(&DMatrix::from_element(2, 2, f64::NAN)), Err(no_spectrum(2)));
    }
}
