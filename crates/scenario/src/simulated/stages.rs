//! The stages of a scenario on the simulated machine: rings, steps and counts are those of a real pipeline, in
//! simulated time.
//!
//! A step begins once frames and room are there. It computes for the stage's `compute` on its core
//! ([`Simulation::call`]), and is committed when that is done; without `compute` it takes no time. Frames have no
//! content: those that a stage makes have the times of the oldest that it took.
//!
//! **Left out.** Processes with their moves and deaths; the end of a file or program: sources make frames
//! until the run ends.

use std::sync::Arc;

use punctual_pipelines::{AnyStage, Failure, FrameCounts, Frames, Head, Layout, Region, Runner, TurnResult};
use punctual_runtime::frames::StageFrames;
use punctual_runtime::report::StageReport;
use punctual_sim::{Simulation, SimulationEvent, Step};
use punctual_units::{Clock, CoreId, Hertz, Nanos, TaskId, Time};
use punctual_workload::{Op, Problem};

use crate::run::{RunError, RunRequest};
use crate::stages::{Body, Parts, StageNeeds, StagePlan, frames_of, frames_report};

/// Time for the frames under way once the run is over; as on Linux.
const DRAINS: Nanos = Nanos::from_secs(5);
/// Least time between two frames of a source: each costs the simulation a microsecond or more.
const PERIOD_MIN: Nanos = Nanos::from_micros(10);

/// The running stages of a scenario.
pub(super) struct SimulatedStages {
    needs: Vec<StageNeeds>,
    parts: Vec<Parts>,
    counts: FrameCounts,
    stages: Vec<SimulatedStage>,
}

struct SimulatedStage {
    runner: Runner,
    body: Relay,
    /// Task of its steps, its index among the machine's runners, and its core; `None`: they take no time.
    work: Option<(TaskId, usize, CoreId)>,
    /// Whether a step is under way.
    steps: bool,
    /// When its next step may begin; [`Time::MAX`]: no more begin.
    next: Time,
    /// Of a source: time between the beginnings of two frames.
    period: Option<Nanos>,
}

/// A stage whose frames have no content.
struct Relay {
    now: Time,
    deadline: Nanos,
}

impl AnyStage for Relay {
    fn version(&self) -> u32 {
        1
    }

    fn begin(&mut self) {}

    fn load(&mut self, _: u32, _: &[u8]) -> Result<(), Failure> {
        Ok(())
    }

    fn save(&self, _: &mut [u8]) -> Result<usize, Failure> {
        Ok(0)
    }

    fn step(&mut self, frames: &mut Frames<'_>) -> Result<(), Failure> {
        let taken = (0..frames.inputs()).filter(|port| frames.count(*port) > 0);
        let oldest = taken
            .map(|port| frames.head(port, 0))
            .min_by_key(|head| head.captured_at);
        let head = oldest.unwrap_or(Head {
            sequence: 0,
            captured_at: self.now,
            due_by: self.now + self.deadline,
        });
        for port in 0..frames.outputs() {
            while frames.left(port) > 0 {
                frames.make(port, 0, head);
            }
        }
        Ok(())
    }
}

impl SimulatedStages {
    /// Adds the stages of `request` to the machine, on `open` cores; `None` if there are none.
    ///
    /// # Errors
    /// [`RunError::Problem`]: what does not fit; a source that would make endless frames at once.
    pub(super) fn new(
        request: &RunRequest,
        open: &[CoreId],
        machine: &mut Simulation,
        top: Hertz,
    ) -> Result<Option<SimulatedStages>, RunError> {
        let spec = &request.pipeline;
        if spec.stages.is_empty() {
            return Ok(None);
        }
        let plan = StagePlan::simulated(&request.scenario.name, spec);
        let plan = plan.map_err(|mut problems| problems.swap_remove(0))?;
        let at = plan.placement(spec, open)?;
        let StagePlan { graph, parts } = plan;
        let layout = Arc::new(Layout::new(&graph));
        let region = Region::on_heap(layout.bytes());
        let broken = |why: &dyn std::fmt::Display| Problem::new("stage", why.to_string());
        layout.prepare(&region).map_err(|why| broken(&why))?;
        let mut stages = Vec::with_capacity(spec.stages.len());
        for (number, needs) in spec.stages.iter().enumerate() {
            let is_source = graph.stages()[number].takes.is_empty();
            if is_source && needs.period.unwrap_or_default().max(needs.compute) < PERIOD_MIN {
                let field = match needs.does {
                    Body::Program(_) | Body::File(_) => "period",
                    Body::Library(_) | Body::Kind(..) => "compute",
                };
                let what = format!("on the simulated machine a source needs a `{field}` of at least \"10us\"");
                return Err(Problem::new(format!("stage[{number}].{field}"), what).into());
            }
            let core = open[at[number]];
            let cycles = (needs.compute.as_secs_f64() * top.0 as f64).round() as u64;
            let work = (cycles > 0).then(|| {
                let runner = machine.worked().len();
                let steps = vec![Step::Op(Op::Compute { cycles })];
                (
                    machine.add_called(&needs.name, core, spec.priority.is_some(), steps),
                    runner,
                    core,
                )
            });
            let mut body = Relay {
                now: machine.now(),
                deadline: needs.deadline.unwrap_or_default(),
            };
            stages.push(SimulatedStage {
                runner: Runner::take(&layout, &region, number, 1, &mut body).map_err(|why| broken(&why))?,
                body,
                work,
                steps: false,
                next: machine.now(),
                period: is_source.then(|| needs.period.unwrap_or_default()),
            });
        }
        Ok(Some(SimulatedStages {
            counts: FrameCounts::new(&Arc::new(graph), &layout, &region, &[]),
            needs: spec.stages.clone(),
            parts,
            stages,
        }))
    }

