//! The live view: a pure function from [`ViewState`] to a terminal frame.
//!
//! Shows each task with its goal, figures, parts of its time and a histogram; four curves (tardiness, data response
//! ratio, admitted and fresh share, clock), each with its goal or minimum as a line; below them jobs and the load per
//! core. Laid out for at least 80 x 24; a smaller terminal shows the figures only.

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
pub use panels::panel;
pub use state::{News, ViewState};

/// Least size of a terminal on which curves are legible: columns and lines.
const CURVES_FIT: (u16, u16) = (60, 18);

/// Characters for the two parts of a gauge; they differ in shape, for terminals without colours.
const FILLED: &str = "━";
const UNFILLED: &str = "─";

/// Draws the whole frame for a state.
pub fn draw(frame: &mut Frame, state: &ViewState) {
    let [title, progress, body, hints] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_title(frame, title, state);
    draw_progress(frame, progress, state);
    draw_hints(frame, hints, state);
    let Some(header) = &state.header else {
        return draw_stages(frame, body, state);
    };
    let [charts @ .., own_time] = charts(header);
    if frame.area().width < CURVES_FIT.0 || frame.area().height < CURVES_FIT.1 {
        return panels::figures(frame, body, state, &charts);
    }
    let (tasks, foot) = (tasks::height(body, state), panels::foot_height(body, state));
    let [tasks, upper, lower, foot] = Layout::vertical([
        Constraint::Length(tasks),
        Constraint::Fill(1),
        Constraint::Fill(1),
        Constraint::Length(foot),
    ])
    .areas(body);
    tasks::tasks(frame, tasks, state);
    let halves = |row: Rect| -> [Rect; 2] { Layout::horizontal([Constraint::Fill(1); 2]).areas(row) };
    for (area, chart) in [upper, lower].into_iter().flat_map(halves).zip(&charts) {
        panels::curves(frame, area, state, chart);
    }
    panels::foot(frame, foot, state, header, &own_time);
}

fn draw_title(frame: &mut Frame, area: Rect, state: &ViewState) {
    let name = Span::styled(" punctual ", Style::new().fg(Color::Black).bg(Color::Cyan).bold());
    let Some(header) = &state.header else {
        return frame.render_widget(Line::from(vec![name, Span::raw("  getting ready")]), area);
    };
    let mode = state.last().map_or(ModeName::WarmUp, |last| last.mode);
    let color = match mode {
        ModeName::Running => Color::Green,
        ModeName::Fallback => Color::Red,
        ModeName::WarmUp => Color::Yellow,
    };
    let mode = mode.as_str();
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
    let gauge = LineGauge::default()
        .ratio((elapsed / state.duration_s.max(1e-9)).clamp(0.0, 1.0))
        .label(format!(" {} of {}", minutes(elapsed), minutes(state.duration_s)))
        .filled_symbol(FILLED)
        .unfilled_symbol(UNFILLED)
        .filled_style(Style::new().fg(Color::Cyan))
        .unfilled_style(Style::new().fg(Color::DarkGray));
    frame.render_widget(gauge, area);
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
        (true, _) => Line::from(" stopping in order; Ctrl-C again leaves at once without a report".yellow()),
        (false, Some(reason)) => Line::from(format!(" fallback: {reason}").red()),
        (false, None) => Line::from(vec![
            " q ".bold(),
            "stop in order and report".dim(),
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
