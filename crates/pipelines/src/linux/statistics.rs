//! Costs of stages, in shared memory. While a policy or a user asks for them, the process of each stage records its CPU
//! time between two steps, at most a hundred times a second. Each worker reads the records of its core a hundred times
//! a second, and any process that may open the pipeline reads the results.
//!
//! **Method.** A stage's *load* is the share of a core that its process uses, by its CPU clock, over about the last
//! half second: it includes the stage's work and the cost of being woken, and excludes the time in which other work has
//! the core. Pinned stages are threads of the caller's process: their load is their time in steps. Time for each frame
//! is the load over the rate of frames that leave the pipeline.
//!
//! A process reads its own CPU clock when it is awake anyway, so that a worker reads 16 stages without a system call.
//! The worker reads the clock of another process only if that process has not recorded its time for [`QUIET_MAX`]
//! looks: in a long step, or without frames.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use punctual_platform::linux::KernelTree;
use punctual_platform::linux::cpufreq;
use punctual_platform::linux::process::{OWN, cpu_time, resident_bytes};
use punctual_units::{CoreId, Nanos, Time};

use super::clocks::has_rows;
use super::coordinator::NOMINAL;
use super::desk::{StageMeasure, Word};
use super::panel::Panel;
use super::shared::{Note, Segment};

/// Period at which a worker looks, and a process records its time.
pub(super) const EVERY: Nanos = Nanos::from_millis(10);
/// Number of consecutive looks without a record from a process, after which its worker reads its CPU clock.
const QUIET_MAX: u32 = 5;
/// A worker that has not looked for this long begins anew: statistics were not requested meanwhile.
const LONG_AGO: Nanos = Nanos::from_millis(500);
/// Time constant of the averages.
const AVERAGED: Nanos = Nanos::from_millis(500);
/// Period of reading memory and clocks: the kernel answers in text.
const READ_EVERY: Nanos = Nanos::from_secs(2);

/// Records the CPU time of a stage's process, in that process.
#[derive(Debug, Default)]
pub(super) struct OwnCount {
    /// The period, numbered from zero on the clock, in which it last recorded.
    last: u64,
}

