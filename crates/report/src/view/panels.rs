//! Panels of the live view: curves, jobs, cores.

use punctual_runtime::report::RunHeader;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::symbols::{Marker, border};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType, LegendPosition, Paragraph, Wrap};

use super::gauge;
use super::state::ViewState;
use crate::curves::{ChartLevel, RunChart, SampleFigure};
use crate::page::chart::{label, range, step};
use crate::settings::sentence;
use crate::summary::count;

/// Width of a label of the time axis, with room around it, in columns.
const TIME_WIDTH: u16 = 10;
/// Colours of curves, by their order in a chart.
const CURVES: [Color; 2] = [Color::Cyan, Color::Magenta];
/// Width of one core's gauge, in columns.
const CORE_WIDTH: u16 = 24;
/// Lines of the jobs panel inside its border.
const JOB_LINES: u16 = 3;

/// Panel of a chart: values of the last sample and levels in the title, curves below.
pub fn curves(frame: &mut Frame, area: Rect, state: &ViewState, chart: &RunChart) {
    let mut title = Vec::new();
    for (figure, color) in chart.figures.iter().zip(CURVES) {
        let named = Style::new().fg(color);
        let named = if chart.figures.len() > 1 { named } else { Style::new() };
        let value = state.last().and_then(figure.of);
        title.push(Span::styled(format!(" {} ", figure.names[0]), named.bold()));
        title.push(Span::styled(figure.shown(state.last()), judged(chart, value).bold()));
    }
    let name = |level: &ChartLevel| Span::styled(format!("  {}", level.names[0]), color(level));
    title.extend(chart.levels.iter().rev().map(name));
    if let Some(badge) = &chart.badge {
        let color = match badge.as_str() {
            "real" | "no knob" => Color::DarkGray,
            _ => Color::Yellow,
        };
        title.push(Span::raw(" "));
        title.push(format!(" {badge} ").black().bg(color));
    }
    title.push(Span::raw(" "));
    let curves = chart.figures.iter().zip(CURVES);
    let curves: Vec<_> = curves.map(|(figure, color)| (color, state.curve(figure.of))).collect();
    if !chart.without.is_empty() && curves.iter().all(|(_, points)| points.is_empty()) {
        let text = Paragraph::new(chart.without.dim());
        return frame.render_widget(text.block(panel(title.into())), area);
    }
    let levels = || chart.levels.iter().map(|level| level.value);
    let values = curves.iter().flat_map(|(_, points)| points).map(|(_, value)| *value);
    let (low, high) = range(chart.at_least, values.chain(levels()));
    let span = state.span();
    let across = |level: &ChartLevel| (color(level), span.map(|at| (at, level.value)).to_vec());
    let marks = state.marks.iter().filter(|mark| mark.t_s >= span[0]);
    let marks = marks.map(|mark| (Color::White, vec![(mark.t_s, low), (mark.t_s, high)]));
    let lines: Vec<_> = chart.levels.iter().map(across).chain(curves).chain(marks).collect();
    let axis = Axis::default().style(Style::new().fg(Color::DarkGray));
    let labels = |values: &[f64], text: &dyn Fn(f64) -> String| -> Vec<Line<'static>> {
        let label = |value: &f64| Line::from(text(*value).dark_gray());
        values.iter().map(label).collect()
    };
    // With an odd number of steps, the middle lies half a step between two.
    let steps = ((high - low) / step(high - low)).round() as u64;
    let parts = if steps.is_multiple_of(2) { 1.0 } else { 2.0 };
    let text = |value| label(value, (high - low) / parts) + chart.unit;
    let up = labels(&[low, (low + high) / 2.0, high], &text);
    let named = up.iter().map(Line::width).max().unwrap_or(0) as u16;
    let chart = Chart::new(lines.iter().map(|(color, points)| dataset(*color, points)).collect())
        .block(panel(title.into()))
        .legend_position(None::<LegendPosition>)
        .x_axis(axis.clone().bounds(span))
        .y_axis(axis.bounds([low, high]).labels(up));
    frame.render_widget(chart, area);
    times(frame, area, named + 2, span);
}

/// Times under the curves, which begin `left` columns from the panel's edge: in its border, so that a low panel has
/// every row for the curves.
fn times(frame: &mut Frame, area: Rect, left: u16, [from, to]: [f64; 2]) {
    let width = area.width.saturating_sub(left + 1);
    let row = Rect::new(area.x + left, area.bottom().saturating_sub(1), width, 1);
    let label = |at: f64| Line::from(format!(" {at:.0} s ").dark_gray());
    let [middle, end] = [label((from + to) / 2.0).centered(), label(to).right_aligned()];
    // In a narrow panel, the first ones alone.
    for label in [label(from), end, middle].into_iter().take((width / TIME_WIDTH).into()) {
        frame.render_widget(label, row);
    }
}

fn color(level: &ChartLevel) -> Color {
    if level.class == "late" {
        Color::Red
    } else {
        Color::Yellow
    }
}

/// Style of a value: where there is a limit, green up to the set point, then yellow, and red beyond the limit.
fn judged(chart: &RunChart, value: Option<f64>) -> Style {
    let over = |class, by| {
        let mut levels = chart.levels.iter().filter(|level| level.class == class);
        levels.any(|level| value.is_some_and(|value| value > level.value + by))
    };
    match chart.levels.iter().any(|level| level.class == "late") {
        false => Style::new(),
        true if over("late", 0.0) => Style::new().fg(Color::Red),
        true if over("goal", crate::verdict::TOLERANCE) => Style::new().fg(Color::Yellow),
        true => Style::new().fg(Color::Green),
    }
}

