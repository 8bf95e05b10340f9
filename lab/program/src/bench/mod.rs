//! `punctual-lab bench`: measurements of `punctual` on this machine, each in a file of its own.

mod allocation;
mod control_loop;
mod controllers;
mod failover;
mod migration;
mod movie;
mod neighbours;
mod overload;
mod rates;
mod referees;
mod replication;
mod series;
mod store;

use crate::args::Bench;
use punctual_evaluation::claims::{Goal, Premise};
use punctual_files::failure::Failure;
use punctual_runtime::report::Summary;
use serde::Serialize;

/// Carries out `punctual-lab bench`; `command` is the command line as typed.
pub fn bench(arguments: &Bench, command: &str) -> Result<(), Failure> {
    match arguments {
        Bench::Store {
            repetitions,
            objects,
            value_bytes,
            json,
        } => {
            let records = store::Records {
                objects: *objects,
                value_bytes: *value_bytes as usize,
            };
            store::store(records, *repetitions, json.as_ref())
        }
        Bench::Controllers(arguments) => controllers::controllers(arguments),
        Bench::Rates(arguments) => rates::rates(arguments),
        Bench::Allocation(arguments) => allocation::allocation(arguments),
        Bench::Movie(arguments) => movie::movie(arguments, command),
        Bench::Migration(arguments) => migration::migration(arguments),
        Bench::Loop(arguments) => control_loop::control_loop(arguments),
        Bench::Referees(arguments) => referees::referees(arguments, command),
        Bench::Neighbours(arguments) => neighbours::neighbours(arguments),
        Bench::Failover(arguments) => failover::failover(arguments),
        Bench::Replication(arguments) => replication::replication(arguments),
        Bench::Overload(arguments) => overload::overload(arguments),
    }
}

/// The quantile `q` of `values`; 0 if there are none.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    punctual_units::percentile(values.iter().copied(), q).unwrap_or(0.0)
}

/// JSON output: a report, with its goals.
#[derive(Serialize)]
struct WithGoals<'r, R> {
    #[serde(flatten)]
    report: &'r R,
    goals: &'r [Goal],
}

/// The premise that something else kept few jobs from running.
fn undisturbed(summary: &Summary) -> Option<Premise> {
    let needs = "a quieter machine, with at most 1 % of the jobs excused";
    Premise::unless(!summary.inconclusive, needs, || {
        format!("{} of {}", summary.excused, summary.jobs)
    })
}

fn nanos(ns: f64) -> String {
    match ns {
        ns if ns < 10.0 => format!("{ns:.1} ns"),
        ns if ns < 10_000.0 => format!("{ns:.0} ns"),
        ns if ns < 10_000_000.0 => format!("{:.1} us", ns * 1e-3),
        ns => format!("{:.1} ms", ns * 1e-6),
    }
}
