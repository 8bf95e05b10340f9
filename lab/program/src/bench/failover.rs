//! `punctual-lab bench failover`: kills, stops, cuts off and replaces processes of a federation, one after the other
//! under load; measures the gaps in clients' answers, and checks that no promise was broken.

use std::collections::BTreeMap;
use std::path::Path;

use punctual_units::{Nanos, percentile};
use serde::Serialize;

use crate::args::Failover;
use crate::args::{Fault, LogKind};
use crate::cluster::run::{Disagreements, Outage, TrialSettings, federation};
use punctual_cli::commands::print;
use punctual_files::failure::Failure;
use punctual_files::local::LocalSettings;
use punctual_report::output::OutputFile;

/// Least time from one fault to the next: the process is back after one second, and has caught up.
const EVERY: Nanos = Nanos::from_millis(2500);
/// Time before the first fault.
const FIRST: Nanos = Nanos::from_secs(2);
/// Requests a second: far below what nodes can serve, so that a late answer is due to a fault.
const RATE: f64 = 400.0;

#[derive(Debug, Serialize)]
struct Gaps {
    p50: Option<f64>,
    p95: Option<f64>,
    max: Option<f64>,
}

/// Results of all faults of one kind.
#[derive(Debug, Serialize)]
struct Row {
    times: usize,
    /// Gaps between acknowledgements of transactions; for a balancer: between answers to its clients.
    gap_ms: Gaps,
    /// Gaps between answers to reads.
    reads_gap_ms: Gaps,
    /// Gaps between the log's acknowledgements to a bare client, if the log's leader was killed.
    log_gap_ms: Gaps,
    /// Faults after which no request was acknowledged.
    without_end: usize,
    /// Requests that were not answered in time, from each fault until the process was back.
    not_served: u64,
}

#[derive(Debug, Serialize)]
struct FailoverReport {
    log: &'static str,
    replicated: bool,
    nodes: u32,
    balancers: u32,
    rate_per_s: f64,
    /// Gaps around all faults of the master except its replacement.
    gap_ms: Gaps,
    /// Gaps in reads around all faults.
    reads_gap_ms: Gaps,
    kinds: BTreeMap<&'static str, Row>,
    acknowledged_lost: u64,
    double_masters: u64,
    answers_missing: u64,
    checked: Disagreements,
}

/// Carries out `punctual-lab bench failover`.
pub fn failover(arguments: &Failover) -> Result<(), Failure> {
    let json = OutputFile::report(arguments.json.as_ref())?;
    let counts = [
        (Fault::Kill, arguments.kills),
        (Fault::Stop, arguments.stops),
        (Fault::Cut, arguments.cuts),
        (Fault::ReplicaKill, arguments.replica_kills),
        (Fault::BalancerKill, arguments.balancer_kills),
        (Fault::Upgrade, arguments.upgrades),
        (Fault::Leader, arguments.leader_kills),
        (Fault::Both, arguments.both_kills),
    ];
    let faults: Vec<Fault> = counts
        .into_iter()
        .flat_map(|(fault, times)| std::iter::repeat_n(fault, times as usize))
        .collect();
    if arguments.leader_kills + arguments.both_kills > 0 && arguments.log != LogKind::Members {
        let why = "--leader-kills, --both-kills: only an etcd that this starts is killed: add --log etcd";
        return Err(Failure::of(why));
    }
    let at = |number: usize| Nanos(FIRST.0 + EVERY.0 * number as u64);
    let planned: Vec<(Nanos, Fault)> = faults.iter().enumerate().map(|(n, fault)| (at(n), *fault)).collect();
    let settings = TrialSettings {
        cluster: LocalSettings {
            nodes: arguments.nodes,
            duration: Some(at(faults.len())),
            ..LocalSettings::default()
        },
        rate: Some(RATE),
        writes: 0.5,
        log: arguments.log.clone(),
        ..TrialSettings::default()
    };
    let report = federation(&settings, &planned, |_| Ok(()))?;
    let of = |fault: Fault| report.outages.iter().filter(move |outage| outage.fault == fault);
    let row = |fault: Fault| Row {
        times: of(fault).count(),
        gap_ms: gaps(of(fault), |outage| outage.gap),
        reads_gap_ms: gaps(of(fault), |outage| outage.reads_gap),
        log_gap_ms: gaps(of(fault), |outage| outage.log_gap),
        without_end: of(fault).filter(|outage| outage.gap.is_none()).count(),
        not_served: of(fault).map(|outage| outage.not_served).sum(),
    };
    let kinds = Fault::ALL.into_iter().filter(|fault| of(*fault).count() > 0);
    let of_master = |outage: &&Outage| matches!(outage.fault, Fault::Kill | Fault::Stop | Fault::Cut);
    let measured = FailoverReport {
        log: settings.log.name(),
        replicated: settings.log.is_replicated(),
        nodes: settings.cluster.nodes,
        balancers: settings.cluster.balancers,
        rate_per_s: RATE,
        gap_ms: gaps(report.outages.iter().filter(of_master), |outage| outage.gap),
        reads_gap_ms: gaps(report.outages.iter(), |outage| outage.reads_gap),
        kinds: kinds.map(|fault| (fault.name(), row(fault))).collect(),
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
    report.verdict()
}

fn gaps<'o>(outages: impl Iterator<Item = &'o Outage>, gap: impl Fn(&Outage) -> Option<Nanos>) -> Gaps {
    let ms: Vec<f64> = outages.filter_map(gap).map(|gap| gap.0 as f64 * 1e-6).collect();
    let at = |share| percentile(ms.iter().copied(), share);
    Gaps {
        p50: at(0.5),
        p95: at(0.95),
        max: at(1.0),
    }
}

fn text(measured: &FailoverReport) -> String {
    let line = |gaps: &Gaps| match (gaps.p50, gaps.p95, gaps.max) {
        (Some(half), Some(most), Some(max)) => format!("p50 {half:.1}, p95 {most:.1}, max {max:.1}"),
        _ => "none".into(),
    };
    let mut text = format!(
        "{} nodes, {} balancers, log: {} ({}), {} requests/s, half of them write\ngap in ms between \
         acknowledgements of transactions (of a balancer: answers to its clients), and between answers to reads:\n",
        measured.nodes,
        measured.balancers,
        measured.log,
        if measured.replicated {
            "replicated"
        } else {
            "not replicated"
        },
        measured.rate_per_s,
    );
    for (name, row) in &measured.kinds {
        let of_log = match row.log_gap_ms.max {
            Some(_) => format!(" (of the log alone {})", line(&row.log_gap_ms)),
            None => String::new(),
        };
        text.push_str(&format!(
            "  {name} {} times: {}{of_log}; reads {}; without an end {}, requests not answered in time {}\n",
            row.times,
            line(&row.gap_ms),
            line(&row.reads_gap_ms),
            row.without_end,
            row.not_served,
        ));
    }
    text.push_str(&format!(
        "  the master killed, stopped, cut: {}; reads around all faults {}\nacknowledged_lost {}, double_masters {}, \
         answers_missing {}\n",
        line(&measured.gap_ms),
        line(&measured.reads_gap_ms),
        measured.acknowledged_lost,
        measured.double_masters,
        measured.answers_missing,
    ));
    text
}
