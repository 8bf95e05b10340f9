//! `punctual bench movie`: the second paper's player for real, three ways and one more, by turns.

use std::fmt::Write;
use std::path::Path;

use punctual_runtime::linux::movie::{Arm, ArmSummary, MovieError, MoviePlan, MovieReport, play};
use punctual_units::Nanos;
use punctual_workload::{Arrival, Class};
use serde::Serialize;

use super::super::print;
use super::columns::columns;
use super::series::{Interrupt, tell};
use crate::args::Movie;
use crate::failure::Failure;
use crate::output::Output;
use crate::scenario::{self, Loaded};

/// What is played without a scenario on the command line, and where it lies in the project's folder.
const SHIPPED: &str = "scenarios/movie.toml";
/// The paper's player sleeps for the better part of a period: decoding takes no more than this.
const DECODE_MAX: f64 = 0.4;
/// More explained frames than this, and the machine was too disturbed to conclude anything.
const EXPLAINED_MAX: f64 = 0.01;

/// Goals, written down before the first run.
const FAIR_LATE_AT_LEAST: f64 = 0.20;
const WORK_AT_LEAST: f64 = 0.95;
const TAKE_BACK_AT_MOST: Nanos = Nanos::from_millis(1);

/// What is written for programs.
#[derive(Debug, Serialize)]
struct Written<'r> {
    scenario: String,
    goals: Vec<Goal>,
    #[serde(flatten)]
    report: &'r MovieReport,
}

/// One goal and what came of it.
#[derive(Debug, Serialize)]
struct Goal {
    what: String,
    measured: String,
    holds: bool,
}

/// Carries out `punctual bench movie`.
pub fn movie(arguments: &Movie) -> Result<(), Failure> {
    let output = Output::prepare_some(arguments.json.as_ref())?;
    let path = arguments.scenario.as_deref().unwrap_or(Path::new(SHIPPED));
    let loaded = scenario::load(Some(path), &arguments.set)?;
    let plan = plan(&loaded, arguments.repetitions)?;
    let interrupt = Interrupt::listen()?;
    let report = play(&plan, &mut |what| {
        tell(what);
        interrupt.answer()
    });
    let report = report.map_err(|error| match error {
        MovieError::Interrupted => Failure::input(["interrupted; the machine has been put back"]),
        error => Failure::input([error.to_string()]),
    })?;
    print(&told(&report))?;
    let written = Written {
        scenario: loaded.shown(),
        goals: goals(&report),
        report: &report,
    };
    output.map_or(Ok(()), |file| file.json(&written))
}

/// The plan that a scenario with one exclusive task makes.
fn plan(loaded: &Loaded, repetitions: u32) -> Result<MoviePlan, Failure> {
    let complain = |what: String| Failure::input([format!("{}: {what}", loaded.shown())]);
    let tasks = &loaded.scenario.tasks;
    let mut players = tasks
        .iter()
        .filter(|task| matches!(task.class, Class::Exclusive { .. }));
    let (Some(player), None) = (players.next(), players.next()) else {
        return Err(complain(
            "task: `bench movie` plays one task; give exactly one class = \"exclusive\"".into(),
        ));
    };
    let (Some(deadline), Arrival::Periodic { period }) = (player.deadline(), player.arrival) else {
        return Err(complain(format!("task.{}: a player has a `period`", player.name)));
    };
    let decode = player.demand.compute;
    if decode.ratio(period) > DECODE_MAX {
        return Err(complain(format!(
            "task.{}.compute: {decode} is more than {:.0} % of the period; a player sleeps between frames: shorten it",
            player.name,
            DECODE_MAX * 100.0
        )));
    }
    let file = loaded.movie;
    if file.frame_bytes == 0 || file.frame_bytes % 4096 != 0 || file.file_bytes < file.frame_bytes {
        return Err(complain(
            "movie.frame_bytes: must be a multiple of 4096, and the file at least one frame".into(),
        ));
    }
    if file.frames == 0 {
        return Err(complain("movie.frames: at least one is played".into()));
    }
    let hogs = tasks
        .iter()
        .filter(|task| task.class == Class::BestEffort)
        .map(|task| task.per_core);
    Ok(MoviePlan {
        period,
        deadline,
        decode,
        frame_bytes: file.frame_bytes as usize,
        file_bytes: file.file_bytes.into(),
        cache_bytes: file.cache_bytes.into(),
        frames: file.frames,
        hogs_per_core: hogs.sum(),
        busy_disk: file.busy_disk,
        repetitions,
        arms: Arm::ALL.to_vec(),
    })
}

