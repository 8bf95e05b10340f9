//! A chart of the report page as inline SVG, without colours, which the page's style sheet sets by class.

use std::fmt::Write;

use maud::{Markup, html};

/// Size in units of the drawing, which the browser scales to the available width. Small, so that text stays legible on
/// a phone.
pub const WIDTH: f64 = 520.0;
pub const HEIGHT: f64 = 210.0;
/// Margins of the plot: left for labels of the axis, below for seconds.
pub const LEFT: f64 = 46.0;
pub const RIGHT: f64 = 16.0;
pub const TOP: f64 = 10.0;
pub const BOTTOM: f64 = 22.0;
/// Classes of curves in the style sheet, by their order in a drawing.
pub const CLASSES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Height of a lane in a drawing of lanes, and width of their names.
pub const LANE: f64 = 17.0;
pub const NAMES: f64 = 84.0;

/// Width of a digit on a phone, where the style sheet has the largest text, in units of the drawing.
#[cfg(test)]
pub const PHONE_DIGIT: f64 = 9.6;

/// Columns to which a curve with many more points is thinned; each keeps its lowest and highest point.
const COLUMNS: usize = 500;
/// Approximate number of labels on an axis.
const TICKS: f64 = 5.0;

/// A curve of points; `None` breaks the line.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Name in the chart's legend.
    pub name: String,
    /// Class in the style sheet.
    pub class: &'static str,
    /// Points: seconds, and value.
    pub points: Vec<(f64, Option<f64>)>,
}

/// A horizontal line: a set point or a limit.
#[derive(Clone, Debug)]
pub struct Level {
    /// Name in the chart's legend.
    pub name: String,
    /// Class in the style sheet.
    pub class: &'static str,
    /// Value on the vertical axis.
    pub value: f64,
}

/// A stretch of time that is shaded.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// Class in the style sheet.
    pub class: &'static str,
    /// Start of the band, in seconds.
    pub from: f64,
    /// End of the band, in seconds.
    pub to: f64,
}

/// Content of one chart.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// Description as plain text, for screen readers.
    pub description: String,
    /// Curves, drawn in this order.
    pub curves: Vec<Curve>,
    /// Levels, drawn over the curves.
    pub levels: Vec<Level>,
    /// Bands, drawn under everything.
    pub bands: Vec<Band>,
    /// Instants marked at the foot, in seconds.
    pub marks: Vec<f64>,
    /// Range of values that is always visible.
    pub at_least: (f64, f64),
    /// Unit after the numbers of the vertical axis.
    pub unit: &'static str,
    /// Begin of the horizontal axis, as its length.
    pub begin_s: f64,
    /// Length of the horizontal axis: in seconds, or in `x_unit`.
    pub length_s: f64,
    /// Unit of the horizontal axis, once below its labels; `None`: time in seconds, an `s` at each.
    pub x_unit: Option<String>,
}

impl Chart {
    /// Name and class of all that has a colour.
    pub fn keys(&self) -> Vec<(String, &'static str)> {
        let curves = self.curves.iter().map(|curve| (curve.name.clone(), curve.class));
        let levels = self.levels.iter().map(|level| (level.name.clone(), level.class));
        curves.chain(levels).collect()
    }

    /// The chart as an `svg` element.
    pub fn svg(&self) -> Markup {
        let (axes, foot, end) = (self.axes(), HEIGHT - BOTTOM, WIDTH - RIGHT);
        let (below, seconds) = if self.x_unit.is_some() { (14.0, "") } else { (0.0, " s") };
        html! {
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT + below) } role="img" aria-label=(self.description) {
                @for band in &self.bands {
                    @let (from, to) = (axes.x(band.from), axes.x(band.to));
                    rect class=(band.class) x=(px(from)) y=(TOP) width=(px(to - from)) height=(foot - TOP) {}
                }
                @for value in ticks(axes.low, axes.high) {
                    (grid(LEFT, axes.y(value), &(label(value, axes.high - axes.low) + self.unit)))
                }
                @for at in ticks(axes.begin, axes.begin + axes.length) {
                    text class="second" x=(px(axes.x(at))) y=(px(foot + 15.0)) { (label(at, axes.length)) (seconds) }
                }
                @if let Some(unit) = &self.x_unit { text class="tick" x=(end) y=(px(HEIGHT + below - 3.0)) { (unit) } }
                @for mark in &self.marks {
                    @let x = px(axes.x(*mark));
                    line class="mark" x1=(x) x2=(x) y1=(foot) y2=(px(foot - 8.0)) {}
                }
                @for curve in &self.curves { path class={ "curve " (curve.class) } d=(path(curve, &axes)) {} }
                @for level in &self.levels {
                    @let y = px(axes.y(level.value));
                    line class={ "level " (level.class) } x1=(LEFT) x2=(end) y1=(y) y2=(y) {}
                }
            }
        }
    }

    fn axes(&self) -> Axes {
        let points = self.curves.iter().flat_map(|curve| &curve.points);
        let values = points.filter_map(|(_, value)| *value);
        let (low, high) = range(self.at_least, values);
        Axes {
            low,
            high,
            begin: self.begin_s,
            length: self.length_s.max(1.0),
        }
    }
}

