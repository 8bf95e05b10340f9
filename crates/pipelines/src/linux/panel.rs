//! Control panel of a running pipeline: shows where its stages are, and migrates, replaces or kills them. For the
//! process that started it, or another one of the same user (`registry.rs`).

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use punctual_platform::linux::process::ProcessId;
use punctual_units::{CoreId, Nanos};

use super::PipelineError;
use super::desk::Word;
use super::log::Handover;
use super::shared::{Besides, End, Note, Segment};
use crate::{Control, Grant, Phase, Version, Wish, grant, may_go_on};

/// Longest time for a target to get ready: to be executed, and to read the state.
const PREPARES: Nanos = Nanos::from_secs(3);
/// Longest time for an owner that was asked to yield to end its step.
const YIELDS: Nanos = Nanos::from_secs(5);

punctual_units::named! {
    /// Mechanism that migrates a stage to another core; the baseline first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Mechanism by name {
        /// Pins the same process to the other core (sched_setaffinity(2)): no other process takes part.
        Affinity = "affinity",
        /// A process that sleeps on the other core owns the stage next.
        Replica = "replica",
        /// The sleeping process is woken, and reads ahead, before the owner is asked to yield.
        Announced = "announced",
        /// A new process starts there after the old one has yielded: the paper's recreation.
        Recreate = "recreate",
        /// A new process is started there, and ready, before the old one yields.
        RecreateAhead = "recreate-ahead",
    }
}

impl Mechanism {
    /// Request for a process of that version, by this mechanism. Unused for `Affinity`, which needs no handover.
    fn wish(self, version: Version) -> Wish {
        Wish {
            announced: matches!(self, Mechanism::Announced | Mechanism::RecreateAhead),
            fresh: matches!(self, Mechanism::Recreate | Mechanism::RecreateAhead),
            version,
        }
    }
}

/// Why a stage was not migrated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    /// The stage is pinned: it stays where it was started.
    #[error("stage \"{0}\" is pinned: it stays in the process that started the pipeline")]
    Pinned(String),
    /// The graph has no such stage.
    #[error("no stage is called \"{0}\"; stages are: {1}")]
    NoStage(String, String),
    /// The pipeline has no such core.
    #[error("core {0} is none of the pipeline's: {1}")]
    NoCore(CoreId, String),
    /// The new program cannot be announced to the workers.
    #[error("{0}")]
    Program(String),
    /// Another handover of the stage is under way.
    #[error("stage \"{0}\" is being handed over: try again")]
    Busy(String),
    /// The new process did not take the stage over, and is not waited for.
    #[error("stage \"{0}\" kept its process: the new one did not take over: {1}")]
    Refused(String, String),
    /// The target process does not exist yet; it is being started.
    #[error("stage \"{0}\" has no process on core {1} yet: try again")]
    NotReady(String, CoreId),
}

/// State of a stage at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageNow {
    /// Name of the stage in the graph.
    pub name: String,
    /// Core on which its process runs; `None` for a pinned stage.
    pub core: Option<CoreId>,
    /// Process id of the owner; 0: none at this instant.
    pub pid: i32,
    /// Steps that it has done.
    pub steps: u64,
    /// Total time spent in steps.
    pub busy: Nanos,
    /// Processes that died while they owned the stage.
    pub restarts: u64,
    /// Of these, processes killed because a step took too long, or because none came although frames and room were
    /// there.
    pub hung: u64,
    /// How often the stage was replaced by a process of another program, without failed replacements.
    pub version: u16,
}

/// State of a queue, an edge of the graph, at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueNow {
    /// Number of the stage that makes its frames.
    pub from: usize,
    /// Number of the stage that takes them.
    pub to: usize,
    /// Frames that wait in the queue.
    pub waiting: u64,
    /// Capacity of the queue, in frames.
    pub slots: u32,
    /// Frames dropped because the queue was full, or because they were late.
    pub dropped: u64,
}

/// Control panel of a running pipeline.
#[derive(Debug)]
pub struct Panel {
    shared: Segment,
    /// Number of the next entry of the log to read.
    fetched: Mutex<u64>,
}

impl Panel {
    pub(super) fn new(shared: &Segment) -> Panel {
        Panel {
            shared: shared.clone(),
            fetched: Mutex::new(0),
        }
    }

    pub(super) fn shared(&self) -> &Segment {
        &self.shared
    }

    /// Cores of the pipeline, in its order.
    pub fn cores(&self) -> Vec<CoreId> {
        (0..self.shared.cores())
            .map(|number| self.shared.core(number))
            .collect()
    }

    /// Whether the pipeline still runs.
    pub fn runs(&self) -> bool {
        self.shared.end() == End::Runs
    }

