//! The results of the movie experiment in words: its goals, its table, the protection that each way of playing
//! obtained.

use std::fmt::Write;

use punctual_evaluation::beside::{LendingSummary, Quantiles};
use punctual_evaluation::claims::{Goal, Premise};
use punctual_evaluation::movie::{Arm, ArmSummary, MovieReport, Run};
use punctual_evaluation::stats::{self, Spread};
use punctual_units::Nanos;

use punctual_report::columns::columns;
use punctual_report::summary::percent;

/// Largest share of late frames that the probe may explain; above it, the machine was too disturbed for a conclusion.
const EXPLAINED_MAX: f64 = 0.01;

/// Goals, written down before the first run: least share of late frames under fair scheduling, least share of other
/// work, longest time to take a core back.
const FAIR_LATE_AT_LEAST: f64 = 0.20;
pub const WORK_AT_LEAST: f64 = 0.95;
/// Greatest share of its work alone that other work can have done beside the player: more means that the run alone,
/// against which it is measured, was disturbed.
pub const WORK_AT_MOST: f64 = 1.2;
const TAKE_BACK_AT_MOST: Nanos = Nanos::from_millis(1);

/// The whole report, for a terminal.
pub fn told(report: &MovieReport) -> String {
    let mut text = setting(report) + "\n\n";
    for (way, lines) in protections(report) {
        let _ = writeln!(text, "{way}: {}", lines.join("\n    "));
    }
    text.push('\n');
    text.push_str(&columns(&table(report)));
    if let Some(measured) = &report.lending {
        text += &lending(measured, "between frames");
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
        let _ = writeln!(text, "{goal}");
    }
    text
}

/// Costs of lending, measured before the runs and during them.
pub fn lending(measured: &LendingSummary, in_play: &str) -> String {
    let all = |of: &Quantiles| format!("p50 {} p99 {} max {}", of.p50, of.p99, of.max);
    format!(
        "\nlending, before each run: handing over {}; taking back {}; no-op control {}\n{in_play}: taking back {}; p99 {} above the control\n",
        all(&measured.hand_over),
        all(&measured.take_back),
        all(&measured.control),
        all(&measured.in_play),
        measured.above_control_p99
    )
}

/// Whether the machine was too disturbed for a conclusion.
pub fn is_inconclusive(report: &MovieReport) -> bool {
    let explained = |dual: &ArmSummary| (dual.late - dual.unexplained) as f64 > EXPLAINED_MAX * dual.frames as f64;
    report.arm(Arm::Dual).is_some_and(explained)
}

/// Text after a film or a disk file that is in memory instead of on a device.
pub const IN_MEMORY: &str = ", WHICH IS MEMORY, without waits; let TMPDIR name a folder on a device to measure them";

/// The settings of the run: the film and the load beside it.
pub fn setting(report: &MovieReport) -> String {
    let plan = &report.plan;
    format!(
        "{} repetitions of {} frames, one per {}, deadline {}; decoding takes {}, frames have {} bytes; {} hogs on {} cores, disk {}; film and disk: {}{}",
        plan.repetitions,
        plan.frames,
        plan.period,
        plan.deadline,
        plan.decode,
        plan.frame_bytes,
        plan.hogs_per_core as usize * report.cores,
        report.cores,
        if plan.busy_disk { "busy" } else { "idle" },
        report.medium.name,
        if report.medium.in_memory { IN_MEMORY } else { "" }
    )
}

