//! What a run came to, for people and for programs.

use std::fmt::Write;

use punctual_units::{Nanos, Time, percentile};
use serde_json::{Value, json};

use super::client::Ending;
use super::{Outage, Report, endings};
use crate::summary::count;

/// The text.
pub(super) fn text(report: &Report) -> String {
    let mut text = String::new();
    let each: Vec<String> = endings(&report.outcome)
        .iter()
        .map(|(name, number)| format!("{name} {}", count(*number)))
        .collect();
    let interrupted = if report.interrupted { ", ended by a signal" } else { "" };
    let _ = writeln!(
        text,
        "answers, timed from the instant at which the request was to be sent (deadline {}): {}{interrupted}",
        report.settings.deadline,
        each.join(", ")
    );
    if let [Some(half), Some(most)] = latencies(report) {
        let _ = writeln!(text, "timely answers took {} (p50), {} (p99)", ms(half), ms(most));
    }
    for outage in &report.outages {
        let _ = writeln!(text, "{}", line(outage));
    }
    let _ = writeln!(
        text,
        "log: {} entries, {} takeovers",
        count(report.entries),
        count(report.takeovers)
    );
    if let Ok(Value::Object(faults)) = serde_json::to_value(report.faults) {
        let each: Vec<String> = faults.iter().map(|(name, number)| format!("{name} {number}")).collect();
        let _ = writeln!(text, "what clients were told, against the log: {}", each.join(", "));
    }
    text
}

fn line(outage: &Outage) -> String {
    let after = |at: Option<Time>| at.map_or("never".into(), |at| ms(at.since(outage.at)));
    let gap = outage.gap.map_or("no end".into(), ms);
    let next = outage.decided.map_or("none".into(), |(node, _)| format!("node {node}"));
    let of_log = outage
        .log_gap
        .map_or(String::new(), |gap| format!(" (of the log alone {})", ms(gap)));
    format!(
        "node {} {}, the master: suspected after {}, next master caught up after {}, decided ({next}) after {}, first \
         acknowledgement after {}; gap between acknowledgements {gap}{of_log}",
        outage.node,
        outage.fault.name(),
        after(outage.suspected),
        after(outage.caught_up),
        after(outage.decided.map(|(_, at)| at)),
        after(outage.acknowledged),
    )
}

fn ms(span: Nanos) -> String {
    format!("{:.1} ms", span.0 as f64 * 1e-6)
}

fn latencies(report: &Report) -> [Option<Nanos>; 2] {
    let timely = || {
        report
            .outcome
            .endings
            .iter()
            .filter(|(ending, _)| *ending == Ending::Timely)
    };
    [0.5, 0.99].map(|share| percentile(timely().map(|(_, took)| *took), share))
}

/// All of it.
pub(super) fn document(report: &Report) -> Value {
    let span = |span: Option<Nanos>| span.map(|span| span.0 as f64 * 1e-6);
    let [half, most] = latencies(report);
    let outages: Vec<Value> = report
        .outages
        .iter()
        .map(|outage| {
            let after = |at: Option<Time>| span(at.map(|at| at.since(outage.at)));
            json!({
                "fault": outage.fault.name(),
                "node": outage.node,
                "suspected_ms": after(outage.suspected),
                "caught_up_ms": after(outage.caught_up),
                "decided_ms": after(outage.decided.map(|(_, at)| at)),
                "next_master": outage.decided.map(|(node, _)| node),
                "acknowledged_ms": after(outage.acknowledged),
                "gap_ms": span(outage.gap),
                "log_gap_ms": span(outage.log_gap),
            })
        })
        .collect();
    json!({
        "log": {
            "kind": report.settings.log.name(),
            "replicated": report.settings.log.is_replicated(),
            "entries": report.entries,
            "takeovers": report.takeovers,
        },
        "nodes": report.settings.nodes,
        "rate_per_s": report.settings.rate,
        "clients": report.settings.clients,
        "deadline_ms": span(Some(report.settings.deadline)),
        "offered_for_s": report.offered_for.as_secs_f64(),
        "interrupted": report.interrupted,
        "answers": endings(&report.outcome),
        "timely_ms": {"p50": span(half), "p99": span(most)},
        "outages": outages,
        "gap_ms": span(report.outages.iter().filter_map(|outage| outage.gap).max()),
        "checked": report.faults,
        "acknowledged_lost": report.faults.acknowledged_lost,
        "double_masters": report.faults.double_masters,
        "answers_missing": report.faults.answers_missing,
    })
}
