//! Picture of a running pipeline: a pure function from [`ViewContent`] to a terminal frame. Laid out for at least 80 x
//! 24.

use punctual_units::CoreId;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use super::Spans;
use super::shown::{GoalShown, StageShown, Tone, ViewContent};
use punctual_report::stages::{late_of, standing_of};
use punctual_report::summary::count;
use punctual_report::view::keys::{KeyTable, Keys};
use punctual_report::view::{panel, program};

/// Colours of the cores, by their index among the pipeline's.
const CORES: [Color; 8] = [
    Color::Cyan,
    Color::Magenta,
    Color::Green,
    Color::Yellow,
    Color::Blue,
    Color::LightRed,
    Color::LightCyan,
    Color::LightMagenta,
];
/// Keys that act on the stage of the selected row.
const STAGE_KEYS: &KeyTable<'_> = &[
    ("m", "move the stage to another core"),
    ("u", "replace its process by a new version"),
    ("k", "kill its process"),
];

/// Width of a queue's gauge, in columns.
const GAUGE: usize = 5;

/// Lines of a panel besides its rows: the border, and the head.
const FRAME: u16 = 3;
/// Width of the panel of moves, in columns.
const FOOT: u16 = 42;
/// Widths of a goal and of a tardiness, in columns.
const GOAL: u16 = 14;
const TARDINESS: u16 = 5;

/// Draws the whole frame for the content and the state of the keys.
pub fn draw(frame: &mut Frame<'_>, live: &ViewContent, keys: &Keys<ViewContent>) {
    let shown = keys.shown(live);
    let stages = shown.stages.len() as u16 + 3;
    let [one, table] = [1, stages].map(Constraint::Length);
    let rows = Layout::vertical([one, one, table, Constraint::Min(6), one, one]);
    let [title, counts, table, foot, answer, hints] = rows.areas(frame.area());
    draw_title(frame, title, shown);
    draw_counts(frame, counts, shown);
    draw_stages(frame, table, shown, keys.row);
    match &shown.side {
        Some(side) => {
            let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(FOOT)]).areas(foot);
            (side.draw)(frame, left, &side.values);
            draw_moves(frame, right, shown);
        }
        None if shown.goals.is_empty() => draw_moves(frame, foot, shown),
        None => {
            let [goals, moves] = match foot.width >= WIDE {
                true => Layout::horizontal([Constraint::Fill(1), Constraint::Length(FOOT)]).areas(foot),
                false => {
                    let lines = (shown.goals.len() as u16 + FRAME).min(foot.height.saturating_sub(FRAME));
                    Layout::vertical([Constraint::Length(lines), Constraint::Fill(1)]).areas(foot)
                }
            };
            draw_goals(frame, goals, shown);
            draw_moves(frame, moves, shown);
        }
    }
    let told = live.answer.as_deref().unwrap_or_default();
    frame.render_widget(Line::from(format!(" {told}").yellow()), answer);
    let (seconds, before) = (live.elapsed_s - shown.elapsed_s, shown.dropped);
    let dropped = live.dropped.saturating_sub(before);
    let meanwhile = format!("{seconds:.0} s, {} dropped", count(dropped));
    let own: Vec<_> = STAGE_KEYS.iter().copied().chain(shown.keys).collect();
    keys.draw(frame, hints, &own, "stop", &meanwhile);
}

fn draw_title(frame: &mut Frame<'_>, area: Rect, shown: &ViewContent) {
    let line = Line::from(vec![
        program(),
        Span::styled(format!("  {}", shown.title), Modifier::BOLD),
        Span::raw(format!("  {}", shown.pace)),
        format!("  {:.0} s", shown.elapsed_s).dim(),
    ]);
    frame.render_widget(line, area);
}

fn draw_counts(frame: &mut Frame<'_>, area: Rect, shown: &ViewContent) {
    let toned = |(text, tone): &(String, Tone)| {
        let text = format!(" {text} ");
        match tone {
            Tone::Plain => text.into(),
            Tone::Aside => text.dim(),
            Tone::Warning => text.yellow(),
            Tone::Bad => text.red().bold(),
        }
    };
    let dropped = (format!("{} dropped", count(shown.dropped)), Tone::bad(shown.dropped));
    let spans: Vec<Span<'_>> = shown.counts.iter().chain([&dropped]).map(toned).collect();
    frame.render_widget(Line::from(spans), area);
}

