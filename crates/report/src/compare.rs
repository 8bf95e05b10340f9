//! Two runs, compared: is a figure worse, better, or is no difference shown?
//!
//! Figures cover what those of a report cover: the run without its start-up. Each difference has an interval at 95 %
//! ([`intervals`]); one that contains 0 shows nothing, which is not to say that there is no difference. Of twenty
//! figures that do not differ, one is expected to look as if it did.

use std::fmt::Write;

use punctual_control::intervals::{self, batch_means};
use punctual_runtime::report::{RunReport, Sample, TaskReport};
use serde::Serialize;

use crate::columns::columns;
use crate::summary::{count, counted, figure};
use crate::tasks::time;

punctual_units::named! {
    /// Meaning of a difference.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Judgement by text {
        /// Worse, by more than chance.
        Regressed = "regressed",
        /// Better, by more than chance.
        Improved = "improved",
        /// Different by more than chance, in a figure of which neither direction is better.
        Differs = "differs",
        /// The interval contains 0.
        NoDifferenceShown = "no difference shown",
        /// Too few windows, or no interval is known.
        NotJudged = "not judged",
    }
}

/// Which direction of a figure is better.
#[derive(Clone, Copy)]
enum Better {
    Less,
    More,
    Neither,
}

impl Better {
    fn judge(self, [low, high]: [f64; 2]) -> Judgement {
        match self {
            _ if !(low.is_finite() && high.is_finite()) => Judgement::NotJudged,
            _ if low <= 0.0 && high >= 0.0 => Judgement::NoDifferenceShown,
            Better::Neither => Judgement::Differs,
            Better::Less if low > 0.0 => Judgement::Regressed,
            Better::More if high < 0.0 => Judgement::Regressed,
            Better::Less | Better::More => Judgement::Improved,
        }
    }
}

/// A figure of both runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FigureDifference {
    /// Task or stage; `None`: of the whole run.
    pub of: Option<String>,
    /// Name of the figure, as in the report.
    pub figure: &'static str,
    /// Unit: `share` (0 to 1), `us`, `W`, `Hz`, or `1` for a ratio.
    pub unit: &'static str,
    /// Value in the first run.
    pub before: f64,
    /// Value in the second run.
    pub after: f64,
    /// Interval at 95 % of `after` less `before`; `None` where none is known.
    pub difference: Option<[f64; 2]>,
    /// Judgement by the interval.
    pub judgement: Judgement,
}

/// Comparison of two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Differences between the runs beside their figures, such as `seed: 1, 2`.
    pub setup: Vec<String>,
    /// Reasons to doubt the comparison, such as a run that was inconclusive.
    pub notes: Vec<String>,
    /// Figures that both runs have, tasks first.
    pub figures: Vec<FigureDifference>,
}

/// A figure over time, of the whole run: its name, its unit, which direction is better, and its value in a window of
/// that many seconds.
type Series = (&'static str, &'static str, Better, fn(&Sample, f64) -> Option<f64>);

#[rustfmt::skip] // a figure a line
const SERIES: [Series; 5] = [
    ("tardiness", "1", Better::Neither, |window, _| window.tardiness),
    ("fresh_share", "share", Better::More, |window, _| Some(window.fresh_share)),
    ("admitted_share", "share", Better::Neither, |window, _| Some(window.admitted_share)),
    ("clock_hz", "Hz", Better::Neither, |window, _| window.clock_hz.map(|hz| hz as f64)),
    ("power_w", "W", Better::Less, |window, seconds| Some(window.energy_j? / seconds)),
];

/// Compares two runs; an error if they have no task and no stage in common.
pub fn compare(before: &RunReport, after: &RunReport) -> Result<Comparison, String> {
    let mut figures = Vec::new();
    // The larger of both: a run that is too short shows no clusters.
    let [a, b] = [before, after].map(|run| intervals::dispersion(&late_of_batches(run)));
    let dispersion = Some(a.max(b));
    for task in &before.tasks {
        if let Some(again) = after.tasks.iter().find(|other| other.name == task.name) {
            figures.extend(task_figures(task, again, dispersion));
        }
    }
    for stage in &before.stages {
        if let Some(again) = after.stages.iter().find(|other| other.name == stage.name) {
            let counts = [(stage.late, stage.timed), (again.late, again.timed)];
            // Late frames come in clusters, and windows do not count them.
            figures.extend(share("late_share", &stage.name, counts, None));
        }
    }
    if figures.is_empty() {
        return Err("the runs have no task and no stage in common".into());
    }
    figures.extend(SERIES.iter().filter_map(|series| over_time(series, before, after)));
    Ok(Comparison {
        setup: setup(before, after),
        notes: notes([before, after]),
        figures,
    })
}

