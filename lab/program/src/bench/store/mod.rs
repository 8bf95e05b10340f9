//! `bench store`: our store beside the bare engine under it and, where this program was built with them, beside other
//! stores, in one run.
//!
//! All cases are measured in every round, in an order drawn anew, so that a disturbance affects all of them alike. A
//! case is compared with bare heed within its round, and the median of these ratios is printed. A contender without any
//! work is measured as well: figures below its own mean nothing.

mod cases;
mod contender;
mod goals;
mod heed;
mod ours;
#[cfg(feature = "peers")]
mod peers;
mod rounds;

use std::fmt::Write;
use std::path::PathBuf;

use serde::Serialize;

use super::nanos;
use super::series::Interrupt;
pub use contender::Records;
use contender::{CaseError, Contender, GoingOn, Nothing, Promise};
use punctual_cli::commands::print;
use punctual_files::failure::Failure;
use punctual_report::output::OutputFile;
use punctual_report::summary::count;
use rounds::{OperationFigures, measure};

/// Upper bound on the bytes of each contender's values: far beyond the caches of any machine, but small enough for a
/// temporary folder.
const BYTES_MAX: u64 = 8 << 30;
/// Upper bound on records of the contenders that sync: only their sync is compared.
const DURABLE_MAX: u32 = 10_000;

/// The JSON output of the measurements.
#[derive(Debug, Serialize)]
struct BenchReport {
    rounds: u32,
    #[serde(flatten)]
    records: Records,
    cases: Vec<OperationFigures>,
}

/// Carries out `punctual-lab bench store`.
pub fn store(records: Records, rounds: u32, json: Option<&PathBuf>) -> Result<(), Failure> {
    let output = OutputFile::report(json)?;
    if records.bytes() > BYTES_MAX {
        return Err(Failure::of(format!(
            "--objects times --value-bytes is {} bytes: at most {} (for each of the stores, in the temporary folder)",
            count(records.bytes()),
            count(BYTES_MAX)
        )));
    }
    let interrupt = Interrupt::listen()?;
    let going_on = || match interrupt.asked() {
        true => Err(CaseError::Stopped),
        false => Ok(()),
    };
    let failed = |error: CaseError| Failure::of(format!("a store of the benchmark failed: {error}"));
    let cases = compared(records, rounds, &going_on).map_err(failed)?;
    let report = BenchReport { rounds, records, cases };
    print(&told(&report))?;
    output.map_or(Ok(()), |file| file.json(&report))
}

/// Opens the other stores, if this program was built with them.
fn peers(records: Records, promise: Promise, going_on: GoingOn<'_>) -> Result<Vec<Box<dyn Contender>>, CaseError> {
    #[cfg(feature = "peers")]
    return peers::all(records, promise, going_on);
    #[cfg(not(feature = "peers"))]
    {
        let _ = (records, promise, going_on);
        Ok(Vec::new())
    }
}

fn compared(records: Records, rounds: u32, going_on: GoingOn<'_>) -> Result<Vec<OperationFigures>, CaseError> {
    let synced = Records {
        objects: records.objects.min(DURABLE_MAX),
        ..records
    };
    let ours = ours::on_lmdb(records, Promise::Visible, going_on)?;
    let by_transactions = ours::by_transactions(going_on)?;
    let all = |records, promise| -> Result<Vec<Box<dyn Contender>>, CaseError> {
        let mut all: Vec<Box<dyn Contender>> = vec![Box::new(Nothing)];
        all.push(Box::new(heed::Heed::fill(records, promise, going_on)?));
        all.extend(peers(records, promise, going_on)?);
        Ok(all)
    };
    let (visible, durable) = (all(records, Promise::Visible)?, all(synced, Promise::Durable)?);
    let ours_durable = ours::on_lmdb(synced, Promise::Durable, going_on)?;
    let (drawn, drawn_synced) = (cases::KeySequence::of(records), cases::KeySequence::of(synced));
    let mut cases = cases::visible(&ours, &drawn)?;
    cases.extend(cases::ours(&ours, &drawn));
    cases.extend(cases::offers(&ours.store, &by_transactions.store));
    for contender in &visible {
        cases.extend(cases::visible(&**contender, &drawn)?);
    }
    cases.push(cases::durable(&ours_durable, &drawn_synced)?);
    cases.push(cases::durable_by_eight(&ours_durable, &drawn_synced));
    for contender in &durable {
        cases.push(cases::durable(&**contender, &drawn_synced)?);
    }
    measure(&mut cases, (heed::NAME, cases::GET), rounds, going_on)
}

