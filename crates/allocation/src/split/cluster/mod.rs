//! Which observations are alike: clusters as in the fifth paper (section IV-C).
//!
//! **Problem.** A profile is a long list of observations, no two of which are the same. A phase is a row of
//! observations that behave alike, so a method has to say which do, and how many kinds there are.
//!
//! **Terms.** [`Points`] are observations of a few features each. A [`Mixture`] of Gaussians gives each point a
//! probability of being of each of *k* kinds; its most likely kind is its *label*.
//!
//! **Method.** Features that do not change are dropped, the others get mean 0 and variance 1 ([`Scale`]). A mixture is
//! fitted by expectation-maximisation, from several seeded starts ([`start`]), for every k of a range; of these the one
//! is taken that the indices of Davies and Bouldin and of Calinski and Harabasz rank best ([`choose`]).
//!
//! Nothing here knows of programs or of time. The same points and seed give the same labels on every machine of the
//! same floating point.

mod choose;
mod indices;
mod mixture;
mod points;
mod start;
#[cfg(test)]
mod tests;

pub use choose::{Candidate, Choice, ClusteringSettings, choose};
pub use indices::{calinski_harabasz, davies_bouldin};
pub use mixture::{Fit, Mixture};
pub use points::{Points, Scale};
pub use start::start;
