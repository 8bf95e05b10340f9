//! The picture of a playing radio: a pure function from [`Shown`] to a terminal frame. Laid out for 80 x 24 and up.

use punctual_units::CoreId;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use super::report::Spans;
use super::shown::{Shown, StageShown};
use crate::summary::count;
use crate::view::panel;

/// Colours of the cores, by their number among the pipeline's.
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
/// Columns of a queue's gauge.
const GAUGE: usize = 14;
/// The quietest and the loudest that the spectrum shows, in decibels of full scale.
const QUIET: f32 = -84.0;
const LOUD: f32 = -12.0;
/// Parts of a character, from the bottom.
const BLOCKS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// Draws everything; `chosen` is the number of the stage that keys are about.
pub fn draw(frame: &mut Frame<'_>, shown: &Shown, chosen: usize, stopping: bool) {
    let stages = shown.stages.len() as u16 + 3;
    let [title, counts, table, foot, answer, hints] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(stages),
        Constraint::Min(6),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_title(frame, title, shown);
    draw_counts(frame, counts, shown);
    draw_stages(frame, table, shown, chosen);
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(42)]).areas(foot);
    draw_spectrum(frame, left, shown);
    draw_moves(frame, right, shown);
    let told = shown.answer.as_deref().unwrap_or_default();
    frame.render_widget(Line::from(format!(" {told}").yellow()), answer);
    draw_hints(frame, hints, stopping);
}

fn draw_title(frame: &mut Frame<'_>, area: Rect, shown: &Shown) {
    let rate = match shown.rate {
        None => "as fast as possible".to_string(),
        Some(rate) if (rate - 1.0).abs() < 1e-3 => "real time".to_string(),
        Some(rate) => format!("{rate:.3} times real time"),
    };
    let line = Line::from(vec![
        Span::styled(" punctual ", Style::new().fg(Color::Black).bg(Color::Cyan).bold()),
        Span::styled(format!("  {}", shown.recording), Modifier::BOLD),
        Span::raw(format!("  {rate}, {:.0} frames/s", shown.frames_per_s)),
        format!("  {:.0} s", shown.elapsed_s).dim(),
    ]);
    frame.render_widget(line, area);
}

fn draw_counts(frame: &mut Frame<'_>, area: Rect, shown: &Shown) {
    let counts = &shown.counts;
    let late = counts.late - counts.excused;
    let bad = |number: u64, text: String| if number > 0 { text.red().bold() } else { text.into() };
    let mut spans = vec![
        format!(" {} frames  ", count(counts.frames)).into(),
        bad(late, format!("{} late  ", count(late))),
        format!("{} by gaps of the machine  ", count(counts.excused)).dim(),
        bad(counts.duplicated, format!("{} twice  ", counts.duplicated)),
        bad(shown.dropped, format!("{} dropped  ", count(shown.dropped))),
    ];
    if counts.stalls > 0 {
        spans.push(format!("{} silences of the input", counts.stalls).yellow());
    }
    frame.render_widget(Line::from(spans), area);
}

/// The colour of a core.
fn color(cores: &[CoreId], core: Option<CoreId>) -> Color {
    let number = core.and_then(|core| cores.iter().position(|it| *it == core));
    number.map_or(Color::Gray, |number| CORES[number % CORES.len()])
}

fn draw_stages(frame: &mut Frame<'_>, area: Rect, shown: &Shown, chosen: usize) {
    let rows = shown.stages.iter().map(|stage| row(stage, &shown.cores));
    let titles = ["stage", "core", "process", "steps/s", "load", "starts", "before it"];
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(4),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(7),
        Constraint::Length(6),
        Constraint::Length(GAUGE as u16 + 9),
    ];
    let (last, right) = (titles.len() - 1, |title| Line::from(title).right_aligned());
    let header = titles.iter().enumerate().map(|(at, title)| match at {
        at if at == 0 || at == last => Line::from(*title),
        _ => right(*title),
    });
    let table = Table::new(rows, widths)
        .header(Row::new(header).dim())
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .highlight_symbol("> ")
        .block(panel(Line::from(" stages ".bold())));
    let mut state = TableState::new().with_selected(Some(chosen));
    frame.render_stateful_widget(table, area, &mut state);
}

fn row<'s>(stage: &'s StageShown, cores: &[CoreId]) -> Row<'s> {
    let core = stage.core.map_or("-".into(), |core| core.to_string());
    let pid = if stage.pid == 0 {
        "none".to_string()
    } else {
        stage.pid.to_string()
    };
    let right = |text: String| Cell::from(Line::from(text).right_aligned());
    Row::new([
        Cell::from(stage.name.as_str()),
        right(core),
        right(pid),
        right(format!("{:.0}", stage.steps_per_s)),
        right(format!("{:.1} %", stage.load * 100.0)),
        right(stage.restarts.to_string()),
        Cell::from(gauge(stage.queue)),
    ])
    .style(Style::new().fg(color(cores, stage.core)))
}

