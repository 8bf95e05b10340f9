//! A trace as a message chart in SVG: a column for each node, time downwards, an arrow for each message.
//!
//! Rows have equal height whatever the time between them, because events in a cluster come in bursts. A message that
//! arrives while later rows happen slants down to the first row after its arrival.

use maud::{Markup, html};
use punctual_cluster_sim::{EventTrace, Mark, What};
use punctual_units::Time;

use super::chart::instant;
use punctual_report::page::chart::px;

/// Height of a row, and of the space above the first, in pixels.
const ROW: f64 = 18.0;
const TOP: f64 = 34.0;
/// Widths for instants (left) and for the rows' texts (right), in pixels.
const LEFT: f64 = 92.0;
const RIGHT: f64 = 320.0;
const WIDTH: f64 = 1180.0;

/// Chart of all rows in the trace.
pub fn drawing(trace: &EventTrace) -> Markup {
    let rows: Vec<_> = trace.rows().collect();
    let instants: Vec<Time> = rows.iter().map(|row| row.at).collect();
    let bottom = TOP + ROW * (rows.len() as f64 + 1.0);
    let size = format!("0 0 {WIDTH} {:.0}", bottom + 6.0);
    let columns = trace.columns().len();
    let (at, said) = (px(LEFT - 10.0), px(WIDTH - RIGHT + 14.0));
    html! {
        figure class="sheet" tabindex="0" { svg viewBox=(size) role="img" aria-label="message chart" {
            @for (column, name) in trace.columns().iter().enumerate() {
                @let x = px(place(column, columns));
                text class="second" x=(x) y="14" { (name) }
                line class="grid" x1=(x) y1="20" x2=(x) y2=(px(bottom)) {}
            }
            @for (number, row) in rows.iter().enumerate() {
                @let y = line(number);
                @match &row.what {
                    What::Sent { from, to, arrives, .. } => {
                        @let ends = arrives.map(|at| instants.partition_point(|other| *other < at).max(number));
                        (arrow((place(*from, columns), y), place(*to, columns), ends))
                    }
                    What::Noted { column, mark, .. } => (sign(place(*column, columns), y, *mark)),
                }
                text class="tick" x=(at) y=(px(y + 4.0)) { (instant(row.at.0)) }
                text x=(said) y=(px(y + 4.0)) { (text(&row.what)) }
            }
        } }
        @if trace.omitted() > 0 { p class="note" { (trace.omitted()) " rows before these are left out." } }
    }
}

/// Text of a row.
fn text(what: &What) -> String {
    match what {
        What::Sent {
            arrives: None, label, ..
        } => format!("{label}, lost"),
        What::Sent { label, .. } => label.clone(),
        What::Noted {
            mark: Mark::Note,
            label,
            ..
        } => label.clone(),
        What::Noted { mark, label, .. } if label.is_empty() => mark.name().to_owned(),
        What::Noted { mark, label, .. } => format!("{}: {label}", mark.name()),
    }
}

fn place(column: usize, columns: usize) -> f64 {
    let room = WIDTH - LEFT - RIGHT;
    LEFT + room * (column.min(columns) as f64 + 0.5) / columns.max(1) as f64
}

fn line(row: usize) -> f64 {
    TOP + ROW * (row as f64 + 0.5)
}

/// An arrow from its start to the row of its arrival; one for a lost message ends half-way.
fn arrow((x1, y1): (f64, f64), to: f64, ends: Option<usize>) -> Markup {
    let (class, x2, y2) = match ends {
        Some(row) => ("a", to, line(row)),
        None => ("f", f64::midpoint(x1, to), y1 + ROW / 2.0),
    };
    // Tip of the arrow: two strokes back from its end, at an angle to the line.
    let (dx, dy) = (x2 - x1, y2 - y1);
    let length = dx.hypot(dy).max(1.0);
    let (ux, uy) = (dx / length, dy / length);
    let side = |turn: f64| (-7.0 * ux - turn * 3.5 * uy, -7.0 * uy + turn * 3.5 * ux);
    let ((ax, ay), (bx, by)) = (side(1.0), side(-1.0));
    let cross = format!("M{:.1} {:.1}l8 8m0 -8l-8 8", x2 - 4.0, y2 - 4.0);
    let tip = format!("M{x2:.1} {y2:.1}l{ax:.1} {ay:.1}L{:.1} {:.1}z", x2 + bx, y2 + by);
    html! {
        line class={ "curve " (class) } x1=(px(x1)) y1=(px(y1)) x2=(px(x2)) y2=(px(y2)) {}
        @if ends.is_none() { path class="mark" d=(cross) {} } @else { path class="bar a" d=(tip) {} }
    }
}

fn sign(x: f64, y: f64, mark: Mark) -> Markup {
    let class = match mark {
        Mark::Crash | Mark::Cut | Mark::Violation => "late",
        Mark::Restart | Mark::Resume | Mark::Heal => "c",
        Mark::Takeover => "b",
        Mark::Pause | Mark::Jump => "d",
        Mark::Note => "f",
    };
    html! { circle class={ "bar " (class) } cx=(px(x)) cy=(px(y)) r="5" { title { (mark.name()) } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_drawn_and_every_element_closed() {
        let mut trace = EventTrace::new(vec!["node 0".into(), "node <1>".into()]);
        trace.sent(Time(1_000), 0, 1, Some(Time(2_500)), "append \"4\"");
        trace.sent(Time(2_000), 1, 0, None, "entry");
        trace.noted(Time(3_000), 1, Mark::Crash, "");
        trace.noted(Time(4_000), 0, Mark::Violation, "too early");
        let svg = drawing(&trace).into_string();
        punctual_report::fixture::check_nesting(&format!("</style></head>{svg}</html>"));
        assert_eq!(svg.matches("<circle").count(), 2);
        assert_eq!(svg.matches("bar a").count(), 1, "one tip, because one message is lost");
        for text in [
            "node &lt;1&gt;",
            "append &quot;4&quot;",
            "entry, lost",
            "violation: too early",
            "0.003 ms",
        ] {
            assert!(svg.contains(text), "no {text}");
        }
        // The message that arrives at 2.5 us ends in the row of 3 us.
        assert!(svg.contains(&format!("y2=\"{:.1}\"", line(2))));
    }
}