/// A coordinate, to a tenth of a unit of the drawing.
pub fn px(coordinate: f64) -> String {
    format!("{coordinate:.1}")
}

/// A line across the drawing, from `left`, with its label.
pub fn grid(left: f64, y: f64, label: &str) -> Markup {
    html! {
        line class="grid" x1=(left) x2=(px(WIDTH - RIGHT)) y1=(px(y)) y2=(px(y)) {}
        text class="tick" x=(px(left - 5.0)) y=(px(y + 4.0)) { (label) }
    }
}

/// A drawing with axes; labels lie at shares of an axis.
pub fn drawing(
    what: &str,
    left: f64,
    height: f64,
    ups: &[(f64, String)],
    alongs: &[(f64, String)],
    inner: &Markup,
) -> Markup {
    let (foot, end) = (height - BOTTOM, WIDTH - RIGHT);
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (height) } role="img" aria-label=(what) {
            @for (share, text) in ups { (grid(left, foot - (foot - TOP) * share, text)) }
            @for (share, text) in alongs {
                text class="second" x=(px(left + (end - left) * share)) y=(px(foot + 15.0)) { (text) }
            }
            (inner)
        }
    }
}

/// Labels in seconds for an axis of `length` seconds.
pub fn seconds(length: f64) -> Vec<(f64, String)> {
    let ticks = ticks(0.0, length).into_iter();
    let labels = ticks.map(|at| (at / length, format!("{} s", label(at, length))));
    labels.collect()
}

/// Mapping from seconds and values to coordinates of the drawing.
struct Axes {
    low: f64,
    high: f64,
    begin: f64,
    length: f64,
}

impl Axes {
    fn x(&self, second: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * ((second - self.begin) / self.length).clamp(0.0, 1.0)
    }

    fn y(&self, value: f64) -> f64 {
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share
    }
}

fn path(curve: &Curve, axes: &Axes) -> String {
    let mut path = String::new();
    let mut pen_down = false;
    for (second, value) in thinned(&curve.points) {
        let Some(value) = value.filter(|value| value.is_finite()) else {
            pen_down = false;
            continue;
        };
        let command = if pen_down { 'L' } else { 'M' };
        let _ = write!(path, "{command}{:.1} {:.1}", axes.x(second), axes.y(value));
        pen_down = true;
    }
    path
}

/// Thins a curve to at most 2 [`COLUMNS`] points with the same extremes.
fn thinned(points: &[(f64, Option<f64>)]) -> Vec<(f64, Option<f64>)> {
    if points.len() <= 2 * COLUMNS {
        return points.to_vec();
    }
    let extremes = |column: &[(f64, Option<f64>)]| {
        let known = || column.iter().filter_map(|(second, value)| Some((*second, (*value)?)));
        let lowest = known().min_by(|a, b| a.1.total_cmp(&b.1));
        let highest = known().max_by(|a, b| a.1.total_cmp(&b.1));
        let mut both: Vec<(f64, f64)> = lowest.into_iter().chain(highest).collect();
        both.sort_by(|a, b| a.0.total_cmp(&b.0));
        both.into_iter().map(|(second, value)| (second, Some(value)))
    };
    let columns = points.chunks(points.len().div_ceil(COLUMNS));
    columns.flat_map(extremes).collect()
}

/// Range of an axis in whole steps: `at_least`, and all values.
pub fn range(at_least: (f64, f64), values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values
        .filter(|value| value.is_finite())
        .fold(at_least, |(low, high), value| (low.min(value), high.max(value)));
    let step = step(high - low);
    ((low / step).floor() * step, (high / step - 1e-9).ceil() * step)
}

