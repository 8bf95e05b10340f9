//! A process that may own one stage: it sleeps, prepares itself, executes steps, yields.

use std::sync::atomic::Ordering::Relaxed;

use punctual_platform::linux::process::exit_now;
use punctual_platform::linux::thread;
use punctual_units::{Nanos, Time};

use super::priority::Breath;
use super::shared::{Besides, End, Note, Segment};
use super::statistics::OwnCount;
use super::watchdog::OwnerActivity;
use crate::{AnyStage, CheckpointAnswer, Control, Duty, Runner, TurnResult, doing};

/// Time for which an announced target spins for the stage before it sleeps: longer than an owner needs between two
/// steps, and shorter than work waiting for this core would notice.
const SPIN: Nanos = Nanos::from_micros(500);

/// Longest time for which a stage that has more frames lets neighbours sleep that could do a few steps, if its next
/// step takes as long as the longest of the last. If that one is longer, they look again after [`Segment::rest_max`].
const UNTOLD_MAX: Nanos = Nanos::from_micros(100);

/// Longest sleep of a process without the stage. No other process waits at its bell, which rings for every request, so
/// no wake-up is lost; this is a safety bound.
const SLEEPS: Nanos = Nanos::from_secs(60);

/// Exit codes of the process: none that other programs commonly end with, because an upgrade may name any program.
///
/// The process is not needed.
pub(super) const DONE: i32 = 113;
/// The process cannot read the state that it should continue from.
pub(super) const REFUSES: i32 = 114;
/// The stage cannot continue.
pub(super) const FAILS: i32 = 115;

/// A process in a slot of a stage.
pub(super) struct Instance<'s> {
    pub(super) shared: &'s Segment,
    pub(super) stage: usize,
    pub(super) slot: u8,
    pub(super) body: Box<dyn AnyStage>,
}

/// How a period of owning the stage ended.
enum Spell {
    Yielded,
    Ends,
}