/// How full a queue is.
fn gauge(queue: Option<(u64, u32)>) -> String {
    let Some((waiting, slots)) = queue else {
        return String::new();
    };
    let full = (waiting as usize * GAUGE).div_ceil(slots.max(1) as usize).min(GAUGE);
    let (filled, unfilled) = ("━".repeat(full), "─".repeat(GAUGE - full));
    format!("{filled}{unfilled} {waiting} of {slots}")
}

fn draw_moves(frame: &mut Frame<'_>, area: Rect, shown: &Shown) {
    let title = Line::from(vec![" moves ".bold(), format!("{} ", shown.mechanism).dim()]);
    let mut lines = vec![Line::from(vec![
        format!(" {} moves  ", count(shown.migrations)).into(),
        format!("{} kills  {} upgrades", count(shown.kills), count(shown.upgrades)).into(),
    ])];
    for (what, spans) in [
        ("blackouts of the last moves", shown.moved),
        ("kill until it goes on", shown.died),
    ] {
        let Some(Spans { p50, p99, max, n }) = spans else {
            continue;
        };
        lines.push(Line::from(format!(" {what} ({n})").dim()));
        lines.push(Line::from(format!(" p50 {p50:.1}  p99 {p99:.1}  max {max:.1} us")));
    }
    frame.render_widget(Paragraph::new(lines).block(panel(title)), area);
}

fn draw_spectrum(frame: &mut Frame<'_>, area: Rect, shown: &Shown) {
    let title = Line::from(vec![" sound ".bold(), "40 Hz to 12.5 kHz, -84 to -12 dB ".dim()]);
    let block = panel(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let wide = (usize::from(inner.width) / shown.spectrum.len().max(1)).max(1);
    let lines = (0..inner.height).map(|line| {
        let above = inner.height - 1 - line;
        let columns = shown
            .spectrum
            .iter()
            .map(|power| part(*power, above, inner.height).repeat(wide));
        Line::from(columns.collect::<String>().cyan())
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), inner);
}

/// The character of a column of that power in the line that has `above` lines below it.
fn part(power: f32, above: u16, height: u16) -> &'static str {
    let share = ((power - QUIET) / (LOUD - QUIET)).clamp(0.0, 1.0);
    let eighths = (share * f32::from(height) * 8.0) as usize;
    BLOCKS[eighths.saturating_sub(usize::from(above) * 8).min(8)]
}

fn draw_hints(frame: &mut Frame<'_>, area: Rect, stopping: bool) {
    let line = match stopping {
        true => Line::from(format!(" {}", crate::terminal::STOPPING).yellow()),
        false => Line::from(
            [
                ("up down", "choose"),
                ("m", "move"),
                ("u", "upgrade"),
                ("k", "kill"),
                ("+ - r", "faster, slower, real"),
                ("q", "stop"),
            ]
            .into_iter()
            .flat_map(|(key, what)| [format!(" {key} ").bold(), format!("{what} ").dim()])
            .collect::<Vec<_>>(),
        ),
    };
    frame.render_widget(line, area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn playing(bands: usize) -> Shown {
        let names = ["source", "low-pass", "demodulator"].map(String::from).into_iter();
        let names = names.chain((0..bands).map(|band| format!("band-{band}")));
        let stages = names.chain(["sum", "sink"].map(String::from)).enumerate();
        Shown {
            recording: "station.cu8".into(),
            mechanism: "announced",
            rate: Some(1.0),
            frames_per_s: 1000.0,
            cores: vec![CoreId(0), CoreId(1)],
            stages: stages
                .map(|(number, name)| StageShown {
                    name,
                    core: (number > 0).then_some(CoreId(number as u32 % 2)),
                    pid: 4000 + number as i32,
                    steps_per_s: 1000.0,
                    load: 0.0123,
                    restarts: 2,
                    queue: (number > 0).then_some((7, 14)),
                })
                .collect(),
            moved: Some(Spans {
                n: 100,
                p50: 1.6,
                p99: 27.9,
                max: 317.8,
            }),
            spectrum: (0..32).map(|band| -20.0 - band as f32).collect(),
            answer: Some("sum: killed".into()),
            ..Shown::default()
        }
    }

    fn screen(width: u16, height: u16, shown: &Shown, chosen: usize) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, shown, chosen, false)).unwrap();
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
            "4008",
            "1.2 %",
            "━━━━━━━─────── 7 of 14",
            "p50 1.6  p99 27.9  max 317.8 us",
            "█",
            "sum: killed",
            " m move",
            " q stop",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
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
                for shown in [Shown::default(), playing(1), playing(16)] {
                    screen(width, height, &shown, 5);
                }
            }
        }
    }

    #[test]
    fn loud_columns_are_higher() {
        assert_eq!((part(LOUD, 0, 8), part(LOUD, 7, 8)), ("█", "█"));
        assert_eq!((part(QUIET, 0, 8), part(f32::NAN, 0, 8)), (" ", " "));
        assert_eq!((part(-48.0, 3, 8), part(-48.0, 4, 8)), ("█", " "), "half way");
    }
}
