//! Distinguishes a process that stands still from one that waits for frames, and from one that was stopped together
//! with its watcher.

use punctual_units::{Nanos, Time};

/// OwnerActivity of the process that owns a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerActivity {
    /// Starts, reads the state, or repeats the steps since the state was saved.
    Starts = 0,
    /// Executes a step, or looks whether it can.
    Steps = 1,
    /// Waits for frames or for room. It looks again from time to time, which renews its beat.
    Rests = 2,
}

/// Last sign of life of the process that owns a stage, packed into one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beat {
    /// When the activity began, in steps of 4 ns.
    pub(super) at: Time,
    pub(super) activity: OwnerActivity,
}

impl Beat {
    pub(super) fn word(at: Time, activity: OwnerActivity) -> u64 {
        at.0 & !3 | activity as u64
    }

    pub(super) fn of(word: u64) -> Beat {
        let activity = match word & 3 {
            0 => OwnerActivity::Starts,
            1 => OwnerActivity::Steps,
            _ => OwnerActivity::Rests,
        };
        Beat {
            at: Time(word & !3),
            activity,
        }
    }
}

/// Measures how long a value has stayed the same while the watcher ran.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watchdog {
    value: u64,
    stayed: Nanos,
}

impl Watchdog {
    /// Compares a value that was set `ago`, `since` after the last call; returns how long it has stayed the same. A
    /// late call counts at most `2 * every`: if a machine was suspended, or a terminal stopped all processes, the
    /// watched process had no time to run either.
    pub(super) fn look(&mut self, value: u64, ago: Nanos, since: Nanos, every: Nanos) -> Nanos {
        let since = since.min(every * 2);
        if value == self.value {
            self.stayed += since;
        } else {
            let stayed = ago.min(since);
            *self = Watchdog { value, stayed };
        }
        self.stayed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_stays_is_told_and_a_suspend_counts_as_one_look() {
        let (mut watchdog, look) = (Watchdog::default(), Nanos::from_millis(100));
        watchdog.look(7, Nanos::ZERO, look, look);
        let stayed = (0..20).map(|_| watchdog.look(7, look, look, look)).last();
        assert_eq!(stayed, Some(Nanos::from_secs(2)));
        assert_eq!(watchdog.look(8, Nanos::ZERO, look, look), Nanos::ZERO);
        assert_eq!(watchdog.look(8, look, Nanos::from_secs(3600), look), look * 2);
        // Set between two looks.
        assert_eq!(watchdog.look(9, look * 3, look, look), look);
        assert_eq!(watchdog.look(10, look, Nanos::from_secs(3600), look), look);
    }

    #[test]
    fn a_beat_fits_into_a_word() {
        for activity in [OwnerActivity::Starts, OwnerActivity::Steps, OwnerActivity::Rests] {
            let at = Time(1_234_567_896);
            assert_eq!(Beat::of(Beat::word(at, activity)), Beat { at, activity });
        }
    }
}
