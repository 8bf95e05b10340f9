//! Distributions of times as inline SVG: the share of times that took longer than a given one, both axes logarithmic,
//! so that one in a thousand is as visible as the usual case.

use std::fmt::Write;

use maud::{Markup, html};
use punctual_report::page::chart::{BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, grid, px};

/// Upper bound on powers of ten of the vertical axis: the least share drawn is one in a thousand million.
const DECADES_MAX: i32 = 9;
/// Points closer together than this, in units of the drawing, are merged.
const APART: f64 = 0.25;

/// A distribution of times, drawn as a curve.
#[derive(Clone, Debug)]
pub struct Tail {
    /// Name in the legend.
    pub name: String,
    /// Class in the style sheet.
    pub class: &'static str,
    /// Times in microseconds, ascending, each with its count.
    pub bins: Vec<(f64, u64)>,
    /// Number of times longer than all bins; they are at most `max_us`, if it is known.
    pub beyond: u64,
    /// The longest time in microseconds, if it is known.
    pub max_us: Option<f64>,
}

/// Distributions in one chart.
#[derive(Clone, Debug)]
pub struct Tails {
    /// Description in plain text, for readers that cannot see the drawing.
    pub description: String,
    pub tails: Vec<Tail>,
    /// A time to mark, in microseconds.
    pub mark_us: Option<f64>,
}

impl Tail {
    fn count(&self) -> u64 {
        self.bins.iter().map(|(_, count)| count).sum::<u64>() + self.beyond
    }

    /// Corners of the steps: a time, and the share of times that took longer.
    fn steps(&self) -> Vec<(f64, f64)> {
        let all = self.count() as f64;
        let mut longer = self.count();
        let mut steps = Vec::new();
        for (us, count) in self.bins.iter().filter(|(_, count)| *count > 0) {
            steps.push((*us, longer as f64 / all));
            longer -= count;
            steps.push((*us, longer as f64 / all));
        }
        if longer > 0 {
            steps.push((self.max_us.unwrap_or(f64::INFINITY), longer as f64 / all));
            steps.extend(self.max_us.map(|max| (max, 0.0)));
        }
        steps
    }
}

impl Tails {
    /// Name and class of each distribution.
    pub fn keys(&self) -> Vec<(String, &'static str)> {
        self.tails.iter().map(|tail| (tail.name.clone(), tail.class)).collect()
    }

    /// The chart as an `svg` element.
    pub fn svg(&self) -> Markup {
        let axes = self.axes();
        html! {
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(self.description) {
                (axes.draw())
                @for tail in &self.tails { path class={ "curve " (tail.class) } d=(axes.path(&tail.steps())) {} }
                @if let Some(us) = self.mark_us {
                    @let x = px(axes.x(us));
                    line class="level late" x1=(x) x2=(x) y1=(TOP) y2=(px(HEIGHT - BOTTOM)) {}
                }
            }
        }
    }

    fn axes(&self) -> Axes {
        let times = || {
            let bins = self
                .tails
                .iter()
                .flat_map(|tail| tail.bins.iter().filter(|(_, count)| *count > 0));
            let ends = self.tails.iter().filter_map(|tail| tail.max_us).chain(self.mark_us);
            bins.map(|(us, _)| *us).chain(ends).filter(|us| us.is_finite())
        };
        // Times below a tenth of a microsecond are not measured.
        let low = times().fold(f64::INFINITY, f64::min).clamp(0.1, 1e6);
        let high = times().fold(low, f64::max);
        let most = self.tails.iter().map(Tail::count).max().unwrap_or(1).max(10);
        let low = low.log10().floor();
        Axes {
            low,
            high: high.log10().ceil().max(low + 1.0),
            decades: ((most as f64).log10().ceil() as i32).clamp(1, DECADES_MAX),
        }
    }
}

/// The ranges of both axes, in powers of ten: microseconds from `low` to `high`, shares from 1 down by `decades`.
struct Axes {
    low: f64,
    high: f64,
    decades: i32,
}

impl Axes {
    fn x(&self, us: f64) -> f64 {
        let share = (us.max(1e-9).log10() - self.low) / (self.high - self.low);
        LEFT + (WIDTH - LEFT - RIGHT) * share.clamp(0.0, 1.0)
    }

