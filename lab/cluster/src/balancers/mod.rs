//! The balancers of [`punctual_federation::balancer`], and one that a product's balancer cannot be, because it sends
//! probes: `prequal` ([`Prequal`]), the best of a pool of probes: not hot, then least latency (Google, 2024).

mod prequal;

use punctual_federation::balancer::{Balancer, BalancerKind, Query};
use punctual_federation::ids::NodeId;
use punctual_units::Time;

pub use prequal::{Prequal, Probe, ProbeMeter};

/// A balancer of an experiment, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BalancerChoice {
    /// One of the product's.
    Of(BalancerKind),
    /// Probes of load and latency.
    Prequal,
}

impl BalancerChoice {
    /// All balancers: the paper's, others', the project's own.
    pub const ALL: [BalancerChoice; 8] = [
        BalancerChoice::Of(BalancerKind::RoundRobin),
        BalancerChoice::Of(BalancerKind::Prop),
        BalancerChoice::Of(BalancerKind::FcProp),
        BalancerChoice::Of(BalancerKind::FcHash),
        BalancerChoice::Of(BalancerKind::P2c),
        BalancerChoice::Prequal,
        BalancerChoice::Of(BalancerKind::Bounded),
        BalancerChoice::Of(BalancerKind::Home),
    ];

    /// Name in tables and labels.
    pub fn name(self) -> &'static str {
        match self {
            BalancerChoice::Of(BalancerKind::Home) => "ours",
            BalancerChoice::Of(kind) => kind.name(),
            BalancerChoice::Prequal => "prequal",
        }
    }

    /// Makes the balancer, without nodes.
    pub fn balancer(self) -> Balancing {
        match self {
            BalancerChoice::Of(kind) => Balancing::Of(kind.balancer()),
            BalancerChoice::Prequal => Balancing::Prequal(Box::default()),
        }
    }
}

impl From<BalancerKind> for BalancerChoice {
    fn from(kind: BalancerKind) -> BalancerChoice {
        BalancerChoice::Of(kind)
    }
}

/// A balancer that may ask nodes how busy they are, apart from queries.
#[derive(Debug)]
pub enum Balancing {
    /// Without probes.
    Of(Box<dyn Balancer>),
    /// With probes.
    Prequal(Box<Prequal>),
}

impl Balancing {
    /// The policy that chooses nodes.
    pub fn policy(&mut self) -> &mut dyn Balancer {
        match self {
            Balancing::Of(balancer) => balancer.as_mut(),
            Balancing::Prequal(prequal) => prequal.as_mut(),
        }
    }

    /// Adds the nodes to probe because of this query to `asked`.
    pub fn probes(&mut self, query: &Query, asked: &mut Vec<NodeId>) {
        if let Balancing::Prequal(prequal) = self {
            prequal.probes(query, asked);
        }
    }

    /// Notes a node's answer to a probe.
    pub fn probed(&mut self, node: NodeId, probe: Probe, now: Time) {
        if let Balancing::Prequal(prequal) = self {
            prequal.probed(node, probe, now);
        }
    }
}

#[cfg(test)]
mod tests;
