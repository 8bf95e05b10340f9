//! Fewer pieces: which neighbours to merge.
//!
//! **Problem.** An allocator looks at every place where some share's rate changes. A measured profile has thousands of
//! them, most of them small; only a bounded number may stay.
//!
//! **Method.** Ward's (Hierarchical grouping to optimize an objective function, JASA 58, 1963), among neighbours only:
//! it merges again and again the two neighbours that cost the least. The cost of a grouping is the variance of the
//! rates' logarithms around their group's mean, summed over shares and weighted by progress. Logarithms, because an
//! error of a rate matters in proportion to it.

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
    /// Cost of merging a group with the next one; infinite where either does not exist.
    costs: Vec<f64>,
}

struct Group {
    /// Part of the run, 0..=1.
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

    /// Merges the cheapest pair; of equally cheap ones the first, so that the outcome is always the same.
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

#[cfg(test)]
mod tests {
    use super::super::{ProfileOptions, ProfileRecording};
    use super::*;
    use crate::grid::Grid;

    /// Sums of weighted logarithms and of their squares before each piece: the variance of any group is a difference of
    /// them.
    struct Sums {
        length: Vec<f64>,
        logarithms: Vec<Vec<f64>>,
        squares: Vec<f64>,
    }

    impl Sums {
        fn of(course: &Course) -> Sums {
            let mut sums = Sums {
                length: vec![0.0],
                logarithms: vec![vec![0.0; course.grid().len()]],
                squares: vec![0.0],
            };
            for piece in 0..course.len() {
                let length = course.length(piece);
                let mut logarithms = sums.logarithms[piece].clone();
                let mut square = sums.squares[piece];
                for (sum, seconds) in logarithms.iter_mut().zip(course.seconds(piece)) {
                    let logarithm = (length / seconds).ln();
                    *sum += length * logarithm;
                    square += length * logarithm * logarithm;
                }
                sums.length.push(sums.length[piece] + length);
                sums.logarithms.push(logarithms);
                sums.squares.push(square);
            }
            sums
        }

        /// Of the pieces from `first` to before `end`.
        fn variance(&self, first: usize, end: usize) -> f64 {
            let pairs = self.logarithms[end].iter().zip(&self.logarithms[first]);
            let square: f64 = pairs.map(|(end, first)| (end - first) * (end - first)).sum();
            self.squares[end] - self.squares[first] - square / (self.length[end] - self.length[first])
        }

        fn cost(&self, lasts: &[usize]) -> f64 {
            let mut first = 0;
            let each = lasts.iter().map(|last| {
                let variance = self.variance(first, last + 1);
                first = last + 1;
                variance
            });
            each.sum()
        }

        /// The least cost of `most` groups, by dynamic programming (Fisher, JASA 53, 1958).
        fn least(&self, most: usize) -> f64 {
            let pieces = self.squares.len() - 1;
            let mut least: Vec<f64> = (0..=pieces)
                .map(|end| if end == 0 { f64::INFINITY } else { self.variance(0, end) })
                .collect();
            for _ in 1..most {
                least = (0..=pieces)
                    .map(|end| {
                        let split = (1..end).map(|first| least[first] + self.variance(first, end));
                        split.fold(least[end], f64::min)
                    })
                    .collect();
            }
            least[pieces]
        }
    }

    /// Merging step by step is not optimal; how far from it, on the profile that takes most from merging.
    #[test]
    fn merging_is_near_the_best_grouping() {
        let bytes = include_bytes!("../../../../../data/profiles/ocean.scaled.csv");
        let ProfileRecording::Windows(windows) = ProfileRecording::read("ocean.scaled.csv", bytes, None).unwrap()
        else {
            panic!("by window")
        };
        // A few shares and every other window are enough to tell, and quick without optimisation.
        let course = windows.coarser(120).course(&ProfileOptions::default().timing, 3);
        assert_eq!(
            course.grid(),
            Grid {
                ways: 20,
                partitions: 3
            }
        );
        let sums = Sums::of(&course);
        for most in [2, 8, 24, 64] {
            let (ours, least) = (sums.cost(&groups(&course, most)), sums.least(most));
            println!(
                "{most} groups of {}: variance {ours:.4}, at least {least:.4}",
                course.len()
            );
            assert!(ours >= least - 1e-9 && ours <= 1.25 * least, "{ours} {least}");
        }
    }

    #[test]
    fn as_many_groups_as_pieces_are_the_pieces() {
        let grid = Grid { ways: 1, partitions: 2 };
        let course = Course::new(grid, 10.0, vec![0.2, 0.5, 1.0], vec![1.0, 1.0, 3.0, 3.1, 3.0, 3.0]);
        assert_eq!(groups(&course, 9), [0, 1, 2]);
        assert_eq!(groups(&course, 3), [0, 1, 2]);
        // The second and the third run at rates that are least apart.
        assert_eq!(groups(&course, 1), [2]);
    }
}
