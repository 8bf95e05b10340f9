//! The text that `punctual-lab bench allocation` prints.

use std::fmt::Write;

use super::timing::SWEEP_EVERY;
use super::{AllocationReport, CostOf, Machine, Nearness};
use punctual_report::columns::columns;
use punctual_report::summary::count;

/// The whole report as text.
pub fn told(report: &AllocationReport) -> String {
    let mut text = format!("{} rounds\n", report.rounds);
    for machine in &report.machines {
        text.push_str(&told_machine(machine));
    }
    let _ = write!(
        text,
        "\nEvery decision of a run in its order, from the tables that an allocator begins with; one in {SWEEP_EVERY} after the core's own caches were\nswept. Each contains reading the clock: the control's figures are the floor. \"of exact\": summed speed over the optimum's.\n",
    );
    text
}

fn told_machine(machine: &Machine) -> String {
    let mut text = format!(
        "\nprofiles {} ({}): {} cores, {} ways (at least {}), {} partitions; {} runs of {} s at utilisation {:.1}\n\n",
        machine.profiles,
        machine.programs.join(", "),
        machine.cores,
        machine.ways,
        machine.least_ways,
        machine.partitions,
        machine.task_sets,
        machine.seconds,
        machine.utilisation,
    );
    let head = [
        "",
        "decisions",
        "changes",
        "median",
        "p99",
        "max",
        "swept: median",
        "p99",
    ];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(machine.costs.iter().map(cost));
    text.push_str(&columns(&rows));
    let _ = writeln!(
        text,
        "\n{} random instants of {} task sets",
        count(machine.instants as u64),
        machine.instants_task_sets
    );
    let mut rows = vec![["", "of exact", "least"].map(String::from).to_vec()];
    rows.extend(machine.nearness.iter().map(nearness));
    text.push_str(&columns(&rows));
    text.push('\n');
    machine.goals.iter().for_each(|goal| text += &format!("{goal}\n"));
    text
}

fn cost(of: &CostOf) -> Vec<String> {
    let cost = &of.cost;
    let ns = [
        cost.median_ns,
        cost.p99_ns,
        cost.max_ns,
        cost.swept_median_ns,
        cost.swept_p99_ns,
    ];
    let counts = [count(of.decisions as u64), count(of.changes)];
    [of.name.to_string()]
        .into_iter()
        .chain(counts)
        .chain(ns.map(super::super::nanos))
        .collect()
}

fn nearness(of: &Nearness) -> Vec<String> {
    vec![
        of.name.to_string(),
        format!("{:.3}", of.of_exact),
        format!("{:.3}", of.of_exact_least),
    ]
}
