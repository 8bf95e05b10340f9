//! A stage that stays in the caller's process.

use punctual_pipeline::{AnyStage, Failure, Head, Runner, Turn};
use punctual_units::{Nanos, Time};

use super::PipelineError;
use super::shared::{End, Shared};

/// Such a stage: a thread of the caller's carries out its steps.
#[derive(Debug)]
pub struct Pinned {
    shared: Shared,
    stage: usize,
    runner: Option<Runner>,
}

impl Pinned {
    pub(super) fn new(shared: &Shared, name: &str) -> Result<Pinned, PipelineError> {
        let number = shared.graph.number(name);
        let pinned = |number: &usize| !shared.graph.stages()[*number].migratable;
        Ok(Pinned {
            shared: shared.clone(),
            stage: number
                .filter(pinned)
                .ok_or_else(|| PipelineError::NoSuchStage(name.into()))?,
            runner: None,
        })
    }

    /// One step, where frames and room are there; see [`Runner::turn`]. Once the pipeline ends it is [`Turn::Ended`].
    pub fn turn(&mut self, body: &mut dyn AnyStage) -> Turn {
        let began = self.now();
        let turn = self.step(body, began);
        self.account(&turn, began);
        turn
    }

    /// The same for a stage whose steps wait for what is outside: the time that they tell does not count as work.
    pub(super) fn turn_less<S: AnyStage>(&mut self, body: &mut S, waited: impl Fn(&S) -> Nanos) -> Turn {
        let began = self.now();
        let turn = self.step(body, began);
        self.account(&turn, began + waited(body));
        turn
    }

    fn step(&mut self, body: &mut dyn AnyStage, now: Time) -> Turn {
        if self.shared.end() != End::Runs {
            return Turn::Ended;
        }
        if let Err(refused) = self.take(body) {
            return Turn::Failed(refused);
        }
        let shared = &self.shared;
        match &mut self.runner {
            Some(runner) => runner.turn(body, now, &mut |neighbour| shared.ring_stage(neighbour)),
            None => Turn::ShutOut,
        }
    }

    /// Counts the work of a turn that began at `began`, and ends the pipeline where the stage cannot go on.
    fn account(&mut self, turn: &Turn, began: Time) {
        let (shared, stage) = (&self.shared, self.stage);
        match (turn, &mut self.runner) {
            (Turn::Stepped, Some(runner)) => runner.count_tardiness(shared.count_time(stage, began)),
            (Turn::Failed(why), _) => {
                shared.say_last(stage, &why.0);
                shared.end_by(End::Failed(stage));
            }
            _ => {}
        }
    }

    /// Ends the stage: it takes and makes nothing any more, and the stages before it do not wait for it.
    pub fn end(&mut self, body: &mut dyn AnyStage) -> Turn {
        if let Err(refused) = self.take(body) {
            return Turn::Failed(refused);
        }
        let shared = &self.shared;
        match &mut self.runner {
            Some(runner) => runner.end(body, &mut |neighbour| shared.ring_stage(neighbour)),
            None => Turn::ShutOut,
        }
    }

    fn take(&mut self, body: &mut dyn AnyStage) -> Result<(), Failure> {
        if self.runner.is_none() {
            let taken = Runner::take(&self.shared.layout, &self.shared.region, self.stage, 1, body);
            self.runner = Some(taken.map_err(|refused| Failure(refused.to_string()))?);
        }
        Ok(())
    }

    /// How often the stage's bell has rung: to be asked before a turn, for [`Pinned::wait`].
    pub fn heard(&self) -> u32 {
        self.shared.stage_bell(self.stage).heard()
    }

    /// Waits until a neighbour has done a step since `heard`, for `at_most`.
    pub fn wait(&self, heard: u32, at_most: Option<Nanos>) {
        self.shared.wait(self.shared.stage_bell(self.stage), heard, at_most);
    }

    /// Carries out steps until the stage has ended, waiting for frames and for room.
    ///
    /// # Errors
    /// [`Failure`] where it cannot go on.
    pub fn run(&mut self, body: &mut dyn AnyStage) -> Result<(), Failure> {
        loop {
            let heard = self.heard();
            match self.turn(body) {
                Turn::Stepped => {}
                Turn::Wait => self.wait(heard, None),
                Turn::Ended | Turn::ShutOut => return Ok(()),
                Turn::Failed(why) => return Err(why),
            }
        }
    }

    /// How many frames wait at an input.
    ///
    /// # Panics
    /// Where there is no such input.
    pub fn waiting(&self, port: usize) -> u64 {
        self.shared.layout.waiting(&self.shared.region, self.stage, port).0
    }

    /// What comes with the next frame of an input, where one waits there. A stage whose edge drops frames may take
    /// another one.
    ///
    /// # Panics
    /// Where there is no such input.
    pub fn next(&self, port: usize) -> Option<Head> {
        self.shared.layout.next(&self.shared.region, self.stage, port)
    }

    /// Whether no more frames will come to an input than those that wait there.
    ///
    /// # Panics
    /// Where there is no such input.
    pub fn is_last(&self, port: usize) -> bool {
        self.shared.layout.waiting(&self.shared.region, self.stage, port).1
    }

    /// Frames that it has made at an output.
    ///
    /// # Panics
    /// Where there is no such output.
    pub fn made(&self, port: usize) -> u64 {
        self.shared.layout.made(&self.shared.region, self.stage, port)
    }

    /// Whether the pipeline runs still.
    pub fn runs(&self) -> bool {
        self.shared.end() == End::Runs
    }

    /// The pipeline's clock.
    pub fn now(&self) -> Time {
        self.shared.now()
    }
}
