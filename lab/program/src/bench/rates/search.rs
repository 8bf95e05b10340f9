//! Finds the largest number that is held, by tries: doubles it until a try fails, then halves the gap.
//!
//! Every try is a run of seconds, so their number is bounded instead of the precision: after [`BISECTIONS_MAX`] steps
//! the gap between the largest held number and the smallest failed one is a sixteenth of the former or one, whichever
//! is more.

/// The number to try first.
const FIRST: u32 = 4;
/// Factor between two tries until one fails. Beyond what a machine sustains, its load can grow far more than
/// proportionally: doubling exceeds that by at most a factor of two.
const FACTOR: u32 = 2;
/// Number of tries between the largest held and the smallest failed number.
const BISECTIONS_MAX: u32 = 4;

/// State of the search for the largest held number, from 1 to a bound. Assumes that if a number is held, all below it
/// are.
#[derive(Clone, Debug)]
pub struct Search {
    bound: u32,
    held: u32,
    failed: Option<u32>,
    bisections: u32,
}

impl Search {
    /// Begins a search; `bound`, at least 1, is the largest number to try.
    pub fn new(bound: u32) -> Search {
        Search {
            bound,
            held: 0,
            failed: None,
            bisections: 0,
        }
    }

    /// The number to try next; `None` if the search is over.
    pub fn next(&self) -> Option<u32> {
        match self.failed {
            None if self.held == self.bound => None,
            None => Some((self.held * FACTOR).max(FIRST).min(self.bound)),
            Some(failed) if failed - self.held <= 1 || self.bisections == BISECTIONS_MAX => None,
            Some(failed) => Some(self.held + (failed - self.held) / 2),
        }
    }

    /// Records whether `tried`, which [`Search::next`] returned, is held.
    pub fn learn(&mut self, tried: u32, held: bool) {
        self.bisections += u32::from(self.failed.is_some());
        if held {
            self.held = tried;
        } else {
            self.failed = Some(tried);
        }
    }

    /// The largest number that was held; `None` if none was.
    pub fn held(&self) -> Option<u32> {
        (self.held > 0).then_some(self.held)
    }

    /// The smallest number that was not held; `None` if none was.
    pub fn failed(&self) -> Option<u32> {
        self.failed
    }

    /// Whether everything up to the bound is held.
    pub fn is_bound_held(&self) -> bool {
        self.held == self.bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Tries until 1000 is held, the most that a scenario takes: 4, 8, ... 512, 1000, and the steps between.
    const TRIES_MAX: usize = 9 + BISECTIONS_MAX as usize;

    /// Searches to the end; every try with its outcome.
    fn search(bound: u32, held: impl Fn(u32) -> bool) -> (Search, Vec<(u32, bool)>) {
        let mut search = Search::new(bound);
        let mut tries = Vec::new();
        while let Some(n) = search.next() {
            tries.push((n, held(n)));
            search.learn(n, held(n));
            assert!(tries.len() <= TRIES_MAX, "{tries:?}");
        }
        (search, tries)
    }

    proptest! {
        #[test]
        fn any_threshold_is_found(bound in 1u32..=1000, threshold in 0u32..=1100) {
            let (found, tries) = search(bound, |n| n <= threshold);
            prop_assert!(tries.iter().all(|(n, _)| (1..=bound).contains(n)), "{:?}", tries);
            if threshold >= bound {
                prop_assert!(found.is_bound_held() && found.held() == Some(bound) && found.failed().is_none());
            } else {
                let held = found.held().unwrap_or(0);
                let failed = found.failed().unwrap();
                prop_assert!(held <= threshold && threshold < failed && !found.is_bound_held());
                let gap = failed - held;
                prop_assert!(gap == 1 || gap * 16 <= held + 16, "{held} held, {failed} not");
            }
        }

        /// A machine is not monotone: whatever it answers, the search ends, and tells of tries that took place.
        #[test]
        fn any_answers_end_it(bound in 1u32..=1000, answers in any::<u32>()) {
            let (found, tries) = search(bound, |n| answers.rotate_right(n) & 1 == 1);
            prop_assert!(found.held().is_none_or(|n| tries.contains(&(n, true))));
            prop_assert!(found.failed().is_none_or(|n| tries.contains(&(n, false))));
        }
    }

    #[test]
    fn a_search_reads_like_this() {
        let (_, tries) = search(1000, |n| n <= 10);
        let expected = [(4, true), (8, true), (16, false), (12, false), (10, true), (11, false)];
        assert_eq!(tries, expected);
    }
}