/// Colour of a core.
fn color(cores: &[CoreId], core: Option<CoreId>) -> Color {
    let number = core.and_then(|core| cores.iter().position(|it| *it == core));
    number.map_or(Color::Gray, |number| CORES[number % CORES.len()])
}

/// A column of the table of stages: its title, its width, the narrowest terminal that has it, and a stage's cell.
type Column = (&'static str, u16, u16, fn(&StageShown) -> String);

#[rustfmt::skip] // a column a line
const COLUMNS: [Column; 9] = [
    ("core", 4, 0, |it| or_none(it.core.map(|core| core.to_string()))),
    ("process", 7, WIDE, |it| if it.pid == 0 { "none".into() } else { it.pid.to_string() }),
    ("steps/s", 7, 0, |it| format!("{:.0}", it.steps_per_s)),
    ("load", 6, 0, |it| format!("{:.1}%", it.load * 100.0)),
    ("us/frame", 8, 0, |it| or_none(it.frame_us.map(|us| format!("{us:.1}")))),
    ("kcycles", 7, WIDE, |it| or_none(it.frame_cycles.map(|cycles| format!("{:.1}", cycles as f64 / 1e3)))),
    ("MiB", 5, 0, |it| or_none((it.memory_bytes > 0).then(|| format!("{:.1}", it.memory_bytes as f64 / f64::from(1 << 20))))),
    ("vers", 4, 0, |it| it.version.to_string()),
    ("starts", 6, 0, |it| if it.hung == 0 { it.restarts.to_string() } else { format!("{} ({})", it.restarts, it.hung) }),
];

fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".into())
}

/// Width from which a terminal shows all columns.
const WIDE: u16 = 100;

fn draw_stages(frame: &mut Frame<'_>, area: Rect, shown: &ViewContent, chosen: usize) {
    let columns: Vec<&Column> = COLUMNS.iter().filter(|(_, _, from, _)| area.width >= *from).collect();
    let rows = shown.stages.iter().map(|stage| row(stage, &columns, &shown.cores));
    let widths = columns.iter().map(|(_, width, ..)| Constraint::Length(*width));
    let widths = std::iter::once(Constraint::Fill(1)).chain(widths);
    let widths = widths.chain([Constraint::Length(GAUGE as u16 + 9)]);
    let header = columns.iter().map(|(title, ..)| Line::from(*title).right_aligned());
    let header = std::iter::once(Line::from("stage")).chain(header);
    let table = Table::new(rows, widths)
        .header(Row::new(header.chain([Line::from("before it")])).dim())
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .highlight_symbol("> ")
        .block(panel(Line::from(" stages (of starts, those that hung) ".bold())));
    let mut state = TableState::new().with_selected(Some(chosen));
    frame.render_stateful_widget(table, area, &mut state);
}

fn row<'s>(stage: &'s StageShown, columns: &[&Column], cores: &[CoreId]) -> Row<'s> {
    let right = |(.., cell): &&Column| Cell::from(Line::from(cell(stage)).right_aligned());
    let cells = std::iter::once(Cell::from(stage.name.as_str())).chain(columns.iter().map(right));
    Row::new(cells.chain([Cell::from(gauge(stage.queue))])).style(Style::new().fg(color(cores, stage.core)))
}

/// Gauge of a queue's level.
fn gauge(queue: Option<(u64, u32)>) -> String {
    let Some((waiting, slots)) = queue else {
        return String::new();
    };
    let full = (waiting as usize * GAUGE).div_ceil(slots.max(1) as usize).min(GAUGE);
    let (filled, unfilled) = ("━".repeat(full), "─".repeat(GAUGE - full));
    format!("{filled}{unfilled} {waiting} of {slots}")
}

