//! How long a law is left alone after its model was found wrong.
//!
//! The watcher sees that a loop misbehaves, and in fallback the loop is no more, so nothing can be learnt there about
//! whether the model has become right again (the disturbance has gone, the workload is back in its range). The loop has
//! to try. Each try may cost late jobs, so the pauses between them double, as in any protocol that meets trouble again
//! and again. A law that then does well for long starts from the shortest pause once more.

/// Windows of the first pause.
pub(super) const PAUSE_MIN: u32 = 20;
/// Windows of the longest pause: with the few windows that a wrong model needs to be noticed, the loop is then in
/// fallback for well over nine tenths of the time.
pub(super) const PAUSE_MAX: u32 = 1280;
/// A law that ran for this number of pauses without doubt is trusted as at first.
const TRUSTED_AFTER: u32 = 10;

/// The pause in force, and what the next one will be.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Distrust {
    /// Why the law is paused.
    reason: Option<String>,
    /// Windows left of the pause.
    left: u32,
    /// Windows of the last pause; 0 before the first.
    last: u32,
    /// Windows that the law has run since the pause.
    ran: u32,
}

impl Distrust {
    /// Takes a window: its doubt of the model, if any, and whether the law ran in it. Returns why the law is to pause,
    /// if it is.
    pub(super) fn next(&mut self, doubt: Option<String>, ran: bool) -> Option<String> {
        if let Some(reason) = doubt {
            let trusted = self.last == 0 || self.ran >= self.last.saturating_mul(TRUSTED_AFTER);
            self.last = if trusted {
                PAUSE_MIN
            } else {
                (self.last * 2).min(PAUSE_MAX)
            };
            (self.left, self.ran, self.reason) = (self.last, 0, Some(reason));
        } else if self.left > 0 {
            self.left -= 1;
        } else if ran {
            self.ran = self.ran.saturating_add(1);
        }
        self.reason.clone().filter(|_| self.left > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows until the law may run again.
    fn pause(distrust: &mut Distrust) -> u32 {
        let doubt = Some("swings".to_string());
        assert_eq!(distrust.next(doubt.clone(), true), doubt);
        (1..).find(|_| distrust.next(None, false).is_none()).unwrap()
    }

    #[test]
    fn pauses_double_up_to_a_bound_and_start_over_after_a_long_good_run() {
        let mut distrust = Distrust::default();
        let pauses: Vec<u32> = (0..9).map(|_| pause(&mut distrust)).collect();
        assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1280, 1280, 1280]);
        for _ in 0..PAUSE_MAX * TRUSTED_AFTER {
            assert_eq!(distrust.next(None, true), None);
        }
        assert_eq!(pause(&mut distrust), PAUSE_MIN);
        for _ in 0..PAUSE_MIN * TRUSTED_AFTER - 1 {
            distrust.next(None, true);
        }
        assert_eq!(pause(&mut distrust), 2 * PAUSE_MIN);
    }
}
