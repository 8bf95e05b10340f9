//! Interleaved rounds and what comes of them.

use std::time::Instant;

use hdrhistogram::Histogram;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::cases::{Case, CaseError, GoingOn};

/// Operations timed one by one in each round.
const SINGLES: usize = 50;
/// Longest operation that the histogram distinguishes from longer ones.
const LONGEST_NS: u64 = 10_000_000_000;
/// The order of cases is drawn from here; which order it is does not matter, that it changes does.
const SEED: u64 = 1;

/// What was measured of one case.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    pub name: String,
    /// The case without work.
    pub is_control: bool,
    /// Median over the rounds of the time per operation of a batch.
    pub median_ns: f64,
    /// 99th percentile of operations timed one by one, with the time that reading the clock takes.
    pub one_p99_ns: f64,
    /// The case of the bare engine that this one is compared with.
    pub compared_with: Option<String>,
    pub ratio: Option<Ratio>,
}

/// This case against another, round by round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    pub median: f64,
    /// Half of the rounds lie between these.
    pub quartiles: [f64; 2],
}

/// Measures all cases in `rounds` rounds after one that only warms up.
///
/// # Errors
/// What a case failed of.
pub fn measure(cases: &mut [Case<'_>], rounds: u32, going_on: GoingOn<'_>) -> Result<Vec<Figures>, CaseError> {
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let mut order: Vec<usize> = (0..cases.len()).collect();
    let mut batches = vec![Vec::new(); cases.len()];
    let empty =
        Histogram::<u64>::new_with_bounds(1, LONGEST_NS, 3).map_err(|error| CaseError::Figures(error.to_string()))?;
    let mut singles = vec![empty; cases.len()];
    for round in 0..=rounds {
        going_on()?;
        order.shuffle(&mut rng);
        for &i in &order {
            let Case { batch, run, .. } = &mut cases[i];
            let start = Instant::now();
            run(*batch)?;
            let per_operation = start.elapsed().as_nanos() as f64 / *batch as f64;
            for _ in 0..SINGLES {
                let start = Instant::now();
                run(1)?;
                let one = start.elapsed().as_nanos() as u64;
                if round > 0 {
                    singles[i].saturating_record(one.max(1));
                }
            }
            if round > 0 {
                batches[i].push(per_operation);
            }
        }
    }
    let figures = |(i, case): (usize, &Case<'_>)| {
        let with = case
            .compared_with
            .and_then(|name| cases.iter().position(|other| other.name == name));
        Figures {
            name: case.name.into(),
            is_control: case.is_control,
            median_ns: quantile(&batches[i], 0.5),
            one_p99_ns: singles[i].value_at_quantile(0.99) as f64,
            compared_with: case.compared_with.map(Into::into),
            ratio: with.map(|with| ratio(&batches[i], &batches[with])),
        }
    };
    Ok(cases.iter().enumerate().map(figures).collect())
}

fn ratio(ours: &[f64], theirs: &[f64]) -> Ratio {
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
    Ratio {
        median: quantile(&ratios, 0.5),
        quartiles: [quantile(&ratios, 0.25), quantile(&ratios, 0.75)],
    }
}

/// The percentile; 0 of nothing.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    punctual_units::percentile(values.iter().copied(), q).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_paired_by_round() {
        // A disturbed round disturbs both: its ratio is unharmed, where that of the medians would not be.
        let bare = [100.0, 1000.0, 100.0, 100.0];
        let ours = [110.0, 1100.0, 110.0, 120.0];
        assert_eq!(
            ratio(&ours, &bare),
            Ratio {
                median: 1.1,
                quartiles: [1.1, 1.1]
            }
        );
    }

    #[test]
    fn a_failing_case_ends_the_bench() {
        let run = Box::new(|_: usize| Err(CaseError::Figures("broken".into())));
        let case = Case {
            name: "x",
            is_control: false,
            compared_with: None,
            batch: 1,
            run,
        };
        assert!(measure(&mut [case], 1, &|| Ok(())).is_err());
    }
}
