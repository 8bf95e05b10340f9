//! Charts of the evaluation: the paper's figures, and our own.

use punctual_allocation::mapping::Idle;

use super::Part;
use super::{cost, map, overhead, policies, queues};
use crate::outcome::{Bars, Chart, Curve, Figure};
use crate::samples::{Labels, Replication, Run};
use crate::stats::{Spread, mean};

/// The charts of `parts`.
pub fn figures(parts: &[Part], replications: &[Replication]) -> Vec<Figure> {
    let seen = &MigrationRuns(replications);
    let of = |part: &Part| -> Vec<(&str, Chart)> {
        match part {
            Part::Cost => vec![(
                "Figs. 2, 7: cycles of a move, by the size of the task in KiB",
                costs(seen),
            )],
            Part::Daemons => vec![
                (
                    "Fig. 6(a): the master daemon's share of a core",
                    daemons(seen, "master"),
                ),
                ("Fig. 6(b): a slave daemon's share of a core", daemons(seen, "slave")),
            ],
            Part::Map => vec![
                (
                    "Figs. 10, 11: watts always on, by frames/s",
                    watts(seen, Idle::AlwaysOn),
                ),
                (
                    "Figs. 12, 13: watts shut down when idle, by frames/s",
                    watts(seen, Idle::ShutdownWhenIdle),
                ),
                ("Fig. 14: millijoules of moves, by the clock", energy(seen)),
            ],
            Part::Queues => vec![
                ("Fig. 15(a): late frames, by the size of queues", late(seen)),
                (
                    "Fig. 15(b): frames in queues of 14 while the demodulator moves",
                    levels(seen),
                ),
            ],
            Part::Policies => vec![
                (
                    "Energy over that of the best mapping for each rate",
                    policy_bars(seen, &["long", "short"], &["keeper", "follow", "stay"], "ratio"),
                ),
                (
                    "Highest temperature, kelvin above ambient",
                    policy_bars(seen, &["steady"], &["still", "exchange"], "peak"),
                ),
            ],
            Part::Checkpoint => vec![("Fig. 16(b): a checkpoint's share of a task's time", checkpoints(seen))],
        }
    };
    let figure = |part: &Part, title: &str, chart| Figure {
        experiment: part.name().into(),
        title: title.into(),
        chart,
    };
    let all = parts
        .iter()
        .flat_map(|part| of(part).into_iter().map(|(title, chart)| figure(part, title, chart)));
    all.collect()
}

struct MigrationRuns<'r>(&'r [Replication]);

impl MigrationRuns<'_> {
    /// A series of the first replication: curves show a single replication.
    fn series(&self, labels: &Labels, series: &str) -> Vec<Option<f64>> {
        let run = self
            .0
            .first()
            .and_then(|one| one.runs.iter().find(|run| run.labels == *labels));
        run.and_then(|run| run.series.get(series)).cloned().unwrap_or_default()
    }

    fn values(&self, labels: &Labels, series: &str) -> Vec<f64> {
        let run = |one: &Replication| one.runs.iter().find(|run| run.labels == *labels).cloned();
        let runs = self.0.iter().filter_map(run);
        runs.filter_map(|run: Run| mean(run.window(series, 0, usize::MAX)))
            .collect()
    }

    fn mean(&self, labels: &Labels, series: &str) -> Option<f64> {
        mean(self.values(labels, series))
    }
}

fn curves(unit: &str, length: f64, curves: Vec<Curve>) -> Chart {
    Chart::Curves {
        x_unit: unit.into(),
        length,
        curves,
        levels: Vec::new(),
        band: None,
    }
}

fn costs(seen: &MigrationRuns) -> Chart {
    let curve = |mechanism: &str| Curve {
        name: mechanism.into(),
        points: cost::KIB
            .map(|kib| (kib as f64, seen.mean(&cost::labels_of(mechanism, kib), "cycles")))
            .to_vec(),
    };
    curves(
        "KiB",
        cost::KIB[cost::KIB.len() - 1] as f64,
        cost::MECHANISMS.map(curve).to_vec(),
    )
}

