//! A histogram of spans, accurate to a fifth of each: counts in quarters of an octave.

use punctual_units::Nanos;

/// Number of counters: four for each power of two of microseconds, up to half an hour; the last has all longer spans.
const PLACES: usize = 124;

/// A histogram of spans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ages {
    /// Counters up to the last one that has counted.
    counts: Vec<u64>,
}

impl Ages {
    /// Counts a span in the histogram.
    pub fn add(&mut self, span: Nanos) {
        let us = span.0 as f64 / 1e3;
        let place = (4.0 * (us + 1.0).log2()) as usize;
        let place = place.min(PLACES - 1);
        self.counts.resize(self.counts.len().max(place + 1), 0);
        self.counts[place] += 1;
    }

    /// Number of spans counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The span that `share` of all spans do not exceed, rounded up; `None` without spans.
    pub fn at(&self, share: f64) -> Option<Nanos> {
        let wanted = (share * self.count() as f64).ceil().max(1.0) as u64;
        let mut sum = 0;
        let place = self.counts.iter().position(|count| {
            sum += count;
            sum >= wanted
        })?;
        let us = ((place + 1) as f64 / 4.0).exp2() - 1.0;
        Some(Nanos((us * 1e3) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_told_within_a_fifth_and_never_below() {
        let mut ages = Ages::default();
        assert_eq!(ages.at(0.5), None);
        (1..=10_000).for_each(|us| ages.add(Nanos::from_micros(us)));
        for share in [0.01, 0.1, 0.5, 0.99, 1.0] {
            let (truth, told) = (share * 1e7, ages.at(share).unwrap().0 as f64);
            assert!(
                told >= truth && told <= truth * 1.2 + 1e3,
                "{share}: {told} for {truth}"
            );
        }
        ages.add(Nanos::MAX);
        assert_eq!(ages.count(), 10_001);
    }
}
