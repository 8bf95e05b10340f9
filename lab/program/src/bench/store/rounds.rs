//! Interleaved rounds of all cases, and their figures.

use std::time::Duration;

use hdrhistogram::Histogram;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::super::quantile;
use super::contender::{CaseError, GoingOn};

/// Longest operation that the histogram distinguishes from longer ones.
const LONGEST_NS: u64 = 10_000_000_000;
/// Seed of the order of cases; the order itself does not matter, only that it changes.
const SEED: u64 = 1;

/// Measures a round, into one sink for each operation.
pub type Round<'s> = Box<dyn FnMut(&mut [Sink]) -> Result<(), CaseError> + 's>;

/// Operations of a contender that are measured together, at least one.
pub struct Case<'s> {
    pub contender: &'static str,
    pub operations: Vec<&'static str>,
    pub round: Round<'s>,
}

/// Collects the measurements of one operation.
pub struct Sink {
    /// Nanoseconds per operation of a batch, one figure a round.
    batches: Vec<f64>,
    ones: Histogram<u64>,
}

impl Sink {
    fn empty() -> Result<Sink, CaseError> {
        let ones = Histogram::new_with_bounds(1, LONGEST_NS, 3);
        Ok(Sink {
            batches: Vec::new(),
            ones: ones.map_err(|error| CaseError::Figures(error.to_string()))?,
        })
    }

    /// Adds a batch: `operations` operations took `span` together.
    pub fn batch(&mut self, span: Duration, operations: usize) {
        self.batches.push(span.as_nanos() as f64 / operations as f64);
    }

    /// Adds an operation that took `span`.
    pub fn one(&mut self, span: Duration) {
        self.ones.saturating_record((span.as_nanos() as u64).max(1));
    }
}

/// Measurements of one operation of a contender.
#[derive(Clone, Debug, Serialize)]
pub struct OperationFigures {
    pub operation: &'static str,
    pub contender: &'static str,
    /// Median over the rounds of the time per operation of a batch; `None` if operations are only timed one by one.
    pub batch_median_ns: Option<f64>,
    /// Operations timed one by one, including the time of reading the clock.
    pub one: Ones,
    /// Ratio to the reference contender, in the same operation.
    pub ratio: Option<Ratio>,
}

/// Operations timed one by one, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Ones {
    pub samples: u64,
    pub median_ns: u64,
    pub p99_ns: u64,
    pub p99_9_ns: u64,
}

/// A case against another, round by round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    pub median: f64,
    /// First and third quartile: half of the rounds lie between them.
    pub quartiles: [f64; 2],
}

/// Measures all cases in `rounds` rounds after a warm-up round, in an order drawn anew for each. Ratios are to
/// `reference`, in the operation of the same name or, if it has none, in `otherwise`.
///
/// # Errors
/// The error of the first case that failed.
pub fn measure(
    cases: &mut [Case<'_>],
    (reference, otherwise): (&str, &str),
    rounds: u32,
    going_on: GoingOn<'_>,
) -> Result<Vec<OperationFigures>, CaseError> {
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let mut order: Vec<usize> = (0..cases.len()).collect();
    let empty =
        |case: &Case<'_>| -> Result<Vec<Sink>, CaseError> { case.operations.iter().map(|_| Sink::empty()).collect() };
    let mut sinks = cases.iter().map(empty).collect::<Result<Vec<Vec<Sink>>, _>>()?;
    for round in 0..=rounds {
        order.shuffle(&mut rng);
        for &i in &order {
            going_on()?;
            (cases[i].round)(&mut sinks[i])?;
        }
        if round == 0 {
            sinks = cases.iter().map(empty).collect::<Result<_, _>>()?;
        }
    }
    let measured = || {
        let all = cases.iter().zip(&sinks);
        all.flat_map(|(case, sinks)| {
            case.operations
                .iter()
                .zip(sinks)
                .map(|(of, sink)| (case.contender, *of, sink))
        })
    };
    let batches_of_reference = |operation: &str| {
        let named = |wanted: &str| {
            let mut all = measured();
            let (.., sink) = all.find(|(contender, of, _)| *contender == reference && *of == wanted)?;
            Some(&sink.batches)
        };
        named(operation).or_else(|| named(otherwise))
    };
    let figures = |(contender, operation, sink): (_, _, &Sink)| {
        let against = batches_of_reference(operation).filter(|_| contender != reference);
        OperationFigures {
            operation,
            contender,
            batch_median_ns: (!sink.batches.is_empty()).then(|| quantile(&sink.batches, 0.5)),
            one: Ones {
                samples: sink.ones.len(),
                median_ns: sink.ones.value_at_quantile(0.5),
                p99_ns: sink.ones.value_at_quantile(0.99),
                p99_9_ns: sink.ones.value_at_quantile(0.999),
            },
            ratio: against.and_then(|against| ratio(&sink.batches, against)),
        }
    };
    Ok(measured().map(figures).collect())
}

fn ratio(ours: &[f64], theirs: &[f64]) -> Option<Ratio> {
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
    (!ratios.is_empty()).then(|| Ratio {
        median: quantile(&ratios, 0.5),
        quartiles: [quantile(&ratios, 0.25), quantile(&ratios, 0.75)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_paired_by_round() {
        // A disturbed round disturbs both: its ratio is unharmed, where that of the medians would not be.
        let bare = [100.0, 1000.0, 100.0, 100.0];
        let ours = [110.0, 1100.0, 110.0, 120.0];
        let expected = Ratio {
            median: 1.1,
            quartiles: [1.1, 1.1],
        };
        assert_eq!(ratio(&ours, &bare), Some(expected));
        assert_eq!(ratio(&[], &bare), None);
    }

    #[test]
    fn a_failing_case_ends_the_bench() {
        let round = Box::new(|_: &mut [Sink]| Err(CaseError::Figures("broken".into())));
        let case = Case {
            contender: "x",
            operations: vec!["get"],
            round,
        };
        assert!(measure(&mut [case], ("x", "get"), 1, &|| Ok(())).is_err());
    }
}