fn draw_moves(frame: &mut Frame<'_>, area: Rect, shown: &ViewContent) {
    let title = Line::from(vec![" moves ".bold(), format!("{} ", shown.mechanism).dim()]);
    let mut lines = vec![Line::from(vec![
        format!(" {} moves  ", count(shown.migrations)).into(),
        format!("{} kills  {} upgrades", count(shown.kills), count(shown.upgrades)).into(),
    ])];
    let moved = ("blackouts of the last moves", shown.moved);
    for (what, spans) in [moved, ("kill until it goes on", shown.died)] {
        let Some(Spans { p50, p99, max, n }) = spans else {
            continue;
        };
        lines.push(Line::from(format!(" {what} ({n})").dim()));
        lines.push(Line::from(format!(" p50 {p50:.1}  p99 {p99:.1}  max {max:.1} us")));
    }
    frame.render_widget(Paragraph::new(lines).block(panel(title)), area);
}

/// Panel of all stages with a goal, in the style of the panel of tasks. If there are more than fit, the last line says
/// so.
fn draw_goals(frame: &mut Frame<'_>, area: Rect, shown: &ViewContent) {
    let block = panel(Line::from(vec![" goals ".bold(), "tardiness: 1 is due ".dim()]));
    let fit = usize::from(block.inner(area).height.saturating_sub(1));
    let all = shown.goals.len();
    let many = if all > fit { fit.saturating_sub(1) } else { all };
    let mut rows: Vec<Row<'_>> = shown.goals.iter().take(many).map(goal_row).collect();
    if all > many {
        rows.push(Row::new([Cell::from(format!("and {} more", all - many).dim())]));
    }
    let late = shown.goals.iter().map(|it| late(it).chars().count() as u16).max();
    let widths = [GOAL, late.unwrap_or(0).max(4), TARDINESS, TARDINESS];
    let widths = std::iter::once(Constraint::Fill(1)).chain(widths.map(Constraint::Length));
    let head = Row::new(["stage", "goal", "late", "p50", "p99"]).dim();
    frame.render_widget(Table::new(rows, widths).header(head).block(block), area);
}

fn late(shown: &GoalShown) -> String {
    late_of(shown.taken.late, shown.taken.timed)
}

