//! Medians with their ranges as inline SVG: groups of bars, coloured by class like the curves.

use maud::{Markup, html};
use punctual_evaluation::Bars;
use punctual_evaluation::stats::Spread;

use punctual_report::page::chart::{BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, grid, label, px, step, ticks};

/// Part of a group's width that its bars fill.
const FILLED: f64 = 0.8;

/// The bars as an `svg` element; series take the classes in their order.
pub fn svg(description: &str, groups: &[String], bars: &[Bars], classes: &[&str]) -> Markup {
    let (top, foot) = (top(bars), HEIGHT - BOTTOM);
    let y = |value: f64| foot - (foot - TOP) * (value / top).clamp(0.0, 1.0);
    let group_width = (WIDTH - LEFT - RIGHT) / groups.len().max(1) as f64;
    let width = FILLED * group_width / bars.len().max(1) as f64;
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(description) {
            @for value in ticks(0.0, top) { (grid(LEFT, y(value), &label(value, top))) }
            @for (g, name) in groups.iter().enumerate() {
                @let left = LEFT + g as f64 * group_width;
                text class="second" x=(px(left + group_width / 2.0)) y=(px(foot + 15.0)) { (name) }
                @for (b, (series, class)) in bars.iter().zip(classes.iter().cycle()).enumerate() {
                    @if let Some(Some(spread)) = series.values.get(g) {
                        (bar(spread, class, left + group_width * (1.0 - FILLED) / 2.0 + b as f64 * width, width, &y))
                    }
                }
            }
        }
    }
}

fn bar(spread: &Spread, class: &str, x: f64, width: f64, y: &dyn Fn(f64) -> f64) -> Markup {
    let (middle, high) = (px(x + width / 2.0), y(0.0) - y(spread.median));
    html! {
        rect class={ "bar " (class) } x=(px(x)) y=(px(y(spread.median))) width=(px(width * 0.9)) height=(px(high)) {}
        line class="range" x1=(middle) x2=(middle) y1=(px(y(spread.low))) y2=(px(y(spread.high))) {}
    }
}

/// The top of the axis: a round number of at least the largest value.
fn top(bars: &[Bars]) -> f64 {
    let values = bars.iter().flat_map(|series| series.values.iter().flatten());
    let most = values
        .map(|spread| spread.high)
        .filter(|high| high.is_finite())
        .fold(0.0, f64::max);
    let most = if most > 0.0 { most } else { 1.0 };
    let step = step(most);
    (most / step).ceil() * step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_a_bar_with_its_range() {
        let spread = |median| {
            Some(Spread {
                median,
                low: median - 0.1,
                high: median + 0.1,
            })
        };
        let bars = [
            Bars {
                name: "open".into(),
                values: vec![spread(1.0), spread(2.0)],
            },
            Bars {
                name: "mimo".into(),
                values: vec![spread(0.5), None],
            },
        ];
        let svg = svg("x & y", &["none".into(), "c90-d10".into()], &bars, &["a", "b"]).into_string();
        assert_eq!(svg.matches("<rect").count(), 3);
        assert_eq!(svg.matches("class=\"range\"").count(), 3);
        assert!(svg.contains("x &amp; y") && svg.contains("c90-d10"));
        assert_eq!(top(&bars), 2.5);
        assert_eq!(top(&[]), 1.0);
    }
}