fn dataset(color: Color, points: &[(f64, f64)]) -> Dataset<'_> {
    let set = Dataset::default().data(points).style(color);
    set.marker(Marker::Braille).graph_type(GraphType::Line)
}

/// Lines of the foot: for all cores, if they fit into a third of `body`.
pub fn foot_height(body: Rect, state: &ViewState) -> u16 {
    let cores = state.last().map_or(0, |last| last.busy.len()) as u16;
    let columns = (body.width / 2 / CORE_WIDTH).max(1);
    let most = (body.height / 3).max(JOB_LINES);
    cores.div_ceil(columns).clamp(JOB_LINES, most) + 2
}

/// Foot with jobs on the left, cores on the right.
pub fn foot(frame: &mut Frame, area: Rect, state: &ViewState, header: &RunHeader, own_time: &RunChart) {
    let [left, right] = Layout::horizontal([Constraint::Fill(1); 2]).areas(area);
    jobs(frame, left, state, header, own_time);
    cores(frame, right, state);
}

fn jobs(frame: &mut Frame, area: Rect, state: &ViewState, header: &RunHeader, own_time: &RunChart) {
    let [jobs, misses] = state.jobs();
    let share = 100.0 * misses as f64 / jobs.max(1) as f64;
    let late = format!("{} late ({share:.1} %)", count(misses));
    let late = if misses == 0 { late.green() } else { late.red() };
    let done = format!(" {} jobs  ", count(jobs));
    let took = |figure: &SampleFigure| {
        let value = figure.shown(state.last());
        [format!(" {} ", figure.names[0]).dim(), (value + " ").into()]
    };
    let load = format!(" {} updates/s  ", count(header.load.updates_per_s.round() as u64));
    let load = Line::from(vec![load.into(), header.load.update_mode.name().dim()]);
    let lines = [
        Some(Line::from(vec![done.into(), late, format!("  {}", state.sinks).into()])),
        Some(load).filter(|_| header.load.sensors > 0),
        Some(Line::from_iter(own_time.figures.iter().flat_map(took))),
    ];
    let lines: Vec<Line> = lines.into_iter().flatten().collect();
    frame.render_widget(Paragraph::new(lines).block(panel(Line::from(" work ".bold()))), area);
}

fn cores(frame: &mut Frame, area: Rect, state: &ViewState) {
    let busy: &[f64] = state.last().map_or(&[], |last| &last.busy);
    let inner = framed(frame, area, " cores ".bold().into());
    let columns = (inner.width / CORE_WIDTH).max(1);
    let fit = usize::from(columns * inner.height);
    for (core, busy) in busy.iter().enumerate().take(fit) {
        let (row, column) = (core as u16 / columns, core as u16 % columns);
        let width = inner.width / columns;
        let cell = Rect::new(inner.x + column * width, inner.y + row, width, 1);
        if core + 1 == fit && fit < state.last().map_or(0, |last| last.busy.len()) {
            frame.render_widget(Line::from(" and more cores".dim()), cell);
            break;
        }
        let color = if *busy > 0.95 { Color::Yellow } else { CURVES[0] };
        let label = format!(" {core:>2} {:>3.0} %", busy * 100.0);
        frame.render_widget(gauge(*busy, label, color), cell);
    }
}

/// Figures of the last sample, for a terminal too small for curves.
pub fn figures(frame: &mut Frame, area: Rect, state: &ViewState, charts: &[RunChart]) {
    let line = |chart: &RunChart| {
        let figure = |figure: &SampleFigure| format!(" {} {}", figure.names[0], figure.shown(state.last()));
        let badge = chart.badge.as_ref().map(|badge| format!(" ({badge})"));
        Line::from_iter(chart.figures.iter().map(figure).chain(badge))
    };
    let [jobs, misses] = state.jobs();
    let jobs = format!(" {jobs} jobs, {misses} late");
    let more = [jobs.into(), " 60 x 18 or more shows curves".dim().into()];
    let lines: Vec<Line> = charts.iter().map(line).chain(more).collect();
    frame.render_widget(Paragraph::new(lines), area);
}

/// Settings in words, from the one at `row` on.
pub fn settings(frame: &mut Frame, area: Rect, state: &ViewState, row: usize) {
    let all = &state.settings;
    let row = row.min(all.len().saturating_sub(1));
    let title = format!(" settings {} to {} ", all.len().min(row + 1), all.len());
    let inner = framed(frame, area, title.bold().into());
    let told = all.iter().skip(row).map(|it| format!("- {}\n", sentence(it)));
    let told = Paragraph::new(told.collect::<String>()).wrap(Wrap { trim: false });
    frame.render_widget(told, inner);
}

/// Draws an empty panel, and returns the area inside it.
pub fn framed(frame: &mut Frame, area: Rect, title: Line<'_>) -> Rect {
    let block = panel(title);
    let inside = block.inner(area);
    frame.render_widget(block, area);
    inside
}

pub fn panel(title: Line<'_>) -> Block<'_> {
    let block = Block::bordered().border_set(border::ROUNDED);
    block.border_style(Color::DarkGray).title(title)
}
