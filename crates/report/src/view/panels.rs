//! Panels of the live view: curves, jobs, cores.

use punctual_platform::Provenance;
use punctual_runtime::report::RunHeader;
use punctual_workload::TaskGoal;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::symbols::{Marker, border};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Borders, Chart, Dataset, GraphType, LegendPosition, LineGauge, Paragraph};

use super::state::ViewState;
use super::{FILLED, UNFILLED};
use crate::summary::{count, figure, update_mode};

/// Least height of a chart with a time axis, in lines.
const TIMES_FIT: u16 = 10;
const LATE: Color = Color::Red;
const GOAL: Color = Color::Yellow;
const CURVE: Color = Color::Cyan;
const SECOND_CURVE: Color = Color::Magenta;
/// Width of one core's gauge, in columns.
const CORE_WIDTH: u16 = 24;
/// Lines of the jobs panel inside its border.
const JOB_LINES: u16 = 3;

/// Content of a chart of curves.
struct Curves<'a> {
    title: Line<'a>,
    curves: Vec<(Color, Vec<(f64, f64)>)>,
    /// Set points and limits, drawn across.
    levels: Vec<(Color, f64)>,
    bounds: [f64; 2],
    /// Formats a value as an axis label.
    label: fn(f64) -> String,
}

/// Panel of tardiness (response time / deadline), with its set point.
pub fn tardiness(frame: &mut Frame, area: Rect, state: &ViewState, header: &RunHeader) {
    let points = state.curve(|sample| sample.tardiness);
    let goal = match header.goal.tasks {
        TaskGoal::Tardiness(mean) => Some(mean),
        TaskGoal::Late(_) => None,
    };
    let levels: Vec<_> = goal.map(|goal| (GOAL, goal)).into_iter().chain([(LATE, 1.0)]).collect();
    let now = state.last().and_then(|last| last.tardiness);
    let color = match now {
        Some(value) if value > 1.0 => Color::Red,
        Some(value) if goal.is_some_and(|goal| value > goal + crate::verdict::TOLERANCE) => Color::Yellow,
        _ => Color::Green,
    };
    let title = Line::from(vec![
        " tardiness ".bold(),
        Span::styled(figure(now), Style::new().fg(color).bold()),
        Span::styled(goal.map_or(String::new(), |goal| format!("  goal {goal:.2}")), GOAL),
        Span::styled("  late > 1 ", LATE),
    ]);
    let curves = Curves {
        title,
        bounds: bounds(&points, &levels, 0.25),
        curves: vec![(CURVE, points)],
        levels,
        label: |y| format!("{y:.2}"),
    };
    draw_curves(frame, area, state, curves);
}

/// Panel of the data response ratio (time in the store / response time), with its set point.
pub fn drr(frame: &mut Frame, area: Rect, state: &ViewState, header: &RunHeader) {
    let points = state.curve(|sample| sample.drr);
    let levels = vec![(GOAL, header.goal.drr)];
    let title = Line::from(vec![
        " data response ratio ".bold(),
        figure(state.last().and_then(|last| last.drr)).bold(),
        Span::styled(format!("  goal {:.2} ", header.goal.drr), GOAL),
    ]);
    let curves = Curves {
        title,
        bounds: bounds(&points, &levels, 0.1),
        curves: vec![(CURVE, points)],
        levels,
        label: |y| format!("{y:.2}"),
    };
    draw_curves(frame, area, state, curves);
}

/// Panel of admitted updates and fresh data, with the minimum.
pub fn shares(frame: &mut Frame, area: Rect, state: &ViewState, header: &RunHeader) {
    let share = |value: Option<f64>| value.map_or("-".into(), |value| format!("{:.0} %", value * 100.0));
    let title = Line::from(vec![
        Span::styled(" admitted ", Style::new().fg(CURVE).bold()),
        share(state.last().map(|last| last.admitted_share)).bold(),
        Span::styled("  fresh ", Style::new().fg(SECOND_CURVE).bold()),
        share(state.last().map(|last| last.fresh_share)).bold(),
        Span::styled(format!("  min {:.0} % ", header.goal.min_fresh.get() * 100.0), GOAL),
    ]);
    let curves = Curves {
        title,
        curves: vec![
            (CURVE, state.curve(|sample| Some(sample.admitted_share))),
            (SECOND_CURVE, state.curve(|sample| Some(sample.fresh_share))),
        ],
        levels: vec![(GOAL, header.goal.min_fresh.get())],
        bounds: [0.0, 1.0],
        label: |y| format!("{:.0} %", y * 100.0),
    };
    draw_curves(frame, area, state, curves);
}

