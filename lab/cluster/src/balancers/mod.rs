//! Balancers of papers and of other projects, to be compared with the product's.
//!
//! | name | how it decides | from |
//! |---|---|---|
//! | `rr` ([`RoundRobin`]) | one after the other | the paper's baseline |
//! | `prop` ([`Proportional`]) | at random, in proportion to 1 / delay of the last period | the paper's baseline |
//! | `fc-prop` ([`Proportional`]) | the same with the nodes' bounds d_i | Chronos-C, equation 7 |
//! | `fc-hash` ([`FcHash`]) | the key's place on a circle of which each node has d_i / sum d | Chronos-C, equation 8 |
//! | `p2c` ([`PeakEwma`]) | the better of two random ones, by latency and queries in flight | Finagle |
//! | `prequal` ([`Prequal`]) | the best of a pool of probes: not hot, then least latency | Google, 2024 |
//! | `bounded` ([`BoundedLoads`]) | the key's node, or the next one on the circle below 1.25 of the mean load | Google, 2018 |
//! | `ours` ([`Home`]) | the key's node unless it is behind the mean of all by more than a quarter of their wait | here |

mod bounded;
mod fc_hash;
mod p2c;
mod prequal;
mod shares;

use punctual_federation::balancer::{Balancer, Home, Query};
use punctual_federation::ids::NodeId;
use punctual_units::Time;

pub use bounded::{BOUND, BoundedLoads};
pub use fc_hash::{FcHash, POINTS_MAX};
pub use p2c::{DECAY, PeakEwma};
pub use prequal::{Prequal, Probe, ProbeMeter};
pub use shares::{By, Proportional, RoundRobin};

/// A balancer that may ask nodes how busy they are, apart from queries.
pub trait ProbingBalancer: Balancer {
    /// Adds the nodes to probe because of this query to `asked`.
    fn probes(&mut self, _query: &Query, _asked: &mut Vec<NodeId>) {}

    /// Notes a node's answer to a probe.
    fn probed(&mut self, _node: NodeId, _probe: Probe, _now: Time) {}
}

impl ProbingBalancer for RoundRobin {}
impl ProbingBalancer for Proportional {}
impl ProbingBalancer for FcHash {}
impl ProbingBalancer for PeakEwma {}
impl ProbingBalancer for BoundedLoads {}
impl ProbingBalancer for Home {}

/// Maps a number to a share, 0 included, 1 excluded.
fn unit(draw: u64) -> f64 {
    (draw >> 11) as f64 / (1u64 << 53) as f64
}

/// Maps a random number to `0..count`; `count` must be above 0.
fn below(draw: u64, count: usize) -> usize {
    ((u128::from(draw) * count as u128) >> 64) as usize
}

#[cfg(test)]
mod tests;
