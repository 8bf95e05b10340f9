//! Events for the loop about the frames of stages with goals, on Linux and in simulated time.

use std::sync::Arc;

use punctual_loop::Event;
use punctual_units::Time;
use punctual_workload::TaskGoal;

/// Adds the tardiness of a stage's frames since the last call, at most 64. Returns the number of late frames that the
/// stage had not taken by now, and the tardiness so far of the oldest under way ([`punctual_loop::Event::Missing`]).
pub type ReadFrames = dyn Fn(Time, &mut Vec<f64>) -> (u64, f64) + Send + Sync;

/// The frames of a stage with a goal.
#[derive(Clone)]
pub struct StageFrames {
    /// Name of the stage.
    pub name: String,
    /// Goal of the frames that the stage takes.
    pub goal: TaskGoal,
    /// Called at each step of the loop, with a list that keeps its room.
    pub read: Arc<ReadFrames>,
}

impl std::fmt::Debug for StageFrames {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "StageFrames({}: {})", self.name, self.goal)
    }
}

/// Stages with goals, and the frames that were reported to the loop.
#[derive(Clone, Debug, Default)]
pub struct FrameEvents {
    stages: Vec<StageFrames>,
    /// Tardiness of the frames of one stage; keeps its room.
    frames: Vec<f64>,
    /// Missing frames of each stage at the last report; none before the first.
    missing: Vec<u64>,
}

impl FrameEvents {
    /// The frames of `stages`, in the order of [`punctual_loop::RegulatorOptions::stages`].
    pub fn of(stages: Vec<StageFrames>) -> FrameEvents {
        FrameEvents {
            stages,
            ..FrameEvents::default()
        }
    }

    /// Begins anew, for another loop.
    pub fn restart(&mut self) {
        self.missing.clear();
    }

    /// Reports the frames that stages have taken since the last call, and those that they miss.
    pub fn report(&mut self, now: Time, report: &mut dyn FnMut(Event)) {
        for stage in 0..self.stages.len() {
            let (frames, tardiness) = (self.stages[stage].read)(now, &mut self.frames);
            if self.missing.get(stage) != Some(&frames) || tardiness > 1.0 {
                self.missing.resize(self.missing.len().max(stage + 1), 0);
                self.missing[stage] = frames;
                report(Event::Missing {
                    stage,
                    frames,
                    tardiness,
                });
            }
            while let Some(tardiness) = self.frames.pop() {
                report(Event::Frame { stage, tardiness });
            }
        }
    }
}
