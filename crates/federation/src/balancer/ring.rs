//! A circle of points, each a node's: consistent hashing (D. Karger et al., "Consistent Hashing and Random Trees",
//! STOC 1997).

use crate::ids::NodeId;

/// Points by position; a key belongs to the first point at or after its own position.
#[derive(Clone, Debug, Default)]
pub(super) struct HashRing {
    points: Vec<(u32, NodeId)>,
}

impl HashRing {
    /// A circle of these points. If two have one position, the node of the lower number keeps it.
    pub(super) fn of(points: impl IntoIterator<Item = (u32, NodeId)>) -> HashRing {
        let mut points: Vec<(u32, NodeId)> = points.into_iter().collect();
        points.sort_unstable();
        points.dedup_by_key(|point| point.0);
        HashRing { points }
    }

    /// The nodes from `place` on around the circle, each as often as it has points.
    pub(super) fn from(&self, place: u32) -> impl Iterator<Item = NodeId> + '_ {
        let first = self.points.partition_point(|point| point.0 < place);
        let (before, after) = self.points.split_at(first);
        after.iter().chain(before).map(|point| point.1)
    }
}
