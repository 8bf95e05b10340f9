//! Figures of a run along its time, each described once for the live view and the page.

use punctual_platform::KnobId;
use punctual_runtime::report::{RunHeader, Sample};
use punctual_workload::{ControllerKind, TaskGoal};

/// A figure of each sample.
#[derive(Clone, Copy, Debug)]
pub struct SampleFigure {
    /// Name in the live view, and in the legend of the page's chart.
    pub names: [&'static str; 2],
    /// The value; `None` where a sample has none.
    pub of: fn(&Sample) -> Option<f64>,
    /// The value as text, with its unit.
    pub text: fn(f64) -> String,
}

impl SampleFigure {
    /// Text for a sample; a dash without a value.
    pub fn shown(&self, sample: Option<&Sample>) -> String {
        sample.and_then(self.of).map_or("-".into(), self.text)
    }
}

/// A set point or a limit of a chart.
#[derive(Clone, Debug)]
pub struct ChartLevel {
    /// Name in the live view, and in the legend of the page's chart.
    pub names: [String; 2],
    /// Class in the style sheet: `goal` or `late`.
    pub class: &'static str,
    /// Value on the vertical axis.
    pub value: f64,
}

/// Figures that one chart shows.
#[derive(Clone, Debug, Default)]
pub struct RunChart {
    /// Title on the page.
    pub title: &'static str,
    /// Figures, in the order of their curves.
    pub figures: &'static [SampleFigure],
    /// Set points and limits.
    pub levels: Vec<ChartLevel>,
    /// Range of values that is always visible.
    pub at_least: (f64, f64),
    /// Unit after the numbers of the page's vertical axis.
    pub unit: &'static str,
    /// Provenance, such as simulated or no knob; `None` if it needs no mention.
    pub badge: Option<String>,
    /// Text of the live view in place of a chart without a value.
    pub without: &'static str,
}

#[rustfmt::skip] // a figure a line
mod list {
    use super::SampleFigure;

    const RATIO: fn(f64) -> String = |value| format!("{value:.2}");
    const PERCENT: fn(f64) -> String = |value| format!("{value:.0} %");
    const CLOCK: fn(f64) -> String = |value| format!("{value:.2} GHz");
    const MICROS: fn(f64) -> String = |value| format!("{value:.1} us");

    const STORE_TIME: &str = "time in the store / response time";

    fn percent(share: f64) -> Option<f64> {
        Some(share * 100.0)
    }

    pub static FIGURES: [SampleFigure; 8] = [
        SampleFigure { names: ["tardiness", "response time / deadline"], of: |it| it.tardiness, text: RATIO },
        SampleFigure { names: ["admitted", "updates admitted"], of: |it| percent(it.admitted_share), text: PERCENT },
        SampleFigure { names: ["fresh", "data fresh"], of: |it| percent(it.fresh_share), text: PERCENT },
        SampleFigure { names: ["data response ratio", STORE_TIME], of: |it| it.drr, text: RATIO },
        SampleFigure { names: ["clock", "GHz"], of: |it| it.clock_hz.map(|hz| hz as f64 * 1e-9), text: CLOCK },
        SampleFigure { names: ["decision", "deciding, us"], of: |it| it.decision_us, text: MICROS },
        SampleFigure { names: ["knobs", "turning knobs, us"], of: |it| it.actuation_us, text: MICROS },
        SampleFigure { names: ["best-effort share", "best-effort share"], of: |it| percent(it.best_effort_share?), text: PERCENT },
    ];
}

/// The charts that concern a run, of which this is the last sample, in the order in which they are shown; the last one
/// is only on the page.
pub fn charts(header: &RunHeader, last: Option<&Sample>) -> Vec<RunChart> {
    let level = |names: [String; 2], class, value| ChartLevel { names, class, value };
    let goal = |value: f64| level([(); 2].map(|()| format!("goal {value:.2}")), "goal", value);
    let aim = match header.goal.tasks {
        TaskGoal::Tardiness(mean) => Some(goal(mean)),
        TaskGoal::Late(_) => None,
    };
    let late = level(["late > 1".into(), "deadline".into()], "late", 1.0);
    let late = std::iter::once(late).chain(aim);
    let fresh = header.goal.min_fresh.get() * 100.0;
    let minimum = ["min", "minimum"].map(|name| format!("{name} {fresh:.0} %"));
    let (drr, top) = (header.goal.drr, header.load.top_clock.0 as f64 * 1e-9);
    let badge = |knob| header.offered(knob).map(|provenance| provenance.to_string());
    let chart = |title, figures: std::ops::Range<usize>, levels, at_least| RunChart {
        title,
        figures: &list::FIGURES[figures],
        levels,
        at_least,
        ..RunChart::default()
    };
    let priced = header.controller == ControllerKind::Mimo && header.prices.is_some();
    let set_point = (!priced).then(|| goal(drr)).into_iter().collect();
    let drrs = ((drr - 0.2).max(0.0), (drr + 0.2).min(1.0));
    let least = vec![level(minimum, "goal", fresh)];
    let shares = chart("Admitted and fresh", 1..3, least, (0.0, 100.0));
    let clock = chart("Clock", 4..5, Vec::new(), (0.5 * top, top));
    let bounded = last.is_some_and(|it| it.best_effort_share.is_some());
    let has_clock = header.offered(KnobId::CLOCK).is_some() || last.is_some_and(|it| it.clock_hz.is_some());
    let has_data = header.load.sensors > 0;
    let all = [
        (true, chart("Tardiness", 0..1, late.collect(), (0.5, 1.2))),
        (
            has_data,
            RunChart {
                unit: " %",
                badge: badge(KnobId::AdmittedShare).filter(|provenance| provenance != "real"),
                ..shares
            },
        ),
        (has_data, chart("Data response ratio", 3..4, set_point, drrs)),
        (
            has_data || has_clock,
            RunChart {
                badge: badge(KnobId::CLOCK).or(Some("no knob".into())),
                without: "this machine shows no clock; `punctual doctor` says why",
                ..clock
            },
        ),
        (
            bounded,
            RunChart {
                unit: " %",
                ..chart("Best-effort share", 7..8, Vec::new(), (0.0, 100.0))
            },
        ),
        (true, chart("The loop's own time", 5..7, Vec::new(), (0.0, 10.0))),
    ];
    all.into_iter()
        .filter_map(|(concerns, chart)| concerns.then_some(chart))
        .collect()
}
