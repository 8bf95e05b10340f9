//! Executes the steps of one stage.

use std::sync::Arc;

use punctual_units::Time;

use crate::commit::{Commit, CommitWord, Record, ShutOut};
use crate::frames::{Frames, Head};
use crate::graph::WhenFull;
use crate::layout::{Input, Layout, StageAt};
use crate::region::Region;
use crate::stage::{AnyStage, Failure};

/// Result of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnResult {
    /// A step was done, or frames were dropped.
    Stepped,
    /// Frames, or room for them, are missing: wait until the stage's bell rings.
    Wait,
    /// The stage has ended: no step will follow.
    Ended,
    /// Another process has taken over the stage.
    ShutOut,
    /// The stage cannot continue.
    Failed(Failure),
}

/// Why a process cannot take over a stage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stage {stage} refuses the state that it is to go on from: {why}")]
pub struct TakeError {
    /// Number of the stage in its graph.
    pub stage: usize,
    /// Reason of the stage's code.
    pub why: Failure,
}

/// A stage owned by this thread.
#[derive(Debug)]
pub struct Runner {
    layout: Arc<Layout>,
    region: Region,
    stage: usize,
    commit: Commit,
    record: Record,
    /// Frames of each input in the current step.
    count: Vec<u32>,
    /// Position of the current step's first frame at each output.
    began: Vec<u64>,
    scratch: Vec<u8>,
    /// Metadata of the frames that the last step took, until `count_tardiness` counts them.
    heads: Vec<Head>,
    /// Whether this turn has dropped frames, and the number of those with a due time, until its commit.
    dropped: bool,
    lost: u64,
}

impl Runner {
    /// Takes over `stage` in `epoch`, so that no other thread can commit a step of it; `body` continues from the last
    /// committed step.
    ///
    /// # Errors
    /// [`TakeError`] if `body` cannot read the state.
    ///
    /// # Panics
    /// If there is no such stage, or the memory does not have this layout.
    pub fn take(
        layout: &Arc<Layout>,
        region: &Region,
        stage: usize,
        epoch: u16,
        body: &mut dyn AnyStage,
    ) -> Result<Runner, TakeError> {
        let committed = layout.committed(region, stage);
        let commit = committed.begin(epoch);
        let record = committed.record();
        let refused = |why| TakeError { stage, why };
        load(layout, region, stage, &record, body).map_err(refused)?;
        let at = &layout.stages[stage];
        let scratch = at.outputs.iter().map(|output| output.frame_bytes()).max().unwrap_or(0);
        let mut runner = Runner {
            layout: Arc::clone(layout),
            region: region.clone(),
            stage,
            commit,
            count: vec![0; at.inputs.len()],
            began: vec![0; at.outputs.len()],
            scratch: vec![0; if at.save_every > 1 { scratch } else { 0 }],
            heads: Vec::with_capacity(at.inputs.iter().map(|input| input.takes as usize).sum()),
            dropped: false,
            lost: 0,
            record,
        };
        runner.repeat(body).map_err(refused)?;
        Ok(runner)
    }

    /// Checks that `body` could continue from the stage's last saved state; call this before a handover.
    ///
    /// # Errors
    /// [`TakeError`] if it could not.
    pub fn try_state(
        layout: &Arc<Layout>,
        region: &Region,
        stage: usize,
        body: &mut dyn AnyStage,
    ) -> Result<(), TakeError> {
        let committed = layout.committed(region, stage);
        loop {
            let (before, record) = (committed.commit(), committed.record());
            let tried = load(layout, region, stage, &record, body).and_then(|()| fits(layout, stage, &record, body));
            // A state that was overwritten while it was read proves nothing.
            if committed.commit().steps <= before.steps + 1 {
                return tried.map_err(|why| TakeError { stage, why });
            }
        }
    }

    /// Number of the stage in its graph.
    pub fn stage(&self) -> usize {
        self.stage
    }

    /// Number of steps that the stage has done.
    pub fn steps(&self) -> u64 {
        self.commit.steps
    }

    /// Does one step at `now` if frames and room are available. Calls `ring` with each stage that this may unblock.
    pub fn turn(&mut self, body: &mut dyn AnyStage, now: Time, ring: &mut dyn FnMut(usize)) -> TurnResult {
        let ready = self.drop_and_look(now);
        self.finish(ready, body, ring)
    }

    /// Drops frames as each edge's policy demands at `now`. Returns whether [`end_turn`](Self::end_turn) will do a
    /// step, for callers in whose time a step lasts; else that call commits the drops, or the end of all inputs.
    pub fn begin_turn(&mut self, now: Time) -> bool {
        self.drop_and_look(now) && !self.is_at_end()
    }

    fn drop_and_look(&mut self, now: Time) -> bool {
        if self.record.ended != 0 {
            return false;
        }
        let layout = Arc::clone(&self.layout);
        let at = &layout.stages[self.stage];
        self.dropped |= self.drop_frames(at, now);
        self.is_ready(at)
    }

