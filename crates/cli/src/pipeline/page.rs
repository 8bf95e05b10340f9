//! Page of a pipeline's run: cores of its stages, levels of its queues, times without a process. It loads nothing from
//! elsewhere, and its size is bounded whatever the length of the run.

use std::fmt::Write;

use maud::{Markup, html};
use punctual_pipelines::linux::Cause;
use punctual_runtime::report::StageReport;
use punctual_units::Nanos;

use super::history::{DECADES, History, PARTS};
use punctual_report::page::chart::{
    BOTTOM, CLASSES, Chart, Curve, HEIGHT, LANE, LEFT, NAMES, RIGHT, TOP, WIDTH, drawing, px, seconds,
};
use punctual_report::page::{figure, framed, stages, what};
use punctual_report::stages::{is_good, notes, sentence};

/// Shares within a lane are rounded to this many steps.
const STEPS: f64 = 16.0;

/// Figures along a run.
pub struct Along<'h> {
    pub history: &'h History,
    /// Name of each stage, and whether it may move.
    pub stages: Vec<(String, bool)>,
    pub cores: Vec<u32>,
    /// Name of the stage after each queue, in the order of the history's levels: queues of one name share a curve.
    pub queues: Vec<String>,
    /// Capacity of each queue in frames.
    pub slots: u32,
}

/// Page of a scenario with stages only; `command` is the command line that produced it.
pub fn page(scenario: &str, seconds: f64, rows: &[StageReport], shown: &Along<'_>, command: &str) -> String {
    let good = if is_good(rows) { " good" } else { "" };
    let head = html! { b { (scenario) } " · stages on linux, " (format!("{seconds:.1}")) " s" };
    let body = html! {
        p class={ "verdict" (good) } { (sentence(rows)) }
        @for note in notes(rows) { p class="why" { (note) } }
        (stages(rows))
        (along(shown))
    };
    framed(scenario, &head, &body, command)
}

/// Three figures: the cores of stages, the queues, and the handovers.
pub fn along(along: &Along<'_>) -> Markup {
    let cores = along.cores.iter().zip(CLASSES.iter().cycle());
    let cores: Vec<(String, &str)> = cores.map(|(core, class)| (format!("core {core}"), *class)).collect();
    let queues = queues(along);
    let ends = [("moved".to_string(), "a"), ("died".to_string(), "late")];
    html! {
        h2 { "Along the run" }
        div class="charts" {
            (figure("Stages on cores", &what(""), &cores, &lanes(along)))
            (figure("Frames in queues", &what("mean"), &queues.keys(), &queues.svg()))
            (figure("Time without a process", &what("each handover"), &ends, &blackouts(along.history)))
        }
        p class="note" {
            "Pinned stages have no core of their own. A stage that moved within a column is drawn as a part of its "
            "lane for each core. The larger a dot, the more handovers."
        }
    }
}

/// A lane for each stage, coloured by its core.
fn lanes(along: &Along<'_>) -> Markup {
    let history = along.history;
    let moving: Vec<usize> = (0..along.stages.len()).filter(|it| along.stages[*it].1).collect();
    let (height, length) = (TOP + BOTTOM + LANE * moving.len() as f64, length(history));
    let inner = html! { @for (lane, stage) in moving.iter().enumerate() {
        @let top = TOP + LANE * lane as f64;
        text class="tick" x=(px(NAMES - 6.0)) y=(px(top + LANE - 5.0)) { (along.stages[*stage].0) }
        @for core in 0..along.cores.len() {
            path class={ "bar " (CLASSES[core % CLASSES.len()]) } d=(lane_path(history, *stage, core, top)) {}
        }
    } };
    let what = "the core of each stage over time";
    drawing(what, NAMES, height, &[], &seconds(length), &inner)
}

