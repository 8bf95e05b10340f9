//! A step function along a run.

/// Steps: the i-th value holds up to progress `ends[i]`, from the end of the one before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Steps {
    /// Ends of the steps as progress, increasing; the last is 1.
    pub ends: Vec<f64>,
    /// Values, as many as `ends`.
    pub values: Vec<f64>,
}

impl Steps {
    /// Mean over each of `columns` equal parts of the run.
    pub fn means(&self, columns: usize) -> Vec<f64> {
        let mut sums = vec![0.0; columns];
        let mut begin = 0.0;
        for (end, value) in self.ends.iter().zip(&self.values) {
            let (first, last) = (begin * columns as f64, end * columns as f64);
            let touched = sums.iter_mut().enumerate().skip(first as usize);
            for (column, sum) in touched.take_while(|(column, _)| (*column as f64) < last) {
                let within = last.min(column as f64 + 1.0) - first.max(column as f64);
                *sum += value * within.max(0.0);
            }
            begin = *end;
        }
        sums
    }

    /// Steps with the same ends, and each value mapped by `of`.
    #[must_use]
    pub fn map(&self, of: impl Fn(f64) -> f64) -> Steps {
        Steps {
            ends: self.ends.clone(),
            values: self.values.iter().map(|value| of(*value)).collect(),
        }
    }

    /// Corners of the drawn line: percent of the run, and value.
    pub fn corners(&self) -> Vec<(f64, Option<f64>)> {
        let begins = std::iter::once(0.0).chain(self.ends.iter().copied());
        let corners = begins.zip(&self.ends).zip(&self.values);
        corners
            .flat_map(|((begin, end), value)| [(100.0 * begin, Some(*value)), (100.0 * end, Some(*value))])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_column_is_the_mean_of_its_steps() {
        let steps = Steps {
            ends: vec![0.25, 0.375, 1.0],
            values: vec![8.0, 0.0, 4.0],
        };
        assert_eq!(steps.means(2), [(4.0 + 0.0 + 1.0), 4.0]);
        assert_eq!(steps.means(1), [2.0 + 2.5]);
        assert_eq!(steps.corners().len(), 6);
    }

    proptest! {
        #[test]
        fn columns_keep_the_mean(
            lengths in prop::collection::vec((1..100u32, 0.0..9.0f64), 1..50),
            columns in 1..200usize,
        ) {
            let whole: u32 = lengths.iter().map(|(length, _)| length).sum();
            let mut done = 0;
            let ends = lengths.iter().map(|(length, _)| { done += length; f64::from(done) / f64::from(whole) });
            let steps = Steps { ends: ends.collect(), values: lengths.iter().map(|(_, value)| *value).collect() };
            let mean: f64 =
                lengths.iter().map(|(length, value)| f64::from(*length) * value).sum::<f64>() / f64::from(whole);
            let ours = steps.means(columns).iter().sum::<f64>() / columns as f64;
            prop_assert!((ours - mean).abs() < 1e-9, "{ours} {mean}");
        }
    }
}
