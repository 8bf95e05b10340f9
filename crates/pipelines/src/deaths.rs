//! Counts the deaths of a stage's processes, to tell a broken stage from one whose processes are killed.
//!
//! **Problem.** A stage that dies at a frame dies again when the frame is repeated, and must end the pipeline in the
//! end. A stage whose processes are killed by an operator, or by the kernel for want of memory, must not, however often
//! that happens. **Method.** A death counts only if it came inside of a step, or before the process was ready for one.
//! It counts with those before it only if no step was done since, and if it came soon after the last of them: a process
//! that repeats a step dies, or is killed for standing still, within a known time.

use punctual_units::{Nanos, Time};

/// Deaths in a row of a stage's processes, of those that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deaths {
    /// Number of deaths in a row.
    pub count: u64,
    /// Steps that the stage had done at the last of them.
    pub steps: u64,
    /// When the last of them came.
    pub at: Time,
}

impl Deaths {
    /// The count after a death at `at`, of a stage that had done `steps`. `rested`: the process waited for frames.
    /// `window`: longest time from a death to the next one in a row.
    pub fn after(self, steps: u64, at: Time, rested: bool, window: Nanos) -> Deaths {
        if rested {
            return self;
        }
        let in_a_row = self.steps == steps && at.since(self.at) <= window;
        let count = if in_a_row { self.count + 1 } else { 1 };
        Deaths { count, steps, at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Nanos = Nanos::from_secs(26);

    #[test]
    fn ten_thousand_kills_of_an_idle_stage_in_a_day_are_no_deaths_in_a_row() {
        let between = Nanos::from_secs(24 * 3600).0 / 10_000;
        let mut deaths = Deaths::default();
        for kill in 0..10_000 {
            // Every hundredth kill finds a process that has just been woken and is about to look for a frame.
            deaths = deaths.after(40, Time(kill * between), kill % 100 != 7, WINDOW);
            assert!(deaths.count <= 1, "{deaths:?}");
        }
    }

    #[test]
    fn deaths_in_one_step_count_up_and_a_step_or_time_in_between_begins_anew() {
        let mut deaths = Deaths::default();
        for kill in 1..=5 {
            deaths = deaths.after(40, Time(kill * Nanos::from_secs(5).0), false, WINDOW);
            assert_eq!(deaths.count, kill);
        }
        assert_eq!(deaths.after(41, deaths.at, false, WINDOW).count, 1);
        assert_eq!(deaths.after(40, deaths.at + WINDOW, false, WINDOW).count, 6);
        assert_eq!(deaths.after(40, deaths.at + WINDOW + Nanos(1), false, WINDOW).count, 1);
    }
}