impl OwnCount {
    /// Records the CPU time at `now`, if statistics are requested and this period has no record yet.
    pub(super) fn look(&mut self, shared: &Segment, stage: usize, slot: u8, now: Time) {
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

/// State of a stage's process at the last look.
#[derive(Clone, Copy, Debug)]
struct LastLook {
    slot: u8,
    /// Process id; 0 for a pinned stage.
    pid: i32,
    ran: Nanos,
    /// Number of consecutive looks at which `ran` was the same.
    quiet: u32,
}

/// Weight of one look in an average.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// Time since the previous look.
    since: Nanos,
    weight: f64,
}

impl Look {
    /// Weight of look `number` since the worker began anew: the first ones count equally.
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
    /// State of each stage whose process was on this core at the last look.
    before: Vec<Option<LastLook>>,
    /// Steps of the stage at which frames leave.
    left: u64,
    looked: Time,
    /// Number of looks since the worker began anew.
    looks: u64,
    read_at: Time,
    tree: KernelTree,
}

impl Gatherer {
    pub(super) fn new(shared: &Segment, core: usize) -> Gatherer {
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

    /// Measures the time since the last look. The coordinator's worker also measures what belongs to no core: the rate
    /// of frames, and pinned stages.
    pub(super) fn look(&mut self, shared: &Segment, coordinates: bool, now: Time) {
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

    /// Slot and process id to measure, if this worker measures the stage; 0 for a pinned stage.
    fn process(&self, shared: &Segment, stage: usize, coordinates: bool) -> Option<(u8, i32)> {
        if !shared.graph.stages()[stage].migratable {
            return coordinates.then_some((0, 0));
        }
        let owner = shared.control(stage).owner;
        let pid = shared.slot(stage, owner).pid;
        (shared.core_of(owner) == self.core && pid != 0).then_some((owner, pid))
    }

    fn look_at_frames(&mut self, shared: &Segment, look: Look) {
        let left = shared.layout.steps(&shared.region, shared.last_stage());
        let frames = left.saturating_sub(std::mem::replace(&mut self.left, left));
        // A worker that has just become the coordinator, or has not looked for long, has no previous count.
        if self.looks > 0 && (frames < left || left == 0) {
            average(
                shared.desk_word(Word::Fps),
                frames as f64 / look.since.as_secs_f64(),
                look.weight,
            );
        }
    }

    fn read(&self, shared: &Segment) {
        let core = shared.core(self.core);
        // A clock that is set is recorded by the thread that sets it.
        if !(shared.turns_clocks() && has_rows(shared.policy())) {
            shared.set_clock_of(self.core, cpufreq::current(&self.tree, core));
        }
        for stage in shared.stages() {
            if let Some((_, pid @ 1..)) = self.process(shared, stage, false) {
                let bytes = resident_bytes(pid).unwrap_or(0);
                shared.measured(stage, StageMeasure::Memory).store(bytes, Relaxed);
            }
        }
    }
}

/// Averages the CPU time of a stage's process since the last look. A process that was not seen then begins anew, from
/// its CPU time so far.
fn measure(shared: &Segment, stage: usize, (slot, pid): (u8, i32), before: Option<LastLook>, look: Look) -> LastLook {
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
    LastLook { slot, pid, ran, quiet }
}

/// Records that a stage's process has run for `ran` since the last look.
fn note(shared: &Segment, stage: usize, ran: Nanos, look: Look) {
    let share = ran.as_secs_f64() / look.since.as_secs_f64();
    average(shared.measured(stage, StageMeasure::Load), share, look.weight);
    // At the present clock: an average of loads would mix clocks after each change.
    let clock = shared.clock_of(shared.core_of(shared.control(stage).owner));
    let cycles = share * clock.unwrap_or(NOMINAL).0 as f64;
    average(shared.measured(stage, StageMeasure::Cycles), cycles, look.weight);
}

/// Moves the double in `word` towards `value` by the share `weight`. One process writes it at a time; two that do,
/// around a migration, lose one value.
fn average(word: &AtomicU64, value: f64, weight: f64) {
    let average = f64::from_bits(word.load(Relaxed));
    word.store((average + weight * (value - average)).to_bits(), Relaxed);
}

/// Costs of one stage.
#[derive(Clone, Debug, PartialEq)]
pub struct StageStatistics {
    /// Name of the stage in the graph.
    pub name: String,
    /// Core on which its process runs; `None` for a pinned stage.
    pub core: Option<CoreId>,
    /// Share of a core that the stage uses, over about the last half second.
    pub load: f64,
    /// CPU time for each frame that leaves the pipeline; `None` if none does.
    pub frame_time: Option<Nanos>,
    /// CPU cycles for each frame that leaves the pipeline; `None` if the clock of its core cannot be read.
    pub frame_cycles: Option<u64>,
    /// Total CPU time of its processes; zero for a pinned stage, whose thread belongs to the caller.
    pub ran: Nanos,
    /// Resident memory of its process in bytes, including pages shared with others; 0 for a pinned stage.
    pub memory_bytes: u64,
    /// Number of frames that wait at each of its inputs now.
    pub waiting: Vec<u64>,
    /// Number of processes that died while they owned the stage.
    pub restarts: u64,
}

/// Present costs of a pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistics {
    /// Frames per second that leave the pipeline, over about the last half second.
    pub fps: f64,
    /// Costs of all stages, in the order of the graph.
    pub stages: Vec<StageStatistics>,
}

impl Panel {
    /// Costs of the stages, each read separately while frames move. If no policy decides, workers measure for three
    /// seconds after this call: statistics requested later than that describe the earlier time.
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

/// Time for the first measurement: each process is measured several times within it.
const FIRST: Duration = Duration::from_millis(100);

impl Panel {
    /// Costs of the stages, for a single request: waits for a tenth of a second if nothing was measured before.
    pub fn measure(&self) -> Statistics {
        if !self.shared().is_watched(self.shared().now()) {
            self.shared().watch(self.shared().now());
            std::thread::sleep(FIRST);
        }
        self.statistics()
    }
}

impl Segment {
    /// The stage at which frames leave the pipeline: the first without an output.
    pub(super) fn last_stage(&self) -> usize {
        let stages = self.graph.stages();
        let last = stages.iter().position(|stage| stage.makes.is_empty());
        last.unwrap_or(stages.len() - 1)
    }

    /// Cycles of a stage for each frame; nanoseconds if its core does not report its clock.
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
                Nanos(word(StageMeasure::Cpu))
            },
            memory_bytes: word(StageMeasure::Memory),
            waiting: { 0..spec.takes.len() }
                .map(|port| self.layout.waiting(&self.region, stage, port).0)
                .collect(),
            restarts: self.note(stage, Note::Restarts).load(Relaxed),
        }
    }
}

/// Lower rates count as no frames: an average that falls never reaches zero.
pub(super) const FPS_LEAST: f64 = 0.01;
