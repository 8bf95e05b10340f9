//! Picture of a federation: a pure function from the nodes' figures to a terminal frame. Laid out for at least 80 x 24.

use punctual_node::spans::SpanStage;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::columns::{COLUMNS, WatchColumn, why};
use super::past::{Moment, Node, Past};
use punctual_report::summary::count;
use punctual_report::view::keys::Keys;
use punctual_report::view::{EIGHTHS, framed, program};

/// Colours of the stages at which requests were late.
const PLACES: [Color; SpanStage::ALL.len()] = [
    Color::Gray,
    Color::Yellow,
    Color::Magenta,
    Color::Blue,
    Color::Red,
    Color::Cyan,
];
/// Columns of a node's name before its curves.
const NAMES: usize = 11;
/// Columns of a node's name in the table.
const NAME: u16 = 7;
/// Lines besides three for each node: title, keys, and frames, heads and scale of the panels.
const OTHER_LINES: u16 = 9;

/// Draws the whole frame, from the selected node on unless all fit; `quit` is the effect of `q`.
pub fn draw(frame: &mut Frame<'_>, live: &Past, keys: &Keys<Past>, quit: &str) {
    let past = keys.shown(live);
    let fit = usize::from(frame.area().height.saturating_sub(OTHER_LINES) / 3).max(1);
    // No further than to a screen that the last nodes fill.
    let first = keys.row.min(past.nodes.len().saturating_sub(fit));
    let below = &past.nodes[first..];
    let nodes = below.len() as u16;
    let [one, table, late] = [1, nodes + 3, nodes + 2].map(Constraint::Length);
    let rows = Layout::vertical([one, table, late, Constraint::Min(nodes + 2), one]);
    let [title, table, late, curves, hints] = rows.areas(frame.area());
    draw_title(frame, title, past);
    draw_nodes(frame, table, past, below);
    draw_late(frame, late, below);
    let [done, ages] = Layout::horizontal([Constraint::Fill(1); 2]).areas(curves);
    let shown = (below, past.length());
    draw_curves(frame, done, shown, " done/s, last minute ", Color::Green, |it| it.done);
    draw_curves(frame, ages, shown, " late/s, last minute ", Color::Red, |it| it.late);
    let answer = live.present_count();
    let meanwhile = format!("{:.0} s; {answer} nodes answer now", live.length() - past.length());
    keys.draw(frame, hints, &[], quit, &meanwhile);
}

fn draw_title(frame: &mut Frame<'_>, area: Rect, past: &Past) {
    let there = past.present_count();
    let reigns = |node: &&Node| past.present(node).is_some_and(|(look, _)| look.is_master());
    let masters: Vec<String> = past.nodes.iter().filter(reigns).map(Node::name).collect();
    let master = match masters.is_empty() {
        true => " no master ".black().on_yellow(),
        false => format!(" master: {} ", masters.join(", ")).black().on_green(),
    };
    let all = past.nodes.len();
    let answer = format!("  {there} of {all} answer  ");
    let line = Line::from(vec![
        program(),
        "  cluster".bold(),
        if there == all { answer.into() } else { answer.yellow() },
        master,
        format!("  {:.0} s", past.length()).dim(),
    ]);
    frame.render_widget(line, area);
}