/// Panel of the clock, with its provenance.
pub fn clock(frame: &mut Frame, area: Rect, state: &ViewState, header: &RunHeader) {
    let points = state.curve(|sample| sample.clock_hz.map(|hz| hz as f64 * 1e-9));
    let (provenance, color) = match state.clock_provenance() {
        Some(Provenance::Real) => (" real ".into(), Color::DarkGray),
        Some(stand_in) => (format!(" {stand_in} "), Color::Yellow),
        None => (" no knob ".to_string(), Color::DarkGray),
    };
    let now = state.last().and_then(|last| last.clock_hz);
    let now = now.map_or("-".into(), |hz| format!("{:.2} GHz ", hz as f64 * 1e-9));
    let title = Line::from(vec![
        " clock ".bold(),
        now.bold(),
        Span::styled(provenance, Style::new().fg(Color::Black).bg(color)),
        Span::raw(" "),
    ]);
    let block = panel(title.clone());
    if points.is_empty() {
        let text = "this machine shows no clock; `punctual doctor` says why".dim();
        return frame.render_widget(Paragraph::new(text).block(block), area);
    }
    let top = header.load.top_clock.0 as f64 * 1e-9;
    let lowest = points.iter().map(|(_, y)| *y).fold(0.5 * top, f64::min);
    let curves = Curves {
        title,
        curves: vec![(CURVE, points)],
        levels: vec![],
        bounds: [(lowest * 10.0).floor() / 10.0, (top * 10.0).ceil() / 10.0],
        label: |y| format!("{y:.1}"),
    };
    draw_curves(frame, area, state, curves);
}

/// Range of whole steps around all points and levels; an even number of steps, so that the middle is one too.
fn bounds(points: &[(f64, f64)], levels: &[(Color, f64)], step: f64) -> [f64; 2] {
    let values = || {
        points
            .iter()
            .map(|(_, y)| *y)
            .chain(levels.iter().map(|(_, level)| *level))
    };
    let low = (values().fold(f64::INFINITY, f64::min) / step - 0.2).floor().max(0.0);
    let high = (values().fold(0.0, f64::max) / step + 0.2).ceil();
    let pairs = ((high - low) / 2.0).ceil().max(1.0);
    [low * step, (low + 2.0 * pairs) * step]
}

fn dataset(color: Color, points: &[(f64, f64)]) -> Dataset<'_> {
    let style = Style::new().fg(color);
    Dataset::default()
        .data(points)
        .style(style)
        .marker(Marker::Braille)
        .graph_type(GraphType::Line)
}

fn draw_curves(frame: &mut Frame, area: Rect, state: &ViewState, curves: Curves) {
    let span = state.span();
    let [low, high] = curves.bounds;
    let across = |(color, level): &(Color, f64)| (*color, vec![(span[0], *level), (span[1], *level)]);
    let lines: Vec<(Color, Vec<(f64, f64)>)> = curves.levels.iter().map(across).chain(curves.curves).collect();
    let axis = Style::new().fg(Color::DarkGray);
    let labels = |values: &[f64], label: fn(f64) -> String| -> Vec<Line<'static>> {
        values
            .iter()
            .map(|value| Line::from(label(*value).dark_gray()))
            .collect()
    };
    // A low panel needs every row for the curve; the progress line shows the time.
    let times = [span[0], (span[0] + span[1]) / 2.0, span[1]];
    let times = if area.height < TIMES_FIT { &[][..] } else { &times };
    let chart = Chart::new(lines.iter().map(|(color, points)| dataset(*color, points)).collect())
        .block(panel(curves.title))
        .legend_position(None::<LegendPosition>)
        .x_axis(
            Axis::default()
                .style(axis)
                .bounds(span)
                .labels(labels(times, |x| format!("{x:.0} s"))),
        )
        .y_axis(
            Axis::default()
                .style(axis)
                .bounds([low, high])
                .labels(labels(&[low, (low + high) / 2.0, high], curves.label)),
        );
    frame.render_widget(chart, area);
}