/// The protection that each way of playing obtained, once for all repetitions with the same one; the figures are of the
/// first.
pub fn protections(report: &MovieReport) -> Vec<(String, &[String])> {
    let mut told = Vec::new();
    for arm in &report.plan.arms {
        let mut different: Vec<(&Run, Vec<u32>)> = Vec::new();
        for run in report.runs.iter().filter(|run| run.arm == *arm) {
            let same = different.iter_mut().find(|(first, _)| alike(first, run));
            match same {
                Some((_, repetitions)) => repetitions.push(run.repetition + 1),
                None => different.push((run, vec![run.repetition + 1])),
            }
        }
        let all = different.len() == 1;
        told.extend(different.into_iter().map(|(run, repetitions)| {
            let numbers: Vec<String> = repetitions.iter().map(u32::to_string).collect();
            let way = match all {
                true => arm.name().to_owned(),
                false => format!("{} (repetition {})", arm.name(), numbers.join(", ")),
            };
            (way, run.protection.as_slice())
        }));
    }
    told
}

/// Whether two runs obtained the same protection except for figures: number of moved threads, duration of a read.
fn alike(a: &Run, b: &Run) -> bool {
    // Units belong to figures: 990 us and 1 ms are the same protection.
    let figure =
        |word: &&str| !matches!(*word, "ns" | "us" | "ms" | "s") && !word.contains(|c: char| c.is_ascii_digit());
    let shape = |run: &Run| -> Vec<String> {
        let words = |line: &String| line.split_whitespace().filter(figure).collect::<Vec<_>>().join(" ");
        run.protection.iter().map(words).collect()
    };
    a.exclusive == b.exclusive && shape(a) == shape(b)
}

/// A row for each way of playing, below a row of column names.
pub fn table(report: &MovieReport) -> Vec<Vec<String>> {
    let row = |arm: &ArmSummary| {
        let played = arm.frames > 0;
        let of = |text: String| if played { text } else { "-".into() };
        let middle = |shares: &[f64]| stats::median(shares).map_or("-".into(), percent);
        let range = |all: Spread| {
            of(format!(
                "{} ({} to {})",
                percent(all.median),
                percent(all.low),
                percent(all.high)
            ))
        };
        let spread = |shares: &[f64]| Spread::of(shares).map_or("-".into(), range);
        let late = arm.late as f64 / arm.frames.max(1) as f64;
        vec![
            ("", arm.arm.name().into()),
            (
                "late",
                of(format!("{} of {} ({})", arm.late, arm.frames, percent(late))),
            ),
            ("dropped", of(arm.dropped.to_string())),
            ("unexplained", of(arm.unexplained.to_string())),
            ("wake p50", of(arm.wake.p50.to_string())),
            ("wake p99", of(arm.wake.p99.to_string())),
            ("wake max", of(arm.wake.max.to_string())),
            ("done p50", of(arm.completion.p50.to_string())),
            ("done p99", of(arm.completion.p99.to_string())),
            ("done max", of(arm.completion.max.to_string())),
            ("player", of(percent(arm.player_share))),
            ("lent", of(percent(arm.lent_share))),
            ("hogs' work", middle(&arm.interactive.work)),
            ("of equal share", spread(&arm.interactive.work_of_equal_share)),
            ("disk written", middle(&arm.interactive.disk)),
            ("of equal share", spread(&arm.interactive.disk_of_equal_share)),
        ]
    };
    under_head(report.arms.iter().map(row).collect())
}

/// Numbers of the repetitions, from 1, in which dual management was refused the core: their results say nothing about
/// it.
fn without_core(report: &MovieReport) -> Vec<String> {
    let refused = |run: &&Run| run.arm == Arm::Dual && !run.exclusive;
    let refused = report.runs.iter().filter(refused);
    refused.map(|run| (run.repetition + 1).to_string()).collect()
}

/// Premise of each goal about time: the probe, the no-op control, explains at most 1 % of the frames.
fn disturbed(report: &MovieReport) -> Option<Premise> {
    let needs = "a probe that explains at most 1 % of the frames";
    Premise::unless(!is_inconclusive(report), needs, || {
        let dual = report.arm(Arm::Dual);
        let (explained, frames) = dual.map_or((0, 0), |dual| (dual.late - dual.unexplained, dual.frames));
        format!("{explained} of {frames} frames")
    })
}

