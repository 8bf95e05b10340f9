//! `punctual bench failover`: masters of a federation of processes that are killed, and that stand still, one after the
//! other under load; how long clients went without an acknowledgement, and whether a promise was broken.

use std::path::Path;

use punctual_units::{Nanos, percentile};
use serde::Serialize;

use crate::args::LogKind;
use crate::commands::print;
use crate::failure::Failure;
use crate::federation::run::{Fault, Faults, Settings, federation};
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
    leader_kills: usize,
    both_kills: usize,
    /// Between acknowledgements, around all faults.
    gap_ms: Gaps,
    killed_gap_ms: Gaps,
    stopped_gap_ms: Gaps,
    leader_killed_gap_ms: Gaps,
    both_killed_gap_ms: Gaps,
    /// Between acknowledgements of the log to a bare client, around faults of its leader.
    log_gap_ms: Gaps,
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
    let planned = [
        (Fault::Kill, arguments.kills),
        (Fault::Stop, arguments.stops),
        (Fault::Leader, arguments.leader_kills),
        (Fault::Both, arguments.both_kills),
    ];
    let faults: Vec<Fault> = planned
        .iter()
        .flat_map(|(fault, count)| std::iter::repeat_n(*fault, *count as usize))
        .collect();
    if arguments.leader_kills + arguments.both_kills > 0 && arguments.log != LogKind::Members {
        let why = "--leader-kills, --both-kills: only an etcd that this starts is killed: add --log etcd";
        return Err(Failure::input([why]));
    }
    let at = |number: usize| Nanos(FIRST.0 + EVERY.0 * number as u64);
    let planned: Vec<(Nanos, Fault)> = faults.iter().enumerate().map(|(n, fault)| (at(n), *fault)).collect();
    let settings = Settings {
        nodes: arguments.nodes,
        duration: at(faults.len()),
        log: arguments.log.clone(),
        ..Settings::default()
    };
    let report = federation(&settings, &planned, |_, _| Ok(()))?;
    let of = |which: Option<Fault>| {
        let outages = report.outages.iter();
        let of_kind = outages.filter(move |outage| which.is_none_or(|fault| outage.fault == fault));
        gaps(of_kind.map(|outage| outage.gap))
    };
    let of_log = || {
        let outages = report.outages.iter();
        let led = outages.filter(|outage| matches!(outage.fault, Fault::Leader | Fault::Both));
        gaps(led.map(|outage| outage.log_gap))
    };
    let count = |fault| report.outages.iter().filter(|outage| outage.fault == fault).count();
    let measured = Measured {
        log: settings.log.name(),
        replicated: settings.log.is_replicated(),
        nodes: settings.nodes,
        rate_per_s: settings.rate,
        kills: count(Fault::Kill),
        stops: count(Fault::Stop),
        leader_kills: count(Fault::Leader),
        both_kills: count(Fault::Both),
        gap_ms: of(None),
        killed_gap_ms: of(Some(Fault::Kill)),
        stopped_gap_ms: of(Some(Fault::Stop)),
        leader_killed_gap_ms: of(Some(Fault::Leader)),
        both_killed_gap_ms: of(Some(Fault::Both)),
        log_gap_ms: of_log(),
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

fn gaps(gaps: impl Iterator<Item = Option<Nanos>>) -> Gaps {
    let ms: Vec<f64> = gaps.flatten().map(|gap| gap.0 as f64 * 1e-6).collect();
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
    let replicated = if measured.replicated {
        "replicated"
    } else {
        "not replicated"
    };
    let mut text = format!(
        "{} nodes, log: {} ({replicated}), {} requests/s; the master killed {} times, stopped {} times for 1 s\n",
        measured.nodes, measured.log, measured.rate_per_s, measured.kills, measured.stops
    );
    let of_leader = measured.leader_kills + measured.both_kills > 0;
    if of_leader {
        text += &format!(
            "the leader of the log killed {} times, with the master {} times\n",
            measured.leader_kills, measured.both_kills
        );
    }
    text += "gap between acknowledgements in ms:\n";
    text += &line("killed", &measured.killed_gap_ms);
    text += &line("stopped", &measured.stopped_gap_ms);
    if of_leader {
        text += &line("the log's leader killed", &measured.leader_killed_gap_ms);
        text += &line("both killed", &measured.both_killed_gap_ms);
        text += &line("of the log alone, in these", &measured.log_gap_ms);
    }
    text += &line("all", &measured.gap_ms);
    text + &format!(
        "without an end: {}; acknowledged_lost {}, double_masters {}, answers_missing {}\n",
        measured.without_end, measured.acknowledged_lost, measured.double_masters, measured.answers_missing,
    )
}
