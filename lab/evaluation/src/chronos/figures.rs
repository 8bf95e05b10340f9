//! Charts of the evaluation: the paper's figures and our own.

use super::Part;
use super::overload::{GATES, LOADS};
use super::paper::POLICIES;
use super::rows::values;
use crate::outcome::{Bars, Chart, Curve, Figure};
use crate::samples::{Labels, Replication, labels};
use crate::stats::{Spread, median};

/// The charts of `parts`; `identify` and `nodes` have none.
pub fn figures(parts: &[Part], replications: &[Replication]) -> Vec<Figure> {
    let of = |part: &Part| -> Vec<(&str, Chart)> {
        match part {
            Part::Identify | Part::Nodes => Vec::new(),
            Part::Scale => vec![("Fig. 4: timely items/s, by slaves", scale(replications))],
            Part::Delay => vec![
                ("Fig. 5: mean delay, seconds", delay(replications)),
                (
                    "Fig. 6: mean delay of the first slave, seconds",
                    transient(replications),
                ),
            ],
            Part::Failure => vec![(
                "Table 1: timely items/s with one of five slaves removed",
                failure(replications),
            )],
            Part::Overload => vec![(
                "Timely share of capacity, by load in times of it, costs +-20 %",
                overload(replications),
            )],
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

fn middle(replications: &[Replication], labels: &Labels, series: &str) -> Option<f64> {
    median(&values(replications, labels, series))
}

fn curves(unit: &str, length: f64, curves: Vec<Curve>, levels: Vec<(String, f64)>) -> Chart {
    Chart::Curves {
        x_unit: unit.into(),
        length,
        curves,
        levels,
        band: None,
    }
}

fn scale(replications: &[Replication]) -> Chart {
    let curve = |policy: &str| {
        let point = |slaves: u32| {
            let labels = labels([("policy", policy), ("slaves", &slaves.to_string())]);
            (f64::from(slaves), middle(replications, &labels, "items_timely_per_s"))
        };
        Curve {
            name: policy.into(),
            points: (1..=5).map(point).collect(),
        }
    };
    curves("slaves", 5.0, POLICIES.map(curve).to_vec(), Vec::new())
}

fn as_published(policy: &str) -> Labels {
    labels([
        ("policy", policy),
        ("clients", "places"),
        ("service", "random"),
        ("reading", "once"),
    ])
}

fn delay(replications: &[Replication]) -> Chart {
    let spread = |policy: &str| Spread::of(&values(replications, &as_published(policy), "node_delay_s"));
    Chart::Bars {
        groups: POLICIES.map(String::from).to_vec(),
        bars: vec![Bars {
            name: "mean delay".into(),
            values: POLICIES.map(spread).to_vec(),
        }],
    }
}

/// Mean delay of the first node per second, in the first replication only: a mean over seeds would hide the transients.
fn transient(replications: &[Replication]) -> Chart {
    let curve = |policy: &str| {
        let labels = as_published(policy);
        let run = replications
            .first()
            .and_then(|one| one.runs.iter().find(|run| run.labels == labels));
        let column = run.and_then(|run| run.series.get("transient_s"));
        let points = column.into_iter().flatten().enumerate();
        Curve {
            name: policy.into(),
            points: points.map(|(second, delay)| (second as f64, *delay)).collect(),
        }
    };
    let bounds = [("0.8 s", 0.8), ("1.1 s", 1.1)].map(|(name, level)| (name.to_string(), level));
    curves(
        "s",
        600.0,
        ["fc-prop", "fc-hash", "ours"].map(curve).to_vec(),
        bounds.to_vec(),
    )
}

fn failure(replications: &[Replication]) -> Chart {
    let bars = |series: &str, name: &str| {
        let spread = |policy: &str| {
            let labels = labels([("policy", policy), ("removed", "1")]);
            Spread::of(&values(replications, &labels, series))
        };
        Bars {
            name: name.into(),
            values: POLICIES.map(spread).to_vec(),
        }
    };
    Chart::Bars {
        groups: POLICIES.map(String::from).to_vec(),
        bars: vec![bars("timely_before", "before"), bars("timely_after", "after")],
    }
}

fn overload(replications: &[Replication]) -> Chart {
    let curve = |(balancer, gate): (&str, &str)| {
        let point = |load: &str| {
            let labels = labels([
                ("scenario", "steady"),
                ("spread", "even"),
                ("load", load),
                ("balancer", balancer),
                ("gate", gate),
            ]);
            (
                load.parse().unwrap_or(0.0),
                middle(replications, &labels, "timely_of_capacity"),
            )
        };
        Curve {
            name: format!("{balancer}, admission {gate}"),
            points: LOADS.map(point).to_vec(),
        }
    };
    let [none, published, ours] = GATES;
    let drawn = [
        ("p2c", none),
        ("fc-hash", published),
        ("p2c", ours),
        ("bounded", ours),
        ("ours", ours),
    ];
    curves(
        "times capacity",
        3.0,
        drawn.map(curve).to_vec(),
        vec![("0.97".into(), 0.97)],
    )
}