    fn y(&self, share: f64) -> f64 {
        let depth = -share.max(1e-12).log10() / f64::from(self.decades);
        TOP + (HEIGHT - TOP - BOTTOM) * depth.clamp(0.0, 1.0)
    }

    fn draw(&self) -> Markup {
        let foot = HEIGHT - BOTTOM;
        let every = if self.decades > 5 { 2 } else { 1 };
        html! {
            @for decade in (0..=self.decades).step_by(every) {
                (grid(LEFT, self.y(10f64.powi(-decade)), &share_label(decade)))
            }
            @for power in self.low as i32..=self.high as i32 {
                @let x = self.x(10f64.powi(power));
                // The last line ends at the edge of the drawing.
                @let (class, at) = if f64::from(power) >= self.high { ("tick", WIDTH) } else { ("second", x) };
                line class="grid" x1=(px(x)) x2=(px(x)) y1=(TOP) y2=(px(foot)) {}
                text class=(class) x=(px(at)) y=(px(foot + 15.0)) { (time_label(power)) }
            }
        }
    }

    fn path(&self, steps: &[(f64, f64)]) -> String {
        let mut path = String::new();
        let mut pen: Option<(f64, f64)> = None;
        for (index, (us, share)) in steps.iter().enumerate() {
            let (x, y) = (self.x(*us), self.y(*share));
            let near = pen.is_some_and(|(px, py)| (x - px).abs() < APART && (y - py).abs() < APART);
            if near && index + 1 < steps.len() {
                continue;
            }
            let command = if pen.is_some() { 'L' } else { 'M' };
            let _ = write!(path, "{command}{x:.1} {y:.1}");
            pen = Some((x, y));
        }
        path
    }
}

/// Label of the share 10^-`decade`.
fn share_label(decade: i32) -> String {
    match decade {
        0 => "all".into(),
        1..=4 => format!("{} %", 10f64.powi(2 - decade)),
        _ => format!("1e-{decade}"),
    }
}

/// Label of the time 10^`power` microseconds.
fn time_label(power: i32) -> String {
    match power {
        ..0 => format!("{} ns", 10i64.pow((power + 3).clamp(0, 2) as u32)),
        0..3 => format!("{} us", 10i64.pow(power as u32)),
        3..6 => format!("{} ms", 10i64.pow(power as u32 - 3)),
        _ => format!("{} s", 10i64.pow((power - 6).min(9) as u32)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tail(bins: Vec<(f64, u64)>, beyond: u64, max_us: Option<f64>) -> Tail {
        Tail {
            name: "c".into(),
            class: "a",
            bins,
            beyond,
            max_us,
        }
    }

    #[test]
    fn steps_go_from_all_to_none_and_stay_above_none_where_the_end_is_not_known() {
        let of = |beyond, max| tail(vec![(10.0, 3), (20.0, 1)], beyond, max).steps();
        assert_eq!(of(0, None), [(10.0, 1.0), (10.0, 0.25), (20.0, 0.25), (20.0, 0.0)]);
        assert_eq!(of(4, Some(90.0))[4..], [(90.0, 0.5), (90.0, 0.0)]);
        assert_eq!(of(4, None)[4..], [(f64::INFINITY, 0.5)]);
    }

    #[test]
    fn axes_have_round_labels() {
        let labels: Vec<String> = (-1..=6).map(time_label).collect();
        assert_eq!(
            labels,
            ["100 ns", "1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s"]
        );
        let shares: Vec<String> = (0..6).map(share_label).collect();
        assert_eq!(shares, ["all", "10 %", "1 %", "0.1 %", "0.01 %", "1e-5"]);
    }

    proptest! {
        #[test]
        fn any_distribution_can_be_drawn(
            bins in prop::collection::vec((0.0..1e9f64, 0u64..1_000_000), 0..60),
            beyond in 0u64..100,
            max in prop::option::of(0.0..1e10f64),
        ) {
            let mut bins = bins;
            bins.sort_by(|a, b| a.0.total_cmp(&b.0));
            let tails = Tails { description: "x".into(), tails: vec![tail(bins, beyond, max)], mark_us: Some(41_666.0) };
            let svg = tails.svg().into_string();
            prop_assert!(svg.ends_with("</svg>") && !svg.contains("NaN") && !svg.contains("inf"), "{}", svg);
            let steps = tails.tails[0].steps();
            prop_assert!(steps.windows(2).all(|pair| pair[0].1 >= pair[1].1), "shares never grow");
        }
    }
}
