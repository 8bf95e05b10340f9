//! Reasons why a stage cannot continue, or why a process does not take it over, written before a process ends.

use std::sync::atomic::{AtomicU64, Ordering};

use super::shared::{Note, Segment};
use crate::LAST_WORDS_MAX;
use crate::region::{load_bytes, store_bytes};

/// Value while a process writes, or after it died while writing.
const CLAIMED: u64 = u64::MAX;

impl Segment {
    /// Records why a stage cannot continue; of several that fail at once, only one is recorded.
    pub(super) fn say_last(&self, stage: usize, why: &str) {
        let words = self.layout.last_words(&self.region);
        let claimed = words[0].compare_exchange(0, CLAIMED, Ordering::AcqRel, Ordering::Relaxed);
        if claimed.is_err() {
            return;
        }
        let end = why.len().min(LAST_WORDS_MAX);
        store_bytes(&words[1..], &why.as_bytes()[..end]);
        words[0].store((stage as u64 + 1) << 32 | end as u64, Ordering::Release);
    }

    /// Records why a process does not take over a stage; the latest reason counts.
    pub(super) fn refuse(&self, stage: usize, why: &str) {
        let (words, end) = (self.layout.refusal(&self.region), why.len().min(LAST_WORDS_MAX));
        words[0].store(0, Ordering::Release);
        store_bytes(&words[1..], &why.as_bytes()[..end]);
        words[0].store((stage as u64 + 1) << 32 | end as u64, Ordering::Release);
    }

    /// Forgets the latest such reason, if it is one of this stage.
    pub(super) fn forget_refusal(&self, stage: usize) {
        if self.refusal(stage).is_some() {
            self.layout.refusal(&self.region)[0].store(0, Ordering::Release);
        }
    }

    /// Latest reason why a process did not take over a stage.
    pub(super) fn refusal(&self, stage: usize) -> Option<String> {
        let words = self.layout.refusal(&self.region);
        let said = words[0].load(Ordering::Acquire);
        (said >> 32 == stage as u64 + 1).then(|| read(&words[1..], said as u32 as usize))
    }

    /// Reason why a stage could not continue.
    pub(super) fn why_failed(&self, stage: usize) -> String {
        let words = self.layout.last_words(&self.region);
        let said = words[0].load(Ordering::Acquire);
        if said != CLAIMED && said >> 32 == stage as u64 + 1 {
            return read(&words[1..], said as u32 as usize);
        }
        let (deaths, hung) = (
            self.deaths(stage).count,
            self.note(stage, Note::Hung).load(Ordering::Relaxed),
        );
        match deaths {
            0 => "its process failed without a word".into(),
            deaths if hung >= deaths => format!(
                "its process was killed {deaths} times without a step between, because it took longer than {} for one: \
                 mend the stage, or allow longer steps (step_max)",
                self.step_max()
            ),
            deaths => {
                let refusal = self.refusal(stage).map_or_else(String::new, |why| format!(": {why}"));
                format!("its process died {deaths} times in a step, without one done between{refusal}")
            }
        }
    }
}

/// Text of at most `length` bytes in these words.
fn read(words: &[AtomicU64], length: usize) -> String {
    String::from_utf8_lossy(&load_bytes(words, length)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let words: Vec<AtomicU64> = (0..LAST_WORDS_MAX / 8).map(|_| AtomicU64::new(7)).collect();
        for text in ["", "12345678", "its step answered 1"] {
            store_bytes(&words, text.as_bytes());
            assert_eq!(read(&words, text.len()), text);
        }
    }
}
