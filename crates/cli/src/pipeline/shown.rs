//! Content of the live view as a value, computed from two looks at a running pipeline.

use std::time::Instant;

use punctual_pipelines::TardinessFigures;
use punctual_pipelines::linux::{Cause, Panel, QueueNow, StageNow, StageStatistics};
use punctual_units::{CoreId, Nanos};
use punctual_workload::TaskGoal;
use ratatui::Frame;
use ratatui::layout::Rect;

use super::Spans;
use super::meddler::Meddler;

/// A stage, with rates between two looks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StageShown {
    pub name: String,
    /// Core of its process; `None` if it is pinned to the process of the command.
    pub core: Option<CoreId>,
    pub pid: i32,
    pub steps_per_s: f64,
    /// Share of a core that its steps take.
    pub load: f64,
    /// Processor time for each frame, and its cycles if the clock can be read.
    pub frame_us: Option<f64>,
    pub frame_cycles: Option<u64>,
    /// Memory of its process, in bytes; 0 if unknown.
    pub memory_bytes: u64,
    /// Number of times that another program took it over.
    pub version: u16,
    /// Number of its processes that died, and how many of them hung.
    pub restarts: u64,
    pub hung: u64,
    /// Frames at its fullest input, and the capacity of that; `None` for the first stage.
    pub queue: Option<(u64, u32)>,
}

/// Goal of a stage, and the tardiness of its frames.
#[derive(Clone, Debug, PartialEq)]
pub struct GoalShown {
    pub stage: String,
    pub goal: TaskGoal,
    /// Tardiness (response time / deadline) of the frames that it took.
    pub taken: TardinessFigures,
}

/// Weight of a figure for the eye.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    #[default]
    Plain,
    /// Explains another figure, so it is dimmed.
    Aside,
    Warning,
    Bad,
}

impl Tone {
    /// Bad if the number is above 0.
    pub fn bad(number: u64) -> Tone {
        if number > 0 { Tone::Bad } else { Tone::Plain }
    }
}

/// A panel beside the moves: values, and the function that draws them.
#[derive(Clone, Debug)]
pub struct SidePanel {
    pub values: Vec<f32>,
    pub draw: fn(&mut Frame<'_>, Rect, &[f32]),
}

/// Content of the whole view.
#[derive(Clone, Debug, Default)]
pub struct ViewContent {
    /// Title of the run, and its pace.
    pub title: String,
    pub pace: String,
    pub elapsed_s: f64,
    /// Counts of frames by outcome.
    pub counts: Vec<(String, Tone)>,
    pub mechanism: &'static str,
    pub cores: Vec<CoreId>,
    pub stages: Vec<StageShown>,
    /// Goals of the stages that have one.
    pub goals: Vec<GoalShown>,
    /// Frames dropped by queues.
    pub dropped: u64,
    pub migrations: u64,
    pub kills: u64,
    pub upgrades: u64,
    /// Blackouts of the last moves, and times from a kill until another process had the stage, in microseconds.
    pub moved: Option<Spans>,
    pub died: Option<Spans>,
    /// Panel beside the moves, in place of the goals.
    pub side: Option<SidePanel>,
    /// Further keys, and what they do.
    pub keys: Option<(&'static str, &'static str)>,
    pub answer: Option<String>,
}

/// Compares each look with the one before.
pub struct Observer {
    begin: Instant,
    last: Instant,
    before: Vec<StageNow>,
}

impl Default for Observer {
    fn default() -> Observer {
        let now = Instant::now();
        Observer {
            begin: now,
            last: now,
            before: Vec::new(),
        }
    }
}

impl Observer {
    /// Instant of the last look.
    pub fn last(&self) -> Instant {
        self.last
    }

    /// Content common to all pipelines; the caller adds what runs in it. Also returns the seconds since the previous
    /// look.
    pub fn look(&mut self, panel: &Panel, meddler: &Meddler) -> (ViewContent, f64) {
        let (now, queues) = (Instant::now(), panel.queues());
        let seconds = now.duration_since(self.last).as_secs_f64().max(1e-9);
        let (stages, measured) = (panel.stages(), panel.statistics().stages);
        let spans = |cause: Cause| {
            let its = meddler.recent.iter().filter(|it| it.cause == cause);
            Spans::of(&its.map(|it| it.blackout.as_micros_f64()).collect::<Vec<_>>())
        };
        let shown = ViewContent {
            mechanism: meddler.mechanism.name(),
            elapsed_s: now.duration_since(self.begin).as_secs_f64(),
            dropped: queues.iter().map(|queue| queue.dropped).sum(),
            cores: panel.cores(),
            stages: between(&self.before, &stages, &measured, &queues, seconds),
            migrations: meddler.migrations,
            kills: meddler.kills,
            upgrades: meddler.upgrades,
            moved: spans(Cause::Moved),
            died: spans(Cause::Died),
            answer: meddler.answer.clone(),
            ..ViewContent::default()
        };
        (self.last, self.before) = (now, stages);
        (shown, seconds)
    }
}

/// Figures of stages between two looks that are `seconds` apart.
fn between(
    before: &[StageNow],
    now: &[StageNow],
    measured: &[StageStatistics],
    queues: &[QueueNow],
    seconds: f64,
) -> Vec<StageShown> {
    let stages = now.iter().enumerate().map(|(number, stage)| {
        let earlier = before.get(number).unwrap_or(stage);
        let inputs = queues.iter().filter(|queue| queue.to == number);
        let measured = measured.get(number);
        StageShown {
            name: stage.name.clone(),
            core: stage.core,
            pid: stage.core.map_or(std::process::id() as i32, |_| stage.pid),
            steps_per_s: stage.steps.saturating_sub(earlier.steps) as f64 / seconds,
            load: stage.busy.0.saturating_sub(earlier.busy.0) as f64 * 1e-9 / seconds,
            frame_us: measured.and_then(|it| it.frame_time).map(Nanos::as_micros_f64),
            frame_cycles: measured.and_then(|it| it.frame_cycles),
            memory_bytes: measured.map_or(0, |it| it.memory_bytes),
            version: stage.version,
            restarts: stage.restarts,
            hung: stage.hung,
            queue: inputs.map(|queue| (queue.waiting, queue.slots)).max(),
        }
    });
    stages.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_between_two_looks() {
        let stage = |steps, busy| StageNow {
            name: "sum".into(),
            core: Some(CoreId(1)),
            pid: 7,
            steps,
            busy: Nanos(busy),
            ..StageNow::default()
        };
        let queue = |waiting| QueueNow {
            from: 1,
            to: 0,
            waiting,
            slots: 14,
            dropped: 0,
        };
        let shown = between(
            &[stage(10, 1000)],
            &[stage(20, 50_001_000)],
            &[],
            &[queue(3), queue(5)],
            0.1,
        );
        assert!((shown[0].steps_per_s - 100.0).abs() < 1e-9 && (shown[0].load - 0.5).abs() < 1e-9);
        assert_eq!(shown[0].queue, Some((5, 14)));
        let first = between(&[], &[stage(20, 50)], &[], &[], 0.1);
        assert_eq!(
            (first[0].steps_per_s, first[0].queue),
            (0.0, None),
            "nothing is known of the time before"
        );
    }
}
