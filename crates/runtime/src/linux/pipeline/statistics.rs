//! What stages cost, in shared memory: each worker looks a hundred times a second, measures a quarter of the processes
//! of its core in turn, and any process that may open the pipeline reads what came of it.
//!
//! **Method.** A stage's *load* is the share of a core that its process takes, by its CPU clock, over about the last
//! half second: it counts what the stage does and what being woken takes, and leaves out the time that other work has
//! the core. Pinned stages are threads of the caller's process: their load is their time in steps. Time for each frame
//! is the load over the rate of frames that leave the pipeline.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use punctual_platform::linux::KernelTree;
use punctual_platform::linux::cpufreq;
use punctual_platform::linux::process::{cpu_time, resident_bytes};
use punctual_units::{CoreId, Hertz, Nanos, Time};

use super::desk::{Measured, Word};
use super::panel::Panel;
use super::shared::{Note, Shared};

/// How often a worker measures, a part of its stages each time.
pub(super) const EVERY: Nanos = Nanos::from_millis(10);
/// After so many looks each stage was measured once: asking for CPU clocks is most of what measuring takes.
const TURNS: usize = 4;
/// The time constant of what is averaged.
const AVERAGED: Nanos = Nanos::from_millis(500);
/// How often memory and clocks are read: the kernel answers in text.
const READ_EVERY: Nanos = Nanos::from_secs(2);

/// How long a process had run at an instant.
#[derive(Clone, Copy, Debug)]
struct Ran {
    pid: i32,
    ran: Nanos,
    at: Time,
}

/// Measures the processes of one core.
#[derive(Debug)]
pub(super) struct Gatherer {
    core: usize,
    /// The process of each stage of this core, and how long it had run; of pinned ones the time in steps.
    before: Vec<Option<Ran>>,
    /// Steps of the stage at which frames leave.
    left: u64,
    looked: Option<Time>,
    turn: usize,
    read_at: Time,
    tree: KernelTree,
}

impl Gatherer {
    pub(super) fn new(shared: &Shared, core: usize) -> Gatherer {
        Gatherer {
            core,
            before: vec![None; shared.stages().len()],
            left: 0,
            looked: None,
            turn: 0,
            read_at: Time::ZERO,
            tree: KernelTree::default(),
        }
    }

    /// Measures what has run since the last look. The coordinator's worker also measures what is of no core: the rate
    /// of frames, and pinned stages.
    pub(super) fn look(&mut self, shared: &Shared, coordinates: bool, now: Time) {
        let Some(before) = self.looked.replace(now) else {
            return;
        };
        self.turn = (self.turn + 1) % TURNS;
        for stage in shared.stages().filter(|stage| stage % TURNS == self.turn) {
            let process = self.process(shared, stage, coordinates);
            let ran = process.and_then(|pid| {
                let ran = self.ran(shared, stage, pid)?;
                Some(Ran { pid, ran, at: now })
            });
            let before = std::mem::replace(&mut self.before[stage], ran);
            if let (Some(now), Some(before)) = (ran, before)
                && now.pid == before.pid
            {
                note(
                    shared,
                    stage,
                    Nanos(now.ran.0.saturating_sub(before.ran.0)),
                    now.at.since(before.at),
                );
            }
        }
        if coordinates {
            self.look_at_frames(shared, now.since(before));
        }
        if now >= self.read_at {
            self.read_at = now + READ_EVERY;
            self.read(shared);
        }
    }

    /// The process to be measured, if it is this worker's to measure; 0 for a pinned stage.
    fn process(&self, shared: &Shared, stage: usize, coordinates: bool) -> Option<i32> {
        if !shared.graph.stages()[stage].migratable {
            return coordinates.then_some(0);
        }
        let owner = shared.control(stage).owner;
        let pid = shared.slot(stage, owner).pid;
        (shared.core_of(owner) == self.core && pid != 0).then_some(pid)
    }

    fn ran(&self, shared: &Shared, stage: usize, pid: i32) -> Option<Nanos> {
        match pid {
            0 => Some(Nanos(shared.note(stage, Note::Busy).load(Relaxed))),
            pid => cpu_time(pid),
        }
    }

    fn look_at_frames(&mut self, shared: &Shared, since: Nanos) {
        let left = shared.layout.steps(&shared.region, shared.last_stage());
        let frames = left.saturating_sub(std::mem::replace(&mut self.left, left));
        // A worker that has just become the coordinator has not counted before.
        if frames < left || left == 0 {
            average(shared.desk_word(Word::Fps), frames as f64 / since.as_secs_f64(), since);
        }
    }