impl Comparison {
    /// Whether a figure regressed.
    pub fn regressed(&self) -> bool {
        self.figures.iter().any(|it| it.judgement == Judgement::Regressed)
    }

    /// The comparison as text; every line ends in a newline.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, lines) in [("different set-up", &self.setup), ("note", &self.notes)] {
            for line in lines {
                let _ = writeln!(text, "{name}: {line}");
            }
        }
        let heads = ["", "before", "after", "difference (95 %)", ""]
            .map(String::from)
            .to_vec();
        let rows = std::iter::once(heads).chain(self.figures.iter().map(row));
        text += &columns(&rows.collect::<Vec<_>>());
        let worse = self.figures.iter().filter(|it| it.judgement == Judgement::Regressed);
        let worse: Vec<String> = worse.map(name).collect();
        // Names are those of a file that may have been edited: no escape reaches the terminal.
        text = text.replace(|c: char| c.is_control() && c != '\n', "?");
        let _ = match worse.is_empty() {
            true => writeln!(text, "\nNo regression shown."),
            false => writeln!(text, "\nRegressed: {}.", worse.join(", ")),
        };
        text
    }
}

fn name(figure: &FigureDifference) -> String {
    match &figure.of {
        Some(of) => format!("{of}: {}", figure.figure),
        None => figure.figure.into(),
    }
}

fn row(it: &FigureDifference) -> Vec<String> {
    let value = |value: f64| match it.unit {
        "share" => format!("{:.1} %", value * 100.0),
        "us" => time(value),
        "Hz" => format!("{:.0} MHz", value / 1e6),
        _ => figure(Some(value)),
    };
    let signed = |bound: f64| match it.unit {
        "share" => format!("{:+.1}", bound * 100.0),
        "Hz" => format!("{:+.0}", bound / 1e6),
        _ => format!("{bound:+.2}"),
    };
    let unit = match it.unit {
        "share" => " points",
        "Hz" => " MHz",
        _ => "",
    };
    let difference = match it.difference {
        Some([low, high]) => format!("{} to {}{unit}", signed(low), signed(high)),
        None => {
            let ratio = Some(it.after / it.before).filter(|ratio| ratio.is_finite());
            format!("{} times", figure(ratio))
        }
    };
    let (before, after, judgement) = (value(it.before), value(it.after), it.judgement.text());
    vec![name(it), before, after, difference, judgement.into()]
}

/// Windows after the start-up.
fn judged(run: &RunReport) -> impl Iterator<Item = &Sample> {
    run.samples.iter().filter(|sample| sample.t_s >= run.header.settle_s)
}

/// Late jobs and all jobs of all tasks, in parts of equal length.
fn late_of_batches(run: &RunReport) -> Vec<[f64; 2]> {
    let windows: Vec<&Sample> = judged(run).collect();
    let parts = windows.chunks(windows.len().div_ceil(intervals::BATCHES).max(1));
    let sum = |part: &[&Sample], of: fn(&Sample) -> u32| part.iter().map(|it| f64::from(of(it))).sum::<f64>();
    parts
        .map(|part| [sum(part, |it| it.misses), sum(part, |it| it.jobs)])
        .collect()
}

fn task_figures(before: &TaskReport, after: &TaskReport, dispersion: Option<f64>) -> Vec<FigureDifference> {
    let counts = [(before.late, before.jobs), (after.late, after.jobs)];
    let mut figures = Vec::from_iter(share("late_share", &before.name, counts, dispersion));
    if before.failed + after.failed > 0 {
        let counts = [before, after].map(|task| (task.failed, task.jobs + task.failed));
        figures.extend(share("failed_share", &before.name, counts, dispersion));
    }
    if let [Some(a), Some(b)] = [before, after].map(|task| task.response_us) {
        let response = [
            ("response p50", a.p50, b.p50),
            ("response p99", a.p99, b.p99),
            ("response max", a.max, b.max),
        ];
        let of = Some(before.name.as_str());
        figures.extend(response.map(|(name, a, b)| differing((of, name, "us"), (a, b), None, Better::Less)));
    }
    figures
}

/// A share of jobs or frames that should be small, given their number and that of all in both runs; `None` if one has
/// none. Without a dispersion it has no interval.
fn share(figure: &'static str, of: &str, counts: [(u64, u64); 2], dispersion: Option<f64>) -> Option<FigureDifference> {
    let [a, b] = counts.map(|(late, jobs)| (jobs > 0).then(|| [late as f64 / jobs as f64, jobs as f64]));
    let (a, b) = (a?, b?);
    let difference = dispersion.map(|by| {
        let [a, b] = [a, b].map(|[share, jobs]| [share, jobs / by]);
        intervals::difference_of_shares(a, b)
    });
    // Of more late jobs than jobs, in an edited report.
    let difference = difference.filter(|bounds| bounds.iter().all(|bound| bound.is_finite()));
    let named = (Some(of), figure, "share");
    Some(differing(named, (a[0], b[0]), difference, Better::Less))
}