/// Path of one core in a stage's lane: in each column as high as the core's share of the time.
fn lane_path(history: &History, stage: usize, core: usize, top: f64) -> String {
    let across = (WIDTH - RIGHT - NAMES) / history.columns.len().max(1) as f64;
    let steps = |share: f64| (share * STEPS).round();
    let part = |number: usize| {
        let column = &history.columns[number];
        let before: f64 = (0..core).map(|other| history.share(column, stage, other)).sum();
        let from = steps(before);
        (from, steps(before + history.share(column, stage, core)) - from)
    };
    let (mut path, mut at, tall) = (String::new(), 0, LANE - 3.0);
    while at < history.columns.len() {
        let (from, high) = part(at);
        let end = (at..history.columns.len())
            .take_while(|it| part(*it) == (from, high))
            .count()
            + at;
        if high > 0.0 {
            let (x, wide) = (NAMES + across * at as f64, across * (end - at) as f64);
            let (y, high) = (top + tall * from / STEPS, tall * high / STEPS);
            let _ = write!(path, "M{x:.1} {y:.1}h{wide:.1}v{high:.1}h-{wide:.1}z");
        }
        at = end;
    }
    path
}

/// Length of all columns together, in seconds.
fn length(history: &History) -> f64 {
    (Nanos(history.width.0 * history.columns.len() as u64))
        .as_secs_f64()
        .max(1e-3)
}

/// Mean levels of the queues, by group.
fn queues(along: &Along<'_>) -> Chart {
    let mut groups: Vec<(&str, Vec<usize>)> = Vec::new();
    for (queue, name) in along.queues.iter().enumerate() {
        match groups.iter_mut().find(|(known, _)| known == name) {
            Some((_, queues)) => queues.push(queue),
            None => groups.push((name, vec![queue])),
        }
    }
    let curves = { groups.iter().zip(CLASSES.iter().cycle()) }.map(|((name, queues), class)| Curve {
        name: format!("before {name}"),
        class,
        points: levels(along.history, queues),
    });
    Chart {
        description: "frames in the queues over time".into(),
        curves: curves.collect(),
        at_least: (0.0, f64::from(along.slots)),
        length_s: length(along.history),
        ..Chart::default()
    }
}

fn levels(history: &History, queues: &[usize]) -> Vec<(f64, Option<f64>)> {
    let points = history.columns.iter().enumerate().map(|(number, column)| {
        let sum: u64 = queues.iter().filter_map(|queue| column.waiting.get(*queue)).sum();
        let looks = f64::from(column.looks) * queues.len() as f64;
        let at = history.width.as_secs_f64() * (number as f64 + 0.5);
        (at, (looks > 0.0).then(|| sum as f64 / looks))
    });
    points.collect()
}

/// Handovers by their instant and the time without a process, on a logarithmic scale.
fn blackouts(history: &History) -> Markup {
    let (foot, end, length) = (HEIGHT - BOTTOM, WIDTH - RIGHT, length(history));
    let texts = [
        "0.1 us", "1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s", "10 s",
    ];
    let highest =
        { history.columns.iter() }.flat_map(|column| column.blackouts.keys().map(|(_, part)| part / PARTS + 1));
    let decades = f64::from(highest.max().unwrap_or(1).clamp(4, DECADES));
    let ups = (0..).zip(texts).take_while(|(decade, _)| f64::from(*decade) <= decades);
    let ups: Vec<(f64, String)> = ups
        .map(|(decade, text)| (f64::from(decade) / decades, text.into()))
        .collect();
    let class = |kind: &Cause| if *kind == Cause::Died { "late" } else { "a" };
    let inner = html! { @for (number, column) in history.columns.iter().enumerate() {
        @let x = LEFT + (end - LEFT) * (number as f64 + 0.5) / history.columns.len() as f64;
        @for ((kind, part), times) in &column.blackouts {
            @let up = (f64::from(*part) + 0.5) / f64::from(PARTS) / decades;
            @let radius = (1.1 + 0.45 * f64::from(*times).ln()).min(4.0);
            circle class={ "dot " (class(kind)) } cx=(px(x)) cy=(px(foot - (foot - TOP) * up)) r=(px(radius)) {}
        }
    } };
    let what = "time without a process at each handover";
    drawing(what, LEFT, HEIGHT, &ups, &seconds(length), &inner)
}