    /// The frames of the stages that have goals.
    pub(super) fn goals(&self) -> Vec<StageFrames> {
        let stages = self.needs.iter().zip(&self.parts);
        stages
            .filter_map(|(stage, parts)| frames_of(stage, &parts.takes, &self.counts))
            .collect()
    }

    /// Note on the work that is not simulated.
    pub(super) fn note(&self) -> String {
        let free = self.needs.iter().filter(|needs| needs.compute == Nanos::ZERO);
        let free: Vec<&str> = free.map(|needs| needs.name.as_str()).collect();
        format!(
            "stages take the time of their `compute` (simulated); none: {}",
            free.join(", ")
        )
    }

    /// Begins each step that can begin, and carries out those that take no time. Returns when to look again, if the
    /// machine has no event before.
    pub(super) fn step(&mut self, machine: &mut Simulation) -> Time {
        // A step may make frames, or room, for others.
        let mut again = true;
        while std::mem::take(&mut again) {
            self.stages.iter_mut().for_each(|stage| again |= stage.look(machine));
        }
        let now = machine.now();
        let due = self.stages.iter().map(|stage| stage.next).filter(|next| *next > now);
        due.min().unwrap_or(Time::MAX)
    }

    /// Commits the step whose work is done.
    pub(super) fn completed(&mut self, task: TaskId, now: Time) {
        let is_of = |stage: &&mut SimulatedStage| stage.work.is_some_and(|(of, ..)| of == task);
        if let Some(stage) = self.stages.iter_mut().find(is_of) {
            stage.steps = false;
            stage.commit(now);
        }
    }

    /// Leaves the frames so far out of the figures.
    pub(super) fn settle(&mut self, now: Time) {
        self.counts.settle(now);
    }

    /// Ends the sources, lets frames under way go on to the sinks, and reports on each stage.
    pub(super) fn finish(mut self, machine: &mut Simulation) -> Vec<StageReport> {
        let until = machine.now() + DRAINS;
        let sources = self.stages.iter_mut().filter(|stage| stage.period.is_some());
        sources.for_each(|source| source.next = Time::MAX);
        loop {
            self.step(machine);
            let waiting: u64 = self.parts.iter().map(|parts| self.counts.waiting(&parts.takes)).sum();
            if waiting == 0 {
                break;
            }
            match machine.run_until(until) {
                SimulationEvent::Completed(outcome) => self.completed(outcome.task, machine.now()),
                SimulationEvent::Reached => break,
                _ => {}
            }
        }
        let (now, worked) = (machine.now(), machine.worked());
        let rows = self.needs.iter().zip(&self.parts).zip(&self.stages);
        let row = |((needs, parts), stage): ((&StageNeeds, &Parts), &SimulatedStage)| StageReport {
            core: stage.work.map(|(.., core)| core),
            steps: stage.runner.steps(),
            busy_us: stage.work.map_or(0.0, |(_, runner, _)| worked[runner].as_micros_f64()),
            ..frames_report(needs, parts, &self.counts, now)
        };
        rows.map(row).collect()
    }
}

impl SimulatedStage {
    /// Begins a step if it can begin; returns whether one was done, or frames were dropped.
    fn look(&mut self, machine: &mut Simulation) -> bool {
        let now = machine.now();
        if self.steps || self.next > now {
            return false;
        }
        match (self.runner.begin_turn(now), self.work) {
            (true, Some((task, ..))) => {
                self.steps = true;
                machine.call(task);
                false
            }
            _ => self.commit(now),
        }
    }

    /// Does the step, or commits drops; returns whether there was anything to do.
    fn commit(&mut self, now: Time) -> bool {
        self.body.now = now;
        let stepped = self.runner.end_turn(&mut self.body, &mut |_| {}) == TurnResult::Stepped;
        self.runner.count_tardiness(now);
        if let Some(period) = self.period.filter(|_| stepped && self.next < Time::MAX) {
            self.next = self.next + period;
        }
        stepped
    }
}