/// A figure of a task, a stage or, without a name, of the run; judged if its difference has bounds.
fn differing(
    (of, figure, unit): (Option<&str>, &'static str, &'static str),
    (before, after): (f64, f64),
    difference: Option<[f64; 2]>,
    better: Better,
) -> FigureDifference {
    FigureDifference {
        of: of.map(str::to_owned),
        figure,
        unit,
        before,
        after,
        difference,
        judgement: difference.map_or(Judgement::NotJudged, |it| better.judge(it)),
    }
}

/// Compares a figure over time; `None` if a run does not have it at all.
fn over_time(
    (figure, unit, better, value): &Series,
    before_run: &RunReport,
    after_run: &RunReport,
) -> Option<FigureDifference> {
    let values = [before_run, after_run].map(|run| -> Vec<Option<(f64, f64)>> {
        let windows = run.samples.iter().scan(0.0, |last, window| {
            let began = std::mem::replace(last, window.t_s);
            Some((window, window.t_s - began))
        });
        let judged = windows.filter(|(window, seconds)| window.t_s >= run.header.settle_s && *seconds > 0.0);
        // Windows that end with jobs differ in length.
        judged
            .map(|(window, seconds)| Some((value(window, seconds)?, seconds)))
            .collect()
    });
    let [before, after] = values.each_ref().map(|values| intervals::weighted_mean(values));
    let (before, after) = (before?, after?);
    // Merged windows keep the least fresh share: runs of other lengths have other values.
    let alike = before_run.steps_per_sample == after_run.steps_per_sample;
    let [a, b] = values.each_ref().map(|values| batch_means(values).filter(|_| alike));
    let difference = a.zip(b).map(|(a, b)| intervals::difference_of_means(&a, &b));
    Some(differing((None, figure, unit), (before, after), difference, *better))
}

fn setup(before: &RunReport, after: &RunReport) -> Vec<String> {
    let described = |run: &RunReport| {
        let header = &run.header;
        [
            ("scenario", header.scenario.clone()),
            ("platform", header.platform.name().into()),
            ("machine", header.machine.clone()),
            ("controller", header.controller.name().into()),
            ("seed", header.seed.to_string()),
            ("sensors", count(header.load.sensors.into())),
            ("updates a second", format!("{:.0}", header.load.updates_per_s)),
            ("start-up", format!("{} s", header.settle_s)),
            ("steps a window", run.steps_per_sample.to_string()),
        ]
    };
    let (a, b) = (described(before), described(after));
    let different = a.iter().zip(&b).filter(|(a, b)| a != b);
    let mut lines: Vec<String> = different
        .map(|((name, a), (_, b))| format!("{name}: {a}, {b}"))
        .collect();
    let goal = |task: &TaskReport| format!("due in {}, {}", time(task.deadline_us), task.goal());
    let lasted = |run: &RunReport| (run.samples.last().map_or(0.0, |last| last.t_s) - run.header.settle_s).max(0.0);
    let seconds = [before, after].map(lasted);
    let again = |task: &TaskReport| after.tasks.iter().find(|other| other.name == task.name);
    for (task, again) in before.tasks.iter().filter_map(|task| Some((task, again(task)?))) {
        let (a, b) = (goal(task), goal(again));
        if a != b {
            lines.push(format!("{}: {a}; {b}", task.name));
        }
        let all = |task: &TaskReport| (task.jobs + task.failed) as f64;
        let (a, b) = (all(task) / seconds[0], all(again) / seconds[1]);
        // Twice the standard deviation of the difference where jobs come at random (Poisson).
        let by_chance = 2.0 * (a / seconds[0] + b / seconds[1]).sqrt();
        if (a - b).abs() > by_chance.max(a.max(b) * 0.05) {
            lines.push(format!("{}: {a:.1} jobs a second; {b:.1}", task.name));
        }
    }
    let names = |run: &RunReport| -> Vec<String> {
        let tasks = run.tasks.iter().map(|task| task.name.clone());
        tasks.chain(run.stages.iter().map(|stage| stage.name.clone())).collect()
    };
    let (a, b) = (names(before), names(after));
    for (which, these, others) in [("first", &a, &b), ("second", &b, &a)] {
        let only: Vec<&str> = these
            .iter()
            .filter(|name| !others.contains(name))
            .map(String::as_str)
            .collect();
        if !only.is_empty() {
            lines.push(format!("only in the {which} run: {}", only.join(", ")));
        }
    }
    lines
}