fn told(report: &BenchReport) -> String {
    let mut text = format!(
        "{} rounds, cases interleaved in random order; {} records of {} bytes ({} where puts are synced), {} temporal \
         objects of {} bytes\n",
        report.rounds,
        count(report.records.objects.into()),
        report.records.value_bytes,
        count(report.records.objects.min(DURABLE_MAX).into()),
        count(ours::TEMPORAL_OBJECTS.into()),
        ours::TEMPORAL_BYTES,
    );
    let mut operations: Vec<&str> = Vec::new();
    for case in &report.cases {
        if !operations.contains(&case.operation) {
            operations.push(case.operation);
        }
    }
    let _ = writeln!(
        text,
        "\n{:<40}{:>12}{:>13}{:>10}{:>10}   ratio to bare heed",
        "", "of a batch", "one: median", "p99", "p99.9"
    );
    for operation in operations {
        let _ = writeln!(text, "{operation}");
        for case in report.cases.iter().filter(|case| case.operation == operation) {
            let one = [case.one.median_ns, case.one.p99_ns, case.one.p99_9_ns].map(|ns| nanos(ns as f64));
            let batch = case.batch_median_ns.map_or("-".into(), nanos);
            let [median, p99, p99_9] = one;
            let _ = write!(
                text,
                "  {:<38}{batch:>12}{median:>13}{p99:>10}{p99_9:>10}",
                case.contender
            );
            if let Some(ratio) = &case.ratio {
                let [low, high] = ratio.quartiles;
                let _ = write!(text, "   {:.2}  (middle half {low:.2} to {high:.2})", ratio.median);
            }
            text.push('\n');
        }
    }
    text.push_str(
        "\nRatios are of batches, round by round. An operation that is timed by itself contains reading the clock: below \
         the\nno-op control nothing can be said.\n",
    );
    text.push_str(&goals::told(&report.cases, report.records.value_bytes));
    if cfg!(not(feature = "peers")) {
        text.push_str("Built without other stores: `cargo run --release -p punctual-lab --features peers -- bench store` has them.\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_bench_measures_every_case_of_every_contender() {
        let records = Records {
            objects: 1000,
            value_bytes: 100,
        };
        let figures = compared(records, 2, &|| Ok(())).unwrap();
        let of = |contender: &str| {
            let mut operations: Vec<&str> = Vec::new();
            operations.extend(
                figures
                    .iter()
                    .filter(|case| case.contender == contender)
                    .map(|case| case.operation),
            );
            operations
        };
        let control = of(Nothing.name());
        assert_eq!(control.len(), 9);
        let contenders = peers(records, Promise::Visible, &|| Ok(())).unwrap();
        for contender in contenders.iter().map(|peer| peer.name()).chain([heed::NAME]) {
            assert_eq!(of(contender), control, "{contender}");
        }
        assert_eq!(of(ours::NAME).len(), control.len() + 9);
        for case in &figures {
            assert!(
                case.one.samples > 0 && case.one.median_ns <= case.one.p99_ns && case.one.p99_ns <= case.one.p99_9_ns
            );
            let compared = case.contender != heed::NAME && case.batch_median_ns.is_some();
            assert_eq!(case.ratio.is_some(), compared, "{case:?}");
        }
        let text = told(&BenchReport {
            rounds: 2,
            records,
            cases: figures,
        });
        assert!(text.contains("bare heed") && text.contains("p99.9"), "{text}");
        assert_eq!(text.matches("met\n").count(), 8, "{text}");
    }

    #[test]
    fn a_bench_that_is_stopped_says_so() {
        let records = Records {
            objects: 10,
            value_bytes: 1,
        };
        assert!(matches!(
            compared(records, 1, &|| Err(CaseError::Stopped)),
            Err(CaseError::Stopped)
        ));
    }
}