fn goal_row(shown: &GoalShown) -> Row<'_> {
    let GoalShown { stage, goal, taken } = shown;
    let color = standing_of(*goal, (taken.late, taken.timed), taken.mean_taken()).color();
    let figure = |value: f64| taken.mean_taken().map_or("-".into(), |_| format!("{value:.2}"));
    Row::new([
        Cell::from(stage.as_str()),
        Cell::from(goal.to_string()),
        Cell::from(Span::styled(late(shown), color)),
        Cell::from(figure(taken.p50)),
        Cell::from(figure(taken.p99)),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::shown::SidePanel;
    use super::*;
    use punctual_pipelines::TardinessFigures;
    use punctual_units::Share;
    use punctual_workload::TaskGoal;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn playing(bands: usize) -> ViewContent {
        let names = ["source", "low-pass", "demodulator"].map(String::from).into_iter();
        let names = names.chain((0..bands).map(|band| format!("band-{band}")));
        let stages = names.chain(["sum", "sink"].map(String::from)).enumerate();
        ViewContent {
            title: "station.cu8".into(),
            pace: "real time, 1000 frames/s".into(),
            counts: vec![("0 late".into(), Tone::Plain)],
            keys: Some(("+ - r", "faster, slower, real")),
            mechanism: "announced",
            cores: vec![CoreId(0), CoreId(1)],
            stages: stages
                .map(|(number, name)| StageShown {
                    name,
                    core: (number > 0).then_some(CoreId(number as u32 % 2)),
                    pid: 4000 + number as i32,
                    steps_per_s: 1000.0,
                    load: 0.0123,
                    frame_us: Some(27.25),
                    frame_cycles: Some(54_500),
                    memory_bytes: 5 << 19,
                    version: 3,
                    restarts: 2,
                    hung: 1,
                    queue: (number > 0).then_some((7, 14)),
                })
                .collect(),
            moved: Some(Spans {
                n: 100,
                p50: 1.6,
                p99: 27.9,
                max: 317.8,
            }),
            side: Some(SidePanel {
                values: vec![84.0],
                draw: |frame, area, values| frame.render_widget(Line::from(format!("panel of {}", values[0])), area),
            }),
            answer: Some("sum: killed".into()),
            ..ViewContent::default()
        }
    }

    fn screen(width: u16, height: u16, shown: &ViewContent, chosen: usize) -> String {
        let keys = Keys {
            row: chosen,
            ..Keys::default()
        };
        drawn(width, height, shown, &keys)
    }

    fn help(shown: &ViewContent) -> String {
        let keys = Keys {
            helps: true,
            ..Keys::default()
        };
        drawn(80, 24, shown, &keys)
    }

    fn drawn(width: u16, height: u16, shown: &ViewContent, keys: &Keys<ViewContent>) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, shown, keys)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>() + "\n";
        (0..height).map(row).collect()
    }

    #[test]
    fn everything_is_on_the_smallest_terminal() {
        let text = screen(80, 24, &playing(4), 2);
        for part in [
            "station.cu8  real time, 1000 frames/s",
            "0 late",
            "0 dropped",
            "> demodulator",
            "band-3",
            "1.2%",
            "27.2",
            "2.5",
            "2 (1)",
            "━━━── 7 of 14",
            "p50 1.6  p99 27.9  max 317.8 us",
            "panel of 84",
            "sum: killed",
            " ? help  p pause  q stop",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
    }

    #[test]
    fn a_paused_view_shows_the_answer_to_a_key() {
        let keys = Keys {
            paused: Some(Box::default()),
            ..Keys::default()
        };
        let text = drawn(80, 24, &playing(4), &keys);
        assert!(text.contains("sum: killed") && !text.contains("station.cu8"), "{text}");
    }

    #[test]
    fn a_wide_terminal_has_all_columns_and_no_side_panel_and_further_keys_where_there_are_none() {
        let text = screen(120, 30, &playing(4), 2);
        for part in ["4008", "54.5", "kcycles", "panel of"] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
        let plain = ViewContent {
            side: None,
            keys: None,
            ..playing(4)
        };
        let text = screen(120, 30, &plain, 2);
        assert!(!text.contains("panel of"), "{text}");
        let [text, other] = [help(&playing(4)), help(&plain)];
        assert!(text.contains("+ - r") && text.contains("move the stage"), "{text}");
        assert!(!other.contains("slower") && other.contains("move the stage"), "{other}");
    }

    #[test]
    fn goals_are_shown_with_how_stages_stand_to_them() {
        let goal = |stage: &str, goal, late| GoalShown {
            stage: stage.into(),
            goal,
            taken: TardinessFigures {
                timed: 1000,
                late,
                p50: 0.25,
                p99: 0.75,
                ..TardinessFigures::default()
            },
        };
        let held = TaskGoal::Late(Share::clamped(0.01));
        let shown = ViewContent {
            side: None,
            goals: vec![goal("sum", held, 3), goal("sink", TaskGoal::Tardiness(0.5), 0)],
            ..playing(4)
        };
        let text = screen(80, 24, &shown, 2);
        for part in [
            "goals",
            "late 1 %",
            "3 of 1,000 (0.3 %)",
            "tardiness 0.5",
            "0.25",
            "0.75",
            " moves ",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
        let many = ViewContent {
            goals: (0..20)
                .map(|number| goal(&format!("stage {number}"), held, 0))
                .collect(),
            ..shown
        };
        assert!(screen(80, 24, &many, 2).contains("more"));
    }

    #[test]
    fn the_chosen_stage_of_many_is_to_be_seen() {
        let shown = playing(16);
        let text = screen(80, 24, &shown, 19);
        assert!(text.contains("> sum"), "{text}");
    }

    #[test]
    fn every_size_can_be_drawn() {
        for width in [1, 10, 40, 80, 240] {
            for height in [1, 2, 5, 12, 24, 60] {
                for shown in [ViewContent::default(), playing(1), playing(16)] {
                    screen(width, height, &shown, 5);
                }
            }
        }
    }
}