fn notes(runs: [&RunReport; 2]) -> Vec<String> {
    let mut notes = Vec::new();
    for (run, which) in runs.into_iter().zip(["first", "second"]) {
        if run.summary.inconclusive {
            let excused = counted(run.summary.excused, "job");
            notes.push(format!(
                "the {which} run is inconclusive: the machine itself stood still in {excused}"
            ));
        }
        let windows = judged(run).count();
        if windows < intervals::BATCHES {
            notes.push(format!(
                "the {which} run has {windows} windows after its start-up: figures over time need {}",
                intervals::BATCHES
            ));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn judgement(comparison: &Comparison, figure: &str) -> Judgement {
        let found = comparison.figures.iter().find(|it| it.figure == figure);
        found.expect("both runs have it").judgement
    }

    #[test]
    fn a_run_does_not_differ_from_itself() {
        let run = fixture::report();
        let comparison = compare(&run, &run).unwrap();
        assert!(!comparison.regressed() && comparison.setup.is_empty(), "{comparison:?}");
        assert_eq!(judgement(&comparison, "late_share"), Judgement::NoDifferenceShown);
        assert_eq!(judgement(&comparison, "tardiness"), Judgement::NoDifferenceShown);
    }

    /// Planted faults: each makes one figure worse, and its reverse makes it better.
    #[test]
    fn a_planted_regression_is_found_in_its_figure() {
        type Plant = fn(&mut RunReport);
        let plants: [(&str, Plant); 4] = [
            ("failed_share", |run| {
                run.tasks.iter_mut().for_each(|task| task.failed = task.jobs)
            }),
            ("late_share", |run| {
                run.tasks.iter_mut().for_each(|task| task.late = task.jobs)
            }),
            ("power_w", |run| {
                let values = run.samples.iter_mut().flat_map(|window| &mut window.energy_j);
                values.for_each(|value| *value += 5.0);
            }),
            ("fresh_share", |run| {
                run.samples.iter_mut().for_each(|window| window.fresh_share -= 0.9)
            }),
        ];
        for (figure, plant) in plants {
            let metered = || {
                let mut run = fixture::report();
                run.samples.iter_mut().for_each(|window| window.energy_j = Some(0.2));
                run.tasks.iter_mut().for_each(|task| task.failed = 1);
                run
            };
            let (sound, mut faulty) = (metered(), metered());
            plant(&mut faulty);
            let comparison = compare(&sound, &faulty).unwrap();
            assert_eq!(
                judgement(&comparison, figure),
                Judgement::Regressed,
                "{figure}: {comparison:?}"
            );
            let reversed = compare(&faulty, &sound).unwrap();
            assert_eq!(
                judgement(&reversed, figure),
                Judgement::Improved,
                "{figure}: {reversed:?}"
            );
        }
    }

    #[test]
    fn an_edited_report_has_no_verdict_and_sends_no_escape() {
        let (one, mut other) = (fixture::report(), fixture::report());
        let task = &mut other.tasks[0];
        task.late = task.jobs + 20;
        let mut comparison = compare(&one, &other).unwrap();
        assert_eq!(judgement(&comparison, "late_share"), Judgement::NotJudged);
        comparison.figures[0].of = Some("\u{1b}[31mX\r".into());
        assert!(!comparison.text().contains(['\u{1b}', '\r']), "{}", comparison.text());
    }

    #[test]
    fn another_workload_is_another_set_up() {
        let (one, mut other) = (fixture::report(), fixture::report());
        other.tasks[0].jobs *= 2;
        other.header.load.sensors += 1024;
        let setup = compare(&one, &other).unwrap().setup;
        assert_eq!(setup, ["sensors: 5,120, 6,144", "analysis: 10.0 jobs a second; 20.0"]);
        other.tasks[0].jobs = one.tasks[0].jobs + 2;
        assert_eq!(compare(&one, &other).unwrap().setup, ["sensors: 5,120, 6,144"]);
    }

    #[test]
    fn jobs_that_come_at_random_or_fail_are_no_other_set_up() {
        let (one, mut other) = (fixture::report(), fixture::report());
        // 530 and 596 jobs: 2 * sqrt(1,126) is 67.
        other.tasks[0].jobs += 66;
        assert!(compare(&one, &other).unwrap().setup.is_empty());
        other.tasks[0].jobs = 0;
        other.tasks[0].failed = 530;
        assert!(compare(&one, &other).unwrap().setup.is_empty());
    }

    #[test]
    fn other_differences_are_named() {
        let (one, mut other) = (fixture::report(), fixture::report());
        other.header.seed = 2;
        other.summary.inconclusive = true;
        other.samples.clear();
        insta::assert_snapshot!(compare(&one, &other).unwrap().text());
        other.tasks.iter_mut().for_each(|task| task.name += " of another run");
        other.stages.clear();
        assert!(compare(&one, &other).is_err());
    }
}