    fn read(&self, shared: &Shared) {
        let core = shared.core(self.core);
        shared.set_clock_of(self.core, cpufreq::current(&self.tree, core));
        for stage in shared.stages() {
            if let Some(Ran { pid: pid @ 1.., .. }) = self.before[stage] {
                let bytes = resident_bytes(pid).unwrap_or(0);
                shared.measured(stage, Measured::Memory).store(bytes, Relaxed);
            }
        }
    }
}

/// Notes that a stage's process has run for `ran`, `since` the last look.
fn note(shared: &Shared, stage: usize, ran: Nanos, since: Nanos) {
    shared.measured(stage, Measured::Cpu).fetch_add(ran.0, Relaxed);
    let share = ran.as_secs_f64() / since.as_secs_f64();
    average(shared.measured(stage, Measured::Load), share, since);
}

/// Moves the double in `word` towards `value` by as much as `since` is worth. One process writes it at a time; two that
/// do, around a move, lose one value.
fn average(word: &AtomicU64, value: f64, since: Nanos) {
    let weight = -(-since.as_secs_f64() / AVERAGED.as_secs_f64()).exp_m1();
    let average = f64::from_bits(word.load(Relaxed));
    word.store((average + weight * (value - average)).to_bits(), Relaxed);
}

/// A stage of which statistics tell.
#[derive(Clone, Debug, PartialEq)]
pub struct StageStatistics {
    /// Its name.
    pub name: String,
    /// The core that its process runs on; `None` of a pinned one.
    pub core: Option<CoreId>,
    /// The share of a core that it takes, over about the last half second.
    pub load: f64,
    /// The time of a core for each frame that leaves the pipeline; `None` where none does.
    pub frame_time: Option<Nanos>,
    /// The same in cycles, where the clock of its core can be read.
    pub frame_cycles: Option<u64>,
    /// The time that its processes have run; zero of a pinned stage, whose thread is the caller's.
    pub ran: Nanos,
    /// Memory of its process in bytes, pages that it shares with others included; 0 of a pinned one.
    pub memory_bytes: u64,
    /// Frames that wait at each of its inputs now.
    pub waiting: Vec<u64>,
    /// Processes that died while they had it.
    pub restarts: u64,
}

/// What a pipeline costs, now.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistics {
    /// Frames per second that leave it, over about the last half second.
    pub fps: f64,
    /// All stages, in the order of the graph.
    pub stages: Vec<StageStatistics>,
}

impl Panel {
    /// What the stages cost. Each is read by itself, while frames go on.
    pub fn statistics(&self) -> Statistics {
        let shared = self.shared();
        let fps = shared.fps();
        Statistics {
            fps,
            stages: shared
                .stages()
                .map(|stage| shared.stage_statistics(stage, fps))
                .collect(),
        }
    }
}

impl Shared {
    /// The stage at which frames leave the pipeline: the first without an output.
    pub(super) fn last_stage(&self) -> usize {
        let stages = self.graph.stages();
        let last = stages.iter().position(|stage| stage.makes.is_empty());
        last.unwrap_or(stages.len() - 1)
    }

    /// Cycles of a stage for each frame; nanoseconds where its core does not say its clock.
    pub(super) fn frame_cycles(&self, stage: usize, fps: f64) -> u64 {
        let core = self.core_of(self.control(stage).owner);
        let clock = self.clock_of(core).unwrap_or(Hertz(1_000_000_000));
        (self.load(stage) * clock.0 as f64 / fps) as u64
    }

    fn stage_statistics(&self, stage: usize, fps: f64) -> StageStatistics {
        let spec = &self.graph.stages()[stage];
        let number = self.core_of(self.control(stage).owner);
        let word = |what| self.measured(stage, what).load(Relaxed);
        let flows = fps > FPS_LEAST;
        let load = self.load(stage);
        let pinned = !spec.migratable;
        StageStatistics {
            name: spec.name.clone(),
            core: (!pinned).then(|| self.core(number)),
            load,
            frame_time: flows.then(|| Nanos::from_secs_f64(load / fps)),
            frame_cycles: { self.clock_of(number) }
                .filter(|_| flows && !pinned)
                .map(|_| self.frame_cycles(stage, fps)),
            ran: if pinned {
                Nanos::ZERO
            } else {
                Nanos(word(Measured::Cpu))
            },
            memory_bytes: word(Measured::Memory),
            waiting: { 0..spec.takes.len() }
                .map(|port| self.layout.waiting(&self.region, stage, port).0)
                .collect(),
            restarts: self.note(stage, Note::Restarts).load(Relaxed),
        }
    }
}

/// Fewer frames per second are none: an average that falls never gets to zero.
pub(super) const FPS_LEAST: f64 = 0.01;
