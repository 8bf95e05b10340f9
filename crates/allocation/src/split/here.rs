//! A position in a run of a program, prepared for the many questions of one decision.

use crate::grid::Share;
use crate::table::RateTable;

/// Position in a run of a program, at one clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Here<'p> {
    rates: &'p RateTable,
    /// Seconds from the phase's end to the run's end at the top clock, by [`Grid::index`](crate::Grid::index).
    after: &'p [f64],
    /// Instructions left in the phase.
    left: f64,
    /// Instructions per second with everything, at the top clock.
    best: f64,
    /// Slowdown of the clock less 1; 0 at the top clock.
    slower: f64,
    /// Seconds by which the phase ends later than at the top clock.
    later: f64,
    /// Seconds by which the phases after it take longer than at the top clock.
    later_after: f64,
}

impl<'p> Here<'p> {
    /// Position `left` instructions before the end of a phase with these `rates`. `after`: seconds from there to the
    /// run's end, by [`Grid::index`](crate::Grid::index). The clock is `slowdown` times lower than the top one.
    pub fn new(rates: &'p RateTable, after: &'p [f64], left: f64, slowdown: f64) -> Here<'p> {
        let all = rates.grid().all();
        let (slower, best) = (slowdown - 1.0, f64::from(rates.rate(all)));
        Here {
            rates,
            after,
            left,
            best,
            slower,
            later: slower * left / best,
            later_after: slower * after[rates.grid().index(all)],
        }
    }

    /// Instructions per second at the top clock.
    fn rate(&self, share: Share) -> f64 {
        f64::from(self.rates.rate(share))
    }

    /// The rate over the phase's best at the top clock.
    pub fn speed(&self, share: Share) -> f64 {
        let rate = self.rate(share);
        rate / (self.best + self.slower * rate)
    }

    /// Seconds until the phase ends.
    pub fn phase_left(&self, share: Share) -> f64 {
        self.left / self.rate(share) + self.later
    }

    /// Seconds until the run ends.
    pub fn time_left(&self, share: Share) -> f64 {
        self.phase_left(share) + self.after[self.rates.grid().index(share)] + self.later_after
    }
}
