//! How a run goes under every share at once: stretches of progress, and how long each takes.

use crate::grid::{Grid, Share};

/// Stretches of progress ("pieces") short enough that under every share the rate is constant in each.
///
/// This is what a profile's file says in full; [`super::Profile`] is its summary for an allocator.
#[derive(Clone, Debug, PartialEq)]
pub struct Course {
    grid: Grid,
    instructions: f64,
    /// Progress at each piece's end, growing; the last is 1.
    ends: Vec<f64>,
    /// Seconds that a piece takes, by piece and then in the order of [`Grid::index`].
    seconds: Vec<f64>,
}

impl Course {
    /// A course of pieces that end at `ends` and take `seconds`, by piece and then by share.
    pub(super) fn new(grid: Grid, instructions: f64, ends: Vec<f64>, seconds: Vec<f64>) -> Course {
        debug_assert_eq!(seconds.len(), ends.len() * grid.len());
        Course {
            grid,
            instructions,
            ends,
            seconds,
        }
    }

    /// Grid of all shares.
    pub fn grid(&self) -> Grid {
        self.grid
    }

    /// Instructions of a whole run under the largest share.
    pub fn instructions(&self) -> f64 {
        self.instructions
    }

    /// Number of pieces of the run.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is nothing to run.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Progress at each piece's end, in (0, 1].
    pub fn ends(&self) -> &[f64] {
        &self.ends
    }

    /// Length of `piece`, as a share of the run.
    pub fn length(&self, piece: usize) -> f64 {
        self.ends[piece] - if piece == 0 { 0.0 } else { self.ends[piece - 1] }
    }

    /// Seconds of `piece` under each share, in the order of [`Grid::index`].
    pub fn seconds(&self, piece: usize) -> &[f64] {
        let shares = self.grid.len();
        &self.seconds[piece * shares..(piece + 1) * shares]
    }

    /// Rate in `piece` with `share`, in instructions per second, as of a run that is as long as one under the largest
    /// share: shares are compared by progress per second, whatever more a program executes under them.
    pub fn rate(&self, piece: usize, share: Share) -> f64 {
        self.length(piece) * self.instructions / self.seconds(piece)[self.grid.index(share)]
    }

    /// Seconds of a whole run with `share` all along.
    pub fn duration(&self, share: Share) -> f64 {
        let share = self.grid.index(share);
        self.seconds.iter().skip(share).step_by(self.grid.len()).sum()
    }

    /// Joins pieces: the k-th new piece holds those after the (k-1)-th of `lasts`, up to and with the k-th. A new piece
    /// takes as long as its parts, so the time of a whole run does not change.
    ///
    /// # Panics
    /// If `lasts` does not grow, or names a piece that is not there.
    #[must_use]
    pub(super) fn joined(&self, lasts: &[usize]) -> Course {
        let mut seconds = Vec::with_capacity(lasts.len() * self.grid.len());
        let mut first = 0;
        for last in lasts {
            let mut sum = self.seconds(first).to_vec();
            for piece in first + 1..=*last {
                for (sum, part) in sum.iter_mut().zip(self.seconds(piece)) {
                    *sum += part;
                }
            }
            seconds.append(&mut sum);
            first = last + 1;
        }
        let ends = lasts.iter().map(|last| self.ends[*last]).collect();
        Course::new(self.grid, self.instructions, ends, seconds)
    }
}
