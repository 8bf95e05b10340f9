//! A circle of points, each a node's: consistent hashing (D. Karger et al., "Consistent Hashing and Random Trees",
//! STOC 1997).

use super::mixed;
use crate::ids::NodeId;

/// Points by position; a key belongs to the first point at or after its own position.
#[derive(Clone, Debug, Default)]
pub struct HashRing {
    points: Vec<(u32, NodeId)>,
}

impl HashRing {
    /// A circle of these points. If two have one position, the node of the lower number keeps it.
    pub fn of(points: impl IntoIterator<Item = (u32, NodeId)>) -> HashRing {
        let mut points: Vec<(u32, NodeId)> = points.into_iter().collect();
        points.sort_unstable();
        points.dedup_by_key(|point| point.0);
        HashRing { points }
    }

    /// A circle on which each node has as many points as `points` returns.
    pub fn with_points(nodes: &[NodeId], points: impl Fn(NodeId) -> u64) -> HashRing {
        let of = |node: &NodeId| {
            let node = *node;
            let place = move |number| (place(mixed(u64::from(node.0)) ^ number), node);
            (0..points(node)).map(place)
        };
        HashRing::of(nodes.iter().flat_map(of))
    }

    /// The nodes from `place` on around the circle, each as often as it has points.
    pub fn from(&self, place: u32) -> impl Iterator<Item = NodeId> + '_ {
        let first = self.points.partition_point(|point| point.0 < place);
        let (before, after) = self.points.split_at(first);
        after.iter().chain(before).map(|point| point.1)
    }
}

/// Position of a number on the circle.
pub fn place(number: u64) -> u32 {
    (mixed(number) >> 32) as u32
}
