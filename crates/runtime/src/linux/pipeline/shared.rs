//! What all processes of a running pipeline share, and how they wait for each other.

use std::ffi::OsString;
use std::fmt;
use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_os::LinuxOs;
use punctual_pipeline::{AnyStage, Bell, Control, Graph, Layout, Region};
use punctual_platform::linux::futex;
use punctual_platform::linux::shared_memory::SharedMemory;
use punctual_units::{Clock, CoreId, Nanos, Time};

use super::PipelineError;

/// Cores of one pipeline: each has slots for two processes of a stage.
pub const CORES_MAX: usize = 8;
/// The longest that a thread waits before it looks again: a lost wake-up costs this much at most.
const LOOK_AGAIN: Nanos = Nanos::from_millis(100);

/// Makes the stage of that name as it is before the first frame; `None`: there is no such stage.
pub type Bodies = Arc<dyn Fn(&str) -> Option<Box<dyn AnyStage>> + Send + Sync>;

/// Words that the processes share.
const END: usize = 0;
const CORES: usize = 1;
const CORE: usize = 2;
/// The process of each worker.
const WORKER: usize = CORE + CORES_MAX;
/// The program that new processes execute: how many bytes its path has, and the path. None: this one.
const PROGRAM: usize = WORKER + CORES_MAX;
/// The longest path.
const PROGRAM_MAX: usize = 256;

/// How a pipeline ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Not yet.
    Runs,
    /// Its last stage has ended, or the caller wants it to.
    Asked,
    /// Workers end as soon as they are started.
    NoWorker,
    /// This stage cannot go on.
    Failed(usize),
}

impl End {
    fn word(self) -> u64 {
        match self {
            End::Runs => 0,
            End::Asked => 1,
            End::NoWorker => 2,
            End::Failed(stage) => 3 + stage as u64,
        }
    }

    fn of(word: u64) -> End {
        match word {
            0 => End::Runs,
            1 => End::Asked,
            2 => End::NoWorker,
            failed => End::Failed(failed as usize - 3),
        }
    }
}

/// What is noted of one stage.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub(super) enum Note {
    /// When its owner was killed on purpose.
    KilledAt,
    AnnouncedAt,
    AskedAt,
    YieldedAt,
    /// Deaths in a row without a step between.
    Deaths,
    /// Steps at the last death.
    StepsAtDeath,
    Restarts,
    Moves,
    /// What its owner is to do at its next checkpoint, besides: see [`Besides`].
    Besides,
    /// Time in steps, in nanoseconds.
    Busy,
}

/// What an owner does at a checkpoint without giving the stage away: the baselines of moving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Besides {
    /// It moves itself to the core of this number of the pipeline's.
    Pin(usize),
    /// Nothing, which is logged as the others are: the control of a measurement.
    Nothing,
}

impl Besides {
    pub(super) fn word(self) -> u64 {
        match self {
            Besides::Pin(core) => 1 + core as u64,
            Besides::Nothing => u64::MAX,
        }
    }

    pub(super) fn of(word: u64) -> Option<Besides> {
        match word {
            0 => None,
            u64::MAX => Some(Besides::Nothing),
            core => Some(Besides::Pin(core as usize - 1)),
        }
    }
}

/// The process in a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slot {
    /// 0: none.
    pub(super) pid: i32,
    /// There is to be one.
    pub(super) wanted: bool,
    /// It is to be started as a program of its own, in place of a fork of the worker.
    pub(super) executed: bool,
}

impl Slot {
    fn of(word: u64) -> Slot {
        Slot {
            pid: word as u32 as i32,
            wanted: word >> 32 & 1 == 1,
            executed: word >> 33 & 1 == 1,
        }
    }

    fn word(self) -> u64 {
        u64::from(self.pid as u32) | u64::from(self.wanted) << 32 | u64::from(self.executed) << 33
    }
}

/// The shared memory of a pipeline, and what lies in it.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) graph: Arc<Graph>,
    pub(super) layout: Arc<Layout>,
    pub(super) region: Region,
    memory: Arc<SharedMemory>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({}, {:?})", self.graph.name(), self.region)
    }
}