/// Lines of the foot: for all cores, if they fit into a third of `body`.
pub fn foot_height(body: Rect, state: &ViewState) -> u16 {
    let cores = state.last().map_or(0, |last| last.busy.len()) as u16;
    let columns = (body.width / 2 / CORE_WIDTH).max(1);
    cores
        .div_ceil(columns)
        .clamp(JOB_LINES, (body.height / 3).max(JOB_LINES))
        + 2
}

/// Foot with jobs on the left, cores on the right.
pub fn foot(frame: &mut Frame, area: Rect, state: &ViewState, header: &RunHeader) {
    let [left, right] = Layout::horizontal([Constraint::Fill(1); 2]).areas(area);
    jobs(frame, left, state, header);
    cores(frame, right, state);
}

fn jobs(frame: &mut Frame, area: Rect, state: &ViewState, header: &RunHeader) {
    let share = 100.0 * state.misses as f64 / state.jobs.max(1) as f64;
    let late = format!("{} late ({share:.1} %)", count(state.misses));
    let late = if state.misses == 0 { late.green() } else { late.red() };
    let micros = |value: Option<f64>| value.map_or("-".into(), |us| format!("{us:.1} us"));
    let last = state.last();
    let lines = vec![
        Line::from(vec![
            format!(" {} jobs  ", count(state.jobs)).into(),
            late,
            format!("  {}", state.sinks).into(),
        ]),
        Line::from(vec![
            format!(" {} updates/s  ", count(header.load.updates_per_s.round() as u64)).into(),
            update_mode(header.load.update_mode).dim(),
        ]),
        Line::from(vec![
            " decision ".dim(),
            micros(last.and_then(|last| last.decision_us)).into(),
            "  knobs ".dim(),
            micros(last.and_then(|last| last.actuation_us)).into(),
        ]),
    ];
    frame.render_widget(Paragraph::new(lines).block(panel(Line::from(" work ".bold()))), area);
}

fn cores(frame: &mut Frame, area: Rect, state: &ViewState) {
    let busy: &[f64] = state.last().map_or(&[], |last| &last.busy);
    let block = panel(Line::from(" cores ".bold()));
    let inner = block.inner(area);
    frame.render_widget(block, area);
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
        let color = if *busy > 0.95 { Color::Yellow } else { CURVE };
        let gauge = LineGauge::default()
            .ratio(busy.clamp(0.0, 1.0))
            .label(format!(" {core:>2} {:>3.0} %", busy * 100.0))
            .filled_symbol(FILLED)
            .unfilled_symbol(UNFILLED)
            .filled_style(Style::new().fg(color))
            .unfilled_style(Style::new().fg(Color::DarkGray));
        frame.render_widget(gauge, cell);
    }
}

/// Figures of the last sample, for a terminal too small for curves.
pub fn figures(frame: &mut Frame, area: Rect, state: &ViewState) {
    let Some(last) = state.last() else { return };
    let share = |value: f64| format!("{:.0} %", value * 100.0);
    let clock = last
        .clock_hz
        .map_or("-".into(), |hz| format!("{:.2} GHz", hz as f64 * 1e-9));
    let provenance = state
        .clock_provenance()
        .map_or(String::new(), |provenance| format!(" ({provenance})"));
    let lines = vec![
        Line::from(format!(
            " tardiness {}  drr {}",
            figure(last.tardiness),
            figure(last.drr)
        )),
        Line::from(format!(
            " admitted {}  fresh {}",
            share(last.admitted_share),
            share(last.fresh_share)
        )),
        Line::from(format!(" clock {clock}{provenance}")),
        Line::from(format!(" {} jobs, {} late", state.jobs, state.misses)),
        Line::from(" 60 x 18 or more shows curves".dim()),
    ];
    frame.render_widget(Paragraph::new(lines), area);
}

pub fn panel(title: Line<'_>) -> Block<'_> {
    Block::new()
        .borders(Borders::ALL)
        .border_set(border::ROUNDED)
        .border_style(Style::new().fg(Color::DarkGray))
        .title(title)
}
