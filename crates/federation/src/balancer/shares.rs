//! Policies that give each node a share of the queries: equal ones in turn, or by the state in the last period.

use super::{Balancer, NodeTable, Period, Query, QueryReply, TooLarge, unit};
use crate::ids::NodeId;
use punctual_units::Time;

/// The policy of equal shares, in turn.
#[derive(Clone, Debug, Default)]
pub struct RoundRobin {
    nodes: NodeTable<()>,
    next: usize,
}

impl Balancer for RoundRobin {
    fn choose(&mut self, _query: &Query, _now: Time) -> Option<NodeId> {
        let nodes = self.nodes.nodes();
        let at = if self.next < nodes.len() { self.next } else { 0 };
        self.next = at + 1;
        nodes.get(at).copied()
    }

    fn answered(&mut self, _node: NodeId, _answer: &QueryReply, _now: Time) {}

    fn join(&mut self, node: NodeId, _now: Time) -> Result<(), TooLarge> {
        self.nodes.join(node, ()).map(|_| ())
    }

    fn leave(&mut self, node: NodeId, _now: Time) {
        self.nodes.leave(node);
    }
}

/// The quantity that shares are proportional to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The inverse of the mean delay in the last period: the paper's Prop.
    Delay,
    /// The bound d_i: the paper's FC-Prop, f_i = d_i / sum d (equation 7).
    Bound,
}

impl By {
    /// Weight of a node; `None` if it is unknown or infinite. An infinite bound (no admission) gives no weight.
    pub(super) fn weight(self, said: &Period) -> Option<f64> {
        let weight = match self {
            By::Delay => 1.0 / said.delay?.as_secs_f64(),
            By::Bound => said.report.bound,
        };
        (weight.is_finite() && weight > 0.0).then_some(weight)
    }
}

/// The policy of random choice, in proportion to the weights at the last sampling point.
#[derive(Clone, Debug)]
pub struct Proportional {
    by: By,
    /// Weight of each node; `None` before its first report.
    weights: NodeTable<Option<f64>>,
    /// Sums of the weights up to and with each node.
    sums: Vec<f64>,
    /// Whether weights have changed: then the sums are recomputed before the next query.
    stale: bool,
}

impl Proportional {
    /// A policy without nodes yet.
    pub fn new(by: By) -> Proportional {
        Proportional {
            by,
            weights: NodeTable::default(),
            sums: Vec::new(),
            stale: false,
        }
    }

    /// Recomputes the sums. A node without a weight gets the mean of the others.
    fn add_up(&mut self) {
        let nodes = self.weights.nodes();
        let weight = |node: &NodeId| self.weights.get(*node).copied().flatten();
        let mean = punctual_units::mean(nodes.iter().filter_map(weight)).unwrap_or(1.0);
        let mut sum = 0.0;
        let sums = nodes.iter().map(|node| {
            sum += weight(node).unwrap_or(mean);
            sum
        });
        self.sums = sums.collect();
        self.stale = false;
    }
}

impl Balancer for Proportional {
    fn choose(&mut self, query: &Query, _now: Time) -> Option<NodeId> {
        if self.stale {
            self.add_up();
        }
        let at = unit(query.draw) * self.sums.last()?;
        let place = self.sums.partition_point(|sum| *sum <= at);
        let nodes = self.weights.nodes();
        nodes.get(place.min(nodes.len().checked_sub(1)?)).copied()
    }

    fn answered(&mut self, _node: NodeId, _answer: &QueryReply, _now: Time) {}

    fn period(&mut self, nodes: &[Period], _now: Time) {
        for said in nodes {
            let weight = self.by.weight(said);
            if let (Some(known), Some(weight)) = (self.weights.get_mut(said.node), weight) {
                *known = Some(weight);
            }
        }
        self.stale = true;
    }

    fn join(&mut self, node: NodeId, _now: Time) -> Result<(), TooLarge> {
        self.weights.join(node, None)?;
        self.stale = true;
        Ok(())
    }

    fn leave(&mut self, node: NodeId, _now: Time) {
        self.weights.leave(node);
        self.stale = true;
    }
}
