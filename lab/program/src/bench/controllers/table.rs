//! Summary of a comparison: median and spread over the repetitions, per controller and figure.

use punctual_platform::Provenance;
use punctual_runtime::report::{RunHeader, RunReport, Summary};
use punctual_workload::{ControllerKind, Goal};
use serde::Serialize;

use super::super::{quantile, undisturbed};
use punctual_evaluation::claims::{Premise, Verdict};
use punctual_report::columns::columns;
use punctual_report::summary::{count, figure, share};
use punctual_report::verdict::{Standing, Verdict as RunVerdict};

/// A complete run of a controller.
#[derive(Debug, Serialize)]
pub struct ControllerRun {
    /// Number of the repetition, from 0.
    pub repetition: u32,
    /// Index of the controller among those asked for.
    #[serde(skip)]
    pub column: usize,
    /// Whether every task holds its own goal: the outcome.
    goal_held: bool,
    /// Verdict on the claim that every task holds its own goal.
    outcome: Verdict,
    /// The premise of the verdict that failed, if one did.
    failed_premise: Option<Premise>,
    /// Whether the fresh share was kept, and every update is accounted for.
    #[serde(skip)]
    kept: [bool; 2],
    pub header: RunHeader,
    summary: Summary,
}

impl ControllerRun {
    pub fn new(repetition: u32, column: usize, report: RunReport) -> ControllerRun {
        let run = RunVerdict::of(&report);
        let held = run.held() == run.tasks.len();
        let told = || {
            let jobs = || format!("{} of {} tasks", run.held(), run.tasks.len());
            let told = held || run.tasks.contains(&Standing::Missed);
            Premise::unless(told, "enough jobs of every task", jobs)
        };
        let failed_premise = undisturbed(&report.summary).or_else(told);
        let outcome = Verdict::of(held, failed_premise.as_ref());
        ControllerRun {
            repetition,
            column,
            goal_held: outcome == Verdict::Holds,
            outcome,
            failed_premise,
            kept: [run.fresh_kept, run.accounted],
            header: report.header,
            summary: report.summary,
        }
    }

    /// A summary of the run in one line.
    pub fn line(&self) -> String {
        let Summary {
            tardiness_mean,
            drr_mean,
            admitted_share_mean,
            fresh_share_min,
            ..
        } = self.summary;
        let not_judged = self
            .failed_premise
            .as_ref()
            .map(|premise| format!("; not judged: {premise}"));
        format!(
            "{:<5} seed {}: tardiness {}, drr {}, {} admitted, {} fresh at worst, {} lost{}",
            self.header.controller.name(),
            self.header.seed,
            figure(tardiness_mean),
            figure(drr_mean),
            share(admitted_share_mean),
            share(fresh_share_min),
            count(self.summary.updates.lost),
            not_judged.unwrap_or_default(),
        )
    }
}

/// A figure under every controller.
#[derive(Debug, PartialEq, Serialize)]
pub struct Row {
    figure: &'static str,
    /// In the order of the controllers; `None` if the machine does not provide the figure.
    controllers: Vec<Option<Spread>>,
}

/// A figure over repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Spread {
    /// By nearest rank: for an even number, the lower of the two in the middle.
    median: f64,
    min: f64,
    max: f64,
    /// Sum over all repetitions; meaningful for counts.
    sum: f64,
    /// Number of repetitions that provide the figure.
    runs: usize,
}

impl Spread {
    /// Spread of the values; `None` if there are none.
    fn of(values: &[f64]) -> Option<Spread> {
        (!values.is_empty()).then(|| Spread {
            median: quantile(values, 0.5),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            sum: values.iter().sum(),
            runs: values.len(),
        })
    }
}

/// A figure of a run, and its format.
struct Figure {
    /// Name in JSON; the value there has the unit of the run's summary.
    key: &'static str,
    label: &'static str,
    of: fn(&ControllerRun) -> Option<f64>,
    told: CellStyle,
}

enum CellStyle {
    /// Prints median and spread.
    Spread {
        /// Factor from the figure's unit to the label's.
        times: f64,
        decimals: usize,
    },
    /// Prints the sum over all repetitions.
    Sum,
}

impl CellStyle {
    fn tell(&self, spread: &Spread) -> String {
        match self {
            CellStyle::Sum => count(spread.sum as u64),
            CellStyle::Spread { times, decimals } => {
                let number = |value: f64| format!("{:.decimals$}", value * times);
                format!(
                    "{} ({} to {})",
                    number(spread.median),
                    number(spread.min),
                    number(spread.max)
                )
            }
        }
    }
}

