//! Fewer pieces: which neighbours to take for one.
//!
//! **Problem.** An allocator looks at every place where some share's rate changes; a measured profile has thousands of them,
//! most of them small. At most so many may stay.
//!
//! **Method.** Ward's (Hierarchical grouping to optimize an objective function, JASA 58, 1963), among neighbours only: again
//! and again the two neighbours are merged that cost the least, where the cost of a grouping is the variance of
//! the rates' logarithms around their group's mean, summed over shares and weighted by progress. Logarithms, because an error
//! of a rate matters in proportion to it.

use super::course::Course;

/// The last pieces of at most `most` groups of neighbours.
pub(super) fn groups(course: &Course, most: usize) -> Vec<usize> {
    let mut neighbours = Neighbours::new(course);
    for _ in most.max(1)..course.len() {
        neighbours.merge_cheapest();
    }
    neighbours.lasts()
}

/// Groups in order of progress, each known by its last piece.
struct Neighbours {
    groups: Vec<Option<Group>>,
    /// What it costs to merge a group with the next one; infinite where either is not there.
    costs: Vec<f64>,
}

struct Group {
    /// Of progress.
    length: f64,
    /// Mean logarithm of the rate under each share.
    means: Vec<f64>,
}

impl Neighbours {
    fn new(course: &Course) -> Neighbours {
        let group = |piece| {
            let length = course.length(piece);
            let paces = course.seconds(piece).iter();
            Some(Group {
                length,
                means: paces.map(|seconds| (length / seconds).ln()).collect(),
            })
        };
        let mut neighbours = Neighbours {
            groups: (0..course.len()).map(group).collect(),
            costs: vec![f64::INFINITY; course.len()],
        };
        for piece in 0..course.len().saturating_sub(1) {
            neighbours.costs[piece] = neighbours.cost(piece, piece + 1);
        }
        neighbours
    }

    /// By how much the variance grows if two groups become one.
    fn cost(&self, a: usize, b: usize) -> f64 {
        let (Some(a), Some(b)) = (&self.groups[a], &self.groups[b]) else {
            return f64::INFINITY;
        };
        let apart: f64 = a.means.iter().zip(&b.means).map(|(a, b)| (a - b) * (a - b)).sum();
        a.length * b.length / (a.length + b.length) * apart
    }

    /// Of equally cheap ones the first, so that the outcome is always the same.
    fn merge_cheapest(&mut self) {
        let cheapest = (0..self.costs.len()).min_by(|a, b| self.costs[*a].total_cmp(&self.costs[*b]));
        let Some(first) = cheapest else { return };
        let Some(second) = self.after(first) else { return };
        let (Some(a), Some(b)) = (self.groups[first].take(), &mut self.groups[second]) else {
            return;
        };
        let length = a.length + b.length;
        for (mean, other) in b.means.iter_mut().zip(&a.means) {
            *mean = (a.length * other + b.length * *mean) / length;
        }
        b.length = length;
        self.costs[first] = f64::INFINITY;
        if let Some(before) = self.groups[..first].iter().rposition(Option::is_some) {
            self.costs[before] = self.cost(before, second);
        }
        self.costs[second] = self
            .after(second)
            .map_or(f64::INFINITY, |after| self.cost(second, after));
    }

    fn after(&self, group: usize) -> Option<usize> {
        let later = self.groups[group + 1..].iter().position(Option::is_some);
        later.map(|distance| group + 1 + distance)
    }

    fn lasts(&self) -> Vec<usize> {
        (0..self.groups.len())
            .filter(|piece| self.groups[*piece].is_some())
            .collect()
    }
}
