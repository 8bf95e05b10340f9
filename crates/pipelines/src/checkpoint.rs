//! The words that the process of a stage reads between two steps.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::control::Control;

/// References to the words that say whether the owner of a stage continues. Resolved once, so that a look costs three
/// loads.
#[derive(Clone, Copy, Debug)]
pub struct Checkpoint<'m> {
    /// The stage's control word.
    pub control: &'m AtomicU64,
    /// Not zero once the pipeline is ending.
    pub end: &'m AtomicU64,
    /// Not zero while the owner has an extra request to serve; the caller defines the word's meaning.
    pub besides: &'m AtomicU64,
}

/// Answer that a process gets at a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointAnswer {
    /// Continue with the next step.
    GoesOn,
    /// Yield the stage to another process.
    Yields,
    /// End the process, because the pipeline ends.
    Ends,
    /// Serve the request in this word once, then continue.
    Besides(u64),
}

impl Checkpoint<'_> {
    /// Answer for the process in `slot`. Yielding comes first, then ending, then a request, which is cleared.
    #[inline]
    pub fn look(&self, slot: u8) -> CheckpointAnswer {
        if !Control::of(self.control.load(Ordering::Acquire)).runs(slot) {
            return CheckpointAnswer::Yields;
        }
        if self.end.load(Ordering::Acquire) != 0 {
            return CheckpointAnswer::Ends;
        }
        match self.besides.load(Ordering::Relaxed) {
            0 => CheckpointAnswer::GoesOn,
            _ => CheckpointAnswer::Besides(self.besides.swap(0, Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_told_once_and_giving_away_comes_first() {
        let held = Control::held(1, 7);
        let [control, end, besides] = [held.word(), 0, 5].map(AtomicU64::new);
        let checkpoint = Checkpoint {
            control: &control,
            end: &end,
            besides: &besides,
        };
        assert_eq!(checkpoint.look(1), CheckpointAnswer::Besides(5));
        assert_eq!(checkpoint.look(1), CheckpointAnswer::GoesOn);
        assert_eq!(
            checkpoint.look(2),
            CheckpointAnswer::Yields,
            "another slot has the stage"
        );
        end.store(1, Ordering::Relaxed);
        assert_eq!(checkpoint.look(1), CheckpointAnswer::Ends);
        let asked = held.ask(2).map_or(0, Control::word);
        control.store(asked, Ordering::Relaxed);
        assert_eq!(checkpoint.look(1), CheckpointAnswer::Yields);
    }
}