    /// Does the step that [`begin_turn`](Self::begin_turn) has found ready; see [`turn`](Self::turn).
    pub fn end_turn(&mut self, body: &mut dyn AnyStage, ring: &mut dyn FnMut(usize)) -> TurnResult {
        let layout = Arc::clone(&self.layout);
        let ready = self.is_ready(&layout.stages[self.stage]);
        self.finish(ready, body, ring)
    }

    fn finish(&mut self, ready: bool, body: &mut dyn AnyStage, ring: &mut dyn FnMut(usize)) -> TurnResult {
        if self.record.ended != 0 {
            return TurnResult::Ended;
        }
        let layout = Arc::clone(&self.layout);
        let at = &layout.stages[self.stage];
        let dropped = std::mem::take(&mut self.dropped);
        let end = ready && self.is_at_end();
        if ready && !end {
            if let Err(why) = self.step(at, body, true) {
                return TurnResult::Failed(why);
            }
        } else if end {
            self.record.ended = 1;
        } else if !dropped {
            return TurnResult::Wait;
        }
        match self.commit(at, body, ring) {
            TurnResult::Stepped if end => TurnResult::Ended,
            turn => turn,
        }
    }

    /// Whether frames and room are available for a step; sets `count`.
    fn is_ready(&mut self, at: &StageAt) -> bool {
        self.count_frames(at) && self.layout.has_room(&self.region, at, |port| self.record.made[port])
    }

    /// Whether no input has a frame for the step that is ready: no more will come.
    fn is_at_end(&self) -> bool {
        !self.count.is_empty() && self.count.iter().all(|count| *count == 0)
    }

    /// Ends the stage between two steps: it takes and makes no further frames, and does not wait for more.
    pub fn end(&mut self, body: &dyn AnyStage, ring: &mut dyn FnMut(usize)) -> TurnResult {
        if self.record.ended != 0 {
            return TurnResult::Ended;
        }
        let layout = Arc::clone(&self.layout);
        self.record.ended = 1;
        match self.commit(&layout.stages[self.stage], body, ring) {
            TurnResult::Stepped => TurnResult::Ended,
            turn => turn,
        }
    }

    /// Counts how late the frames of the last step were, given that it ended at `now`. A process that dies between the
    /// step's commit and this call leaves them out.
    pub fn count_tardiness(&mut self, now: Time) {
        let tardiness = self.layout.tardiness(&self.region, self.stage);
        self.heads.drain(..).for_each(|head| tardiness.count(head, now));
    }

    fn commit(&mut self, at: &StageAt, body: &dyn AnyStage, ring: &mut dyn FnMut(usize)) -> TurnResult {
        if let Err(why) = self.save(at, body) {
            return TurnResult::Failed(why);
        }
        match self.committed().publish(self.commit, &self.record) {
            Ok(commit) => self.commit = commit,
            Err(ShutOut) => return TurnResult::ShutOut,
        }
        let lost = std::mem::take(&mut self.lost);
        self.layout.tardiness(&self.region, self.stage).add_dropped(lost);
        self.layout.neighbours(self.stage).for_each(ring);
        TurnResult::Stepped
    }

