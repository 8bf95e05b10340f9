//! Identity of a log's federation, and revisions of its entries.

use std::fmt;

pub use punctual_units::Revision;
use serde::{Deserialize, Serialize};

/// The federation that a log belongs to: a number drawn at random when the federation is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FederationId(pub u64);

impl fmt::Display for FederationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
