//! The live view: a pure function from [`ViewState`] to a terminal frame.
//!
//! Shows each task with its goal, figures, parts of its time and a histogram; curves (tardiness, data response ratio,
//! admitted and fresh share, clock, best-effort share; those that concern the run), each with its goal or minimum as a
//! line; below them jobs and the load per core. Laid out for at least 80 x 24; a smaller terminal shows the figures
//! only.

mod controls;
pub mod keys;
mod panels;
mod state;
mod tasks;

use punctual_loop::ModeName;
use punctual_runtime::report::{PlatformChoice, RunHeader};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{LineGauge, Paragraph};

use crate::curves::charts;
use crate::summary::{START_UP, count, mode};
pub use controls::Controls;
pub use panels::{framed, panel};
pub use state::{News, ViewState};

/// Least size of a terminal on which curves are legible: columns and lines.
const CURVES_FIT: (u16, u16) = (60, 18);

/// Lines of a terminal for each of the newest warnings that is shown.
const WARNING_EVERY: u16 = 18;

/// Characters for the two parts of a gauge; they differ in shape, for terminals without colours.
const FILLED: &str = "━";
const UNFILLED: &str = "─";
/// Characters that are filled from below by this many eighths, in views and in text.
pub const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws the whole frame for the state of a run and of the keys.
pub fn draw(frame: &mut Frame, live: &ViewState, controls: &Controls) {
    let state = controls.keys.shown(live);
    let one = Constraint::Length(1);
    // One at least: it is the reason of a fallback that goes on.
    let fit = (frame.area().height / WARNING_EVERY).max(1);
    let warnings = state.warnings.1.len().min(fit.into());
    let rows = Layout::vertical([one, one, Constraint::Fill(1), Constraint::Length(warnings as u16), one]);
    let [title, progress, body, warned, hints] = rows.areas(frame.area());
    draw_title(frame, title, state);
    draw_progress(frame, progress, state);
    draw_warnings(frame, warned, state);
    draw_body(frame, body, state, controls);
    draw_hints(frame, hints, live, controls);
}

fn draw_body(frame: &mut Frame, body: Rect, state: &ViewState, controls: &Controls) {
    let Some(header) = &state.header else {
        return draw_stages(frame, body, state);
    };
    if controls.explains {
        return panels::settings(frame, body, state, controls.keys.row);
    }
    let mut charts = charts(header, state.last());
    let own_time = charts.pop().unwrap_or_default();
    if frame.area().width < CURVES_FIT.0 || frame.area().height < CURVES_FIT.1 {
        return panels::figures(frame, body, state, &charts);
    }
    let (tasks, foot) = (tasks::height(body, state), panels::foot_height(body, state));
    let [tasks, curves, foot] =
        Layout::vertical([Constraint::Length(tasks), Constraint::Fill(1), Constraint::Length(foot)]).areas(body);
    tasks::tasks(frame, tasks, state, controls);
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
    let gauge = LineGauge::default().ratio(ratio.clamp(0.0, 1.0)).label(label);
    let gauge = gauge.filled_symbol(FILLED).filled_style(color);
    gauge.unfilled_symbol(UNFILLED).unfilled_style(Color::DarkGray)
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

/// The newest warnings, before them how many there were; the reason of a fallback that goes on comes first.
fn draw_warnings(frame: &mut Frame, area: Rect, state: &ViewState) {
    let (count, newest) = &state.warnings;
    let head = format!(" {count} warning{}  ", if *count == 1 { "" } else { "s" });
    let reason = state.last().and_then(|last| last.fallback.as_ref());
    let reason = reason.map(|reason| format!("fallback: {reason}").red());
    let older = newest.iter().rev();
    let older = older.map(|warning| format!("{} {}", minutes(warning.t_s), warning.text).yellow());
    for (text, row) in reason.into_iter().chain(older).zip(area.rows()) {
        let before = if row.y == area.y { head.as_str() } else { "" };
        let width = head.len();
        frame.render_widget(Line::from(vec![format!("{before:width$}").bold(), text]), row);
    }
}

fn draw_hints(frame: &mut Frame, area: Rect, live: &ViewState, controls: &Controls) {
    let simulated = |header: &RunHeader| header.platform == PlatformChoice::Sim;
    let shows_keys = controls.keys.paused.is_none() && !controls.keys.stopping;
    if shows_keys && live.header.as_ref().is_some_and(simulated) {
        frame.render_widget(Line::from("every figure is simulated ".yellow()).right_aligned(), area);
    }
    let quit = match live.is_visitor {
        true => "end this view; the run goes on",
        false => "stop in order and report",
    };
    let paused = controls.keys.shown(live);
    let meanwhile = || {
        let ([before, late_before], [jobs, late]) = (paused.jobs(), live.jobs());
        let seconds = count((live.elapsed_s() - paused.elapsed_s()).max(0.0) as u64);
        let [jobs, late] = [(before, jobs), (late_before, late)].map(|(before, now)| count(now.saturating_sub(before)));
        let warnings = live.warnings.0.saturating_sub(paused.warnings.0);
        format!("{seconds} s, {jobs} jobs, {late} late, {warnings} warnings")
    };
    let told = controls.question(live).unwrap_or_else(meanwhile);
    let own = Controls::own(live);
    controls.keys.draw(frame, area, own, quit, &told);
}

fn minutes(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests;
