//! What the movie experiment amounts to, in words: its goals, its table, what each way obtained.

use std::fmt::Write;

use punctual_runtime::linux::movie::{Arm, ArmSummary, MovieReport, Run};
use punctual_units::Nanos;
use serde::Serialize;

use crate::commands::bench::columns::columns;
use crate::commands::bench::rounds::quantile;

/// More explained frames than this, and the machine was too disturbed to conclude anything.
const EXPLAINED_MAX: f64 = 0.01;

/// Goals, written down before the first run.
const FAIR_LATE_AT_LEAST: f64 = 0.20;
const WORK_AT_LEAST: f64 = 0.95;
const TAKE_BACK_AT_MOST: Nanos = Nanos::from_millis(1);

/// One goal and what came of it.
#[derive(Debug, Serialize)]
pub struct Goal {
    /// What was to be reached.
    pub what: String,
    /// What was.
    pub measured: String,
    /// Whether that is enough.
    pub holds: bool,
}

/// All of it, for a terminal.
pub fn told(report: &MovieReport) -> String {
    let mut text = setting(report) + "\n\n";
    for (arm, lines) in protections(report) {
        let _ = writeln!(text, "{arm}: {}", lines.join("\n    "));
    }
    text.push('\n');
    text.push_str(&columns(&table(report)));
    if let Some(lending) = report.lending {
        let _ = writeln!(
            text,
            "\nlending: handing over p50 {} p99 {}; taking back p50 {} p99 {} max {}; no-op control p50 {} p99 {} max {}",
            lending.hand_over.p50,
            lending.hand_over.p99,
            lending.take_back.p50,
            lending.take_back.p99,
            lending.take_back.max,
            lending.control.p50,
            lending.control.p99,
            lending.control.max
        );
    }
    if let Some(probe) = report.probe {
        let _ = writeln!(
            text,
            "probe on the player's core: p50 {} p99 {} max {}",
            probe.p50, probe.p99, probe.max
        );
    }
    text.push('\n');
    for goal in goals(report) {
        let holds = if goal.holds { "holds" } else { "does not hold" };
        let _ = writeln!(text, "{holds:<14} {}: {}", goal.what, goal.measured);
    }
    if is_inconclusive(report) {
        let _ = writeln!(text, "{INCONCLUSIVE}");
    }
    text
}

/// What is said of a run on a machine that was too disturbed.
pub const INCONCLUSIVE: &str =
    "inconclusive: the probe explains more than 1 % of the frames; the machine was too disturbed";

/// Whether it was.
pub fn is_inconclusive(report: &MovieReport) -> bool {
    let explained = |dual: &ArmSummary| (dual.late - dual.unexplained) as f64 > EXPLAINED_MAX * dual.frames as f64;
    report.arm(Arm::Dual).is_some_and(explained)
}

/// What was played, and beside what.
pub fn setting(report: &MovieReport) -> String {
    let plan = &report.plan;
    format!(
        "{} repetitions of {} frames, one per {}, deadline {}; decoding takes {}, frames have {} bytes; {} hogs on {} cores, disk {}",
        plan.repetitions,
        plan.frames,
        plan.period,
        plan.deadline,
        plan.decode,
        plan.frame_bytes,
        plan.hogs_per_core as usize * report.cores,
        report.cores,
        if plan.busy_disk { "busy" } else { "idle" }
    )
}

/// What each arm obtained in its first run; later runs that differ are in the JSON.
pub fn protections(report: &MovieReport) -> Vec<(&'static str, &[String])> {
    let first = report
        .runs
        .iter()
        .filter(|run| run.repetition == 0 && run.arm != Arm::Alone);
    first.map(|run| (run.arm.name(), run.protection.as_slice())).collect()
}

