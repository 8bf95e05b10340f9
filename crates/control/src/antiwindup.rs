//! Anti-windup: keeps accumulated errors from growing while knobs are at their limits.
//!
//! **Problem.** A knob at its limit does not follow the control law. If errors go on accumulating regardless, the law
//! asks for more and more, and the knob stays at its limit long after the errors have changed sign (windup).
//!
//! **Choice.** *Back-calculation*, at once: v is moved to a point at which the law asks exactly the limit of the knobs
//! that are at one (Hanus, Kinnaert and Henrotte, "Conditioning technique, a general anti-windup and bumpless transfer
//! method", Automatica 23(6), 1987). A knob then leaves its limit in the first sample in which the law wants less. The
//! usual alternative, to stop accumulating while any knob is at a limit, is worse with several knobs. QeDB sits at its
//! minimal QoD for long; a frozen v would rob the clock, which has room, of its integral action. Tardiness would miss
//! its goal for as long.
//!
//! **Which v.** With fewer free knobs than goals, some goal cannot be held. Of all v that suit the pinned knobs S, the
//! one is taken that moves least in the cost's own measure, the sum of w_o dv_o^2 with w the weights of the accumulated
//! errors:
//!
//! ```text
//! minimise dv' W dv   subject to   K_I,S dv = c_S      =>      dv = M c_S,  M = W^-1/2 (K_I,S W^-1/2)^+
//! ```
//!
//! where c is the command minus the limit. An output whose v is set back at every sample keeps its error; the weights
//! ensure that this is the output that matters least. The original technique moves v so that the commands of the *free*
//! knobs do not change; then the couplings of the model decide which goal is not held.

use nalgebra::DMatrix;

use crate::error::ControlError;
use crate::spectrum::no_spectrum;

/// Bound on the knobs of a law: a matrix is stored for each of the 2^6 sets of pinned knobs. Our machines have two to
/// four knobs.
pub(crate) const KNOBS_MAX: usize = 6;

/// Directions of K_I weaker than this, relative to the strongest, are not used to move v.
const WEAKEST_DIRECTION: f64 = 1e-9;

/// Bound on the iterations of the singular value decomposition.
const ITERATIONS_MAX: usize = 1000;

/// M for the set `pinned` of knobs (bit i for knob i): ny x nu, zero in the columns of free knobs.
///
/// # Errors
/// [`ControlError`] if the pseudo-inverse cannot be computed.
pub(crate) fn relief(ki: &DMatrix<f64>, weights: &[f64], pinned: usize) -> Result<DMatrix<f64>, ControlError> {
    let (nu, ny) = ki.shape();
    let failed = || no_spectrum(nu.max(ny));
    let root = |o: usize| weights[o].sqrt();
    let of_pinned = DMatrix::from_fn(nu, ny, |i, o| if is_in(pinned, i) { ki[(i, o)] / root(o) } else { 0.0 });
    if !of_pinned.iter().all(|v| v.is_finite()) {
        return Err(failed());
    }
    let svd = of_pinned
        .try_svd(true, true, f64::EPSILON, ITERATIONS_MAX)
        .ok_or_else(failed)?;
    let weakest = WEAKEST_DIRECTION * svd.singular_values.max();
    let inverse = svd.pseudo_inverse(weakest).map_err(|_| failed())?;
    Ok(DMatrix::from_fn(ny, nu, |o, i| {
        if is_in(pinned, i) {
            inverse[(o, i)] / root(o)
        } else {
            0.0
        }
    }))
}

/// Whether knob `i` belongs to the set.
fn is_in(set: usize, i: usize) -> bool {
    set >> i & 1 == 1
}

/// Indices of the knobs in a set, ascending.
pub(crate) fn knobs_of(set: usize) -> impl Iterator<Item = usize> {
    (0..KNOBS_MAX).filter(move |&i| is_in(set, i))
}
