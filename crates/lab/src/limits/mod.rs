//! Why claims do not hold: computed, not told.
//!
//! **Problem.** A claim that does not hold on every machine with every seed has missed for one of three reasons: the paper's own
//! figures exclude it; the physics that its microbenchmarks leave excludes it; or samples are noisy and it fails by chance.
//! Which one it is can be worked out.
//!
//! **Method.** `figures` puts the paper's figures into each other: what one of them bounds for another. `search` looks through
//! everything that calibration leaves open for a machine that still fits the microbenchmarks and satisfies the claim, and tells
//! how near the nearest one comes. `chance` separates law from noise: what holds of a machine's mean over seeds, and how often the
//! same formula fails where nothing happens.

pub mod chance;
pub mod figures;
pub mod search;

use serde::Serialize;

pub use chance::Chance;

/// What a bound on some claims comes to.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Limit {
    /// The claims, by id.
    pub claims: Vec<String>,
    /// From what it was computed.
    pub basis: Basis,
    /// What was computed.
    pub what: String,
    /// What the claims ask for.
    pub asked: Asked,
    /// What there is: of figures, the least (or most) that they allow; of a search, the nearest machine's.
    pub found: f64,
    /// Whether what there is excludes what is asked for.
    pub excluded: bool,
}

/// From what a bound was computed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "by")]
pub enum Basis {
    /// From figures of the paper, by the ids of the claims that have them; whatever the machine.
    Figures {
        /// The ids.
        ids: Vec<String>,
    },
    /// By a search over what calibration leaves open.
    Search {
        /// Whose pins were kept; none where all parameters were free.
        member: Option<String>,
        /// Machines tried.
        tried: usize,
        /// Root mean square of the nearest machine's relative residuals on the microbenchmarks.
        rms: f64,
    },
}

/// What is asked of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Asked {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
}

impl Asked {
    /// How far `found` is from what is asked; 0 where it is kept, infinite of what is not a number.
    pub fn excess(self, found: f64) -> f64 {
        let excess = match self {
            Asked::AtMost(most) => found - most,
            Asked::AtLeast(least) => least - found,
        };
        if excess.is_nan() {
            f64::INFINITY
        } else {
            excess.max(0.0)
        }
    }
}

impl Limit {
    /// The limit of this finding, excluded where it is not what is asked.
    pub fn new(claims: &[&str], basis: Basis, what: impl Into<String>, asked: Asked, found: f64) -> Limit {
        Limit {
            claims: claims.iter().map(|id| id.to_string()).collect(),
            basis,
            what: what.into(),
            asked,
            found,
            excluded: asked.excess(found) > 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excess_is_on_the_side_that_was_not_asked_for() {
        assert_eq!(Asked::AtMost(1.0).excess(1.5), 0.5);
        assert_eq!(Asked::AtMost(1.0).excess(0.5), 0.0);
        assert_eq!(Asked::AtLeast(1.0).excess(0.5), 0.5);
        assert_eq!(Asked::AtLeast(1.0).excess(1.5), 0.0);
        assert_eq!(Asked::AtLeast(1.0).excess(f64::NAN), f64::INFINITY);
    }
}
