//! Report of a run as text and as JSON.

use std::fmt::Write;

use punctual_units::{Nanos, Time};
use serde_json::{Value, json};

use super::{Fault, NAMED_MAX, Outage, TrialReport};
use punctual_report::summary::{count, percent};

/// Report as text, one line per figure.
pub(super) fn text(report: &TrialReport) -> String {
    let mut text = String::new();
    if report.interrupted {
        text.push_str("ended by a signal\n");
    }
    text.push_str(&report.tally.text());
    for outage in report.outages.iter().take(NAMED_MAX) {
        let _ = writeln!(text, "{}", line(outage));
    }
    if report.outages.len() > NAMED_MAX {
        let _ = writeln!(text, "and {} more faults", report.outages.len() - NAMED_MAX);
    }
    let shares = report.usage.shares();
    for (name, [early, late]) in report.usage.rows() {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let _ = writeln!(
            text,
            "{name} took {} of a core, at most {:.1} MiB and {} descriptors in the second quarter, {:.1} MiB and {} in \
             the last",
            shares.get(&name).map_or("-".into(), |share| percent(*share)),
            mib(early.bytes),
            early.descriptors,
            mib(late.bytes),
            late.descriptors
        );
    }
    let _ = writeln!(
        text,
        "log: {} entries, {} takeovers",
        count(report.entries),
        count(report.takeovers)
    );
    if let Ok(Value::Object(faults)) = serde_json::to_value(report.faults) {
        let each: Vec<String> = faults.iter().map(|(name, number)| format!("{name} {number}")).collect();
        let _ = writeln!(text, "answers to clients, against the log: {}", each.join(", "));
    }
    text
}

fn line(outage: &Outage) -> String {
    let Outage { name, fault, at, .. } = outage;
    let after = |instant: Option<Time>| instant.map_or("never".into(), |instant| ms(instant.since(*at)));
    let gap = |gap: Option<Nanos>| gap.map_or("no end".into(), ms);
    let cost = format!(
        "gap between answers to reads {}, {} requests not answered in time until it was back after {}",
        gap(outage.reads_gap),
        count(outage.not_served),
        after(outage.back),
    );
    match fault {
        Fault::ReplicaKill => format!(
            "{name} killed, a replica: gap between acknowledgements {}, {cost}",
            gap(outage.gap)
        ),
        Fault::BalancerKill => format!(
            "{name} killed: its clients had no answer for {}; {cost}",
            gap(outage.gap)
        ),
        _ => {
            let of_log = outage
                .log_gap
                .map_or(String::new(), |gap| format!(" (of the log alone {})", ms(gap)));
            let next = outage.decided.map_or("none".into(), |(node, _)| format!("node {node}"));
            format!(
                "{name} {}, the master: suspected after {}, next master caught up after {}, decided ({next}) after {}, \
                 first acknowledgement after {}; gap between acknowledgements {}{of_log}; {cost}",
                fault.name(),
                after(outage.suspected),
                after(outage.caught_up),
                after(outage.decided.map(|(_, at)| at)),
                after(outage.acknowledged),
                gap(outage.gap),
            )
        }
    }
}

fn ms(span: Nanos) -> String {
    format!("{:.1} ms", span.0 as f64 * 1e-6)
}

/// Report as a JSON object.
pub(super) fn document(report: &TrialReport) -> Value {
    let span = |span: Option<Nanos>| span.map(|span| span.0 as f64 * 1e-6);
    let outages: Vec<Value> = report
        .outages
        .iter()
        .map(|outage| {
            let after = |at: Option<Time>| span(at.map(|at| at.since(outage.at)));
            json!({
                "fault": outage.fault.name(),
                "process": outage.name,
                "suspected_ms": after(outage.suspected),
                "caught_up_ms": after(outage.caught_up),
                "decided_ms": after(outage.decided.map(|(_, at)| at)),
                "next_master": outage.decided.map(|(node, _)| node),
                "acknowledged_ms": after(outage.acknowledged),
                "gap_ms": span(outage.gap),
                "reads_gap_ms": span(outage.reads_gap),
                "log_gap_ms": span(outage.log_gap),
                "back_ms": after(outage.back),
                "not_served": outage.not_served,
            })
        })
        .collect();
    let settings = &report.settings;
    json!({
        "log": {
            "kind": settings.log.name(),
            "replicated": settings.log.is_replicated(),
            "entries": report.entries,
            "takeovers": report.takeovers,
        },
        "nodes": settings.cluster.nodes,
        "balancers": settings.cluster.balancers,
        "clients": settings.clients(),
        "writes": settings.writes,
        "work_ms": span(Some(settings.cluster.work)),
        "interrupted": report.interrupted,
        "load": report.tally.document(),
        "answers": report.tally.answers(),
        "outages": outages,
        "gap_ms": span(report.outages.iter().filter_map(|outage| outage.gap).max()),
        "usage": report.usage.samples,
        "core_shares": report.usage.shares(),
        "grew": report.usage.growth(report.settings.clients()),
        "checked": report.faults,
        "acknowledged_lost": report.faults.acknowledged_lost,
        "double_masters": report.faults.double_masters,
        "answers_missing": report.faults.answers_missing,
    })
}
