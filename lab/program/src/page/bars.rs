//! Medians with their ranges as inline SVG: groups of bars, coloured by class like the curves.

use std::fmt::Write;

use punctual_evaluation::Bars;
use punctual_evaluation::stats::Spread;

use punctual_report::page::chart::{BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, label, step, ticks};

/// Part of a group's width that its bars fill.
const FILLED: f64 = 0.8;

/// The bars as an `svg` element; series take the classes in their order.
pub fn svg(description: &str, groups: &[String], bars: &[Bars], classes: &[&str]) -> String {
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
        punctual_report::page::escape(description)
    );
    let top = top(bars);
    let y = |value: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value / top).clamp(0.0, 1.0);
    for value in ticks(0.0, top) {
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            WIDTH - RIGHT,
            y(value),
            y(value),
            LEFT - 5.0,
            y(value) + 4.0,
            label(value, top)
        );
    }
    let group_width = (WIDTH - LEFT - RIGHT) / groups.len().max(1) as f64;
    let bar_width = FILLED * group_width / bars.len().max(1) as f64;
    for (g, name) in groups.iter().enumerate() {
        let left = LEFT + g as f64 * group_width;
        let _ = writeln!(
            svg,
            "<text class=\"second\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            left + group_width / 2.0,
            HEIGHT - BOTTOM + 15.0,
            punctual_report::page::escape(name)
        );
        for (b, (series, class)) in bars.iter().zip(classes.iter().cycle()).enumerate() {
            let x = left + group_width * (1.0 - FILLED) / 2.0 + b as f64 * bar_width;
            if let Some(Some(spread)) = series.values.get(g) {
                draw(&mut svg, spread, class, x, bar_width, &y);
            }
        }
    }
    svg + "</svg>"
}

fn draw(svg: &mut String, spread: &Spread, class: &str, x: f64, width: f64, y: &dyn Fn(f64) -> f64) {
    let middle = x + width / 2.0;
    let _ = writeln!(
        svg,
        "<rect class=\"bar {class}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/><line class=\"range\" x1=\"{middle:.1}\" x2=\"{middle:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
        y(spread.median),
        width * 0.9,
        y(0.0) - y(spread.median),
        y(spread.low),
        y(spread.high)
    );
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
        let svg = svg("x & y", &["none".into(), "c90-d10".into()], &bars, &["a", "b"]);
        assert_eq!(svg.matches("<rect").count(), 3);
        assert_eq!(svg.matches("class=\"range\"").count(), 3);
        assert!(svg.contains("x &amp; y") && svg.contains("c90-d10"));
        assert_eq!(top(&bars), 2.5);
        assert_eq!(top(&[]), 1.0);
    }
}