/// All figures, in the order in which they are printed.
fn figures() -> Vec<Figure> {
    let figure = |key, label, told, of| Figure { key, label, of, told };
    let plain = |decimals| CellStyle::Spread { times: 1.0, decimals };
    let scaled = |times, decimals| CellStyle::Spread { times, decimals };
    vec![
        figure("updates_per_s", "updates offered /s", plain(0), |run| {
            Some(run.header.load.updates_per_s)
        }),
        figure("tardiness_mean", "tardiness", plain(2), |run| {
            run.summary.tardiness_mean
        }),
        figure("tardiness_p99", "tardiness, p99", plain(2), |run| {
            run.summary.tardiness_p99
        }),
        figure("drr_mean", "drr", plain(2), |run| run.summary.drr_mean),
        figure("misses_share", "late jobs, %", scaled(100.0, 1), |run| {
            Some(run.summary.misses as f64 / run.summary.jobs.max(1) as f64)
        }),
        figure("excused", "late and excused, in all", CellStyle::Sum, |run| {
            Some(run.summary.excused as f64)
        }),
        figure("skipped", "jobs not released, in all", CellStyle::Sum, |run| {
            Some(run.summary.skipped as f64)
        }),
        figure("fresh_share_min", "fresh at worst, %", scaled(100.0, 1), |run| {
            run.summary.fresh_share_min
        }),
        figure("admitted_share_mean", "updates admitted, %", scaled(100.0, 1), |run| {
            run.summary.admitted_share_mean
        }),
        figure("clock_hz_mean", "clock, MHz", scaled(1e-6, 0), |run| {
            run.summary.clock_hz_mean
        }),
        figure("updates_lost", "updates lost, in all", CellStyle::Sum, |run| {
            Some(run.summary.updates.lost as f64)
        }),
        figure("energy_j", "energy, J", plain(1), |run| run.summary.energy_j),
        figure("decision_us_median", "decision, us", plain(1), |run| {
            run.summary.controller.decision_us_median
        }),
        figure(
            "controller_core_share",
            "controller, % of a core",
            scaled(100.0, 2),
            |run| run.summary.controller.core_share,
        ),
        figure("probe_us_p99", "idle probe late, us, p99", plain(0), |run| {
            run.summary.probe_us.map(|[_, p99, _]| p99)
        }),
    ]
}

/// Every figure under every controller.
pub fn table(controllers: &[ControllerKind], runs: &[ControllerRun]) -> Vec<Row> {
    let row = |figure: &Figure| {
        let cell = |column| {
            let mine = runs.iter().filter(|run| run.column == column);
            Spread::of(&mine.filter_map(figure.of).collect::<Vec<f64>>())
        };
        Row {
            figure: figure.key,
            controllers: (0..controllers.len()).map(cell).collect(),
        }
    };
    figures().iter().map(row).collect()
}

/// The table for people.
pub fn text(controllers: &[ControllerKind], clock: Option<Provenance>, table: &[Row]) -> String {
    let heading = |kind: &ControllerKind| kind.name().to_string();
    let mut rows: Vec<Vec<String>> = vec![
        [String::new()]
            .into_iter()
            .chain(controllers.iter().map(heading))
            .collect(),
    ];
    for (figure, row) in figures().iter().zip(table) {
        let label = match (figure.key, clock) {
            ("clock_hz_mean", Some(provenance)) => format!("{} ({provenance})", figure.label),
            _ => figure.label.to_string(),
        };
        let cell = |spread: &Option<Spread>| spread.as_ref().map_or("-".into(), |spread| figure.told.tell(spread));
        rows.push([label].into_iter().chain(row.controllers.iter().map(cell)).collect());
    }
    columns(&rows)
}

/// The verdict of one controller's runs on the goals, in words.
pub fn verdict(goal: &Goal, runs: &[&ControllerRun]) -> String {
    let all = runs.len();
    let how_many = |holds: fn(&ControllerRun) -> bool| runs.iter().filter(|run| holds(run)).count();
    let mut text = format!(
        "every task holds its goal in {} of {all}",
        how_many(|run| run.goal_held)
    );
    let mut premises = runs.iter().filter_map(|run| run.failed_premise.as_ref());
    if let Some(first) = premises.next() {
        text += &format!(", not judged in {} ({first})", 1 + premises.count());
    }
    let fresh = how_many(|run| run.kept[0]);
    text += &format!("; fresh share kept over {} in {fresh} of {all}", goal.min_fresh);
    text += &format!(
        "; every update accounted for in {} of {all}",
        how_many(|run| run.kept[1])
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_report::fixture;

    const KINDS: [ControllerKind; 2] = [ControllerKind::Open, ControllerKind::Qod];

    fn run(repetition: u32, column: usize, change: impl FnOnce(&mut RunReport)) -> ControllerRun {
        let mut report = fixture::report();
        report.header.controller = KINDS[column];
        change(&mut report);
        ControllerRun::new(repetition, column, report)
    }

    fn runs() -> Vec<ControllerRun> {
        vec![
            run(0, 0, |report| report.summary.tardiness_mean = Some(1.3)),
            run(0, 1, |report| report.summary.tardiness_mean = Some(0.88)),
            run(1, 1, |report| report.summary.tardiness_mean = Some(0.75)),
            run(1, 0, |report| report.summary.tardiness_mean = Some(1.2)),
            run(2, 0, |report| report.summary.tardiness_mean = Some(1.4)),
            run(2, 1, |report| {
                report.summary.updates.lost = 3;
                report.summary.inconclusive = true;
                report.summary.probe_us = None;
            }),
        ]
    }

    #[test]
    fn a_spread_is_median_least_and_most() {
        let spread = |values: &[f64]| Spread::of(values).map(|s| (s.median, s.min, s.max, s.runs));
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Some((2.0, 1.0, 3.0, 3)));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]), Some((2.0, 1.0, 4.0, 4)));
        assert_eq!(spread(&[7.0]), Some((7.0, 7.0, 7.0, 1)));
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn the_table_compares_column_by_column() {
        let text = text(&KINDS, Some(Provenance::Emulated), &table(&KINDS, &runs()));
        insta::assert_snapshot!("table", text);
    }

    #[test]
    fn the_verdict_counts_repetitions() {
        let mut runs = runs();
        // Open's second run has a task that misses its goal.
        runs[3] = run(1, 0, |report| report.tasks[0].late = report.tasks[0].jobs);
        let of = |column| runs.iter().filter(|run| run.column == column).collect::<Vec<_>>();
        let goal = runs[0].header.goal;
        let verdicts = [0, 1].map(|column| format!("{}\n", verdict(&goal, &of(column))));
        assert!(verdicts[0].contains("goal in 2 of 3"), "{}", verdicts[0]);
        insta::assert_snapshot!("verdicts", verdicts.concat());
    }
}
