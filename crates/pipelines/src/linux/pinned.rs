//! A stage that stays in the caller's process.

use punctual_units::{Nanos, Time};

use super::PipelineError;
use super::shared::{End, Segment};
use crate::{AnyStage, Failure, Head, Runner, TurnResult};

/// A pinned stage: a thread of the caller executes its steps.
#[derive(Debug)]
pub struct Pinned {
    shared: Segment,
    stage: usize,
    runner: Option<Runner>,
    /// Whether a neighbour that can go on may sleep on after the last step.
    owes: bool,
}

impl Pinned {
    pub(super) fn new(shared: &Segment, name: &str) -> Result<Pinned, PipelineError> {
        let number = shared.graph.number(name);
        let pinned = |number: &usize| !shared.graph.stages()[*number].migratable;
        Ok(Pinned {
            shared: shared.clone(),
            stage: number
                .filter(pinned)
                .ok_or_else(|| PipelineError::NoSuchStage(name.into()))?,
            runner: None,
            owes: false,
        })
    }

    /// Does one step if frames and room are available; see [`Runner::turn`]. Returns [`TurnResult::Ended`] once the
    /// pipeline ends.
    pub fn turn(&mut self, body: &mut dyn AnyStage) -> TurnResult {
        let began = self.now();
        let turn = self.step(body, began);
        self.account(&turn, began);
        turn
    }

    /// Like `Pinned::turn`, for a stage whose steps wait for files or pipes: the time that `waited` returns does not
    /// count as work.
    pub(super) fn turn_less<S: AnyStage>(&mut self, body: &mut S, waited: impl Fn(&S) -> Nanos) -> TurnResult {
        let began = self.now();
        let turn = self.step(body, began);
        self.account(&turn, began + waited(body));
        turn
    }

    fn step(&mut self, body: &mut dyn AnyStage, now: Time) -> TurnResult {
        if self.shared.end() != End::Runs {
            return TurnResult::Ended;
        }
        if let Err(refused) = self.take(body) {
            return TurnResult::Failed(refused);
        }
        let mut committed = false;
        let turn = match &mut self.runner {
            Some(runner) => runner.turn(body, now, &mut |_| committed = true),
            None => TurnResult::ShutOut,
        };
        if committed || self.owes {
            // Stages before a sink may sleep until a quarter of a queue is free. A source may wait in its next step.
            let at_once = turn != TurnResult::Stepped || !self.shared.graph.stages()[self.stage].makes.is_empty();
            self.shared.tell_neighbours(self.stage, at_once);
            self.owes = !at_once;
        }
        turn
    }

    /// Counts the work of a turn that began at `began`, and ends the pipeline if the stage cannot continue.
    fn account(&mut self, turn: &TurnResult, began: Time) {
        let (shared, stage) = (&self.shared, self.stage);
        match (turn, &mut self.runner) {
            (TurnResult::Stepped, Some(runner)) => runner.count_tardiness(shared.count_time(stage, began)),
            (TurnResult::Failed(why), _) => {
                shared.say_last(stage, &why.0);
                shared.end_by(End::Failed(stage));
            }
            _ => {}
        }
    }

    /// Ends the stage: it takes and makes nothing further, and the stages before it do not wait for it.
    pub fn end(&mut self, body: &mut dyn AnyStage) -> TurnResult {
        if let Err(refused) = self.take(body) {
            return TurnResult::Failed(refused);
        }
        let shared = &self.shared;
        match &mut self.runner {
            Some(runner) => runner.end(body, &mut |neighbour| shared.ring_stage(neighbour)),
            None => TurnResult::ShutOut,
        }
    }

    fn take(&mut self, body: &mut dyn AnyStage) -> Result<(), Failure> {
        if self.runner.is_none() {
            let taken = Runner::take(&self.shared.layout, &self.shared.region, self.stage, 1, body);
            self.runner = Some(taken.map_err(|refused| Failure(refused.to_string()))?);
        }
        Ok(())
    }

    /// Number of rings of the stage's bell: read it before a turn, for [`Pinned::wait`].
    pub fn heard(&self) -> u32 {
        self.shared.stage_bell(self.stage).heard()
    }

    /// Waits until a neighbour has done a step since `heard` with which this stage can do one, for `at_most`.
    pub fn wait(&self, heard: u32, at_most: Option<Nanos>) {
        self.shared.wait(self.shared.stage_bell(self.stage), heard, at_most);
    }

    /// Executes steps until the stage has ended, waiting for frames and for room.
    ///
    /// # Errors
    /// [`Failure`] if the stage cannot continue.
    pub fn run(&mut self, body: &mut dyn AnyStage) -> Result<(), Failure> {
        loop {
            let heard = self.heard();
            match self.turn(body) {
                TurnResult::Stepped => {}
                TurnResult::Wait => self.wait(heard, None),
                TurnResult::Ended | TurnResult::ShutOut => return Ok(()),
                TurnResult::Failed(why) => return Err(why),
            }
        }
    }

    /// Number of frames that wait at an input.
    ///
    /// # Panics
    /// Where there is no such input.
    pub fn waiting(&self, port: usize) -> u64 {
        self.shared.layout.waiting(&self.shared.region, self.stage, port).0
    }

    /// Metadata of the next frame that waits at an input, if any. A stage whose edge drops frames may take another one.
    ///
    /// # Panics
    /// Where there is no such input.
    pub fn next(&self, port: usize) -> Option<Head> {
        self.shared.layout.next(&self.shared.region, self.stage, port)
    }

    /// Whether no frames will follow those that wait at an input.
    ///
    /// # Panics
    /// Where there is no such input.
    pub fn is_last(&self, port: usize) -> bool {
        self.shared.layout.waiting(&self.shared.region, self.stage, port).1
    }

    /// Number of frames that the stage has made at an output.
    ///
    /// # Panics
    /// Where there is no such output.
    pub fn made(&self, port: usize) -> u64 {
        self.shared.layout.made(&self.shared.region, self.stage, port)
    }

    /// Whether the pipeline still runs.
    pub fn runs(&self) -> bool {
        self.shared.end() == End::Runs
    }

    /// Current time of the pipeline's clock.
    pub fn now(&self) -> Time {
        self.shared.now()
    }
}
