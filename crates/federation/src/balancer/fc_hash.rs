//! FC-Hash of Chronos-C: a circle of which each node has the part f_i = d_i / sum d.
//!
//! As published: MD5, the least 32 bits of it, a circle of 2^32 - 1 points, H_i = f_i H points for node i (equation 8),
//! clockwise to the first point. Choices that the paper leaves open, and those made here:
//!
//! - *Which of a query's ids is hashed*: its key.
//! - *Number of points*: H points are four billion; here n nodes have 4096 n, at most [`POINTS_MAX`] in all, of which
//!   node i has the share f_i, at least one.
//! - *How points move when f_i changes*: the points of a node have an order (MD5 of its number and theirs). A node that
//!   gets more adds the next ones, one that gets fewer drops its last ones. So few keys move needlessly, and a node
//!   whose share comes back gets the same keys back.

use super::{Balancer, By, HashRing, NodeTable, Period, Query, QueryReply, TooLarge};
use crate::ids::NodeId;
use md5::{Digest, Md5};
use punctual_units::Time;

/// Most points of all nodes together: a sampling point sorts them.
pub const POINTS_MAX: usize = 1 << 20;
/// Mean number of points of a node, while there are few nodes.
const POINTS_EACH: usize = 4096;

/// Weight and points of one node.
#[derive(Clone, Debug, Default)]
struct Share {
    weight: Option<f64>,
    /// Positions of its points, in their order; as many as were needed so far.
    places: Vec<u32>,
}

/// The policy of Chronos-C.
#[derive(Clone, Debug, Default)]
pub struct FcHash {
    shares: NodeTable<Share>,
    ring: HashRing,
    /// Whether shares have changed: then the circle is rebuilt before the next query.
    stale: bool,
}

impl FcHash {
    fn rebuild(&mut self) {
        let nodes = self.shares.nodes().to_vec();
        let weight = |node: &NodeId| self.shares.get(*node).and_then(|share| share.weight);
        let mean = punctual_units::mean(nodes.iter().filter_map(weight)).unwrap_or(1.0);
        let weights: Vec<f64> = nodes.iter().map(|node| weight(node).unwrap_or(mean)).collect();
        let sum: f64 = weights.iter().sum();
        let all = (nodes.len() * POINTS_EACH).min(POINTS_MAX) as f64;
        let mut points = Vec::with_capacity(all as usize + nodes.len());
        for (node, weight) in nodes.iter().zip(weights) {
            let count = (weight / sum * all).round().max(1.0) as usize;
            if let Some(share) = self.shares.get_mut(*node) {
                share.grow(*node, count);
                points.extend(share.places.iter().take(count).map(|place| (*place, *node)));
            }
        }
        self.ring = HashRing::of(points);
        self.stale = false;
    }
}

impl Share {
    fn grow(&mut self, node: NodeId, count: usize) {
        for number in self.places.len()..count {
            self.places.push(least_32_bits(&[u64::from(node.0), number as u64]));
        }
    }
}

/// The least significant 32 bits of the MD5 of these numbers.
pub(super) fn least_32_bits(numbers: &[u64]) -> u32 {
    let mut hash = Md5::new();
    for number in numbers {
        hash.update(number.to_be_bytes());
    }
    let [.., a, b, c, d]: [u8; 16] = hash.finalize().into();
    u32::from_be_bytes([a, b, c, d])
}

impl Balancer for FcHash {
    fn choose(&mut self, query: &Query, _now: Time) -> Option<NodeId> {
        if self.stale {
            self.rebuild();
        }
        self.ring.from(least_32_bits(&[query.key])).next()
    }

    fn answered(&mut self, _node: NodeId, _answer: &QueryReply, _now: Time) {}

    fn period(&mut self, nodes: &[Period], _now: Time) {
        for said in nodes {
            let weight = By::Bound.weight(said);
            if let (Some(share), Some(_)) = (self.shares.get_mut(said.node), weight) {
                share.weight = weight;
            }
        }
        self.stale = true;
    }

    fn join(&mut self, node: NodeId, _now: Time) -> Result<(), TooLarge> {
        self.shares.join(node, Share::default())?;
        self.stale = true;
        Ok(())
    }

    fn leave(&mut self, node: NodeId, _now: Time) {
        self.shares.leave(node);
        self.stale = true;
    }
}
