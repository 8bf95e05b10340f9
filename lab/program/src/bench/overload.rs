//! `punctual-lab bench overload`: requests that servers answer in time when more are offered than they can serve.

use std::path::Path;

use punctual_evaluation::overload::{Cell, OverloadPlan, OverloadResult, Row, overload as measure};

use crate::args::Overload;
use punctual_cli::commands::print;
use punctual_cli::serve::raise_descriptors;
use punctual_files::failure::Failure;
use punctual_report::output::OutputFile;

/// Descriptors that are reserved for other purposes than connections.
const DESCRIPTORS_KEPT: u64 = 64;
/// Goal for our server: the share of its unloaded rate that it serves in time, if at least as much is offered.
const TIMELY_MIN: f64 = 0.9;

/// Carries out `punctual-lab bench overload`.
pub fn overload(arguments: &Overload) -> Result<(), Failure> {
    let json = OutputFile::prepare_some(arguments.json.as_ref())?;
    let is_quiet = arguments.json.as_deref() == Some(Path::new("-"));
    // Behind HAProxy each connection takes two descriptors.
    let room = raise_descriptors().map(|all| all.saturating_sub(DESCRIPTORS_KEPT) / 2);
    let asked = arguments.connections as usize;
    let connections = asked.min(room.map_or(asked, |room| room as usize));
    if connections < asked {
        let words = "because a process may have no more descriptors: raise `ulimit -n`";
        print(&format!("{connections} connections in place of {asked}, {words}\n"))?;
    }
    let plan = OverloadPlan {
        program: "/proc/self/exe".into(),
        connections,
        multiples: arguments.multiples.clone(),
        rounds: arguments.repetitions,
        length: arguments.duration,
        deadline: arguments.deadline,
        work: arguments.work,
        seed: arguments.seed,
    };
    let measured = measure(&plan, &mut |words| eprintln!("{words}"))
        .map_err(|error| Failure::input([format!("the comparison cannot go on: {error}")]))?;
    if !is_quiet {
        print(&text(&measured))?;
    }
    match json {
        Some(json) => json.json(&measured),
        None => Ok(()),
    }
}

fn text(measured: &OverloadResult) -> String {
    let [servers, driver] = &measured.cores;
    let mut text = format!(
        "{} connections, a deadline of {} ms; the servers on cores {servers:?}, the driver on {driver:?}; rates per \
         second over {} s\n",
        measured.connections, measured.deadline_ms, measured.offered_s
    );
    measured.servers.iter().for_each(|row| text += &server(row));
    for left_out in &measured.left_out {
        text += &format!("left out: {left_out}\n");
    }
    text + &verdict(measured)
}

fn server(row: &Row) -> String {
    let shown = |value: Option<f64>, digits: usize| value.map_or("-".into(), |value| format!("{value:.digits$}"));
    let check = row.one_at_a_time;
    let mut text = format!(
        "\n{} ({}): {} records, {:.0} us of work a request; unloaded {:.0}\n  one at a time: {:.0} and p50 {} ms by this \
         driver, {} and {} ms by redis-benchmark\n",
        row.server,
        row.version,
        row.records,
        row.work_us,
        row.unloaded_per_s,
        check.driver_per_s,
        shown(check.driver_p50_ms, 3),
        shown(check.redis_benchmark_per_s, 0),
        shown(check.redis_benchmark_p50_ms, 3),
    );
    text += "  times   offered  timely    late  refused  unsent  failed   p50 ms   p99 ms  timely/unloaded\n";
    for cell in &row.cells {
        text += &format!(
            "  {:>5} {:>9.0} {:>7.0} {:>7.0} {:>8.0} {:>7.0} {:>7.0} {:>8} {:>8} {:>16.2}\n",
            cell.multiple,
            cell.offered_per_s,
            cell.timely_per_s,
            cell.late_per_s,
            cell.refused_per_s,
            cell.unsent_per_s,
            cell.failed_per_s,
            shown(cell.p50_ms, 1),
            shown(cell.p99_ms, 1),
            cell.timely_share,
        );
        if let Some(error) = &cell.error {
            text += &format!("        the first failure: {error}\n");
        }
    }
    text
}

fn verdict(measured: &OverloadResult) -> String {
    let Some(ours) = measured.servers.first() else {
        return String::new();
    };
    let is_kept = |cell: &Cell| {
        let wanted = TIMELY_MIN * cell.multiple.min(1.0);
        cell.p99_ms.is_none_or(|p99| p99 <= measured.deadline_ms) && cell.timely_share >= wanted
    };
    let kept = ours.cells.iter().filter(|cell| is_kept(cell)).count();
    format!(
        "\nasked of {}: p99 of what is served at most {} ms, and timely at least {TIMELY_MIN} of what it serves unloaded, \
         or of what is offered where that is less: kept at {kept} of {} multiples\n",
        ours.server,
        measured.deadline_ms,
        ours.cells.len()
    )
}