    /// State of all stages, in the order of the graph.
    pub fn stages(&self) -> Vec<StageNow> {
        let note = |stage, note| self.shared.note(stage, note).load(Ordering::Relaxed);
        let now = |stage: usize| {
            let (spec, owner) = (&self.shared.graph.stages()[stage], self.shared.control(stage).owner);
            StageNow {
                name: spec.name.clone(),
                core: spec.migratable.then(|| self.shared.core(self.shared.core_of(owner))),
                pid: self.shared.slot(stage, owner).pid,
                steps: self.shared.layout.steps(&self.shared.region, stage),
                busy: Nanos(note(stage, Note::Busy)),
                restarts: note(stage, Note::Restarts),
                hung: note(stage, Note::Hung),
                version: self.shared.versions(stage).now.number,
            }
        };
        self.shared.stages().map(now).collect()
    }

    /// State of all queues, in the order of the graph's edges. Each is read separately, while frames move.
    pub fn queues(&self) -> Vec<QueueNow> {
        let (layout, region) = (&self.shared.layout, &self.shared.region);
        let links = self.shared.graph.links().iter();
        let now = links.map(|link| {
            let (to, port) = link.to;
            QueueNow {
                from: link.from.0,
                to,
                waiting: layout.waiting(region, to, port).0,
                slots: link.edge.slots,
                dropped: layout.dropped(region, to, port),
            }
        });
        now.collect()
    }

    /// Handovers and restarts since the last call, or since the beginning.
    pub fn handovers(&self) -> Vec<Handover> {
        let mut from = self.fetched.lock().unwrap_or_else(PoisonError::into_inner);
        let (fetched, next) = self.shared.fetch_log(*from);
        *from = next;
        fetched
    }

    /// Keeps a sleeping process of each stage ready on every core; with `spares` two, so that the death of one finds
    /// another on its core. Returns whether all exist already.
    pub fn keep_replicas(&self, spares: bool) -> bool {
        let shared = &self.shared;
        let kept = if spares { shared.slots() } else { shared.cores() as u8 };
        shared.keep(kept);
        let mut there = true;
        for stage in shared.migratable() {
            for slot in 0..kept {
                there &= may_go_on(shared.slot(stage, slot), shared.versions(stage).now);
                shared.set_slot(stage, slot, |it| it.wanted = true);
            }
        }
        (0..shared.cores()).for_each(|core| shared.ring(shared.worker_bell(core)));
        there
    }

    /// Whether a handover of the stage is under way.
    ///
    /// # Errors
    /// [`MoveError`] if there is no such stage, or it is pinned.
    pub fn is_under_way(&self, name: &str) -> Result<bool, MoveError> {
        Ok(self.shared.control(self.find(name)?).phase != Phase::Held)
    }

    /// Migrates a stage to a core; returns before it is there.
    ///
    /// # Errors
    /// [`MoveError`]; nothing is changed then.
    pub fn move_stage(&self, name: &str, core: CoreId, mechanism: Mechanism) -> Result<(), MoveError> {
        let stage = self.find(name)?;
        let number = (0..self.shared.cores()).find(|number| self.shared.core(*number) == core);
        let cores = self.cores().iter().map(CoreId::to_string).collect::<Vec<_>>().join(",");
        let number = number.ok_or(MoveError::NoCore(core, cores))?;
        // The policy leaves stages alone for the hold time from now on.
        let moved = self.shared.desk_word(Word::UserMoved);
        moved.store(self.shared.now().0, Ordering::Relaxed);
        self.move_to(stage, number, mechanism)
    }

    /// Migrates a stage to the core of that index among the pipeline's.
    pub(super) fn move_to(&self, stage: usize, number: usize, mechanism: Mechanism) -> Result<(), MoveError> {
        let owner = self.shared.control(stage).owner;
        if mechanism == Mechanism::Affinity {
            self.besides(stage, Besides::Pin(number));
            return Ok(());
        }
        if self.shared.core_of(owner) == number && self.shared.control(stage).phase == Phase::Held {
            self.shared.forget_refusal(stage);
            return Ok(());
        }
        self.hand_over(stage, number as u8, mechanism.wish(self.shared.versions(stage).now))
    }

    /// Makes the process of a stage log an empty handover at its next checkpoint: the control of a measurement.
    ///
    /// # Errors
    /// [`MoveError`] if there is no such stage, or it is the caller's own.
    pub fn no_op(&self, name: &str) -> Result<(), MoveError> {
        self.besides(self.find(name)?, Besides::Nothing);
        Ok(())
    }

    fn besides(&self, stage: usize, besides: Besides) {
        self.shared
            .note(stage, Note::Besides)
            .store(besides.word(), Ordering::Relaxed);
        self.shared.ring_stage(stage);
    }

    /// Replaces a stage's process by one of another program, on the same core: a new version, or the present one again.
    /// The first call starts the program and returns [`MoveError::NotReady`]; the old process continues until the new
    /// one has read the stage's state. A program that does not start, refuses the state or dies before that is
    /// abandoned: [`Panel::refusal`] has the reason, and so has [`MoveError::Refused`] if the call is repeated.
    ///
    /// # Errors
    /// [`MoveError`]; the old process continues then.
    pub fn replace(&self, name: &str, program: &Path) -> Result<(), MoveError> {
        let stage = self.find(name)?;
        let refused = |why: PipelineError| MoveError::Program(why.to_string());
        let program = self.shared.add_program(program).map_err(refused)?;
        let (owner, cores) = (self.shared.control(stage).owner, self.shared.cores() as u8);
        let other = if owner < cores { owner + cores } else { owner - cores };
        let version = self.shared.versions(stage).now.next(program);
        self.hand_over(stage, other, Mechanism::RecreateAhead.wish(version))
    }

