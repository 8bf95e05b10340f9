//! What stages cost, in shared memory: while a policy or a user asks, the process of each stage counts the time that it
//! has run, between two steps, a hundred times a second at most. Each worker looks at the counts of its core a hundred
//! times a second, and any process that may open the pipeline reads what came of it.
//!
//! **Method.** A stage's *load* is the share of a core that its process takes, by its CPU clock, over about the last
//! half second: it counts what the stage does and what being woken takes, and leaves out the time that other work has
//! the core. Pinned stages are threads of the caller's process: their load is their time in steps. Time for each frame
//! is the load over the rate of frames that leave the pipeline.
//!
//! A process asks for its own CPU clock where it is awake anyway, so that a worker reads 16 stages without a system
//! call. It asks the clock of another process only where that has not counted for [`QUIET_MAX`] looks: in a long step,
//! or without frames.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use punctual_platform::linux::KernelTree;
use punctual_platform::linux::cpufreq;
use punctual_platform::linux::process::{OWN, cpu_time, resident_bytes};
use punctual_units::{CoreId, Nanos, Time};

use super::clocks::has_rows;
use super::coordinator::NOMINAL;
use super::desk::{Measured, Word};
use super::panel::Panel;
use super::shared::{Note, Shared};

/// How often a worker looks, and a process counts.
pub(super) const EVERY: Nanos = Nanos::from_millis(10);
/// Looks in a row at which a process has not counted, until its worker asks for its CPU clock.
const QUIET_MAX: u32 = 5;
/// A worker that has not looked for so long begins anew: statistics were not asked for meanwhile.
const LONG_AGO: Nanos = Nanos::from_millis(500);
/// The time constant of what is averaged.
const AVERAGED: Nanos = Nanos::from_millis(500);
/// How often memory and clocks are read: the kernel answers in text.
const READ_EVERY: Nanos = Nanos::from_secs(2);

/// The process of a stage counts its own time.
#[derive(Debug, Default)]
pub(super) struct OwnCount {
    /// The hundredth of a second in which it counted last.
    last: u64,
}

impl OwnCount {
    /// Counts at `now`, where statistics are asked for and it has not in this hundredth of a second.
    pub(super) fn look(&mut self, shared: &Shared, stage: usize, slot: u8, now: Time) {
        let this = now.0 / EVERY.0;
        if this == self.last || !shared.is_watched(now) {
            return;
        }
        self.last = this;
        if let Some(ran) = cpu_time(OWN) {
            shared.count_ran(stage, slot, ran);
        }
    }
}

/// What was seen of a stage's process at the last look.
#[derive(Clone, Copy, Debug)]
struct Seen {
    slot: u8,
    /// 0 of a pinned stage.
    pid: i32,
    ran: Nanos,
    /// Looks in a row at which `ran` was the same.
    quiet: u32,
}

/// What one look is worth in an average.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// The time since the look before.
    since: Nanos,
    weight: f64,
}

impl Look {
    /// The look of that number since the worker began anew: the first ones are worth as much as each other.
    fn new(since: Nanos, number: u64) -> Look {
        let weight = -(-since.as_secs_f64() / AVERAGED.as_secs_f64()).exp_m1();
        Look {
            since,
            weight: weight.max(1.0 / number.max(1) as f64),
        }
    }
}

/// Measures the processes of one core.
#[derive(Debug)]
pub(super) struct Gatherer {
    core: usize,
    /// What was seen of each stage whose process was on this core at the last look.
    before: Vec<Option<Seen>>,
    /// Steps of the stage at which frames leave.
    left: u64,
    looked: Time,
    /// Looks since it began anew.
    looks: u64,
    read_at: Time,
    tree: KernelTree,
}

impl Gatherer {
    pub(super) fn new(shared: &Shared, core: usize) -> Gatherer {
        Gatherer {
            core,
            before: vec![None; shared.stages().len()],
            left: 0,
            looked: Time::ZERO,
            looks: 0,
            read_at: Time::ZERO,
            tree: KernelTree::default(),
        }
    }

    /// Measures what has run since the last look. The coordinator's worker also measures what is of no core: the rate
    /// of frames, and pinned stages.
    pub(super) fn look(&mut self, shared: &Shared, coordinates: bool, now: Time) {
        let since = now.since(std::mem::replace(&mut self.looked, now));
        if since > LONG_AGO {
            self.before.fill(None);
            self.looks = 0;
        }
        let look = Look::new(since, self.looks);
        for stage in shared.stages() {
            let seen = self.process(shared, stage, coordinates);
            self.before[stage] = seen.map(|(slot, pid)| measure(shared, stage, (slot, pid), self.before[stage], look));
        }
        if coordinates {
            self.look_at_frames(shared, look);
        }
        self.looks += 1;
        if now >= self.read_at {
            self.read_at = now + READ_EVERY;
            self.read(shared);
        }
    }