/// The goals with their verdicts. On a machine that was too disturbed, only the goal about the film's bytes gets a
/// verdict.
pub fn goals(report: &MovieReport) -> Vec<Goal> {
    let mut goals = Vec::new();
    let mut goal = |what: &str, measured: String, holds: bool, premise: Option<Premise>| {
        goals.push(Goal::of(what, measured, holds, premise.or_else(|| disturbed(report))));
    };
    if let Some(fair) = report.arm(Arm::Fair) {
        let late = fair.late as f64 / fair.frames.max(1) as f64;
        goal(
            "the fair baseline is late for at least 20 % of its frames",
            percent(late),
            late >= FAIR_LATE_AT_LEAST,
            Premise::unless(fair.frames > 0, "a played frame", || "none".into()),
        );
    }
    if let Some(dual) = report.arm(Arm::Dual) {
        let without = without_core(report);
        let tried = || {
            let found = || format!("no exclusive core in repetition {}", without.join(", "));
            Premise::unless(without.is_empty(), "an exclusive core in every repetition", found)
        };
        goal(
            "dual management is late for none that the probe does not explain",
            format!("{} late, {} unexplained", dual.late, dual.unexplained),
            dual.unexplained == 0,
            tried(),
        );
        let sides = [
            (
                "the hogs get at least 95 % of an equally large share done",
                (&dual.interactive.work_of_equal_share, &dual.interactive.work),
                report.plan.hogs_per_core > 0,
            ),
            (
                "the disk's writer gets at least 95 % of an equally large share written",
                (&dual.interactive.disk_of_equal_share, &dual.interactive.disk),
                report.plan.busy_disk,
            ),
        ];
        for (what, (shares, of_alone), _) in sides.into_iter().filter(|(.., asked)| *asked) {
            let work = median(shares);
            let measured = match shares.is_empty() {
                true => "nothing to hold it against".into(),
                false => format!("{}, median of the repetitions", percent(work)),
            };
            let some = Premise::unless(!shares.is_empty(), "work in the run without a player", || "none".into());
            let bound = || {
                let most = median(of_alone);
                let needs = format!("at most {} of the work without a player", percent(WORK_AT_MOST));
                Premise::unless(most <= WORK_AT_MOST, &needs, || percent(most))
            };
            goal(what, measured, work >= WORK_AT_LEAST, tried().or(some).or_else(bound));
        }
    }
    if report.plan.arms.iter().any(|arm| arm.exclusive()) {
        let above = report.lending.map(|lending| lending.above_control_p99);
        goals.push(taken_back(above, disturbed(report)));
    }
    let wrong: u64 = report.arms.iter().map(|arm| arm.wrong).sum();
    goals.push(Goal::of(
        "every frame has the bytes of the file",
        format!("{wrong} have not"),
        wrong == 0,
        None,
    ));
    goals
}

/// The goal on taking a core back, by the time `above` the control at p99; `None`: none was lent.
pub fn taken_back(above: Option<Nanos>, premise: Option<Premise>) -> Goal {
    let lent = Premise::unless(above.is_some(), "a core that was lent", || "none".into());
    Goal::of(
        "taking the core back costs less than 1 ms at p99 above the control",
        above.map_or("no core was lent".into(), |above| above.to_string()),
        above.is_some_and(|above| above < TAKE_BACK_AT_MOST),
        lent.or(premise),
    )
}

/// Rows of named cells, below a row of the names.
pub fn under_head(rows: Vec<Vec<(&'static str, String)>>) -> Vec<Vec<String>> {
    let head: Vec<String> = rows.iter().take(1).flatten().map(|(name, _)| (*name).into()).collect();
    let cells = rows
        .into_iter()
        .map(|row| row.into_iter().map(|(_, cell)| cell).collect());
    std::iter::once(head).chain(cells).collect()
}

/// The median; 0 for an empty list.
pub fn median(figures: &[f64]) -> f64 {
    stats::median(figures).unwrap_or(0.0)
}

#[cfg(test)]
pub(crate) mod tests;