fn draw_nodes(frame: &mut Frame<'_>, area: Rect, past: &Past, nodes: &[Node]) {
    let inside = framed(frame, area, " nodes ".bold().into());
    let names = nodes.iter().filter(|node| node.last.is_some());
    let names = names.map(|node| node.name().len() as u16).max().unwrap_or(0).max(NAME);
    let room = area.width.saturating_sub(names - NAME);
    let shown = |column: &&WatchColumn| column.live.is_some_and(|(_, from)| room >= from);
    let columns: Vec<&WatchColumn> = COLUMNS.iter().filter(shown).collect();
    let right = |text: String| Cell::from(Line::from(text).right_aligned());
    let head = columns.iter().enumerate().map(|(at, column)| match at {
        0 => Cell::from(column.title),
        _ => right(column.title.into()),
    });
    let head = Row::new(["", "role"].map(Cell::from).into_iter().chain(head)).dim();
    let row = |node: &Node| {
        let name = Cell::from(node.name().bold());
        let Some((look, now)) = past.present(node) else {
            let silent = ["silent".red().bold(), node.address.to_string().dim()];
            return Row::new(std::iter::once(name).chain(silent.map(Cell::from)));
        };
        let role = match look.role() {
            "master" => "master".green().bold(),
            // The name of a balancer already says it.
            _ if look.is_balancer() => "".into(),
            role => role.to_owned().into(),
        };
        let cells = columns.iter().map(|column| {
            let text = column.cell(look, now);
            match column.title {
                "standing" if look.is_balancer() => Cell::from(""),
                "standing" if text != "serving" => Cell::from(text.yellow()),
                "standing" => Cell::from(text),
                "late/s" if now.late > 0.0 => Cell::from(Line::from(text.red().bold()).right_aligned()),
                _ => right(text),
            }
        });
        Row::new([name, Cell::from(role)].into_iter().chain(cells))
    };
    let widths = [Constraint::Length(names), Constraint::Length(7)].into_iter();
    let more = columns.iter().filter_map(|column| column.live);
    let widths = widths.chain(more.map(|(width, _)| Constraint::Length(width)));
    let table = Table::new(nodes.iter().map(row), widths).header(head).column_spacing(1);
    frame.render_widget(table, inside);
}

/// Reasons why requests were not done, and the stages at which late ones spent their time, as a bar of coloured parts.
fn draw_late(frame: &mut Frame<'_>, area: Rect, nodes: &[Node]) {
    let place = |(place, color): (&SpanStage, Color)| ["█ ".fg(color), format!("{} ", place.name()).dim()];
    let places = SpanStage::ALL.iter().zip(PLACES).flat_map(place);
    let title = std::iter::once(" late: why, and where  ".bold()).chain(places);
    let inside = framed(frame, area, title.collect::<Vec<_>>().into());
    let mut lines = Vec::new();
    for node in nodes {
        let mut spans = vec![Span::raw(format!("{:NAMES$}", node.name()))];
        if let Some((_, look)) = &node.last {
            let reasons = why(look, "none");
            let others = NAMES + reasons.chars().count() + 3;
            let room = (inside.width as usize).saturating_sub(others).min(40);
            spans.extend(parts(&look.late_us(), room));
            spans.push(Span::raw(format!(" {reasons}")));
        }
        lines.push(Line::from(spans));
    }
    frame.render_widget(Paragraph::new(lines), inside);
}

/// A bar of `width` columns, divided in proportion to `spent`; empty if all are 0.
fn parts(spent: &[u64; SpanStage::ALL.len()], width: usize) -> Vec<Span<'static>> {
    let all: u64 = spent.iter().sum();
    if all == 0 {
        return Vec::new();
    }
    let (mut sum, mut drawn, mut spans) = (0, 0, Vec::new());
    for (part, color) in spent.iter().zip(PLACES) {
        sum += part;
        let upto = (sum as f64 / all as f64 * width as f64).round() as usize;
        spans.push(Span::styled("█".repeat(upto - drawn), Style::new().fg(color)));
        drawn = upto;
    }
    spans
}