fn daemons(seen: &MigrationRuns, series: &str) -> Chart {
    let curve = |tasks: u64| Curve {
        name: format!("{tasks} tasks"),
        points: overhead::HERTZ
            .map(|hertz| {
                (
                    hertz as f64,
                    seen.mean(&overhead::daemon_labels_of(hertz, tasks), series),
                )
            })
            .to_vec(),
    };
    curves("Hz", 100.0, overhead::TASKS.map(curve).to_vec())
}

fn watts(seen: &MigrationRuns, idle: Idle) -> Chart {
    let curve = |cores: Option<usize>| {
        let watts = seen.series(&map::curve_labels(cores, idle), "watts");
        let points = watts
            .iter()
            .enumerate()
            .map(|(number, watts)| ((number + 1) as f64 * map::DRAWN_EVERY, *watts));
        Curve {
            name: cores.map_or("best of all mappings".into(), |cores| format!("{cores} cores")),
            points: points.collect(),
        }
    };
    curves(
        "frames/s",
        6200.0,
        [Some(1), Some(2), Some(3), None].map(curve).to_vec(),
    )
}

fn energy(seen: &MigrationRuns) -> Chart {
    let bars = |transition: (usize, usize)| Bars {
        name: format!("{} to {} cores", transition.0, transition.1),
        values: map::MHZ
            .map(|mhz| {
                let joules = seen.values(&map::transition_labels(transition, mhz), "joules");
                Spread::of(&joules.iter().map(|joules| joules * 1e3).collect::<Vec<_>>())
            })
            .to_vec(),
    };
    Chart::Bars {
        groups: map::MHZ.map(|mhz| format!("{mhz} MHz")).to_vec(),
        bars: map::TRANSITIONS.map(bars).to_vec(),
    }
}

fn late(seen: &MigrationRuns) -> Chart {
    let curve = |transition: (usize, usize)| Curve {
        name: format!("{} to {} cores", transition.0, transition.1),
        points: queues::SLOTS
            .map(|slots| {
                (
                    f64::from(slots),
                    seen.mean(&queues::labels_of(transition, slots), "late"),
                )
            })
            .to_vec(),
    };
    curves("frames", 20.0, map::TRANSITIONS.map(curve).to_vec())
}

fn levels(seen: &MigrationRuns) -> Chart {
    let names = [
        ("q1", "behind the low-pass filter"),
        ("q2", "before a band-pass filter"),
        ("q3", "behind a band-pass filter"),
        ("q4", "the shortest before the consumer"),
    ];
    let curve = |(series, name): (&str, &str)| {
        let levels = seen.series(&queues::labels_of((1, 2), queues::ENOUGH), series);
        let at = |number: usize| (number + 1) as f64 * queues::SAMPLED.as_millis_f64();
        Curve {
            name: name.into(),
            points: levels
                .iter()
                .enumerate()
                .map(|(number, level)| (at(number), *level))
                .collect(),
        }
    };
    curves("ms", 150.0, names.map(curve).to_vec())
}

fn checkpoints(seen: &MigrationRuns) -> Chart {
    Chart::Bars {
        groups: overhead::NAMES.map(String::from).to_vec(),
        bars: vec![Bars {
            name: "overhead".into(),
            values: overhead::NAMES
                .map(|name| Spread::of(&seen.values(&overhead::checkpoint_labels_of(name), "overhead")))
                .to_vec(),
        }],
    }
}

fn policy_bars(seen: &MigrationRuns, stays: &[&str], policies: &[&str], series: &str) -> Chart {
    let bars = |policy: &&str| Bars {
        name: policy.to_string(),
        values: stays
            .iter()
            .map(|stays| Spread::of(&seen.values(&policies::labels_of(policy, stays), series)))
            .collect(),
    };
    Chart::Bars {
        groups: stays.iter().map(|stays| stays.to_string()).collect(),
        bars: policies.iter().map(bars).collect(),
    }
}
