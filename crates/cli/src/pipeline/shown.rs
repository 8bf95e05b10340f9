//! What the live view shows, as a value, and how it follows from two looks at a running pipeline.

use std::time::Instant;

use punctual_pipeline::TardinessFigures;
use punctual_runtime::linux::pipeline::{Cause, Panel, QueueNow, StageNow, StageStatistics};
use punctual_units::{CoreId, Nanos};
use punctual_workload::TaskGoal;

use super::Spans;
use super::meddler::Meddler;

/// A stage between two looks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StageShown {
    pub name: String,
    /// `None`: it is pinned to the process of the command.
    pub core: Option<CoreId>,
    pub pid: i32,
    pub steps_per_s: f64,
    /// The share of a core that its steps take.
    pub load: f64,
    /// Time of a core for each frame, and cycles where the clock can be read.
    pub frame_us: Option<f64>,
    pub frame_cycles: Option<u64>,
    /// 0 where it is not known.
    pub memory_bytes: u64,
    /// How often another program has taken it over.
    pub version: u16,
    /// Processes that died, and those of them that hung.
    pub restarts: u64,
    pub hung: u64,
    /// Frames that wait at its fullest input, and how many that may hold; none of the first stage.
    pub queue: Option<(u64, u32)>,
}

/// A stage's goal, and how its frames stand to it.
#[derive(Clone, Debug, PartialEq)]
pub struct GoalShown {
    pub stage: String,
    pub goal: TaskGoal,
    /// Of the frames that it took.
    pub taken: TardinessFigures,
}

/// How a figure is to be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    #[default]
    Plain,
    /// It explains another one.
    Aside,
    Warning,
    Bad,
}

impl Tone {
    /// Bad where there is any.
    pub fn bad(number: u64) -> Tone {
        if number > 0 { Tone::Bad } else { Tone::Plain }
    }
}

/// Everything that the view shows.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// What runs, and how fast.
    pub title: String,
    pub pace: String,
    pub elapsed_s: f64,
    /// What came of its frames.
    pub counts: Vec<(String, Tone)>,
    pub mechanism: &'static str,
    pub cores: Vec<CoreId>,
    pub stages: Vec<StageShown>,
    /// Of the stages that have one.
    pub goals: Vec<GoalShown>,
    /// Frames that queues have dropped.
    pub dropped: u64,
    pub migrations: u64,
    pub kills: u64,
    pub upgrades: u64,
    /// Blackouts of the last moves, and times from a kill until another process had the stage.
    pub moved: Option<Spans>,
    pub died: Option<Spans>,
    /// Of its sound in decibels of full scale, where it has one.
    pub spectrum: Option<Vec<f32>>,
    /// Whether keys change the rate.
    pub rates: bool,
    pub answer: Option<String>,
}

/// Looks again and again.
pub struct Observer {
    begin: Instant,
    last: Instant,
    before: Vec<StageNow>,
}

impl Observer {
    pub fn new() -> Observer {
        let now = Instant::now();
        Observer {
            begin: now,
            last: now,
            before: Vec::new(),
        }
    }

    /// When the last look was.
    pub fn last(&self) -> Instant {
        self.last
    }

    /// What any pipeline shows; what runs in it, the caller adds. Answers how many seconds it is about, too.
    pub fn look(&mut self, panel: &Panel, meddler: &Meddler) -> (Shown, f64) {
        let (now, queues) = (Instant::now(), panel.queues());
        let seconds = now.duration_since(self.last).as_secs_f64().max(1e-9);
        let (stages, measured) = (panel.stages(), panel.statistics().stages);
        let spans = |cause: Cause| {
            let its = meddler.recent.iter().filter(|it| it.cause == cause);
            Spans::of(&its.map(|it| it.blackout.as_micros_f64()).collect::<Vec<_>>())
        };
        let shown = Shown {
            mechanism: meddler.mechanism().name(),
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
            ..Shown::default()
        };
        (self.last, self.before) = (now, stages);
        (shown, seconds)
    }
}

/// Stages between two looks that are `seconds` apart.
fn between(
    before: &[StageNow],
    now: &[StageNow],
    measured: &[StageStatistics],
    queues: &[QueueNow],
    seconds: f64,
) -> Vec<StageShown> {
    let stages = now.iter().enumerate().map(|(number, stage)| {
        let (steps, busy) = before
            .get(number)
            .map_or((stage.steps, stage.busy), |it| (it.steps, it.busy));
        let inputs = queues.iter().filter(|queue| queue.to == number);
        let measured = measured.get(number);
        StageShown {
            name: stage.name.clone(),
            core: stage.core,
            pid: if stage.core.is_some() {
                stage.pid
            } else {
                std::process::id() as i32
            },
            steps_per_s: stage.steps.saturating_sub(steps) as f64 / seconds,
            load: stage.busy.0.saturating_sub(busy.0) as f64 * 1e-9 / seconds,
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