/// A row for each node with its last minute, all rows in one scale.
fn draw_curves(
    frame: &mut Frame<'_>,
    area: Rect,
    (nodes, end): (&[Node], f64),
    title: &'static str,
    color: Color,
    of: fn(&Moment) -> f64,
) {
    /// Time on the axis, in seconds.
    const SHOWN: f64 = 60.0;
    let inside = framed(frame, area, title.bold().into());
    let width = (inside.width as usize).saturating_sub(NAMES + 1);
    if width == 0 {
        return;
    }
    let column = |moment: &Moment| (width as f64 * (1.0 - (end - moment.at) / SHOWN)).ceil() - 1.0;
    let rows: Vec<Vec<Option<f64>>> = nodes
        .iter()
        .map(|node| {
            let mut row = vec![None; width];
            let is_shown = |moment: &&Moment| moment.is_there && column(moment) >= 0.0;
            for moment in node.moments.iter().filter(is_shown) {
                if let Some(cell) = row.get_mut(column(moment) as usize) {
                    *cell = Some(cell.map_or(of(moment), |before: f64| before.max(of(moment))));
                }
            }
            row
        })
        .collect();
    let most = rows.iter().flatten().flatten().copied().fold(0.0, f64::max);
    let lines = nodes.iter().zip(&rows).map(|(node, row)| {
        let bars: String = row
            .iter()
            .map(|value| match value {
                None => ' ',
                Some(value) if most > 0.0 && *value > 0.0 => {
                    EIGHTHS[((value / most * 8.0).ceil() as usize).clamp(1, 8)]
                }
                Some(_) => EIGHTHS[1],
            })
            .collect();
        Line::from(vec![format!("{:NAMES$}", node.name()).into(), bars.fg(color)])
    });
    let scale = Line::from(format!("{:NAMES$}at most {}/s", "", count(most.round() as u64)).dim());
    frame.render_widget(Paragraph::new(lines.chain([scale]).collect::<Vec<_>>()), inside);
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::look::Look;
    use super::*;

    fn drawn(past: &Past, width: u16, height: u16) -> String {
        from(0, past, width, height)
    }

    fn from(row: usize, past: &Past, width: u16, height: u16) -> String {
        let keys = Keys { row, ..Keys::default() };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal
            .draw(|frame| draw(frame, past, &keys, "end this view"))
            .unwrap();
        let buffer = terminal.backend().buffer();
        let lines = buffer.content().chunks(width as usize);
        lines
            .map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>() + "\n")
            .collect()
    }

    fn past() -> Past {
        let addresses = [7, 8, 9].map(|port| std::net::SocketAddr::from(([127, 0, 0, 1], port)));
        let mut past = Past::new(&addresses);
        let look = |number: usize, done: u64| {
            let role = if number == 0 { "master" } else { "slave" };
            let text = format!(
                "federation:7\nnode:{number}\nrole:{role}\nstanding:serving\nepoch:3\napplied:1234\nbound_items:77\n\
                 queries_done:{done}\nqueries_late_backlog:5\nqueries_late_expired:4\nage_ms_max:12\nlate_log_us:900\n\
                 peer2:live=1\npeer3:live=1\n"
            );
            Look::of(&text).unwrap()
        };
        for step in 0..4 {
            for number in 0..2 {
                let at = Instant::now() + Duration::from_millis(250 * step);
                past.take((number, at, Ok(look(number, 100 * step))));
            }
        }
        past.take((2, Instant::now(), Err("refused".into())));
        past
    }

    #[test]
    fn all_that_matters_is_on_a_small_terminal() {
        let shown = drawn(&past(), 80, 24);
        for part in [
            "2 of 3 answer",
            "master: node 0",
            "node 1  replica",
            "silent",
            "1,234",
            "77",
            "12 ms",
            "backlog 5, expired 4",
            "done/s",
            " ? help  p pause  q end this view",
        ] {
            assert!(shown.contains(part), "no {part} in\n{shown}");
        }
    }

    #[test]
    fn nodes_before_the_selected_one_leave_the_screen_only_if_not_all_fit() {
        let past = past();
        assert_eq!(from(2, &past, 80, 24), drawn(&past, 80, 24));
        let shown = from(1, &past, 80, 15);
        assert!(
            !shown.contains("node 0  master") && shown.contains("node 1  replica"),
            "{shown}"
        );
    }

    #[test]
    fn beside_balancers_columns_are_left_out_in_place_of_cut() {
        let mut past = past();
        let text = "role:balancer\r\nfederation:7\r\nunder_way:3\r\nqueries_done:5\r\n";
        past.take((2, Instant::now(), Ok(Look::of(text).unwrap())));
        for width in 75..130 {
            let shown = drawn(&past, width, 24);
            for title in ["standing", "applied", "done/s", "balancer 2"] {
                assert!(shown.contains(title), "no {title} in\n{shown}");
            }
        }
    }

    #[test]
    fn any_size_can_be_drawn() {
        let past = past();
        for (width, height) in [(1, 1), (10, 3), (40, 12), (80, 10), (200, 60)] {
            drawn(&past, width, height);
        }
        drawn(&Past::new(&[]), 80, 24);
    }
}
