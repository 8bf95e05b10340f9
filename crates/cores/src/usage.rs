//! Decides from its use whether an exclusive core is lent on.
//!
//! **Problem.** Lending costs a wake-up and a write for each job. Where borrowers have nothing to do, or the leases are
//! too short for the load balancer to bring a thread, the core stays idle. **Method.** In windows of time, the part of
//! the leases is compared in which the core ran something. After a window below [`USED_MIN`] the core is not lent: for
//! one window where the window before was used, since borrowers have their lulls; else for [`PAUSE_MIN`] windows, and
//! each time twice as long, up to [`PAUSE_MAX`]. Then it is lent for two windows again, to try: borrowers come and go.
//! The first of these is not judged, because the core was idle before its first lease.

use punctual_units::Nanos;

/// Least part of the leases that borrowers have to use, for lending to go on.
pub const USED_MIN: f64 = 0.8;
/// The first pause after leases that were not used, in windows: a trial is no more than a fifth of it.
pub const PAUSE_MIN: u32 = 8;
/// The longest pause, in windows.
pub const PAUSE_MAX: u32 = 256;

/// The state between windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Windows left until the core is lent again.
    pausing: u32,
    /// Length of the last pause, in windows; `None` since a window that was used.
    last_pause: Option<u32>,
    /// The last window had leases from its beginning, so the current one can be judged.
    under_way: bool,
}

impl Default for Usage {
    /// State of a core that has not been lent yet: its first pause is no lull.
    fn default() -> Usage {
        Usage {
            pausing: 0,
            last_pause: Some(0),
            under_way: false,
        }
    }
}

impl Usage {
    /// Judges a window in which the core was lent for `lent`, and ran nothing for `idle` (in leases or not). Returns
    /// whether to lend it in the next window.
    ///
    /// ```
    /// use punctual_cores::Usage;
    /// use punctual_units::Nanos;
    /// let ms = Nanos::from_millis;
    /// let mut usage = Usage::default();
    /// assert!(usage.step(ms(100), ms(90)), "the first window says nothing");
    /// assert!(usage.step(ms(100), ms(10)));
    /// assert!(!usage.step(ms(100), ms(90)), "a pause of one window, after one that was used");
    /// assert!(usage.step(ms(0), ms(150)), "over: it is tried again");
    /// ```
    pub fn step(&mut self, lent: Nanos, idle: Nanos) -> bool {
        if self.pausing > 0 {
            self.pausing -= 1;
        } else if lent > Nanos::ZERO && std::mem::replace(&mut self.under_way, true) {
            self.judge(lent.saturating_sub(idle).ratio(lent));
        }
        self.pausing == 0
    }

    fn judge(&mut self, used: f64) {
        if used >= USED_MIN {
            self.last_pause = None;
        } else {
            self.pausing = match self.last_pause {
                None => 1,
                Some(pause) => (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX),
            };
            self.last_pause = Some(self.pausing);
            self.under_way = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Windows, each lent where the step before said so, and then used in the part that `demand` says.
    fn lent(demand: impl Iterator<Item = f64>) -> Vec<bool> {
        let mut usage = Usage::default();
        let mut lending = true;
        demand
            .map(|used| {
                let was = lending;
                let leases = Nanos(if was { 1000 } else { 0 });
                lending = usage.step(leases, Nanos(1000 - (used * 1000.0) as u64));
                was
            })
            .collect()
    }

    #[test]
    fn what_nothing_uses_is_tried_ever_more_seldom() {
        let windows = lent(std::iter::repeat_n(0.0, 4000));
        let tried: Vec<usize> = (0..windows.len()).filter(|window| windows[*window]).collect();
        let pauses: Vec<usize> = tried.windows(2).map(|pair| pair[1] - pair[0] - 1).collect();
        // Each time it is tried for two windows, between which there is no pause.
        assert_eq!(pauses[..9], [0, 8, 0, 16, 0, 32, 0, 64, 0]);
        assert_eq!(pauses[9..].iter().copied().max(), Some(PAUSE_MAX as usize));
    }

    #[test]
    fn a_lull_costs_one_window() {
        let demand = [0.9, 0.9, 0.9, 0.1, 0.9, 0.9, 0.9, 0.9];
        assert_eq!(
            lent(demand.into_iter()),
            [true, true, true, true, false, true, true, true]
        );
    }

    proptest! {
        /// A core that lendees use is always lent; one that they begin to use is lent after one pause at most.
        #[test]
        fn demand_is_met(idle_windows in 0usize..3000, used in USED_MIN..=1.0) {
            let demand = std::iter::repeat_n(0.0, idle_windows).chain(std::iter::repeat_n(used + 0.001, 600));
            let windows = lent(demand.map(|used| used.min(1.0)));
            let met = windows[idle_windows..].iter().position(|lent| *lent);
            prop_assert!(met.is_some_and(|after| after <= PAUSE_MAX as usize), "{:?}", met);
            let since = idle_windows + met.unwrap_or(0);
            prop_assert!(windows[since..].iter().all(|lent| *lent));
        }

        /// Windows without leases say nothing.
        #[test]
        fn a_window_without_leases_changes_nothing(idle in 0u64..1000) {
            let mut usage = Usage::default();
            prop_assert!(usage.step(Nanos::ZERO, Nanos(idle)));
            prop_assert_eq!(usage, Usage::default());
        }
    }
}
