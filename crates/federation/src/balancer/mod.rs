//! Policies that choose the node for a query.
//!
//! **Problem.** Every replica can answer every query. Some have the data cached, some have a long queue, some are slow,
//! and a balancer's knowledge of them is as old as the last reply.
//!
//! **Terms.** A query has a *key*: the id of the data that decides where it is cached. A node's *report* is its state
//! as sent on each reply ([`BacklogReport`]). *In flight* are the queries that this balancer has sent to a node and
//! that have no reply yet.
//!
//! **Method.** A [`Balancer`] gets the events and is asked for a node. It reads no clock and draws no random number:
//! each query carries one. It has no state that matters: another balancer takes over with nothing but the list of
//! nodes, and several can work beside each other. By name ([`BalancerKind`]):
//!
//! | name | how it decides | from |
//! |---|---|---|
//! | `home` ([`Home`]) | the key's node unless it is behind the mean of all by more than a quarter of their wait | here |
//! | `rr` ([`RoundRobin`]) | one after the other | Chronos-C's baseline |
//! | `prop` ([`Proportional`]) | at random, in proportion to 1 / delay of the last period | Chronos-C's baseline |
//! | `fc-prop` ([`Proportional`]) | the same with the nodes' bounds d_i | Chronos-C, equation 7 |
//! | `fc-hash` ([`FcHash`]) | the key's place on a circle of which each node has d_i / sum d | Chronos-C, equation 8 |
//! | `p2c` ([`PeakEwma`]) | the better of two random ones, by latency and queries in flight | Finagle |
//! | `bounded` ([`BoundedLoads`]) | the key's node, or the next one on the circle below 1.25 of the mean load | Google, 2018 |

mod bounded;
mod fc_hash;
mod home;
mod least;
mod p2c;
mod ring;
mod shares;
mod table;

use punctual_units::{GOLDEN_GAMMA, Nanos, Time, mix};

use crate::admission::{BacklogReport, Late};
use crate::ids::NodeId;

pub use bounded::{BOUND, BoundedLoads};
pub use fc_hash::{FcHash, POINTS_MAX};
pub use home::{BUDGET, BUDGET_MAX, HOMES, Home, RAMP, SLACK};
pub use p2c::{DECAY, PeakEwma};
pub use ring::{HashRing, place};
pub use shares::{By, Proportional, RoundRobin};
pub use table::{NODES_MAX, NodeTable, TooLarge};

/// Time between two sampling points: Chronos-C's.
pub const PERIOD: Nanos = Nanos::from_secs(1);

/// A query as policies see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Hash of the data that it reads: equal data, equal keys.
    pub key: u64,
    /// Estimated number of items that it will read.
    pub items: u32,
    /// Instant by which the client must have its answer.
    pub deadline: Time,
    /// A random number of the query's own, for policies that choose at random.
    pub draw: u64,
}

/// The reply to a query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueryReply {
    /// Items that it read, as estimated when it was sent.
    pub items: u32,
    /// Time from sending to the reply.
    pub latency: Nanos,
    /// The refusal, if the reply is one.
    pub late: Option<Late>,
    pub report: BacklogReport,
}

/// The state of a node at a sampling point, for policies that decide once a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Period {
    pub node: NodeId,
    /// Mean delay of the queries that ended in the period; `None` if none did.
    pub delay: Option<Nanos>,
    pub report: BacklogReport,
}

/// A policy that chooses the node for each query.
pub trait Balancer: std::fmt::Debug + Send {
    /// The node for a query; `None` if there is no node. The query counts as sent: one [`Balancer::answered`] follows,
    /// or the node's [`Balancer::leave`], for example if its connection breaks.
    fn choose(&mut self, query: &Query, now: Time) -> Option<NodeId>;

    /// Notes a reply of a node; refusals are replies.
    fn answered(&mut self, node: NodeId, answer: &QueryReply, now: Time);

    /// Another node for a query that was refused and was not sent again yet; `None` if a second try is not worth it.
    fn again(&mut self, _query: &Query, _late: &Late, _now: Time) -> Option<NodeId> {
        None
    }

    /// Whether each report matters as it comes. Else [`Balancer::period`] is called once in [`PERIOD`].
    fn at_once(&self) -> bool {
        false
    }

    /// Notes the state of nodes at a sampling point.
    fn period(&mut self, _nodes: &[Period], _now: Time) {}

    /// Adds a node, which may be chosen from now on. `now`: when it began to serve.
    ///
    /// # Errors
    /// [`TooLarge`] for a number that no node has; nothing changes then.
    fn join(&mut self, node: NodeId, now: Time) -> Result<(), TooLarge>;

    /// Removes a node, which is not chosen any more. Its queries in flight are forgotten.
    fn leave(&mut self, node: NodeId, now: Time);
}

punctual_units::named! {
    /// A balancer, by its name in files and options.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum BalancerKind by name {
        /// The key's node, unless it is behind the others.
        #[default]
        Home = "home",
        /// One node after the other.
        RoundRobin = "rr",
        /// In proportion to 1 / delay.
        Prop = "prop",
        /// In proportion to the bounds.
        FcProp = "fc-prop",
        /// Hashed, in proportion to the bounds.
        FcHash = "fc-hash",
        /// Power of two choices.
        P2c = "p2c",
        /// Hashed, with bounded loads.
        Bounded = "bounded",
    }
}

impl BalancerKind {
    /// Makes the balancer, without nodes.
    pub fn balancer(self) -> Box<dyn Balancer> {
        match self {
            BalancerKind::Home => Box::new(Home::default()),
            BalancerKind::RoundRobin => Box::new(RoundRobin::default()),
            BalancerKind::Prop => Box::new(Proportional::new(By::Delay)),
            BalancerKind::FcProp => Box::new(Proportional::new(By::Bound)),
            BalancerKind::FcHash => Box::new(FcHash::default()),
            BalancerKind::P2c => Box::new(PeakEwma::default()),
            BalancerKind::Bounded => Box::new(BoundedLoads::default()),
        }
    }
}

/// Maps a random number to a share, 0 included, 1 excluded.
fn unit(draw: u64) -> f64 {
    (draw >> 11) as f64 / (1u64 << 53) as f64
}

/// Maps a random number to `0..count`; `count` must be above 0.
pub fn below(draw: u64, count: usize) -> usize {
    ((u128::from(draw) * count as u128) >> 64) as usize
}

/// A pseudo-random number computed from another one: not for secrets.
pub fn mixed(number: u64) -> u64 {
    mix(number.wrapping_add(GOLDEN_GAMMA))
}

#[cfg(test)]
mod tests;
