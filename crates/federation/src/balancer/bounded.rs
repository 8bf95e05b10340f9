//! Consistent hashing with bounded loads (V. Mirrokni, M. Thorup and M. Zadimoghaddam, "Consistent Hashing with Bounded
//! Loads", SODA 2018): the key's node, or the next one on the circle that has fewer than 1.25 times the mean number of
//! queries in flight. As in HAProxy's `hash-balance-factor`, with its usual 125 %.

use super::{Balancer, HashRing, NodeTable, Query, QueryReply, TooLarge, place};
use crate::ids::NodeId;
use punctual_units::Time;

/// Greatest ratio of a node's queries in flight to the mean.
pub const BOUND: f64 = 1.25;
/// Points of a node on the circle.
const POINTS: u64 = 128;

/// The policy of bounded loads.
#[derive(Clone, Debug, Default)]
pub struct BoundedLoads {
    in_flight: NodeTable<u32>,
    all: u64,
    ring: HashRing,
    /// Whether nodes have come or gone: then the circle is rebuilt before the next query.
    stale: bool,
}

impl Balancer for BoundedLoads {
    fn choose(&mut self, query: &Query, _now: Time) -> Option<NodeId> {
        let nodes = self.in_flight.nodes().len();
        if nodes == 0 {
            return None;
        }
        if self.stale {
            self.ring = HashRing::with_points(self.in_flight.nodes(), |_| POINTS);
            self.stale = false;
        }
        let most = (BOUND * (self.all + 1) as f64 / nodes as f64).ceil() as u32;
        let room = |node: &NodeId| self.in_flight.get(*node).is_some_and(|count| *count < most);
        // At least one node is below the mean, so the walk ends.
        let node = self.ring.from(place(query.key)).find(room)?;
        *self.in_flight.get_mut(node)? += 1;
        self.all += 1;
        Some(node)
    }

    fn answered(&mut self, node: NodeId, _answer: &QueryReply, _now: Time) {
        if let Some(count) = self.in_flight.get_mut(node).filter(|count| **count > 0) {
            *count -= 1;
            self.all -= 1;
        }
    }

    fn join(&mut self, node: NodeId, _now: Time) -> Result<(), TooLarge> {
        self.in_flight.join(node, 0)?;
        self.stale = true;
        Ok(())
    }

    fn leave(&mut self, node: NodeId, _now: Time) {
        self.all -= u64::from(self.in_flight.get(node).copied().unwrap_or(0));
        self.in_flight.leave(node);
        self.stale = true;
    }
}
