//! Which node answers a query?
//!
//! **Problem.** Every slave can answer every query. Some have the data cached, some have a long queue, some are slow,
//! and what a balancer knows of them is as old as the last reply.
//!
//! **Terms.** A query has a *key*: the id of the data that decides where it is cached. A node's *report* is what it
//! says of itself on each reply ([`Report`]). *In flight* are the queries that this balancer has sent to a node and
//! that have no reply yet.
//!
//! **Method.** A [`Balancer`] is told what happens and is asked for a node. It reads no clock and draws no random
//! number: each query brings one along. It has no state that matters: another balancer takes over with nothing but the
//! list of nodes, and several can work beside each other.
//!
//! | name | how it decides | from |
//! |---|---|---|
//! | `rr` ([`RoundRobin`]) | one after the other | the paper's baseline |
//! | `prop` ([`Proportional`]) | at random, in proportion to 1 / delay of the last period | the paper's baseline |
//! | `fc-prop` ([`Proportional`]) | the same with the nodes' bounds d_i | Chronos-C, equation 7 |
//! | `fc-hash` ([`FcHash`]) | the key's place on a circle of which each node has d_i / sum d | Chronos-C, equation 8 |
//! | `p2c` ([`PeakEwma`]) | the better of two random ones, by latency and queries in flight | Finagle |
//! | `prequal` ([`Prequal`]) | the best of a pool of probes: not hot, then least latency | Google, 2024 |
//! | `bounded` ([`Bounded`]) | the key's node, or the next one on the circle below 1.25 of the mean load | Google, 2018 |
//! | `ours` ([`Home`]) | the key's node unless it is behind the mean of all by more than a quarter of their wait | here |

mod bounded;
mod fc_hash;
mod home;
mod least;
mod p2c;
pub mod prequal;
mod ring;
mod shares;
mod table;

use punctual_units::{Nanos, Time};
use serde::{Deserialize, Serialize};

use crate::admission::{Late, Report};
use crate::ids::NodeId;

pub use bounded::{BOUND, Bounded};
pub use fc_hash::{FcHash, POINTS_MAX};
pub use home::{BUDGET, BUDGET_MAX, HOMES, Home, RAMP, SLACK};
pub use p2c::{DECAY, PeakEwma};
pub use prequal::Prequal;
pub use shares::{By, Proportional, RoundRobin};
pub use table::{NODES_MAX, TooLarge};

/// A query as balancers see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Which data it reads: equal keys, equal data.
    pub key: u64,
    /// Items that it will read, estimated.
    pub items: u32,
    /// When its answer must be there.
    pub deadline: Time,
    /// A random number of its own, for those that decide by chance.
    pub draw: u64,
}

/// What came back for a query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// Items that it read, as estimated when it was sent.
    pub items: u32,
    /// From sending to the reply.
    pub latency: Nanos,
    /// The refusal, if it was one.
    pub late: Option<Late>,
    /// What the node says of itself.
    pub report: Report,
}

/// What a node says at a sampling point, for those that decide once a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Period {
    /// The node.
    pub node: NodeId,
    /// Mean delay of the queries that ended in the period, if any did.
    pub delay: Option<Nanos>,
    /// What it says of itself.
    pub report: Report,
}

/// How busy a node says it is, when a balancer asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Queries admitted and not finished.
    pub in_flight: u32,
    /// The latency of recent queries that came when as many were in flight.
    pub latency: Nanos,
}

/// Decides which node gets a query.
pub trait Balancer: std::fmt::Debug + Send {
    /// The node for a query; none where there is no node. The balancer counts it as sent: one [`Balancer::answered`]
    /// follows, or the node's [`Balancer::leave`], as where its connection breaks.
    fn choose(&mut self, query: &Query, now: Time) -> Option<NodeId>;

    /// A reply came from a node; refusals are replies.
    fn answered(&mut self, node: NodeId, answer: &Answer, now: Time);

    /// Another node for a query that was refused and has not been sent again yet, where that is worth it.
    fn again(&mut self, _query: &Query, _late: &Late, _now: Time) -> Option<NodeId> {
        None
    }

    /// A sampling point: what the nodes say, once a period.
    fn period(&mut self, _nodes: &[Period], _now: Time) {}

    /// Nodes to ask how busy they are, because of this query. They are added to `asked`.
    fn probes(&mut self, _query: &Query, _asked: &mut Vec<NodeId>) {}

    /// What a node said when it was asked.
    fn probed(&mut self, _node: NodeId, _probe: Probe, _now: Time) {}

    /// A node may be chosen from now on.
    ///
    /// # Errors
    /// [`TooLarge`] for a number that no node has; nothing changes then.
    fn join(&mut self, node: NodeId, now: Time) -> Result<(), TooLarge>;

    /// A node is not chosen any more. What is in flight there is forgotten.
    fn leave(&mut self, node: NodeId, now: Time);
}

/// A number that is as good as random, made of another one (Steele, Lea and Flood's SplitMix64): not for secrets.
pub(crate) fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The number as a share, 0 up to but without 1.
pub(crate) fn unit(draw: u64) -> f64 {
    (draw >> 11) as f64 / (1u64 << 53) as f64
}

/// One of `count` by a random number; `count` is above 0.
pub(crate) fn below(draw: u64, count: usize) -> usize {
    ((u128::from(draw) * count as u128) >> 64) as usize
}

#[cfg(test)]
mod tests;
