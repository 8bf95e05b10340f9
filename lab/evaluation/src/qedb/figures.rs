//! Charts of the evaluation: the paper's figures.

use super::approach::APPROACHES;
use super::means_of;
use super::plan::{CLOCKS, DISTURBED, MICROBENCHMARK_CORES, Part, QODS, identify_labels};
use super::setting::{CONTROL_PERIOD, MIXES, TARDINESS};
use crate::outcome::{Bars, Chart, Curve, Figure};
use crate::samples::{Labels, Replication, labels};
use crate::stats::{Spread, median};

/// The series that Figs. 7 to 9 show, with their titles.
const SHOWN: [(&str, &str); 5] = [
    ("tardiness", "tardiness"),
    ("fresh", "QoD (fresh share)"),
    ("clock", "clock, MHz"),
    ("power", "power, W"),
    ("drr", "data response ratio"),
];

/// The charts of `parts`.
pub fn figures(parts: &[Part], replications: &[Replication]) -> Vec<Figure> {
    let of_part = |part: Part| {
        let charts = match part {
            Part::Interference => interference(replications),
            Part::Qod => qod(replications),
            Part::Identify => identify(replications),
            Part::Average => average(replications),
            Part::Cores => cores(replications),
            Part::Transient => transient(replications),
        };
        charts.into_iter().map(move |(title, chart)| Figure {
            experiment: part.name().into(),
            title,
            chart,
        })
    };
    parts.iter().copied().flat_map(of_part).collect()
}

type TitledChart = (String, Chart);

fn interference(replications: &[Replication]) -> Vec<TitledChart> {
    let run = |clock: u64, cores: u32| {
        labels([
            ("part", "interference"),
            ("clock", &clock.to_string()),
            ("cores", &cores.to_string()),
        ])
    };
    let chart = |series: &str| {
        let curve = |cores: u32| Curve {
            name: format!("{cores} interfering"),
            points: CLOCKS
                .map(|clock| (clock as f64, of_median(replications, &run(clock, cores), series)))
                .to_vec(),
        };
        Chart::Curves {
            x_unit: "MHz".into(),
            length: 2000.0,
            curves: MICROBENCHMARK_CORES.map(curve).to_vec(),
            levels: Vec::new(),
            band: None,
        }
    };
    vec![
        ("Fig. 3: response time / deadline".into(), chart("tardiness")),
        ("Fig. 3: data response time / deadline".into(), chart("data")),
        ("Fig. 3: computation time / deadline".into(), chart("compute")),
    ]
}

fn qod(replications: &[Replication]) -> Vec<TitledChart> {
    let curve = |(series, name): (&str, &str)| Curve {
        name: name.into(),
        points: QODS
            .map(|qod| {
                let run = labels([("part", "qod"), ("qod", &qod.to_string())]);
                (f64::from(qod), of_median(replications, &run, series))
            })
            .to_vec(),
    };
    let chart = Chart::Curves {
        x_unit: "%".into(),
        length: 100.0,
        curves: [("data", "data"), ("compute", "computation")].map(curve).to_vec(),
        levels: Vec::new(),
        band: None,
    };
    vec![("Fig. 4: time / deadline by QoD, 1000 MHz, three cores".into(), chart)]
}

fn identify(replications: &[Replication]) -> Vec<TitledChart> {
    let chart = |series: &str| over_time(replications, &identify_labels(), series, Vec::new(), None);
    vec![
        ("Fig. 6: tardiness while both knobs move".into(), chart("tardiness")),
        ("Fig. 6: data response ratio while both knobs move".into(), chart("drr")),
    ]
}

fn average(replications: &[Replication]) -> Vec<TitledChart> {
    let mixes = MIXES.map(|mix| (mix.name(), mix.name(), "1".to_string()));
    let groups: Vec<_> = std::iter::once(idle()).chain(mixes).collect();
    SHOWN
        .iter()
        .map(|shown| bars("Fig. 7", shown, &groups, replications))
        .collect()
}