impl Shared {
    /// Memory for a new pipeline on these cores.
    pub(super) fn create(graph: Graph, cores: &[CoreId]) -> Result<Shared, PipelineError> {
        let layout = Layout::new(&graph);
        let memory = SharedMemory::create("punctual-pipeline", layout.bytes())?;
        let shared = Shared::over(graph, layout, memory);
        shared.layout.prepare(&shared.region)?;
        let words = shared.words();
        words[CORES].store(cores.len() as u64, Ordering::Relaxed);
        for (number, core) in cores.iter().enumerate() {
            words[CORE + number].store(core.0.into(), Ordering::Relaxed);
        }
        Ok(shared)
    }

    /// The memory of a running pipeline, by a descriptor of its process.
    pub(super) fn open(graph: Graph, pid: i32, descriptor: i32) -> Result<Shared, PipelineError> {
        let path = format!("/proc/{pid}/fd/{descriptor}");
        let file = { OpenOptions::new() }.read(true).write(true).open(&path);
        let file = file.map_err(|why| PipelineError::Memory(format!("opening {path}: {why}")))?;
        let memory = SharedMemory::open(OwnedFd::from(file))?;
        let layout = Layout::new(&graph);
        let shared = Shared::over(graph, layout, memory);
        shared.layout.check(&shared.region)?;
        Ok(shared)
    }

    fn over(graph: Graph, layout: Layout, memory: SharedMemory) -> Shared {
        memory.populate();
        let memory = Arc::new(memory);
        let kept = Arc::clone(&memory) as Arc<_>;
        // SAFETY: the mapping begins at a page, has this length, and lives as long as `kept`; no other code writes
        // there than the pipeline's.
        let region = unsafe { Region::of(memory.base(), memory.bytes(), kept) };
        Shared {
            graph: Arc::new(graph),
            layout: Arc::new(layout),
            region,
            memory,
        }
    }

    /// By which descriptor of this process others open the memory.
    pub(super) fn descriptor(&self) -> i32 {
        self.memory.as_fd().as_raw_fd()
    }

    pub(super) fn now(&self) -> Time {
        LinuxOs.now()
    }

    fn words(&self) -> &[AtomicU64] {
        self.layout.shared(&self.region)
    }

    pub(super) fn stages(&self) -> std::ops::Range<usize> {
        0..self.graph.stages().len()
    }

    pub(super) fn name(&self, stage: usize) -> &str {
        self.graph.stages().get(stage).map_or("", |spec| spec.name.as_str())
    }

    /// How many cores it has.
    pub(super) fn cores(&self) -> usize {
        (self.words()[CORES].load(Ordering::Relaxed) as usize).clamp(1, CORES_MAX)
    }

    /// The core of that number of the pipeline's.
    pub(super) fn core(&self, number: usize) -> CoreId {
        CoreId(self.words()[CORE + number % CORES_MAX].load(Ordering::Relaxed) as u32)
    }

    pub(super) fn end(&self) -> End {
        End::of(self.words()[END].load(Ordering::Acquire))
    }

    /// Has the pipeline end, for the first reason that is given, and wakes all of its threads.
    pub(super) fn end_by(&self, end: End) {
        let runs = End::Runs.word();
        let _ = self.words()[END].compare_exchange(runs, end.word(), Ordering::AcqRel, Ordering::Relaxed);
        for stage in self.stages() {
            self.ring(self.layout.bell(&self.region, stage));
            (0..self.slots()).for_each(|slot| self.ring(self.slot_bell(stage, slot)));
        }
        (0..self.cores()).for_each(|core| self.ring(self.worker_bell(core)));
    }

    /// The process of a worker; 0 until it is there.
    pub(super) fn worker(&self, core: usize) -> &AtomicU64 {
        &self.words()[WORKER + core % CORES_MAX]
    }

    /// Has new processes that are executed be of that program, in place of this one.
    pub(super) fn set_program(&self, path: &Path) -> Result<(), PipelineError> {
        let bytes = path.as_os_str().as_bytes();
        if bytes.len() > PROGRAM_MAX {
            let why = format!(
                "the path of the new program has {} bytes, at most {PROGRAM_MAX}",
                bytes.len()
            );
            return Err(PipelineError::Memory(why));
        }
        let words = &self.words()[PROGRAM..];
        words[0].store(0, Ordering::Release);
        for (word, bytes) in words[1..].iter().zip(bytes.chunks(8)) {
            let mut eight = [0; 8];
            eight[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(eight), Ordering::Relaxed);
        }
        words[0].store(bytes.len() as u64, Ordering::Release);
        Ok(())
    }

