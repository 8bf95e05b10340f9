//! Power of two choices with a peak-sensitive moving average (Finagle's and linkerd's `PeakEwma`, tower's `p2c`).
//!
//! Of two random nodes it takes the one with the smaller product of latency and queries in flight. The latency is a
//! moving average over time that jumps up to a larger value at once. A refusal comes back faster than any answer; it is
//! left out of the average, or a node that refuses would look like the fastest one. That favours this policy.

use super::{Balancer, NodeTable, Query, QueryReply, TooLarge, below, mixed};
use crate::ids::NodeId;
use punctual_units::Time;

/// Time over which a latency fades to 1/e, as in Finagle.
pub const DECAY: punctual_units::Nanos = punctual_units::Nanos::from_secs(10);

#[derive(Clone, Copy, Debug, Default)]
struct NodeLatency {
    in_flight: u32,
    /// In seconds; `None` before the first answer.
    latency: Option<f64>,
    at: Time,
}

impl NodeLatency {
    /// Product of latency and queries in flight. A node without an answer so far is tried while nothing is in flight
    /// there.
    fn load(&self) -> f64 {
        match self.latency {
            Some(latency) => latency * f64::from(self.in_flight + 1),
            None if self.in_flight == 0 => 0.0,
            None => f64::INFINITY,
        }
    }

    fn hear(&mut self, latency: f64, now: Time) {
        self.latency = Some(match self.latency {
            Some(average) if latency < average => {
                let kept = (-now.since(self.at).ratio(DECAY)).exp();
                average * kept + latency * (1.0 - kept)
            }
            _ => latency,
        });
        self.at = now;
    }
}

#[derive(Clone, Debug, Default)]
pub struct PeakEwma {
    nodes: NodeTable<NodeLatency>,
}

impl Balancer for PeakEwma {
    fn choose(&mut self, query: &Query, _now: Time) -> Option<NodeId> {
        let nodes = self.nodes.nodes();
        let first = *nodes.get(below(query.draw, nodes.len()))?;
        let second = match nodes.len() {
            1 => first,
            // Any other node.
            count => {
                let other = below(mixed(query.draw), count - 1);
                if nodes[other] < first {
                    nodes[other]
                } else {
                    nodes[other + 1]
                }
            }
        };
        let load = |node| self.nodes.get(node).map_or(f64::INFINITY, NodeLatency::load);
        let node = if load(second) < load(first) { second } else { first };
        self.nodes.get_mut(node)?.in_flight += 1;
        Some(node)
    }

    fn answered(&mut self, node: NodeId, answer: &QueryReply, now: Time) {
        if let Some(known) = self.nodes.get_mut(node) {
            known.in_flight = known.in_flight.saturating_sub(1);
            if answer.late.is_none() {
                known.hear(answer.latency.as_secs_f64(), now);
            }
        }
    }

    fn join(&mut self, node: NodeId, _now: Time) -> Result<(), TooLarge> {
        self.nodes.join(node, NodeLatency::default()).map(|_| ())
    }

    fn leave(&mut self, node: NodeId, _now: Time) {
        self.nodes.leave(node);
    }
}