fn cores(replications: &[Replication]) -> Vec<TitledChart> {
    let of_mix = |(figure, mix): (&str, String)| {
        let some = (1..=3).map(|cores: u32| (format!("{cores}"), mix.clone(), cores.to_string()));
        let groups: Vec<_> = std::iter::once(("0".to_string(), "none".to_string(), "0".to_string()))
            .chain(some)
            .collect();
        let figure = format!("{figure}, cores of {mix}");
        SHOWN
            .iter()
            .map(|shown| bars(&figure, shown, &groups, replications))
            .collect::<Vec<_>>()
    };
    [("Fig. 8", MIXES[0].name()), ("Fig. 9", MIXES[4].name())]
        .into_iter()
        .flat_map(of_mix)
        .collect()
}

/// A group of bars: its name, and the labels `workload` and `cores`.
type Group = (String, String, String);

fn idle() -> Group {
    ("none".into(), "none".into(), "0".into())
}

fn bars(figure: &str, (series, name): &(&str, &str), groups: &[Group], replications: &[Replication]) -> TitledChart {
    let of_approach = |(approach, _): (&str, _)| {
        let value = |(_, workload, cores): &Group| {
            let run = labels([
                ("part", "steady"),
                ("approach", approach),
                ("workload", workload),
                ("cores", cores),
            ]);
            Spread::of(&means_of(replications, &run, series))
        };
        Bars {
            name: approach.into(),
            values: groups.iter().map(value).collect(),
        }
    };
    let chart = Chart::Bars {
        groups: groups.iter().map(|group| group.0.clone()).collect(),
        bars: APPROACHES.map(of_approach).to_vec(),
    };
    (format!("{figure}: {name}"), chart)
}

fn transient(replications: &[Replication]) -> Vec<TitledChart> {
    let runs = [
        ("Fig. 10(a), open", labels([("approach", "open")])),
        ("Fig. 10(b), dvfs-only", labels([("approach", "dvfs-only")])),
        ("Fig. 10(c), qod1000", labels([("approach", "qod1000")])),
        (
            "Fig. 10(d), mimo, nominal drr",
            labels([("approach", "mimo"), ("drr", "nominal")]),
        ),
        (
            "Fig. 10(e), mimo, high drr",
            labels([("approach", "mimo"), ("drr", "high")]),
        ),
    ];
    let charts = |(figure, mut run): (&str, Labels)| {
        run.insert("part".into(), "transient".into());
        let chart = |(series, name): &(&str, &str)| {
            let goal = ("goal".to_string(), TARDINESS);
            let levels = if *series == "tardiness" { vec![goal] } else { Vec::new() };
            let [from, to] = DISTURBED.map(|k| k as f64 * CONTROL_PERIOD.as_secs_f64());
            let chart = over_time(replications, &run, series, levels, Some((from, to)));
            (format!("{figure}: {name}"), chart)
        };
        SHOWN.iter().map(chart).collect::<Vec<_>>()
    };
    runs.into_iter().flat_map(charts).collect()
}

/// A chart with one curve per machine, from its first seed.
fn over_time(
    replications: &[Replication],
    run: &Labels,
    series: &str,
    levels: Vec<(String, f64)>,
    band: Option<(f64, f64)>,
) -> Chart {
    let period = CONTROL_PERIOD.as_secs_f64();
    let mut curves: Vec<Curve> = Vec::new();
    for replication in replications {
        let known = curves.iter().any(|curve| curve.name == replication.machine);
        let found = replication.runs.iter().find(|other| other.labels == *run);
        if let (false, Some(samples)) = (known, found.and_then(|run| run.series.get(series))) {
            let points = samples
                .iter()
                .enumerate()
                .map(|(k, value)| ((k + 1) as f64 * period, *value));
            curves.push(Curve {
                name: replication.machine.clone(),
                points: points.collect(),
            });
        }
    }
    let length = curves
        .iter()
        .filter_map(|curve| curve.points.last())
        .map(|point| point.0)
        .fold(0.0, f64::max);
    Chart::Curves {
        x_unit: "s".into(),
        length,
        curves,
        levels,
        band,
    }
}

fn of_median(replications: &[Replication], run: &Labels, series: &str) -> Option<f64> {
    median(&means_of(replications, run, series))
}