    fn committed(&self) -> CommitWord<'_> {
        self.layout.committed(&self.region, self.stage)
    }

    /// Repeats the steps since the state was saved; their frames were passed on already.
    fn repeat(&mut self, body: &mut dyn AnyStage) -> Result<(), Failure> {
        let layout = Arc::clone(&self.layout);
        let at = &layout.stages[self.stage];
        let done = self.record.clone();
        self.record.taken = done.released;
        for _ in done.state_steps..self.commit.steps {
            let inputs = at.inputs.iter().enumerate();
            let left = |port: usize| done.taken[port] - self.record.taken[port];
            let counts = inputs.map(|(port, input)| left(port).min(input.takes.into()) as u32);
            let counts: Vec<u32> = counts.collect();
            self.count = counts;
            self.step(at, body, false)?;
        }
        self.record = done;
        Ok(())
    }

    fn step(&mut self, at: &StageAt, body: &mut dyn AnyStage, first_time: bool) -> Result<(), Failure> {
        let outputs = at.outputs.len();
        self.began.copy_from_slice(&self.record.made[..outputs]);
        if first_time {
            self.note_heads(at);
        }
        let mut ended = false;
        body.step(&mut Frames {
            region: &self.region,
            inputs: &at.inputs,
            outputs: &at.outputs,
            taken: &self.record.taken,
            count: &self.count,
            made: &mut self.record.made,
            began: &self.began,
            scratch: (!first_time).then_some(self.scratch.as_mut_slice()),
            ended: &mut ended,
        })?;
        for (taken, count) in self.record.taken.iter_mut().zip(&self.count) {
            *taken += u64::from(*count);
        }
        self.record.ended = ended.into();
        Ok(())
    }

    /// Copies the metadata of the step's frames: after the commit, their slots may be overwritten.
    fn note_heads(&mut self, at: &StageAt) {
        self.heads.clear();
        for (port, input) in at.inputs.iter().enumerate() {
            let first = self.record.taken[port];
            let positions = first..first + u64::from(self.count[port]);
            let heads = positions.map(|position| input.ring.read_head(&self.region, position));
            self.heads.extend(heads);
        }
    }

    /// Saves the state if this step is due to, into the place that the last record does not name.
    fn save(&mut self, at: &StageAt, body: &dyn AnyStage) -> Result<(), Failure> {
        let steps = self.commit.steps + 1;
        if !steps.is_multiple_of(at.save_every.into()) && self.record.ended == 0 {
            return Ok(());
        }
        let place = 1 - self.record.state_at % 2;
        // SAFETY: the place is within the state's room, and only the process that owns the epoch writes there. Others
        // read the place that the committed record names.
        let room = unsafe { self.region.write(self.layout.state(self.stage, place), at.state_room) };
        self.record.state_bytes = body.save(room)? as u64;
        self.record.state_at = place;
        self.record.state_version = u64::from(body.version()) | u64::from(body.fingerprint()) << 32;
        self.record.state_steps = steps;
        self.record.released = self.record.taken;
        Ok(())
    }

    /// Drops frames as each edge's policy demands; returns whether any was dropped.
    fn drop_frames(&mut self, at: &StageAt, now: Time) -> bool {
        let mut dropped = false;
        for (port, input) in at.inputs.iter().enumerate() {
            let (made, ended) = match input.full {
                WhenFull::Wait => continue,
                _ => self.made_for(input),
            };
            let many = match input.full {
                WhenFull::DropLate => self.late(made, port, input, now),
                _ if ended => 0,
                _ => too_many(made - self.record.taken[port], input),
            };
            let heads = (self.record.taken[port]..).take(many as usize);
            let heads = heads.map(|position| input.ring.read_head(&self.region, position));
            self.lost += heads.filter(|head| head.due_by > head.captured_at).count() as u64;
            self.record.taken[port] += many;
            self.record.dropped[port] += many;
            dropped |= many > 0;
        }
        dropped
    }

    /// Number of consecutive frames, from the next one of an input, that are past their due time.
    fn late(&self, made: u64, port: usize, input: &Input, now: Time) -> u64 {
        let next = self.record.taken[port]..made;
        let late = |position: &u64| {
            let head = input.ring.read_head(&self.region, *position);
            // A frame without a due time is never late.
            head.due_by > head.captured_at && head.due_by < now
        };
        next.take_while(late).count() as u64
    }

    /// Whether enough frames wait for a step, or no more will come; sets `count`.
    fn count_frames(&mut self, at: &StageAt) -> bool {
        for (port, input) in at.inputs.iter().enumerate() {
            let taken = self.record.taken[port];
            let Some(count) = self.layout.frames_for_step(&self.region, input, taken) else {
                return false;
            };
            self.count[port] = count;
        }
        true
    }

    fn made_for(&self, input: &Input) -> (u64, bool) {
        self.layout.committed(&self.region, input.from.0).made(input.from.1)
    }
}

/// Frames to drop so that a step of the producing stage has room.
fn too_many(there: u64, input: &Input) -> u64 {
    (there + u64::from(input.makes))
        .saturating_sub(input.ring.slots.into())
        .min(there)
}

/// Checks that the state fits into its room, if it is not as long as the saved one by its version.
fn fits(layout: &Layout, stage: usize, record: &Record, body: &dyn AnyStage) -> Result<(), Failure> {
    if record.state_steps > 0 && record.state_version as u32 == body.version() {
        return Ok(());
    }
    body.save(&mut vec![0; layout.stages[stage].state_room]).map(drop)
}

fn load(
    layout: &Layout,
    region: &Region,
    stage: usize,
    record: &Record,
    body: &mut dyn AnyStage,
) -> Result<(), Failure> {
    if record.state_steps == 0 {
        body.begin();
        return Ok(());
    }
    let (version, fingerprint) = (record.state_version as u32, (record.state_version >> 32) as u32);
    let is_another = fingerprint != body.fingerprint() && fingerprint != 0 && body.fingerprint() != 0;
    if version == body.version() && is_another {
        return Err(Failure(format!(
            "its state has other fields than the saved one, and both have version {version}: give it another version, \
             and have it convert version {version}"
        )));
    }
    let bytes = (record.state_bytes as usize).min(layout.stages[stage].state_room);
    // SAFETY: the place that a committed record names is written again only after the next commit. A caller that does
    // not own the stage checks the commit word again afterwards.
    let saved = unsafe { region.read(layout.state(stage, record.state_at), bytes) };
    body.load(version, saved)
}
