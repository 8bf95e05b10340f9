//! How much of the log a master keeps for nodes that are behind, in bytes.

use std::collections::VecDeque;

use punctual_logs::{LogState, Revision};

/// The most bytes of keys and values in entries that the log keeps for nodes that are behind, as far as a master has
/// applied them itself; nodes that need earlier ones get a copy.
pub const LOG_BYTES_MAX: u64 = 256 << 20;
/// Distance of the revisions at which the log can be cut, in bytes.
const STEP: u64 = LOG_BYTES_MAX / 64;

/// Bytes of the entries in the log: of those that it had when it was opened, and of those that were applied here since;
/// with revisions a `STEP` apart.
#[derive(Clone, Debug, Default)]
pub struct LogQuota {
    bytes: u64,
    marks: VecDeque<(Revision, u64)>,
    /// Last entry of the opened log.
    opened: Revision,
}

impl LogQuota {
    /// Takes note of a log that was opened, for the first time: its entries count as equally long, and all as there.
    pub fn open(&mut self, log: &LogState) {
        if self.opened > Revision::ZERO || self.bytes > 0 || log.bytes == 0 {
            return;
        }
        self.opened = log.last;
        self.bytes = log.bytes;
        let span = u128::from(log.last.0.saturating_sub(log.trimmed.0));
        let at = |bytes: u64| (u128::from(bytes) * span / u128::from(log.bytes)) as u64;
        let steps = (1..=log.bytes / STEP).map(|step| step * STEP);
        self.marks = steps
            .map(|bytes| (Revision(log.trimmed.0 + at(bytes)), bytes))
            .collect();
        self.drop_marks();
    }

    /// Counts an entry of `bytes`.
    pub fn count(&mut self, revision: Revision, bytes: u64) {
        if revision <= self.opened {
            return;
        }
        self.bytes += bytes;
        if self.bytes >= self.marks.back().map_or(0, |(_, at)| *at) + STEP {
            self.marks.push_back((revision, self.bytes));
        }
        self.drop_marks();
    }

    fn drop_marks(&mut self) {
        while self
            .marks
            .get(1)
            .is_some_and(|(_, at)| self.bytes - at >= LOG_BYTES_MAX - 2 * STEP)
        {
            self.marks.pop_front();
        }
    }

    /// The revision up to which the log is to be trimmed, so that at most [`LOG_BYTES_MAX`] remain.
    pub fn trims(&self) -> Revision {
        let first = self.marks.front();
        let beyond = first.filter(|(_, at)| self.bytes - at >= LOG_BYTES_MAX - 2 * STEP);
        beyond.map_or(Revision::ZERO, |(revision, _)| *revision)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ENTRY_MAX: u64 = 1 << 20;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn at_most_the_quota_remains_and_most_of_it(sizes in prop::collection::vec(ENTRY_MAX / 2..=ENTRY_MAX, 600..800)) {
            let mut quota = LogQuota::default();
            for (at, size) in sizes.iter().enumerate() {
                quota.count(Revision(at as u64 + 1), *size);
                let kept: u64 = sizes[quota.trims().0 as usize..=at].iter().sum();
                prop_assert!(kept <= LOG_BYTES_MAX, "{kept} bytes");
                prop_assert!(quota.trims() == Revision::ZERO || kept + 4 * (STEP + ENTRY_MAX) > LOG_BYTES_MAX);
                prop_assert!(quota.marks.len() <= 66);
            }
            prop_assert!(quota.trims() > Revision::ZERO);
        }

        /// A process that starts when the log has entries already; they come once more if they are applied.
        #[test]
        fn what_was_there_at_the_start_counts(
            before in 0..900_u64, trimmed in 0..1000_u64, sizes in prop::collection::vec(ENTRY_MAX / 2..=ENTRY_MAX, 0..600),
        ) {
            let (trimmed, size) = (Revision(trimmed), ENTRY_MAX / 3);
            let last = Revision(trimmed.0 + before);
            let bytes = size * before;
            let mut quota = LogQuota::default();
            let opened = LogState { last, trimmed, bytes, ..LogState::default() };
            quota.open(&opened);
            quota.open(&opened);
            let all: Vec<u64> = std::iter::repeat_n(size, before as usize).chain(sizes).collect();
            for (at, size) in all.iter().enumerate() {
                let revision = Revision(trimmed.0 + at as u64 + 1);
                quota.count(revision, *size);
                let first = quota.trims().0.saturating_sub(trimmed.0) as usize;
                let end = (at + 1).max(before as usize);
                let kept: u64 = all[first..end].iter().sum();
                prop_assert!(kept <= LOG_BYTES_MAX, "{} bytes", kept);
            }
        }
    }
}
