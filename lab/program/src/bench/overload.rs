//! `punctual-lab bench overload`: requests that servers answer in time when more are offered than they can serve.

use std::path::Path;

use punctual_evaluation::claims::{Goal, Premise};
use punctual_evaluation::overload::{Cell, OverloadPlan, OverloadResult, Row, overload as measure};

use super::WithGoals;
use crate::args::Overload;
use punctual_cli::commands::print;
use punctual_cli::serve::raise_descriptors;
use punctual_files::failure::Failure;
use punctual_report::output::OutputFile;

/// Descriptors that are reserved for other purposes than connections.
const DESCRIPTORS_KEPT: u64 = 64;
/// Goal for our server: the share of its unloaded rate that it serves in time, if at least as much is offered.
const TIMELY_MIN: f64 = 0.9;
/// Least share of a load that must have been offered for a verdict, and greatest share of it that can be answered in
/// time.
const OFFERED: [f64; 2] = [0.95, 1.05];
/// Greatest rate in time for a verdict, as a share of the unloaded one: a server that does more was measured while
/// others had its core, so the load was none that it cannot serve.
const UNLOADED_MOST: f64 = 1.25;

/// Carries out `punctual-lab bench overload`.
pub fn overload(arguments: &Overload) -> Result<(), Failure> {
    let json = OutputFile::report(arguments.json.as_ref())?;
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
        .map_err(|error| Failure::of(format!("the comparison cannot go on: {error}")))?;
    if !is_quiet {
        print(&text(&measured))?;
    }
    match json {
        Some(json) => json.json(&WithGoals {
            report: &measured,
            goals: &goals(&measured),
        }),
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
    text.push('\n');
    goals(measured).iter().for_each(|goal| text += &format!("{goal}\n"));
    text
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

/// The goals of our server, one for each multiple.
fn goals(measured: &OverloadResult) -> Vec<Goal> {
    let ours = measured.servers.first();
    let goal = |(ours, cell): (&Row, &Cell)| {
        let wanted = TIMELY_MIN * cell.multiple.min(1.0);
        let [offered, timely] =
            [cell.offered_per_s, cell.timely_per_s].map(|rate| rate / (cell.multiple * ours.unloaded_per_s));
        let [least, most] = OFFERED;
        let times = |share: f64| format!("{share:.2} of it");
        let [servers, driver] = &measured.cores;
        let premise = Premise::unless(servers != driver, "a core of the driver's own", || "none".into())
            .or_else(|| Premise::within(offered, [least, f64::INFINITY], times))
            .or_else(|| Premise::within(timely, [0.0, most], times))
            .or_else(|| {
                Premise::within(cell.timely_share, [0.0, UNLOADED_MOST], |share| {
                    format!("{share:.2} of unloaded")
                })
            });
        let p99 = cell.p99_ms.unwrap_or_default();
        Goal::of(
            format!(
                "{} at {} times its unloaded rate: p99 at most {} ms, timely at least {wanted:.2} of that rate",
                ours.server, cell.multiple, measured.deadline_ms
            ),
            format!("{p99:.1} ms, {:.2}", cell.timely_share),
            p99 <= measured.deadline_ms && cell.timely_share >= wanted,
            premise,
        )
    };
    let cells = ours
        .into_iter()
        .flat_map(|ours| ours.cells.iter().map(move |cell| (ours, cell)));
    cells.map(goal).collect()
}

#[cfg(test)]
mod tests {
    use punctual_evaluation::claims::Verdict;
    use punctual_evaluation::overload::Check;

    use super::*;

    /// The verdict on a server that serves 1,000 requests a second, with 2,000 asked for.
    fn outcome(offered_per_s: f64, timely_per_s: f64, p99_ms: Option<f64>, driver: usize) -> Verdict {
        let cell = Cell {
            multiple: 2.0,
            offered_per_s,
            timely_per_s,
            late_per_s: 0.0,
            refused_per_s: 0.0,
            unsent_per_s: 0.0,
            failed_per_s: 0.0,
            error: None,
            p50_ms: p99_ms,
            p99_ms,
            timely_share: timely_per_s / 1000.0,
        };
        let row = Row {
            server: "punctual",
            version: String::new(),
            records: 1,
            work_us: 1.0,
            one_at_a_time: Check {
                driver_per_s: 0.0,
                driver_p50_ms: None,
                redis_benchmark_per_s: None,
                redis_benchmark_p50_ms: None,
            },
            unloaded_per_s: 1000.0,
            cells: vec![cell],
        };
        let measured = OverloadResult {
            connections: 1,
            deadline_ms: 500.0,
            cores: [vec![0], vec![driver]],
            offered_s: 5.0,
            servers: vec![row],
            left_out: Vec::new(),
        };
        goals(&measured)[0].outcome
    }

    #[test]
    fn a_load_that_was_not_offered_or_answers_beyond_it_are_not_judged() {
        assert_eq!(outcome(2000.0, 950.0, Some(400.0), 1), Verdict::Holds);
        assert_eq!(outcome(2000.0, 950.0, Some(600.0), 1), Verdict::DoesNotHold);
        assert_eq!(outcome(2000.0, 0.0, None, 1), Verdict::DoesNotHold);
        assert_eq!(outcome(1200.0, 950.0, Some(400.0), 1), Verdict::NotJudged);
        assert_eq!(outcome(2000.0, 9000.0, Some(400.0), 1), Verdict::NotJudged);
        assert_eq!(outcome(2000.0, 950.0, Some(400.0), 0), Verdict::NotJudged);
        assert_eq!(outcome(2000.0, 1900.0, Some(400.0), 1), Verdict::NotJudged);
    }
}