    pub(super) fn program(&self) -> PathBuf {
        let words = &self.words()[PROGRAM..];
        let length = (words[0].load(Ordering::Acquire) as usize).min(PROGRAM_MAX);
        let bytes = words[1..]
            .iter()
            .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes());
        let path: Vec<u8> = bytes.take(length).collect();
        match path.is_empty() {
            true => "/proc/self/exe".into(),
            false => OsString::from_vec(path).into(),
        }
    }

    pub(super) fn worker_bell(&self, core: usize) -> Bell<'_> {
        self.layout.shared_bell(&self.region, core)
    }

    /// Slots of each stage: two on each core, so that a new version can be ready beside the old one.
    pub(super) fn slots(&self) -> u8 {
        (2 * self.cores()) as u8
    }

    /// The number of the core that a slot is on.
    pub(super) fn core_of(&self, slot: u8) -> usize {
        usize::from(slot) % self.cores()
    }

    pub(super) fn slot(&self, stage: usize, slot: u8) -> Slot {
        Slot::of(self.layout.slot(&self.region, stage, slot).load(Ordering::Acquire))
    }

    /// Changes what is said of a slot.
    pub(super) fn set_slot(&self, stage: usize, slot: u8, change: impl Fn(&mut Slot)) {
        let word = self.layout.slot(&self.region, stage, slot);
        let changed = |word| {
            let mut slot = Slot::of(word);
            change(&mut slot);
            Some(slot.word())
        };
        let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed);
    }

    pub(super) fn slot_bell(&self, stage: usize, slot: u8) -> Bell<'_> {
        self.layout.slot_bell(&self.region, stage, slot)
    }

    pub(super) fn stage_bell(&self, stage: usize) -> Bell<'_> {
        self.layout.bell(&self.region, stage)
    }

    pub(super) fn control(&self, stage: usize) -> Control {
        Control::of(self.layout.control(&self.region, stage).load(Ordering::Acquire))
    }

    /// Changes the control word as `change` says; answers what it says then, `None` where `change` does.
    pub(super) fn change_control(&self, stage: usize, change: impl Fn(Control) -> Option<Control>) -> Option<Control> {
        let word = self.layout.control(&self.region, stage);
        let changed = |word| change(Control::of(word)).map(Control::word);
        let before = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed).ok()?;
        change(Control::of(before))
    }

    pub(super) fn set_control(&self, stage: usize, control: Control) {
        self.layout
            .control(&self.region, stage)
            .store(control.word(), Ordering::Release);
    }

    pub(super) fn note(&self, stage: usize, note: Note) -> &AtomicU64 {
        &self.layout.notes(&self.region, stage)[note as usize]
    }

    /// Notes that something happened now.
    pub(super) fn stamp(&self, stage: usize, note: Note) {
        self.note(stage, note).store(self.now().0, Ordering::Relaxed);
    }

    /// The instant of a note, which is struck.
    pub(super) fn take_stamp(&self, stage: usize, note: Note) -> Option<Time> {
        Some(Time(self.note(stage, note).swap(0, Ordering::Relaxed))).filter(|at| *at != Time::ZERO)
    }

    /// Rings, and wakes the thread that waits.
    pub(super) fn ring(&self, bell: Bell<'_>) {
        if bell.ring() {
            futex::wake(bell.count);
        }
    }

    pub(super) fn ring_stage(&self, stage: usize) {
        self.ring(self.stage_bell(stage));
    }

    /// Waits until the bell rings again.
    pub(super) fn wait(&self, bell: Bell<'_>, heard: u32, at_most: Option<Nanos>) {
        bell.waits(true);
        if bell.heard() == heard {
            futex::wait(bell.count, heard, Some(at_most.unwrap_or(LOOK_AGAIN)));
        }
        bell.waits(false);
    }
}
