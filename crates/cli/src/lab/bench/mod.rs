//! `punctual bench`: what `punctual` achieves on this machine. The others have files of their own.
//!
//! `store` measures the store beside the bare engine under it, in one run. All cases are measured in every round, in an
//! order drawn anew, so that whatever disturbs the machine disturbs all of them alike; a case is compared with the bare
//! engine within its round, and the median of these ratios is printed. A case without any work is measured with the
//! rest: nothing below its figures means anything.

mod allocation;
mod cases;
mod control_loop;
mod controllers;
mod migration;
mod movie;
mod neighbours;
mod rates;
mod referees;
pub mod rounds;
mod series;

use std::fmt::Write;
use std::path::PathBuf;

use serde::Serialize;

use crate::commands::print;
use crate::failure::Failure;
use crate::lab::args::Bench;
use crate::output::Output;
use crate::summary::count;
use rounds::{Figures, measure};
use series::Interrupt;

/// Values that either side may hold: far beyond the caches of any machine, and little enough for a temporary folder.
const BYTES_MAX: u64 = 8 << 30;

/// What was measured, for programs.
#[derive(Debug, Serialize)]
struct BenchReport {
    rounds: u32,
    #[serde(flatten)]
    records: cases::Records,
    cases: Vec<Figures>,
}

/// Carries out `punctual bench`; `command` is what was typed.
pub fn bench(arguments: &Bench, command: &str) -> Result<(), Failure> {
    match arguments {
        Bench::Store {
            rounds,
            objects,
            value_bytes,
            json,
        } => {
            let records = cases::Records {
                objects: *objects,
                value_bytes: *value_bytes as usize,
            };
            store(records, *rounds, json.as_ref())
        }
        Bench::Controllers(arguments) => controllers::controllers(arguments),
        Bench::Rates(arguments) => rates::rates(arguments),
        Bench::Allocation(arguments) => allocation::allocation(arguments),
        Bench::Movie(arguments) => movie::movie(arguments, command),
        Bench::Migration(arguments) => migration::migration(arguments),
        Bench::Loop(arguments) => control_loop::control_loop(arguments),
        Bench::Referees(arguments) => referees::referees(arguments, command),
        Bench::Neighbours(arguments) => neighbours::neighbours(arguments),
    }
}

fn store(records: cases::Records, rounds: u32, json: Option<&PathBuf>) -> Result<(), Failure> {
    let output = Output::prepare_some(json)?;
    let failed = |error: cases::CaseError| Failure::input([format!("the store of the benchmark failed: {error}")]);
    if records.bytes() > BYTES_MAX {
        return Err(Failure::input([format!(
            "--objects times --value-bytes is {} bytes: at most {} (twice that is written to the temporary folder)",
            count(records.bytes()),
            count(BYTES_MAX)
        )]));
    }
    let interrupt = Interrupt::listen()?;
    let going_on = || match interrupt.asked() {
        true => Err(cases::CaseError::Stopped),
        false => Ok(()),
    };
    let bare = cases::Bare::open(records).map_err(failed)?;
    let stores = cases::Stores::fill(&bare, &going_on).map_err(failed)?;
    let cases = measure(&mut stores.cases(), rounds, &going_on).map_err(failed)?;
    let report = BenchReport { rounds, records, cases };
    print(&told(&report))?;
    output.map_or(Ok(()), |file| file.json(&report))
}

fn told(report: &BenchReport) -> String {
    let mut text = format!(
        "{} rounds, cases interleaved in random order; {} objects of {} bytes, {} temporal objects of {} bytes, nothing synced\n\n{:<32}{:>12}{:>14}   ratio to its bare counterpart\n",
        report.rounds,
        count(report.records.objects.into()),
        report.records.value_bytes,
        count(cases::TEMPORAL_OBJECTS.into()),
        cases::TEMPORAL_BYTES,
        "",
        "median",
        "p99 of one"
    );
    let control = report
        .cases
        .iter()
        .find(|case| case.compared_with.is_none() && case.is_control);
    let floor = control.map_or(0.0, |control| control.one_p99_ns);
    for case in &report.cases {
        let p99 = if case.is_control || case.one_p99_ns > floor {
            nanos(case.one_p99_ns)
        } else {
            "-".into()
        };
        let _ = write!(text, "{:<32}{:>12}{p99:>14}", case.name, nanos(case.median_ns));
        if let (Some(ratio), Some(with)) = (&case.ratio, &case.compared_with) {
            let _ = write!(
                text,
                "   {:.2}  (middle half {:.2} to {:.2})  {with}",
                ratio.median, ratio.quartiles[0], ratio.quartiles[1]
            );
        }
        text.push('\n');
    }
    let _ = writeln!(
        text,
        "\nMedians are of whole batches. \"p99 of one\" is timed one by one and contains reading the clock: where it is not\nabove the control's {}, nothing can be said (-).",
        nanos(floor)
    );
    text
}

fn nanos(ns: f64) -> String {
    match ns {
        ns if ns < 10.0 => format!("{ns:.1} ns"),
        ns if ns < 10_000.0 => format!("{ns:.0} ns"),
        ns => format!("{:.1} us", ns * 1e-3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_bench_measures_every_case() {
        let bare = cases::Bare::open(cases::Records {
            objects: 1000,
            value_bytes: 100,
        })
        .unwrap();
        let stores = cases::Stores::fill(&bare, &|| Ok(())).unwrap();
        let figures = measure(&mut stores.cases(), 3, &|| Ok(())).unwrap();
        assert_eq!(figures.iter().filter(|case| case.is_control).count(), 1);
        for case in &figures {
            assert!(case.median_ns >= 0.0 && case.one_p99_ns > 0.0, "{case:?}");
            assert_eq!(case.ratio.is_some(), case.compared_with.is_some());
        }
    }

    #[test]
    fn nothing_is_said_below_the_control() {
        let case = |name: &str, is_control, one_p99_ns| Figures {
            name: name.into(),
            is_control,
            median_ns: 300.0,
            one_p99_ns,
            compared_with: None,
            ratio: None,
        };
        let report = BenchReport {
            rounds: 3,
            records: cases::Records {
                objects: 1,
                value_bytes: 1,
            },
            cases: vec![
                case("control", true, 40.0),
                case("below", false, 40.0),
                case("above", false, 41.0),
            ],
        };
        let text = told(&report);
        let line = |name: &str| {
            text.lines()
                .find(|line| line.starts_with(name))
                .unwrap()
                .split_whitespace()
                .last()
        };
        assert_eq!((line("below"), line("above")), (Some("-"), Some("ns")));
    }
}