/// One row for each way, below a head.
pub fn table(report: &MovieReport) -> Vec<Vec<String>> {
    let head = [
        "",
        "late",
        "dropped",
        "unexplained",
        "wake p50",
        "wake p99",
        "wake max",
        "done p50",
        "done p99",
        "done max",
        "player",
        "lent",
        "work",
        "of equal share",
    ];
    let row = |arm: &ArmSummary| {
        let share = |share: f64| format!("{:.1} %", share * 100.0);
        let played = arm.frames > 0;
        let of = |text: String| if played { text } else { "-".into() };
        vec![
            arm.arm.name().into(),
            of(format!(
                "{} of {} ({})",
                arm.late,
                arm.frames,
                share(arm.late as f64 / arm.frames.max(1) as f64)
            )),
            of(arm.dropped.to_string()),
            of(arm.unexplained.to_string()),
            of(arm.wake.p50.to_string()),
            of(arm.wake.p99.to_string()),
            of(arm.wake.max.to_string()),
            of(arm.completion.p50.to_string()),
            of(arm.completion.p99.to_string()),
            of(arm.completion.max.to_string()),
            of(share(arm.player_share)),
            of(share(arm.lent_share)),
            share(median(&arm.work)),
            of(format!(
                "{} ({} to {})",
                share(median(&arm.work_of_equal_share)),
                share(least(&arm.work_of_equal_share)),
                share(most(&arm.work_of_equal_share))
            )),
        ]
    };
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(report.arms.iter().map(row));
    rows
}

/// Runs of dual management that were refused the core: what came of them says nothing about it.
fn without_core(report: &MovieReport) -> usize {
    let refused = |run: &&Run| run.arm == Arm::Dual && !run.exclusive;
    report.runs.iter().filter(refused).count()
}

/// The goals, and whether they hold.
pub fn goals(report: &MovieReport) -> Vec<Goal> {
    let mut goals = Vec::new();
    let mut goal = |what: &str, measured: String, holds| {
        goals.push(Goal {
            what: what.into(),
            measured,
            holds,
        });
    };
    if let Some(fair) = report.arm(Arm::Fair) {
        let late = fair.late as f64 / fair.frames.max(1) as f64;
        goal(
            "the fair baseline is late for at least 20 % of its frames",
            format!("{:.1} %", late * 100.0),
            late >= FAIR_LATE_AT_LEAST,
        );
    }
    if let Some(dual) = report.arm(Arm::Dual) {
        let without = without_core(report);
        let (but, tried) = match without {
            0 => (String::new(), true),
            runs => {
                let all = report.plan.repetitions;
                (
                    format!("; but without a core of its own in {runs} of {all} runs"),
                    false,
                )
            }
        };
        goal(
            "dual management is late for none that the probe does not explain",
            format!("{} late, {} unexplained{but}", dual.late, dual.unexplained),
            tried && dual.unexplained == 0,
        );
        let work = median(&dual.work_of_equal_share);
        goal(
            "the interactive side gets at least 95 % of an equally large share done",
            format!("{:.1} %, median of the repetitions{but}", work * 100.0),
            tried && work >= WORK_AT_LEAST,
        );
    }
    if let Some(lending) = report.lending {
        let above = lending.above_control_p99;
        goal(
            "taking the core back costs less than 1 ms at p99 above the control",
            above.to_string(),
            above < TAKE_BACK_AT_MOST,
        );
    }
    let wrong: u64 = report.arms.iter().map(|arm| arm.wrong).sum();
    goal(
        "every frame has the bytes of the file",
        format!("{wrong} have not"),
        wrong == 0,
    );
    goals
}

/// The middle one; 0 of none.
pub fn median(figures: &[f64]) -> f64 {
    quantile(figures, 0.5)
}

fn least(figures: &[f64]) -> f64 {
    figures.iter().copied().reduce(f64::min).unwrap_or(0.0)
}

fn most(figures: &[f64]) -> f64 {
    figures.iter().copied().reduce(f64::max).unwrap_or(0.0)
}