    /// Latest reason why a process that was started for a stage did not take it over; kept until the next request.
    ///
    /// # Errors
    /// [`MoveError`] if there is no such stage, or it is pinned.
    pub fn refusal(&self, name: &str) -> Result<Option<String>, MoveError> {
        Ok(self.shared.refusal(self.find(name)?))
    }

    fn find(&self, name: &str) -> Result<usize, MoveError> {
        let graph = &self.shared.graph;
        let Some(stage) = graph.number(name) else {
            let names: Vec<&str> = graph.stages().iter().map(|it| it.name.as_str()).collect();
            return Err(MoveError::NoStage(name.into(), names.join(", ")));
        };
        match graph.stages()[stage].migratable {
            true => Ok(stage),
            false => Err(MoveError::Pinned(name.into())),
        }
    }

    fn hand_over(&self, stage: usize, target: u8, wish: Wish) -> Result<(), MoveError> {
        let shared = &self.shared;
        let control = shared.control(stage);
        if control.phase != Phase::Held {
            self.hurry(stage, control);
        }
        let said = shared.slot(stage, target);
        let busy = || MoveError::Busy(shared.name(stage).to_owned());
        match grant(control, target, said, wish) {
            Grant::Already => {
                shared.forget_refusal(stage);
                Ok(())
            }
            Grant::Busy => Err(busy()),
            Grant::Retire(slot) => {
                shared.change_slot(stage, target, said, slot);
                shared.ring(shared.slot_bell(stage, target));
                Err(busy())
            }
            Grant::Start(slot) => {
                if said != slot {
                    shared.forget_refusal(stage);
                } else if let Some(why) = shared.refusal(stage).filter(|_| wish.fresh) {
                    // A repeated request: the process could not be started, or has ended, since.
                    shared.set_slot(stage, target, |it| it.wanted = false);
                    return Err(MoveError::Refused(shared.name(stage).to_owned(), why));
                }
                shared.change_slot(stage, target, said, slot);
                let core = shared.core_of(target);
                shared.ring(shared.worker_bell(core));
                Err(MoveError::NotReady(shared.name(stage).to_owned(), shared.core(core)))
            }
            Grant::Go(slot, next) => {
                shared.forget_refusal(stage);
                // Another request, or a death, may have come in between.
                if !shared.change_slot(stage, target, said, slot) {
                    return Err(busy());
                }
                let first = if wish.announced {
                    Note::AnnouncedAt
                } else {
                    Note::AskedAt
                };
                // Stamps left by a handover that failed do not belong to this one.
                for left in [Note::AnnouncedAt, Note::AskedAt, Note::YieldedAt] {
                    shared.take_stamp(stage, left);
                }
                shared.stamp(stage, first);
                { shared.change_control(stage, |now| (now == control).then_some(next)) }.ok_or_else(busy)?;
                shared.note(stage, Note::Moves).fetch_add(1, Ordering::Relaxed);
                match next.phase {
                    Phase::Announced => shared.ring(shared.slot_bell(stage, target)),
                    _ => shared.ring_stage(stage),
                }
                Ok(())
            }
        }
    }

    /// Ends a handover that takes too long: a target that does not get ready is abandoned; an owner that does not yield
    /// is killed, and the target then owns the stage.
    pub(super) fn hurry(&self, stage: usize, control: Control) {
        let shared = &self.shared;
        let since = |note| {
            shared
                .now()
                .0
                .saturating_sub(shared.note(stage, note).load(Ordering::Relaxed))
        };
        let kill = |slot| ProcessId::of(shared.slot(stage, slot).pid).is_some_and(ProcessId::kill);
        if control.phase == Phase::Asked && since(Note::AskedAt) > YIELDS.0 {
            kill(control.owner);
        }
        let called_off = || shared.change_control(stage, Control::call_off).is_some();
        if control.phase == Phase::Announced && since(Note::AnnouncedAt) > PREPARES.0 && called_off() {
            shared.set_slot(stage, control.target, |it| it.wanted = false);
            kill(control.target);
        }
    }

    /// Kills the process that owns a stage; returns whether there was one.
    ///
    /// # Errors
    /// [`MoveError`] if there is no such stage, or it is the caller's own.
    pub fn kill(&self, name: &str) -> Result<bool, MoveError> {
        let stage = self.find(name)?;
        let pid = self.shared.slot(stage, self.shared.control(stage).owner).pid;
        let process = (pid != 0).then(|| ProcessId::of(pid)).flatten();
        let Some(process) = process else { return Ok(false) };
        self.shared.stamp(stage, Note::KilledAt);
        Ok(process.kill())
    }
}
