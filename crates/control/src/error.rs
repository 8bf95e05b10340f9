//! The error of identification and design, and of making a law.

use crate::spectrum::Pole;

/// Reason why a record gives no model, a model no law, or a law cannot be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ControlError {
    /// No input moves a mode that does not die out by itself.
    #[error(
        "not stabilisable: the mode {mode} does not die out and no input moves it; remove it from the model, or add \
         an input that moves it"
    )]
    NotStabilisable {
        /// The eigenvalue of A that no input moves.
        mode: Pole,
    },
    /// Any other reason: the text names the value at fault and, where there is one, the remedy.
    #[error("{0}")]
    Refused(String),
}

impl ControlError {
    /// Eigenvalues, singular values or a factorisation failed in `step` of a Riccati equation's solution.
    pub(crate) fn badly_scaled(step: &str) -> ControlError {
        ControlError::Refused(format!(
            "the Riccati equation is too badly scaled to be solved in {step}: bring the units of states and inputs \
             closer to 1"
        ))
    }
}

/// Returns [`ControlError::Refused`] with the text `what`.
pub(crate) fn refused<T>(what: String) -> Result<T, ControlError> {
    Err(ControlError::Refused(what))
}

/// Returns [`ControlError::Refused`] with the text `what`, unless `holds`.
pub(crate) fn require(holds: bool, what: impl FnOnce() -> String) -> Result<(), ControlError> {
    if holds { Ok(()) } else { refused(what()) }
}
