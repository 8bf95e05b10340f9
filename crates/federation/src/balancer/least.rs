//! Minimum and mean of many numbers that change one at a time: a tournament tree.

/// A tournament over indices 0, 1, ..: a change costs as many comparisons and additions as the largest index has binary
/// digits. Sums are recomputed from the two below, so that no rounding remains of numbers that have changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Least {
    values: Vec<f64>,
    /// The nodes of the tree, the root at index 1; the number of leaves is a power of two.
    pairs: Vec<Pair>,
}

/// Minimum and sum over the leaves below a node of the tree.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    winner: u32,
    /// Number of finite leaves, and their sum.
    count: u32,
    sum: f64,
}

impl Least {
    /// Sets the number at `place`; infinity removes it.
    pub(super) fn set(&mut self, place: usize, value: f64) {
        if place >= self.values.len() {
            self.grow(place + 1);
        }
        self.values[place] = value;
        let mut at = (self.values.len() + place) / 2;
        while at > 0 {
            self.pairs[at] = self.pair(at);
            at /= 2;
        }
    }

    pub(super) fn get(&self, place: usize) -> f64 {
        self.values.get(place).copied().unwrap_or(f64::INFINITY)
    }

    /// The index of the least number, the lowest of equal ones; `None` if all are infinite.
    pub(super) fn least(&self) -> Option<usize> {
        let all = self.all()?;
        (all.count > 0).then_some(all.winner as usize)
    }

    /// The mean of the finite numbers; `None` if all are infinite.
    pub(super) fn mean(&self) -> Option<f64> {
        let all = self.all()?;
        (all.count > 0).then(|| all.sum / f64::from(all.count))
    }

    /// The root; `None` without leaves.
    fn all(&self) -> Option<Pair> {
        (!self.values.is_empty()).then(|| self.below(1))
    }

    fn grow(&mut self, places: usize) {
        self.values.resize(places.next_power_of_two(), f64::INFINITY);
        self.pairs = vec![Pair::default(); self.values.len()];
        for at in (1..self.values.len()).rev() {
            self.pairs[at] = self.pair(at);
        }
    }

    /// Combines the two nodes below `at`.
    fn pair(&self, at: usize) -> Pair {
        let (left, right) = (self.below(2 * at), self.below(2 * at + 1));
        let better = self.values[right.winner as usize] < self.values[left.winner as usize];
        Pair {
            winner: if better { right.winner } else { left.winner },
            count: left.count + right.count,
            sum: left.sum + right.sum,
        }
    }

    /// The tree node `at`, or a leaf: the leaves are below the last row.
    fn below(&self, at: usize) -> Pair {
        let places = self.values.len();
        if at < places {
            return self.pairs[at];
        }
        let value = self.values[at - places];
        let finite = value < f64::INFINITY;
        Pair {
            winner: (at - places) as u32,
            count: u32::from(finite),
            sum: if finite { value } else { 0.0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_the_first_of_the_least_and_the_mean_of_all(sets in prop::collection::vec((0usize..40, 0u32..9), 0..200)) {
            let (mut least, mut plain) = (Least::default(), vec![f64::INFINITY; 40]);
            for (place, value) in sets {
                let value = if value == 8 { f64::INFINITY } else { f64::from(value) };
                least.set(place, value);
                plain[place] = value;
                let there = (0..40).filter(|at| plain[*at] < f64::INFINITY);
                let first = there.min_by(|a, b| plain[*a].total_cmp(&plain[*b]));
                prop_assert_eq!(least.least(), first);
                prop_assert_eq!(least.get(place), value);
                let finite: Vec<f64> = plain.iter().copied().filter(|value| *value < f64::INFINITY).collect();
                let mean = (!finite.is_empty()).then(|| finite.iter().sum::<f64>() / finite.len() as f64);
                prop_assert_eq!(least.mean(), mean);
            }
        }
    }
}
