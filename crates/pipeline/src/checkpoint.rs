//! What the process of a stage looks at between two steps.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::control::Control;

/// The words that say whether the process that has a stage goes on: looked up once, so that a look is three loads.
#[derive(Clone, Copy, Debug)]
pub struct Checkpoint<'m> {
    /// The stage's control word.
    pub control: &'m AtomicU64,
    /// Not zero once the pipeline ends.
    pub end: &'m AtomicU64,
    /// Not zero where the process is to do something besides; the word of the caller.
    pub besides: &'m AtomicU64,
}

/// What a process is told at a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// To go on.
    GoesOn,
    /// To yield the stage.
    Yields,
    /// To end.
    Ends,
    /// To do what this word says, once, and go on.
    Besides(u64),
}

impl Checkpoint<'_> {
    /// What the process in `slot` is told.
    #[inline]
    pub fn look(&self, slot: u8) -> Told {
        if !Control::of(self.control.load(Ordering::Acquire)).runs(slot) {
            return Told::Yields;
        }
        if self.end.load(Ordering::Acquire) != 0 {
            return Told::Ends;
        }
        match self.besides.load(Ordering::Relaxed) {
            0 => Told::GoesOn,
            _ => Told::Besides(self.besides.swap(0, Ordering::Relaxed)),
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
        assert_eq!(checkpoint.look(1), Told::Besides(5));
        assert_eq!(checkpoint.look(1), Told::GoesOn);
        assert_eq!(checkpoint.look(2), Told::Yields, "another slot has the stage");
        end.store(1, Ordering::Relaxed);
        assert_eq!(checkpoint.look(1), Told::Ends);
        let asked = held.ask(2).map_or(0, Control::word);
        control.store(asked, Ordering::Relaxed);
        assert_eq!(checkpoint.look(1), Told::Yields);
    }
}
