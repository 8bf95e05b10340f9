//! `punctual-lab bench neighbours`: effects of an exclusive core on programs that do not cooperate.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use punctual_evaluation::claims::{Goal, Premise};
use punctual_evaluation::neighbours::{Arm, ArmRun, NeighboursError, NeighboursPlan, NeighboursReport, compare};
use punctual_runtime::report::PlatformChoice;
use punctual_scenario::RunRequest;
use punctual_units::Nanos;
use punctual_workload::Class;

use super::WithGoals;
use super::series::{Interrupt, tell};
use crate::args::Neighbours;
use crate::movie::{WORK_AT_LEAST, WORK_AT_MOST, taken_back};
use punctual_cli::commands::failures::of_run;
use punctual_cli::commands::print;
use punctual_files::failure::Failure;
use punctual_files::scenario::{self, Loaded};
use punctual_files::trace;
use punctual_report::output::OutputFile;
use punctual_report::summary::percent;

/// The scenario that runs by default.
const SHIPPED: &str = "scenarios/movie.toml";

/// Carries out `punctual-lab bench neighbours`.
pub fn neighbours(arguments: &Neighbours) -> Result<(), Failure> {
    let json = OutputFile::report(arguments.json.as_ref())?;
    let path = arguments.scenario.as_deref().unwrap_or(Path::new(SHIPPED));
    let loaded = scenario::load(Some(path), &arguments.set)?;
    let lasts = arguments.duration;
    let mut strangers = arguments.program.clone();
    strangers.dedup();
    let plan = NeighboursPlan {
        request: request(&loaded, lasts)?,
        lasts,
        repetitions: arguments.repetitions,
        strangers,
        hogs: arguments.hogs,
        lend_programs: arguments.lend_programs || arguments.share_programs,
        shares: arguments.share_programs,
        sleepers: arguments.sleepers,
        groups: arguments.groups,
    };
    let interrupt = Interrupt::listen()?;
    let report = compare(&plan, &mut |what| {
        if !what.is_empty() {
            tell(what);
        }
        interrupt.answer()
    });
    let report = report.map_err(|error| match error {
        NeighboursError::Run(error) => of_run(error, &loaded),
        error => Failure::of(error),
    })?;
    let goals = goals(&report);
    print(&told(&report, &goals))?;
    let written = WithGoals {
        report: &report,
        goals: &goals,
    };
    json.map_or(Ok(()), |file| file.json(&written))
}

/// The goals of an exclusive core beside programs that do not cooperate.
fn goals(report: &NeighboursReport) -> Vec<Goal> {
    let beside = |run: &&ArmRun| run.arm == Arm::Exclusive;
    let links = { report.arms.iter().filter(beside) }.flat_map(|run| &run.strangers);
    let runs: u64 = links.map(|it| it.runs + it.failed).sum();
    let without = || format!("{} without", report.failed_without);
    let control = runs > 0 && report.failed_without == 0;
    let fails = Goal::of(
        "no run of a program fails beside exclusive tasks",
        format!("{} of {runs}", report.failed_links),
        report.failed_links == 0,
        Premise::unless(control, "runs, of which none fails without them", without),
    );
    let hogs = report.hogs_share.map(|share| {
        let what = "the hogs get at least 95 % of an equal share of what is left";
        let premise = Premise::within(share, [0.0, WORK_AT_MOST], percent);
        Goal::of(what, percent(share), share >= WORK_AT_LEAST, premise)
    });
    let above = { report.take_back_above_control_us }.map(|us| Nanos::from_secs_f64(us.max(0.0) * 1e-6));
    let taken = above.map(|above| taken_back(Some(above), None));
    [Some(fails), hogs, taken].into_iter().flatten().collect()
}

/// The exclusive tasks of a scenario, without its best-effort ones: other programs are the load.
fn request(loaded: &Loaded, lasts: Nanos) -> Result<RunRequest, Failure> {
    let mut scenario = loaded.scenario.clone();
    scenario
        .tasks
        .retain(|task| matches!(task.class, Class::Exclusive { .. }));
    if scenario.tasks.is_empty() {
        let what = format!("{}: task: give at least one class = \"exclusive\"", loaded.shown());
        return Err(Failure::of(what));
    }
    scenario.duration = lasts;
    let trace = Arc::new(trace::load(&scenario, loaded.file.as_deref())?);
    Ok(RunRequest {
        neighbours: loaded.neighbours.clone(),
        ..RunRequest::new(scenario, trace, PlatformChoice::Linux)
    })
}

fn told(report: &NeighboursReport, goals: &[Goal]) -> String {
    let mut text = format!(
        "{:<12}{:>12}{:>10}{:>12}{:>22}{:>10}{:>14}{:>10}\n",
        "", "repetition", "left", "hogs", "runs per second", "failed", "late", "changed"
    );
    for run in &report.arms {
        let name = format!("{:?}", run.arm).to_lowercase();
        let loops = run.strangers.iter();
        let loops: Vec<String> = loops
            .map(|it| format!("{} {:.2}", it.stranger.name(), it.per_second))
            .collect();
        let failed: u64 = run.strangers.iter().map(|it| it.failed).sum();
        let late = run
            .run
            .as_ref()
            .map(|run| format!("{} of {}", run.late, run.jobs))
            .unwrap_or("-".into());
        let _ = writeln!(
            text,
            "{name:<12}{:>12}{:>8.2} c{:>10.2} c  {:>20}{failed:>10}{late:>14}{:>10}",
            run.repetition,
            run.left,
            run.hogs,
            loops.join(", "),
            run.differences.len()
        );
    }
    text += "\nleft: cores left to these programs; c: cores; changed: what was not as before the first run\n\n";
    let percent = |share: Option<f64>| share.map_or("-".into(), percent);
    let _ = writeln!(
        text,
        "hogs          {} of an equal share of what is left; {} of what a split by hand gives",
        percent(report.hogs_share),
        percent(report.hogs_over_by_hand)
    );
    for it in &report.strangers {
        let (share, over) = (percent(it.share), percent(it.over_by_hand));
        let _ = writeln!(
            text,
            "{:<14}{share} of an equal share of what is left ({} of its core time); {over} of what a split by hand gives",
            it.stranger.name(),
            percent(it.core_time_share)
        );
    }
    if report.used_share.is_some() {
        let _ = writeln!(text, "leases used   {} at least", percent(report.used_share));
    }
    if let Some(it) = report.take_back_us {
        let _ = writeln!(
            text,
            "taking back   p50 {:.0} us, p99 {:.0} us, max {:.0} us",
            it.p50, it.p99, it.max
        );
    }
    let _ = writeln!(text, "machine       {} differences", report.differences);
    goals.iter().for_each(|goal| text += &format!("{goal}\n"));
    for different in report.arms.iter().flat_map(|run| &run.differences) {
        let _ = writeln!(
            text,
            "  {}: {}, was {}",
            different.what, different.after, different.before
        );
    }
    let loops = report.arms.iter().flat_map(|run| &run.strangers);
    for (it, failure) in loops.filter_map(|it| Some((it, it.first_failure.as_ref()?))) {
        let _ = writeln!(text, "failed        {}: {failure}", it.stranger.name());
    }
    for note in &report.notes {
        let _ = writeln!(text, "note          {note}");
    }
    text
}