    /// The slot and the process to be measured, if it is this worker's to measure; 0 for a pinned stage.
    fn process(&self, shared: &Shared, stage: usize, coordinates: bool) -> Option<(u8, i32)> {
        if !shared.graph.stages()[stage].migratable {
            return coordinates.then_some((0, 0));
        }
        let owner = shared.control(stage).owner;
        let pid = shared.slot(stage, owner).pid;
        (shared.core_of(owner) == self.core && pid != 0).then_some((owner, pid))
    }

    fn look_at_frames(&mut self, shared: &Shared, look: Look) {
        let left = shared.layout.steps(&shared.region, shared.last_stage());
        let frames = left.saturating_sub(std::mem::replace(&mut self.left, left));
        // A worker that has just become the coordinator, or has not looked for long, has not counted before.
        if self.looks > 0 && (frames < left || left == 0) {
            average(
                shared.desk_word(Word::Fps),
                frames as f64 / look.since.as_secs_f64(),
                look.weight,
            );
        }
    }

    fn read(&self, shared: &Shared) {
        let core = shared.core(self.core);
        // One that is set is known to the hand that sets it.
        if !(shared.turns_clocks() && has_rows(shared.policy())) {
            shared.set_clock_of(self.core, cpufreq::current(&self.tree, core));
        }
        for stage in shared.stages() {
            if let Some((_, pid @ 1..)) = self.process(shared, stage, false) {
                let bytes = resident_bytes(pid).unwrap_or(0);
                shared.measured(stage, Measured::Memory).store(bytes, Relaxed);
            }
        }
    }
}

/// Averages what a stage's process has run since the last look. One that was not seen then begins anew, from what it
/// has run by now.
fn measure(shared: &Shared, stage: usize, (slot, pid): (u8, i32), before: Option<Seen>, look: Look) -> Seen {
    let known = before.filter(|seen| (seen.slot, seen.pid) == (slot, pid));
    let asks = pid != 0 && known.is_none_or(|seen| seen.quiet >= QUIET_MAX);
    if let Some(ran) = asks.then(|| cpu_time(pid)).flatten() {
        shared.count_ran(stage, slot, ran);
    }
    let ran = match pid {
        0 => Nanos(shared.note(stage, Note::Busy).load(Relaxed)),
        _ => Nanos(shared.counted(stage, slot).load(Relaxed)),
    };
    if let Some(seen) = known {
        note(shared, stage, ran.saturating_sub(seen.ran), look);
    }
    let same = known.filter(|seen| seen.ran == ran && !asks);
    let quiet = same.map_or(0, |seen| seen.quiet + 1);
    Seen { slot, pid, ran, quiet }
}

/// Notes that a stage's process has run for `ran` since the last look.
fn note(shared: &Shared, stage: usize, ran: Nanos, look: Look) {
    let share = ran.as_secs_f64() / look.since.as_secs_f64();
    average(shared.measured(stage, Measured::Load), share, look.weight);
    // Of the clock at this moment: an average of loads would mix clocks after each change.
    let clock = shared.clock_of(shared.core_of(shared.control(stage).owner));
    let cycles = share * clock.unwrap_or(NOMINAL).0 as f64;
    average(shared.measured(stage, Measured::Cycles), cycles, look.weight);
}

/// Moves the double in `word` towards `value` by the share `weight`. One process writes it at a time; two that do,
/// around a move, lose one value.
fn average(word: &AtomicU64, value: f64, weight: f64) {
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
    /// What the stages cost. Each is read by itself, while frames go on. Where no policy decides, workers measure for
    /// three seconds after this was called: an answer after longer than that is of the time before.
    pub fn statistics(&self) -> Statistics {
        let shared = self.shared();
        shared.watch(shared.now());
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

/// Each process is measured several times in that time.
const FIRST: Duration = Duration::from_millis(100);

impl Panel {
    /// What the stages cost, for one that asks once: waits for a tenth of a second where nothing was measured before.
    pub fn measure(&self) -> Statistics {
        if !self.shared().is_watched(self.shared().now()) {
            self.shared().watch(self.shared().now());
            std::thread::sleep(FIRST);
        }
        self.statistics()
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
        (self.cycles(stage) / fps) as u64
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
