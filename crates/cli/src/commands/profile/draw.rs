//! A profile in a terminal: curves as bars of block characters, and figures.

use std::fmt::Write;

use punctual_allocation::{Profile, Share};

use super::show::{ProfileView, named, ways};
use super::steps::Steps;
use punctual_report::columns::columns;
use punctual_report::summary::{count, percent};
use punctual_report::view::EIGHTHS;

/// Height of a curve, in lines.
const HEIGHT: usize = 3;
/// Width of the labels of an axis, in characters.
const MARGIN: usize = 8;
/// Narrowest and widest plot, in characters.
const WIDTH: std::ops::RangeInclusive<usize> = 32..=240;

/// Text of the command, for a terminal of `width` characters.
pub fn text(shown: &ProfileView, width: usize) -> String {
    let width = width.saturating_sub(MARGIN + 1).clamp(*WIDTH.start(), *WIDTH.end());
    let mut text = format!("{}\n", shown.title());
    for line in shown.provenance() {
        let _ = writeln!(text, "{line}");
    }
    // Times can be added, so a column's rate is the inverse of its mean time.
    let rate = |share: &Share| {
        let times = shown.rate(*share).map(f64::recip).means(width);
        (named(*share), times.into_iter().map(f64::recip).collect())
    };
    let rates: Vec<(String, Vec<f64>)> = shown.shares.iter().map(rate).collect();
    plots(&mut text, "rate, million instructions per second", &rates);
    let of = |(of, steps): (u8, Steps)| (ways(of), steps.means(width));
    let misses: Vec<(String, Vec<f64>)> = shown.misses().into_iter().map(of).collect();
    if !misses.is_empty() {
        plots(&mut text, "misses per 1000 instructions", &misses);
    }
    let (ruler, rest) = (ruler(&shown.compiled.profile, width), width.saturating_sub(3));
    let _ = writeln!(text, "\nphases\n{:MARGIN$} {ruler}", "");
    let _ = writeln!(text, "{:MARGIN$} 0 %{:>rest$}\n", "", "100 %");
    text + &figures(shown)
}

/// Curves below each other on one scale.
fn plots(text: &mut String, title: &str, curves: &[(String, Vec<f64>)]) {
    let values = curves.iter().flat_map(|(_, values)| values);
    let top = values.copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
    for (name, values) in curves {
        let _ = writeln!(text, "\n{title}, with {name}");
        for (line, bars) in bars(values, top).iter().enumerate() {
            let label = match line {
                0 => short(top),
                _ if line == HEIGHT - 1 => "0".into(),
                _ => String::new(),
            };
            let _ = writeln!(text, "{label:>MARGIN$} {bars}");
        }
    }
}

/// Lines of bars, the highest first; a value of `top` fills all lines, and higher ones are cut off.
fn bars(values: &[f64], top: f64) -> Vec<String> {
    let eighths = |value: &f64| {
        let share = if top > 0.0 && value.is_finite() {
            value / top
        } else {
            0.0
        };
        (share.clamp(0.0, 1.0) * (8 * HEIGHT) as f64).round() as usize
    };
    let line = |from_below: usize| {
        let cells = values
            .iter()
            .map(|value| EIGHTHS[eighths(value).saturating_sub(8 * from_below).min(8)]);
        cells.collect::<String>().trim_end().to_string()
    };
    (0..HEIGHT).rev().map(line).collect()
}

/// Ruler of the phases, alternately dark and light; characters with several phases are in between.
fn ruler(profile: &Profile, width: usize) -> String {
    let cell = |column: usize| {
        let first = profile.phase_at(column as f64 / width as f64);
        // A phase that ends exactly with the character must not count for the next one.
        let last = profile.phase_at((column as f64 + 0.999) / width as f64);
        match last - first {
            0 if first.is_multiple_of(2) => '█',
            0 => '░',
            1 if last.is_multiple_of(2) => '▐',
            1 => '▌',
            _ => '▒',
        }
    };
    (0..width).map(cell).collect()
}

/// Formats a value with three significant digits.
fn short(value: f64) -> String {
    let decimals = (2 - value.abs().max(1e-3).log10().floor() as i32).clamp(0, 3) as usize;
    format!("{value:.decimals$}")
}

fn figures(shown: &ProfileView) -> String {
    let mut table = vec![
        ["a whole run with", "takes", "of the longest"]
            .map(String::from)
            .to_vec(),
    ];
    let row = |(share, seconds, part): (_, f64, _)| vec![named(share), format!("{seconds:.3} s"), percent(part)];
    table.extend(shown.durations().into_iter().map(row));
    let mut text = columns(&table);
    text += "\n";
    for (name, what) in shown.figures() {
        let _ = writeln!(text, "{name:<16}{what}");
    }
    let instructions = shown.compiled.profile.instructions as u64;
    let _ = writeln!(text, "{:<16}{}", "instructions", count(instructions));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_tall_as_their_values() {
        assert_eq!(bars(&[0.0, 12.0, 24.0, 1.0], 24.0), ["  █", " ▄█", " ██▁"]);
        assert_eq!(bars(&[f64::NAN, 5.0], 0.0), ["", "", ""]);
        assert_eq!(short(1234.5), "1234");
        assert_eq!(short(0.0123), "0.012");
    }
}
