//! Where a run's phases begin: windows of one kind in a row.
//!
//! **Problem.** A profile by window has hundreds of windows, and in each a rate for each share. The fifth paper
//! (section IV) observes a program by three counters over equal times (instructions, requests to the last-level cache,
//! misses) under every share, clusters all observations together, and takes a run of one cluster for a phase. Under
//! another share a program may have other phases.
//!
//! **Method.** The same: an observation is a window under a share, by its instructions, requests and misses *per
//! second*. There are too many to fit every one (400 shares of 1000 windows), so kinds are learnt from a seeded sample;
//! then every window is labelled under every share. Joint phases begin wherever the label changes under any share.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::course::Course;
use super::windows::Windows;
use crate::cluster::{Choice, ClusteringSettings, Points, Scale, choose};
use crate::grid::{Grid, Share};

/// Observations that kinds are learnt from.
const OBSERVATIONS_MAX: usize = 1000;

/// Kinds of behaviour of one program, and the kind of each window under each share.
#[derive(Clone, Debug, PartialEq)]
pub struct Kinds {
    /// All candidates, and the one that was chosen.
    pub choice: Choice,
    grid: Grid,
    /// By window, and then in the order of [`Grid::index`].
    labels: Vec<usize>,
}

impl Kinds {
    /// Learns the kinds of behaviour in `windows`, which take as long as `course` says. `None` where all are alike.
    pub(super) fn learn(windows: &Windows, course: &Course, settings: &ClusteringSettings) -> Option<Kinds> {
        let grid = course.grid();
        let all = windows.windows().len() * grid.len();
        let observation = |number: usize| observation(windows, course, number / grid.len(), number % grid.len());
        let sample = sample(all, OBSERVATIONS_MAX, settings.seed);
        let points = Points::new(3, sample.into_iter().flat_map(observation).collect());
        let scale = Scale::of(&points);
        let choice = choose(&scale.apply(&points), settings)?;
        let mixture = &choice.best().fit.mixture;
        let label = |number| mixture.label(&scale.scaled(&observation(number)).collect::<Vec<f64>>());
        let labels = (0..all).map(label).collect();
        Some(Kinds { choice, grid, labels })
    }

    /// The kind of each window with `share`.
    pub fn labels(&self, share: Share) -> impl Iterator<Item = usize> {
        let first = self.grid.index(share);
        self.labels.iter().skip(first).step_by(self.grid.len()).copied()
    }

    /// How many phases a run with `share` has: runs of windows of one kind.
    pub fn phases(&self, share: Share) -> usize {
        let labels: Vec<usize> = self.labels(share).collect();
        labels.chunk_by(|a, b| a == b).count()
    }

    /// The last window of each joint phase.
    pub(super) fn lasts(&self) -> Vec<usize> {
        let windows: Vec<&[usize]> = self.labels.chunks_exact(self.grid.len()).collect();
        (0..windows.len())
            .filter(|i| windows.get(i + 1) != Some(&windows[*i]))
            .collect()
    }
}

/// Instructions, requests and misses per second.
fn observation(windows: &Windows, course: &Course, window: usize, share: usize) -> [f64; 3] {
    let seconds = course.seconds(window)[share];
    let way = share / usize::from(course.grid().partitions);
    let window = &windows.windows()[window];
    [window.instructions, window.requests, window.misses[way]].map(|count| count as f64 / seconds)
}

/// At most `most` of the numbers below `all`, each at most once, in the order in which they were drawn.
fn sample(all: usize, most: usize, seed: u64) -> Vec<usize> {
    if all <= most {
        return (0..all).collect();
    }
    let mut draws = ChaCha8Rng::seed_from_u64(seed);
    // Floyd's: the i-th draw is among one more number than the draw before, and a number that is taken gives way to the
    // new one.
    let mut drawn = std::collections::BTreeSet::new();
    let mut order = Vec::with_capacity(most);
    for newest in all - most..all {
        let number = draws.random_range(0..=newest);
        let number = if drawn.contains(&number) { newest } else { number };
        drawn.insert(number);
        order.push(number);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_takes_nothing_twice() {
        let mut drawn = sample(5000, 1000, 7);
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 1000);
        assert!(drawn.iter().all(|number| *number < 5000));
        assert!(drawn.first() < Some(&100) && drawn.last() > Some(&4900));
        assert_eq!(sample(3, 1000, 7), [0, 1, 2]);
    }
}
