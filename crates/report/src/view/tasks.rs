//! Panel of the live view with all tasks: goal, figures, histogram, and parts of the time.

use punctual_runtime::report::{TaskReport, WhereTimeWent};
use punctual_workload::Part;
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, HighlightSpacing, Row, Table, TableState};

use super::controls::Controls;
use super::panels::panel;
use super::state::ViewState;
use crate::causes;
use crate::tasks::{self, Column, TaskColumn};
use crate::verdict::Standing;

/// Lines of the panel besides its tasks: the border, and the head.
const FRAME_LINES: u16 = 3;

/// Divisor of the available height: the panel takes at most a third.
const PART_MAX: u16 = 3;

/// Width from which the histogram and the parts of the time fit.
const HISTOGRAM_FITS: u16 = 100;

/// Least width of a task's name, and widths of a response time and of a load, in columns.
const NAME_WIDTH: u16 = 10;
const TIME_WIDTH: u16 = 8;
const LOAD_WIDTH: u16 = 5;

/// Width of a histogram, and of the parts of the time, in columns.
const PICTURE_WIDTH: u16 = 20;

/// Lines that the panel needs; 0 before the first figures.
pub fn height(body: Rect, state: &ViewState) -> u16 {
    let frame = FRAME_LINES + u16::from(why(&state.tasks).is_some());
    match state.tasks.len() as u16 {
        0 => 0,
        tasks => (tasks + frame).min((body.height / PART_MAX).max(frame + 1)),
    }
}

fn columns() -> impl Iterator<Item = &'static TaskColumn> {
    tasks::columns_without(&["p99.9", "deadline"])
}

/// Mean share of one core that the jobs of a task have taken since the start-up, in percent.
pub(super) fn load(task: &TaskReport, state: &ViewState) -> f64 {
    // Jobs count from the end of the start-up.
    let seconds = state.elapsed_s() - task.start_up.seconds;
    let ended = task.jobs.saturating_sub(task.skipped + task.overdue) as f64;
    let of_job = |parts: WhereTimeWent| parts.data + parts.computation + parts.commit;
    ended * task.where_us.map_or(0.0, of_job) / (seconds.max(1e-3) * 1e4)
}

/// Draws the tasks that fit, with the selected one among them.
pub fn tasks(frame: &mut Frame, area: Rect, state: &ViewState, controls: &Controls) {
    if state.tasks.is_empty() {
        return;
    }
    let pictures = area.width >= HISTOGRAM_FITS;
    let (order, tasks) = controls.ordered(state);
    let why = why(&state.tasks);
    let lines = FRAME_LINES + u16::from(why.is_some());
    let fit = usize::from(area.height.saturating_sub(lines));
    // The selected one is the last line, if it is below the first lines.
    let first = (controls.keys.row + 1).min(tasks.len()).saturating_sub(fit);
    let last = (first + fit).min(tasks.len());
    let place = match fit < tasks.len() {
        true => format!("{} to {last} of {} ", first + 1, tasks.len()),
        false => String::new(),
    };
    let title = vec![
        " tasks ".bold(),
        format!("{place}{order}").into(),
        "over the run after the start-up ".dim(),
    ];
    let mut block = panel(Line::from(title));
    if pictures {
        block = block.title_bottom(legend());
    }
    let inner = block.inner(area);
    let rows = tasks[first..last].iter().map(|task| row(task, state, pictures));
    let mut head = vec!["task"];
    head.extend(columns().map(|(title, _)| title));
    head.push("load");
    let width = |(title, text): &TaskColumn| match *title {
        "goal" | "late" => {
            let widths = state.tasks.iter().map(|task| text(task).chars().count() as u16);
            widths.max().unwrap_or(0).max(4)
        }
        _ => TIME_WIDTH,
    };
    let mut widths = vec![Constraint::Min(NAME_WIDTH)];
    widths.extend(columns().map(|column| Constraint::Length(width(column))));
    widths.push(Constraint::Length(LOAD_WIDTH));
    if pictures {
        head.extend(["response times", "where the time goes"]);
        widths.extend([Constraint::Length(PICTURE_WIDTH); 2]);
    }
    let table = Table::new(rows, widths).header(Row::new(head).dim()).block(block);
    let table = table.highlight_symbol(">").highlight_spacing(HighlightSpacing::Always);
    let selected = controls.keys.row.min(last.saturating_sub(1)).saturating_sub(first);
    let mut selected = TableState::new().with_selected(selected);
    frame.render_stateful_widget(table, area, &mut selected);
    if let (Some(why), Some(last)) = (why, inner.rows().next_back()) {
        frame.render_widget(Line::from(why).dim(), last);
    }
}

/// Top cause of the task with the largest share of late jobs.
fn why(tasks: &[TaskReport]) -> Option<String> {
    let share = |task: &&TaskReport| task.late_share.unwrap_or(0.0);
    let worst = tasks.iter().max_by(|a, b| share(a).total_cmp(&share(b)))?;
    Some(format!(" {}: {}", worst.name, causes::told(worst).next()?))
}

fn row<'t>(task: &'t TaskReport, state: &ViewState, pictures: bool) -> Row<'t> {
    let mut cells = vec![Cell::from(task.name.as_str().bold())];
    cells.extend(columns().map(|(title, text)| match *title {
        "late" => Cell::from(Span::styled(text(task), Standing::of(task).color())),
        _ => Cell::from(text(task)),
    }));
    cells.push(Cell::from(format!("{:.0} %", load(task, state))));
    if pictures {
        cells.push(Cell::from(histogram(task)));
        cells.push(Cell::from(parts(task)));
    }
    Row::new(cells)
}

fn histogram(task: &TaskReport) -> Line<'static> {
    let span = |column: Column| {
        let color = match column {
            Column::Deadline => Color::Yellow,
            Column::Jobs { late: true, .. } => Color::Red,
            Column::Jobs { late: false, .. } => Color::Cyan,
        };
        Span::styled(column.symbol().to_string(), color)
    };
    Line::from_iter(tasks::histogram(task, usize::from(PICTURE_WIDTH)).into_iter().map(span))
}

impl Standing {
    /// Colour of figures with this standing.
    pub fn color(self) -> Color {
        match self {
            Standing::Missed => Color::Red,
            Standing::Held => Color::Green,
            Standing::NoJob | Standing::TooFew { .. } => Color::Yellow,
        }
    }
}

/// Parts of the time as letters, so that they are distinguishable without colours.
fn parts(task: &TaskReport) -> Line<'static> {
    let span = |(letter, part, columns): (char, Part, usize)| {
        let text = letter.to_string().repeat(columns);
        Span::styled(text, Style::new().fg(Color::Black).bg(color(part)))
    };
    Line::from_iter(tasks::letters(task, usize::from(PICTURE_WIDTH)).into_iter().map(span))
}

const fn color(part: Part) -> Color {
    match part {
        Part::ReleasedLate => Color::Gray,
        Part::Preempted => Color::Yellow,
        Part::Lock => Color::Red,
        Part::Data => Color::Cyan,
        Part::Computation => Color::Blue,
        Part::Commit => Color::Magenta,
    }
}

fn legend() -> Line<'static> {
    let letter = |(letter, part): (char, Part)| {
        let sign = Span::styled(format!(" {letter} "), Style::new().fg(Color::Black).bg(color(part)));
        [sign, format!(" {} ", part.words()).dim()]
    };
    let deadline = ["│".yellow(), " deadline ".dim()];
    Line::from_iter(deadline.into_iter().chain(tasks::LETTERS.into_iter().flat_map(letter))).right_aligned()
}