fn told(report: &MovieReport) -> String {
    let plan = &report.plan;
    let mut text = format!(
        "{} repetitions of {} frames, one per {}, deadline {}; decoding takes {}, frames have {} bytes; {} hogs on {} cores, disk {}\n\n",
        plan.repetitions,
        plan.frames,
        plan.period,
        plan.deadline,
        plan.decode,
        plan.frame_bytes,
        plan.hogs_per_core as usize * report.cores,
        report.cores,
        if plan.busy_disk { "busy" } else { "idle" }
    );
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
    if let Some(dual) = report.arm(Arm::Dual)
        && (dual.late - dual.unexplained) as f64 > EXPLAINED_MAX * dual.frames as f64
    {
        text.push_str("inconclusive: the probe explains more than 1 % of the frames; the machine was too disturbed\n");
    }
    text
}

/// What each arm obtained in its first run; later runs that differ are in the JSON.
fn protections(report: &MovieReport) -> Vec<(&'static str, &[String])> {
    let first = report
        .runs
        .iter()
        .filter(|run| run.repetition == 0 && run.arm != Arm::Alone);
    first.map(|run| (run.arm.name(), run.protection.as_slice())).collect()
}

fn table(report: &MovieReport) -> Vec<Vec<String>> {
    let head = [
        "",
        "late",
        "dropped",
        "unexplained",
        "wake p50",
        "p99",
        "max",
        "done p50",
        "p99",
        "max",
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

/// The goals, and whether they hold.
fn goals(report: &MovieReport) -> Vec<Goal> {
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
        let measured = format!("{} late, {} unexplained", dual.late, dual.unexplained);
        goal(
            "dual management is late for none that the probe does not explain",
            measured,
            dual.unexplained == 0,
        );
        let work = median(&dual.work_of_equal_share);
        let measured = format!("{:.1} %, median of the repetitions", work * 100.0);
        goal(
            "the interactive side gets at least 95 % of an equally large share done",
            measured,
            work >= WORK_AT_LEAST,
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

fn median(figures: &[f64]) -> f64 {
    super::rounds::quantile(figures, 0.5)
}

fn least(figures: &[f64]) -> f64 {
    figures.iter().copied().reduce(f64::min).unwrap_or(0.0)
}

fn most(figures: &[f64]) -> f64 {
    figures.iter().copied().reduce(f64::max).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped(set: &[&str]) -> Result<MoviePlan, Failure> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(SHIPPED);
        let set: Vec<_> = set
            .iter()
            .map(|text| scenario::Override::parse(text).unwrap())
            .collect();
        plan(&scenario::load(Some(&path), &set)?, 5)
    }

    #[test]
    fn the_shipped_movie_is_the_papers() {
        let plan = shipped(&[]).unwrap();
        assert_eq!((plan.frames, plan.repetitions), (150, 5));
        assert!(
            (plan.period.as_secs_f64() * 24.0 - 1.0).abs() < 1e-3,
            "24 frames per second"
        );
        assert!(plan.file_bytes > plan.cache_bytes, "a file larger than its cache");
        assert!(plan.decode.ratio(plan.period) <= DECODE_MAX && plan.hogs_per_core > 0);
    }

    #[test]
    fn what_cannot_be_played_is_said() {
        for (set, word) in [
            ("task.player.compute=20ms", "task.player.compute"),
            ("movie.frame_bytes=1000", "movie.frame_bytes"),
            ("movie.frames=0", "movie.frames"),
            ("task.player.class=real-time", "exactly one"),
            ("movie.disk=full", "\"busy\" or \"idle\""),
        ] {
            let Err(Failure::Input(lines)) = shipped(&[set]) else {
                panic!("{set} was accepted")
            };
            assert!(lines[0].contains(word), "{set}: {lines:?}");
        }
    }
}
