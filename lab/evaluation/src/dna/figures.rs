//! Charts of the evaluation.

use super::columns::labels_of;
use super::measured::quantile;
use super::policy::Policy;
use super::tasksets;
use super::variant::{VC2M, Variant};
use super::{Part, Row};
use crate::outcome::{Chart, Curve, Figure};
use crate::samples::{Labels, Replication, Run};
use crate::stats::mean;

/// Utilisations whose latencies are drawn as distributions (Fig. 6).
const DISTRIBUTIONS: [f64; 3] = [1.4, 2.0, 2.6];

/// The charts of `parts`, those of the first seed.
pub fn figures(parts: &[Part], replications: &[Replication], rows: &[Row]) -> Vec<Figure> {
    let mut machines: Vec<&Replication> = Vec::new();
    for replication in replications {
        if machines.iter().all(|other| other.machine != replication.machine) {
            machines.push(replication);
        }
    }
    let mut figures = Vec::new();
    for part in parts {
        for replication in &machines {
            match part {
                Part::Motivation => figures.extend(motivation(replication)),
                Part::Schedulability => figures.extend([
                    by_utilisation(
                        replication,
                        *part,
                        "share of schedulable task sets",
                        "schedulable",
                        None,
                    ),
                    by_utilisation(replication, *part, "share of late jobs", "misses", None),
                ]),
                Part::Latency => {
                    for (what, series) in [
                        ("mean latency", "latency-pooled"),
                        ("99.99th percentile of latency", "tail-pooled"),
                        ("worst latency", "worst-pooled"),
                    ] {
                        let title = format!("{what}, vC2M's over it");
                        figures.push(by_utilisation(replication, *part, &title, series, Some(VC2M)));
                    }
                    figures.push(by_utilisation(
                        replication,
                        *part,
                        "mean latency, static-best's over it",
                        "latency-pooled",
                        Some(Policy::StaticBest),
                    ));
                    figures.extend(DISTRIBUTIONS.map(|utilisation| distribution(replication, rows, utilisation)));
                }
                Part::Overhead => figures.extend([
                    by_utilisation(
                        replication,
                        *part,
                        "ways that change hands per second",
                        "ways-moved",
                        None,
                    ),
                    by_utilisation(
                        replication,
                        *part,
                        "share of busy time spent on refilling",
                        "refilling",
                        None,
                    ),
                ]),
            }
        }
    }
    figures
}

fn figure(part: Part, machine: &str, title: &str, x_unit: &str, length: f64, curves: Vec<Curve>) -> Figure {
    Figure {
        experiment: part.name().into(),
        title: format!("{machine}: {title}"),
        chart: Chart::Curves {
            x_unit: x_unit.into(),
            length,
            curves,
            levels: Vec::new(),
            band: None,
        },
    }
}

fn value(runs: &[Run], labels: &Labels, series: &str) -> Option<f64> {
    let run = runs.iter().find(|run| run.labels == *labels)?;
    mean(run.window(series, 0, usize::MAX))
}

/// A chart with one curve for each shown variant; with `over`, the curves are the value of that policy divided by the
/// variant's own.
fn by_utilisation(replication: &Replication, part: Part, title: &str, series: &str, over: Option<Policy>) -> Figure {
    let runs = &replication.runs;
    let at = |utilisation: f64, variant: Variant| {
        value(runs, &labels_of(&replication.machine, utilisation, variant), series)
    };
    let point = |variant: Variant, utilisation: f64| {
        let own = at(utilisation, variant);
        let value = match over {
            None => own,
            Some(policy) => own
                .zip(at(utilisation, variant.beside(policy)))
                .map(|(own, other)| other / own),
        };
        (utilisation, value)
    };
    let curve = |variant: Variant| Curve {
        name: variant.title(),
        points: tasksets::utilisations()
            .map(|utilisation| point(variant, utilisation))
            .collect(),
    };
    let shown = Variant::all().into_iter().filter(|variant| variant.is_shown());
    figure(
        part,
        &replication.machine,
        title,
        "utilisation",
        4.0,
        shown.map(curve).collect(),
    )
}

/// The distribution of response time over deadline.
fn distribution(replication: &Replication, rows: &[Row], utilisation: f64) -> Figure {
    let row = rows.iter().find(|row| {
        row.profiles == replication.machine && row.seed == replication.seed && row.utilisation == utilisation
    });
    let curve = |variant: Variant| {
        let sets = row
            .into_iter()
            .flat_map(|row| &row.sets)
            .filter_map(|set| set.of(variant));
        let mut all: Vec<f32> = sets.flat_map(|measured| measured.relative.iter().copied()).collect();
        all.sort_by(f32::total_cmp);
        let points = (0..=100).map(|percent| (f64::from(percent), Some(quantile(&all, f64::from(percent) / 100.0))));
        Curve {
            name: variant.title(),
            points: points.filter(|_| !all.is_empty()).collect(),
        }
    };
    let shown = Variant::all().into_iter().filter(|variant| variant.is_shown());
    figure(
        Part::Latency,
        &replication.machine,
        &format!("latency over deadline by share of the jobs, utilisation {utilisation:.1}"),
        "% of the jobs",
        100.0,
        shown.map(curve).collect(),
    )
}

fn motivation(replication: &Replication) -> Vec<Figure> {
    let of = |part: &'static str| {
        replication
            .runs
            .iter()
            .filter(move |run| run.labels.get("part").is_some_and(|is| is == part))
    };
    let mut figures = Vec::new();
    let mut programs: Vec<Curve> = Vec::new();
    for run in of("partitions") {
        let (Some(program), Some(partitions)) = (run.labels.get("program"), run.labels.get("partitions")) else {
            continue;
        };
        let point = (
            partitions.parse().unwrap_or(0.0),
            mean(run.window("runtime", 0, usize::MAX)),
        );
        match programs.iter_mut().find(|curve| curve.name == *program) {
            Some(curve) => curve.points.push(point),
            None => programs.push(Curve {
                name: program.clone(),
                points: vec![point],
            }),
        }
    }
    let title = "run time in seconds by partitions of both resources";
    figures.push(figure(
        Part::Motivation,
        &replication.machine,
        title,
        "partitions",
        20.0,
        programs,
    ));
    for run in of("progress") {
        let column = |series: &str, name: &str| Curve {
            name: name.into(),
            points: run
                .window(series, 0, usize::MAX)
                .iter()
                .enumerate()
                .map(|(place, rate)| (place as f64 + 0.5, Some(rate / 1e9)))
                .collect(),
        };
        let program = run.labels.get("program").map_or("", String::as_str);
        figures.push(figure(
            Part::Motivation,
            &replication.machine,
            &format!("{program}, billion instructions per second"),
            "% of the run",
            100.0,
            vec![
                column("few", "2 ways, 2 partitions"),
                column("many", "18 ways, 18 partitions"),
            ],
        ));
    }
    figures
}
