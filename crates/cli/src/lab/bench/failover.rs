//! `punctual bench failover`: masters of a federation of processes that are killed, and that stand still, one after the
//! other under load; how long clients went without an acknowledgement, and whether a promise was broken.

use std::path::Path;

use punctual_units::{Nanos, percentile};
use serde::Serialize;

use crate::commands::print;
use crate::failure::Failure;
use crate::federation::run::{Fault, Faults, Outage, Settings, federation};
use crate::lab::args::Failover;
use crate::output::Output;

/// The time from one fault to the next: the node is back after one second, and has caught up.
const EVERY: Nanos = Nanos::from_millis(2500);
/// Before the first.
const FIRST: Nanos = Nanos::from_secs(2);

#[derive(Debug, Serialize)]
struct Gaps {
    p50: Option<f64>,
    p95: Option<f64>,
    max: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Measured {
    log: &'static str,
    replicated: bool,
    nodes: u32,
    rate_per_s: f64,
    kills: usize,
    stops: usize,
    /// Between acknowledgements, around all faults.
    gap_ms: Gaps,
    killed_gap_ms: Gaps,
    stopped_gap_ms: Gaps,
    /// Faults after which no request was acknowledged.
    without_end: usize,
    acknowledged_lost: u64,
    double_masters: u64,
    answers_missing: u64,
    checked: Faults,
}

/// Carries out `punctual bench failover`.
pub fn failover(arguments: &Failover) -> Result<(), Failure> {
    let json = Output::prepare_some(arguments.json.as_ref())?;
    let kills = std::iter::repeat_n(Fault::Kill, arguments.kills as usize);
    let faults: Vec<Fault> = kills
        .chain(std::iter::repeat_n(Fault::Stop, arguments.stops as usize))
        .collect();
    let at = |number: usize| Nanos(FIRST.0 + EVERY.0 * number as u64);
    let planned: Vec<(Nanos, Fault)> = faults.iter().enumerate().map(|(n, fault)| (at(n), *fault)).collect();
    let settings = Settings {
        nodes: arguments.nodes,
        duration: at(faults.len()),
        ..Settings::default()
    };
    let report = federation(&settings, &planned, |_, _| Ok(()))?;
    let of = |which: Option<Fault>| {
        let outages = report.outages.iter();
        let of_kind = outages.filter(move |outage| which.is_none_or(|fault| outage.fault == fault));
        gaps(of_kind)
    };
    let count = |fault| report.outages.iter().filter(|outage| outage.fault == fault).count();
    let measured = Measured {
        log: "local",
        replicated: false,
        nodes: settings.nodes,
        rate_per_s: settings.rate,
        kills: count(Fault::Kill),
        stops: count(Fault::Stop),
        gap_ms: of(None),
        killed_gap_ms: of(Some(Fault::Kill)),
        stopped_gap_ms: of(Some(Fault::Stop)),
        without_end: report.outages.iter().filter(|outage| outage.gap.is_none()).count(),
        acknowledged_lost: report.faults.acknowledged_lost,
        double_masters: report.faults.double_masters,
        answers_missing: report.faults.answers_missing,
        checked: report.faults,
    };
    if arguments.json.as_deref() != Some(Path::new("-")) {
        print(&text(&measured))?;
    }
    if let Some(json) = json {
        json.json(&measured)?;
    }
    match report.faults.any() {
        true => Err(Failure::Refuted("a promise was broken, see above".into())),
        false => Ok(()),
    }
}

fn gaps<'o>(outages: impl Iterator<Item = &'o Outage>) -> Gaps {
    let ms: Vec<f64> = outages
        .filter_map(|outage| outage.gap)
        .map(|gap| gap.0 as f64 * 1e-6)
        .collect();
    let at = |share| percentile(ms.iter().copied(), share);
    Gaps {
        p50: at(0.5),
        p95: at(0.95),
        max: at(1.0),
    }
}

fn text(measured: &Measured) -> String {
    let line = |name: &str, gaps: &Gaps| match (gaps.p50, gaps.p95, gaps.max) {
        (Some(half), Some(most), Some(max)) => format!("  {name}: p50 {half:.1}, p95 {most:.1}, max {max:.1}\n"),
        _ => format!("  {name}: none\n"),
    };
    format!(
        "{} nodes, log: local (not replicated), {} requests/s; the master killed {} times, stopped {} times for 1 \
         s\ngap between acknowledgements in ms:\n{}{}{}without an end: {}; acknowledged_lost {}, double_masters {}, \
         answers_missing {}\n",
        measured.nodes,
        measured.rate_per_s,
        measured.kills,
        measured.stops,
        line("killed", &measured.killed_gap_ms),
        line("stopped", &measured.stopped_gap_ms),
        line("all", &measured.gap_ms),
        measured.without_end,
        measured.acknowledged_lost,
        measured.double_masters,
        measured.answers_missing,
    )
}
