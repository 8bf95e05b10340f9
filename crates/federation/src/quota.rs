//! How much of the log a master keeps for nodes that are behind, in bytes.

use std::collections::VecDeque;

use punctual_logs::Revision;

/// The most bytes of keys and values in entries that the log keeps for nodes that are behind, as far as a master has
/// applied them itself; nodes that need earlier ones get a copy.
pub const LOG_BYTES_MAX: u64 = 256 << 20;
/// Distance of the revisions at which the log can be cut, in bytes.
const STEP: u64 = LOG_BYTES_MAX / 64;

/// Bytes of the entries that were applied here since the start, with revisions a `STEP` apart.
#[derive(Clone, Debug, Default)]
pub struct LogQuota {
    bytes: u64,
    marks: VecDeque<(Revision, u64)>,
}

impl LogQuota {
    /// Counts an entry of `bytes`.
    pub fn count(&mut self, revision: Revision, bytes: u64) {
        self.bytes += bytes;
        if self.bytes >= self.marks.back().map_or(0, |(_, at)| *at) + STEP {
            self.marks.push_back((revision, self.bytes));
        }
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
    }
}