/// Step of 1, 2 or 5 times a power of ten that divides `range` into about `TICKS` parts.
pub fn step(range: f64) -> f64 {
    let rough = (range / TICKS).max(1e-9);
    let magnitude = 10f64.powf(rough.log10().floor());
    let mut factors = [1.0, 2.0, 5.0].into_iter();
    factors
        .find(|factor| factor * magnitude >= rough * 0.999)
        .unwrap_or(10.0)
        * magnitude
}

pub fn ticks(low: f64, high: f64) -> Vec<f64> {
    let step = step(high - low);
    let first = (low / step - 1e-9).ceil();
    // The bound holds for every range: a step is at least a tenth of its rough size.
    (0..=60)
        .map(|i| (first + f64::from(i)) * step)
        .take_while(|value| *value <= high + step * 1e-9)
        .collect()
}

pub fn label(value: f64, range: f64) -> String {
    let decimals = (-step(range).log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn curve(points: Vec<(f64, Option<f64>)>) -> Curve {
        Curve {
            name: "c".into(),
            class: "a",
            points,
        }
    }

    #[test]
    fn a_missing_value_breaks_the_curve() {
        let axes = Axes {
            low: 0.0,
            high: 1.0,
            begin: 0.0,
            length: 10.0,
        };
        let points = vec![
            (0.0, Some(0.0)),
            (5.0, Some(1.0)),
            (6.0, None),
            (10.0, Some(0.5)),
            (10.0, Some(f64::NAN)),
        ];
        assert_eq!(path(&curve(points), &axes), "M46.0 188.0L275.0 10.0M504.0 99.0");
    }

    #[test]
    fn labels_are_round_numbers() {
        assert_eq!(ticks(0.0, 60.0), [0.0, 20.0, 40.0, 60.0]);
        let shares: Vec<String> = ticks(0.0, 1.0).into_iter().map(|value| label(value, 1.0)).collect();
        assert_eq!(shares, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
    }

    #[test]
    fn a_unit_stands_once_where_it_may_be_long() {
        let drawn = |x_unit| {
            {
                Chart {
                    x_unit,
                    length_s: 8.0,
                    ..Chart::default()
                }
            }
            .svg()
            .into_string()
        };
        assert_eq!(
            drawn(Some("steps of pages".into())).matches("steps of pages").count(),
            1
        );
        assert!(drawn(None).contains(">8 s</text>"));
    }

    proptest! {
        #[test]
        fn ticks_are_few_and_within(low in -1e3f64..1e3, range in 1e-3f64..1e6) {
            let ticks = ticks(low, low + range);
            prop_assert!((2..=12).contains(&ticks.len()), "{ticks:?}");
            prop_assert!(ticks.iter().all(|tick| *tick >= low - range * 1e-6 && *tick <= low + range * (1.0 + 1e-6)));
        }

        #[test]
        fn labels_do_not_run_into_each_other(length in 1f64..1e6) {
            let ticks = ticks(0.0, length);
            for pair in ticks.windows(2) {
                let apart = (pair[1] - pair[0]) / length * (WIDTH - LEFT - RIGHT);
                let width = format!("{} s", label(pair[1], length)).len() as f64 * PHONE_DIGIT;
                prop_assert!(apart > width, "{ticks:?}");
            }
        }

        #[test]
        fn thinning_keeps_the_extremes(values in prop::collection::vec(prop::option::of(-1e3f64..1e3), 0..4000)) {
            let points: Vec<_> = values.iter().enumerate().map(|(i, value)| (i as f64, *value)).collect();
            let thin = thinned(&points);
            prop_assert!(thin.len() <= 2 * COLUMNS);
            let ends = |points: &[(f64, Option<f64>)]| {
                let known = || points.iter().filter_map(|point| point.1);
                (known().fold(f64::INFINITY, f64::min), known().fold(f64::NEG_INFINITY, f64::max))
            };
            prop_assert_eq!(ends(&thin), ends(&points));
            prop_assert!(thin.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        }

        #[test]
        fn any_samples_can_be_drawn(values in prop::collection::vec(any::<f64>(), 0..40), length_s in any::<f64>()) {
            let points = values.into_iter().enumerate().map(|(i, value)| (i as f64, Some(value))).collect();
            let chart = Chart { curves: vec![curve(points)], at_least: (0.0, 1.0), length_s, ..Chart::default() };
            prop_assert!(chart.svg().into_string().ends_with("</svg>"));
        }
    }
}
