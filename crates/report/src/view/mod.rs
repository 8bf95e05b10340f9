//! The live view: a pure function from [`ViewState`] to a terminal frame.
//!
//! Shows each task with its goal, figures, parts of its time and a histogram; curves (tardiness, data response ratio,
//! admitted and fresh share, clock, best-effort share; those that concern the run), each with its goal or minimum as a
//! line; below them jobs and the load per core. Laid out for at least 80 x 24; a smaller terminal shows the figures
//! only.

mod panels;
mod state;
mod tasks;

use punctual_loop::ModeName;
use punctual_runtime::report::PlatformChoice;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{LineGauge, Paragraph};

use crate::curves::charts;
use crate::summary::{START_UP, mode};
use crate::terminal::STOPPING;
pub use panels::{framed, panel};
pub use state::{News, ViewState};

/// Least size of a terminal on which curves are legible: columns and lines.
const CURVES_FIT: (u16, u16) = (60, 18);

/// Characters for the two parts of a gauge; they differ in shape, for terminals without colours.
const FILLED: &str = "━";
const UNFILLED: &str = "─";
/// Characters that are filled from below by this many eighths, in views and in text.
pub const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws the whole frame for a state.
pub fn draw(frame: &mut Frame, state: &ViewState) {
    let one = Constraint::Length(1);
    let rows = Layout::vertical([one, one, Constraint::Fill(1), one]);
    let [title, progress, body, hints] = rows.areas(frame.area());
    draw_title(frame, title, state);
    draw_progress(frame, progress, state);
    draw_hints(frame, hints, state);
    let Some(header) = &state.header else {
        return draw_stages(frame, body, state);
    };
    let mut charts = charts(header, state.last());
    let own_time = charts.pop().unwrap_or_default();
    if frame.area().width < CURVES_FIT.0 || frame.area().height < CURVES_FIT.1 {
        return panels::figures(frame, body, state, &charts);
    }
    let (tasks, foot) = (tasks::height(body, state), panels::foot_height(body, state));
    let [tasks, curves, foot] =
        Layout::vertical([Constraint::Length(tasks), Constraint::Fill(1), Constraint::Length(foot)]).areas(body);
    tasks::tasks(frame, tasks, state);
    let rows = Layout::vertical(vec![Constraint::Fill(1); charts.len().div_ceil(2)]).split(curves);
    for (row, charts) in rows.iter().zip(charts.chunks(2)) {
        let areas = Layout::horizontal(vec![Constraint::Fill(1); charts.len()]).split(*row);
        let panels = areas.iter().zip(charts);
        panels.for_each(|(area, chart)| panels::curves(frame, *area, state, chart));
    }
    panels::foot(frame, foot, state, header, &own_time);
}

/// Name of the program, with which the title of every view begins.
pub fn program() -> Span<'static> {
    Span::styled(" punctual ", Style::new().fg(Color::Black).bg(Color::Cyan).bold())
}

/// A gauge that is full at a `ratio` of 1.
fn gauge(ratio: f64, label: String, color: Color) -> LineGauge<'static> {
    LineGauge::default()
        .ratio(ratio.clamp(0.0, 1.0))
        .label(label)
        .filled_symbol(FILLED)
        .unfilled_symbol(UNFILLED)
        .filled_style(Style::new().fg(color))
        .unfilled_style(Style::new().fg(Color::DarkGray))
}

fn draw_title(frame: &mut Frame, area: Rect, state: &ViewState) {
    let name = program();
    let Some(header) = &state.header else {
        return frame.render_widget(Line::from(vec![name, Span::raw("  getting ready")]), area);
    };
    let mode = state.last().map_or(START_UP, |last| mode(last, header.settle_s));
    let color = match mode {
        START_UP => Color::Yellow,
        mode if mode == ModeName::Fallback.as_str() => Color::Red,
        _ => Color::Green,
    };
    let machine = match header.platform {
        PlatformChoice::Sim => "the simulated machine".to_string(),
        PlatformChoice::Linux => header.machine.clone(),
    };
    let line = Line::from(vec![
        name,
        Span::styled(format!("  {}", header.scenario), Modifier::BOLD),
        Span::raw(format!("  {}", header.controller.name())),
        Span::raw("  "),
        Span::styled(format!(" {mode} "), Style::new().fg(Color::Black).bg(color)),
        Span::styled(format!("  {machine}"), Style::new().dim()),
    ]);
    frame.render_widget(line, area);
}

fn draw_progress(frame: &mut Frame, area: Rect, state: &ViewState) {
    let elapsed = state.elapsed_s();
    let label = match state.duration_s.is_finite() {
        true => format!(" {} of {}", minutes(elapsed), minutes(state.duration_s)),
        false => format!(" {}", minutes(elapsed)),
    };
    frame.render_widget(gauge(elapsed / state.duration_s.max(1e-9), label, Color::Cyan), area);
}

fn draw_stages(frame: &mut Frame, area: Rect, state: &ViewState) {
    let under_way = state.stages.len().saturating_sub(1);
    let lines = state.stages.iter().enumerate().map(|(i, stage)| {
        if i == under_way {
            Line::from(vec!["   > ".cyan(), stage.clone().bold()])
        } else {
            Line::from(vec!["   + ".green(), stage.clone().dim()])
        }
    });
    let lines: Vec<Line> = std::iter::once(Line::default()).chain(lines).collect();
    frame.render_widget(Paragraph::new(lines), area);
}

fn draw_hints(frame: &mut Frame, area: Rect, state: &ViewState) {
    let line = match (state.stopping, state.last().and_then(|last| last.fallback.as_ref())) {
        (true, _) => Line::from(format!(" {STOPPING}").yellow()),
        (false, Some(reason)) => Line::from(format!(" fallback: {reason}").red()),
        (false, None) => Line::from(vec![
            " q ".bold(),
            match state.is_visitor {
                true => "end this view; the run goes on".dim(),
                false => "stop in order and report".dim(),
            },
            if state
                .header
                .as_ref()
                .is_some_and(|header| header.platform == PlatformChoice::Sim)
            {
                "   every figure is simulated".yellow()
            } else {
                Span::default()
            },
        ]),
    };
    frame.render_widget(line, area);
}

fn minutes(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests;
