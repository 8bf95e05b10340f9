//! Distinguishes a process that hangs from one that was stopped together with its watcher.

use punctual_units::Nanos;

/// Measures how long a value has stayed the same while the watcher ran.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watchdog {
    value: u64,
    stayed: Nanos,
}

impl Watchdog {
    /// Compares the value, `since` after the last call; returns how long it has stayed the same. A late call counts at
    /// most `2 * every`: if a machine was suspended, or a terminal stopped all processes, the watched process had no
    /// time to run either.
    pub(super) fn look(&mut self, value: u64, since: Nanos, every: Nanos) -> Nanos {
        if value == self.value {
            self.stayed += since.min(every * 2);
        } else {
            *self = Watchdog {
                value,
                stayed: Nanos::ZERO,
            };
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
        watchdog.look(7, look, look);
        let stayed = (0..20).map(|_| watchdog.look(7, look, look)).last();
        assert_eq!(stayed, Some(Nanos::from_secs(2)));
        assert_eq!(watchdog.look(8, look, look), Nanos::ZERO);
        assert_eq!(watchdog.look(8, Nanos::from_secs(3600), look), look * 2);
    }
}