impl Instance<'_> {
    /// Runs until the process is no longer wanted, or the pipeline ends.
    pub(super) fn live(mut self) -> ! {
        loop {
            let (shared, bell) = (self.shared, self.shared.slot_bell(self.stage, self.slot));
            let heard = bell.heard();
            if shared.end() != End::Runs {
                exit_now(DONE);
            }
            let control = shared.control(self.stage);
            let said = shared.slot(self.stage, self.slot);
            match doing(control, self.slot, said, shared.versions(self.stage).now) {
                Duty::Steps => {
                    if let Spell::Ends = self.have(control) {
                        exit_now(DONE);
                    }
                }
                Duty::Yields => {
                    self.leave();
                }
                Duty::Prepares => self.prepare(),
                Duty::Waits => shared.wait(bell, heard, Some(SLEEPS)),
                Duty::Ends => exit_now(DONE),
            }
        }
    }

    /// Reads ahead what the owner needs, reports that it is ready, and spins until it owns the stage.
    fn prepare(&mut self) {
        let shared = self.shared;
        if let Err(refused) = Runner::try_state(&shared.layout, &shared.region, self.stage, self.body.as_mut()) {
            shared.refuse(self.stage, &refused.why.0);
            shared.change_control(self.stage, Control::call_off);
            exit_now(REFUSES);
        }
        may_die!(shared, Prepared);
        shared.stamp(self.stage, Note::AskedAt);
        if shared
            .change_control(self.stage, |control| control.ready(self.slot))
            .is_none()
        {
            return; // called off meanwhile
        }
        may_die!(shared, Ready);
        shared.ring_stage(self.stage);
        let until = Time(shared.now().0 + SPIN.0);
        while !shared.control(self.stage).runs(self.slot) && shared.now() < until {
            std::hint::spin_loop();
        }
    }

    /// Executes steps until the process is asked to yield.
    fn have(&mut self, control: Control) -> Spell {
        let (shared, stage) = (self.shared, self.stage);
        let woke = shared.now();
        shared.set_beat(stage, woke, OwnerActivity::Starts);
        let taken = Runner::take(&shared.layout, &shared.region, stage, control.epoch, self.body.as_mut());
        let mut runner = match taken {
            Ok(runner) => runner,
            Err(refused) => {
                shared.refuse(stage, &refused.why.0);
                exit_now(REFUSES)
            }
        };
        may_die!(shared, Taken);
        let version = shared.slot(stage, self.slot).version;
        shared.set_versions(stage, shared.versions(stage).taken_by(version));
        shared.log_taken(stage, self.slot, woke);
        // The previous owner may have died between its last commit and its rings.
        shared.tell_neighbours(stage, true);
        let (bell, checkpoint) = (shared.stage_bell(stage), shared.checkpoint(stage));
        let (mut own, mut breath) = (OwnCount::default(), Breath::new(shared, woke));
        let mut rested = None;
        // When all neighbours that could go on were last woken, and whether this stage has committed a step since.
        let (mut since, mut owes) = (woke, false);
        // Longest step of late: a long one counts a sixteenth less with each step after it.
        let mut longest = Nanos(0);
        loop {
            let heard = bell.heard();
            let answer = checkpoint.look(self.slot);
            if answer != CheckpointAnswer::GoesOn && std::mem::take(&mut owes) {
                shared.tell_neighbours(stage, true);
            }
            match answer {
                CheckpointAnswer::GoesOn => {}
                CheckpointAnswer::Yields => return self.leave(),
                CheckpointAnswer::Ends => return Spell::Ends,
                CheckpointAnswer::Besides(word) => self.besides(word),
            }
            let began = shared.now();
            if let Some(rested) = rested.take() {
                breath.waited(rested, began);
                since = began;
            }
            shared.set_beat(stage, began, OwnerActivity::Steps);
            let mut committed = |_| {
                may_die!(shared, Committed);
                owes = true;
            };
            match runner.turn(self.body.as_mut(), began, &mut committed) {
                TurnResult::Stepped => {
                    let ended = shared.count_time(stage, began);
                    runner.count_tardiness(ended);
                    // At once unless the stage is behind by many frames and its next step is likely to be short.
                    longest = ended.since(began).max(Nanos(longest.0 - longest.0 / 16));
                    let at_once =
                        !shared.layout.is_behind(&shared.region, stage) || ended.since(since) + longest >= UNTOLD_MAX;
                    shared.tell_neighbours(stage, at_once);
                    if at_once {
                        (since, owes) = (ended, false);
                    }
                    own.look(shared, stage, self.slot, ended);
                    breath.look(ended);
                }
                TurnResult::Wait | TurnResult::Ended => {
                    if std::mem::take(&mut owes) {
                        shared.tell_neighbours(stage, true);
                    }
                    shared.set_beat(stage, began, OwnerActivity::Rests);
                    shared.wait(bell, heard, None);
                    rested = Some(began);
                }
                TurnResult::ShutOut => return Spell::Yielded,
                TurnResult::Failed(why) => {
                    shared.say_last(stage, &why.0);
                    exit_now(FAILS)
                }
            }
        }
    }

    fn besides(&self, word: u64) {
        let (shared, began) = (self.shared, self.shared.now());
        if let Some(Besides::Pin(core)) = Besides::of(word) {
            // If this is refused, the process stays where it is, and the log shows it: the core is read afterwards.
            let _ = thread::pin(shared.core(core));
        }
        shared.log_besides(self.stage, self.slot, began);
    }

    /// Yields the stage if it was asked to.
    fn leave(&self) -> Spell {
        let shared = self.shared;
        shared.stamp(self.stage, Note::YieldedAt);
        may_die!(shared, Asked);
        // The next owner has given no sign yet.
        shared.set_beat(self.stage, shared.now(), OwnerActivity::Starts);
        if let Some(next) = shared.change_control(self.stage, |control| control.yields(self.slot)) {
            may_die!(shared, Yielded);
            shared.ring(shared.slot_bell(self.stage, next.owner));
            let target = shared.slot(self.stage, next.owner);
            // A process that was started for this handover replaces this one.
            if target.fresh {
                let own = shared.slot(self.stage, self.slot);
                let stays = target.version != own.version && shared.is_kept(self.slot);
                shared.set_slot(self.stage, self.slot, |slot| slot.wanted = stays);
            }
            // If no process is in the target slot yet, its worker starts one.
            if target.pid == 0 {
                shared.set_slot(self.stage, next.owner, |slot| slot.wanted = true);
                shared.ring(shared.worker_bell(shared.core_of(next.owner)));
            }
        }
        Spell::Yielded
    }
}

impl Segment {
    /// Adds the time of a step that began at `began`; returns when it ended.
    pub(super) fn count_time(&self, stage: usize, began: Time) -> Time {
        let (busy, now) = (self.note(stage, Note::Busy), self.now());
        // Only one process writes the word at a time.
        busy.store(busy.load(Relaxed) + now.since(began).0, Relaxed);
        now
    }
}
