//! A trace as a message chart of text: a column for each node, time downwards.

use std::fmt::Write;

use punctual_cluster_sim::{EventTrace, Mark, TraceRow, What};

/// Most rows that are printed: the last ones, which end with the violation.
const ROWS_MAX: usize = 80;
/// Width of all columns together, in characters; the events are written to their right.
const WIDTH: usize = 72;
/// Width of the instant at the beginning of each line.
const TIME_WIDTH: usize = 14;
/// Narrowest column that still shows an arrow.
const COLUMN_MIN: usize = 7;
const COLUMN_MAX: usize = 24;

/// The last rows of `trace`, one line each.
pub fn chart(trace: &EventTrace) -> String {
    let columns = trace.columns();
    let width = (WIDTH / columns.len().max(1)).clamp(COLUMN_MIN, COLUMN_MAX);
    let mut text = head(columns, width);
    let hidden = trace.rows().len().saturating_sub(ROWS_MAX);
    let omitted = trace.omitted() + hidden as u64;
    if omitted > 0 {
        let _ = writeln!(text, "{:TIME_WIDTH$}({omitted} rows before are left out)", "");
    }
    for row in trace.rows().skip(hidden) {
        let _ = writeln!(text, "{}", line(row, columns.len(), width).trim_end());
    }
    text
}

fn head(columns: &[String], width: usize) -> String {
    let mut head = " ".repeat(TIME_WIDTH);
    for name in columns {
        let shown = shortened(name, width - 1);
        let _ = write!(head, "{shown:width$}");
    }
    head.truncate(head.trim_end().len());
    head + "\n"
}

/// Shortens a name to `width` but keeps its number whole, such as client 3 to cli. 3.
fn shortened(name: &str, width: usize) -> String {
    match name.rsplit_once(' ') {
        Some((word, number)) if name.chars().count() > width => {
            let room = width.saturating_sub(number.chars().count() + 2);
            let word: String = word.chars().take(room).collect();
            format!("{word}. {number}").chars().take(width).collect()
        }
        _ => name.chars().take(width).collect(),
    }
}

fn line(row: &TraceRow, columns: usize, width: usize) -> String {
    let mut lifelines = vec![' '; columns * width];
    for column in 0..columns {
        lifelines[column * width] = '|';
    }
    let after = match &row.what {
        What::Sent {
            from,
            to,
            arrives,
            label,
        } => {
            arrow(&mut lifelines, from * width, to * width, arrives.is_some());
            match arrives {
                Some(at) => format!("{label}, arrives {}", instant(at.0)),
                None => format!("{label}, lost"),
            }
        }
        What::Noted { column, mark, label } => {
            if let Some(place) = lifelines.get_mut(column * width) {
                *place = sign(*mark);
            }
            match *mark {
                Mark::Note => label.clone(),
                mark if label.is_empty() => mark.name().to_owned(),
                mark => format!("{}: {label}", mark.name()),
            }
        }
    };
    let drawn: String = lifelines.into_iter().collect();
    format!("{:>12}  {drawn}{after}", instant(row.at.0))
}

/// Draws an arrow between two lifelines; one for a lost message ends half-way.
fn arrow(line: &mut [char], from: usize, to: usize, arrives: bool) {
    if from >= line.len() || to >= line.len() {
        return;
    }
    let (low, high) = (from.min(to), from.max(to));
    let middle = usize::midpoint(low, high);
    let drawn = match (arrives, from < to) {
        (true, _) => low..=high,
        (false, true) => low..=middle,
        (false, false) => middle..=high,
    };
    for at in drawn {
        line[at] = '-';
    }
    line[from] = 'o';
    let (tip, head) = match (arrives, from <= to) {
        (true, true) => (to, '>'),
        (true, false) => (to, '<'),
        (false, _) => (middle, 'x'),
    };
    line[tip] = head;
}

fn sign(mark: Mark) -> char {
    match mark {
        Mark::Crash => 'X',
        Mark::Restart | Mark::Resume => '^',
        Mark::Pause => '=',
        Mark::Cut => '/',
        Mark::Heal => '+',
        Mark::Jump => '~',
        Mark::Takeover => 'M',
        Mark::Violation => '!',
        Mark::Note => '*',
    }
}

/// Instant in milliseconds, because events in a cluster are milliseconds apart.
pub fn instant(nanos: u64) -> String {
    format!("{}.{:03} ms", nanos / 1_000_000, nanos / 1_000 % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_units::Time;

    #[test]
    fn a_chart_shows_arrows_losses_and_faults() {
        let mut trace = EventTrace::new(vec!["node 0".into(), "node 1".into(), "log".into()]);
        trace.sent(Time(1_000_000), 0, 2, Some(Time(2_500_000)), "append 4");
        trace.sent(Time(2_000_000), 2, 1, None, "entry 4");
        trace.noted(Time(3_000_000), 1, Mark::Crash, "");
        trace.noted(Time(4_000_000), 0, Mark::Violation, "answered before the log");
        insta::assert_snapshot!("chart", chart(&trace));
    }

    #[test]
    fn a_name_that_is_too_long_keeps_its_number() {
        let names = [
            ("client 3", "cli. 3"),
            ("front 12", "fr. 12"),
            ("node 0", "node 0"),
            ("log", "log"),
        ];
        for (name, shown) in names {
            assert_eq!(shortened(name, 6), shown);
        }
    }

    #[test]
    fn a_long_trace_is_cut_and_many_columns_are_narrow() {
        let columns: Vec<String> = (0..11).map(|node| format!("node number {node}")).collect();
        let mut trace = EventTrace::new(columns);
        for at in 0..1_000 {
            trace.sent(Time(at), 0, 10, Some(Time(at)), "x");
        }
        let text = chart(&trace);
        assert_eq!(text.lines().count(), ROWS_MAX + 2);
        assert!(text.contains("(920 rows before are left out)"), "{text}");
        assert!(
            text.lines()
                .all(|line| line.chars().count() <= TIME_WIDTH + 11 * COLUMN_MIN + 40)
        );
        // Columns that do not exist are a defect of the run, not of the chart.
        trace.sent(Time(0), 0, 99, None, "x");
        trace.noted(Time(0), 99, Mark::Note, "x");
        chart(&trace);
    }
}
