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
use punctual_pipeline::{AnyStage, Bell, Checkpoint, Control, Graph, Layout, Region, Slot, Versions, may_go_on};
use punctual_platform::linux::futex;
use punctual_platform::linux::shared_memory::SharedMemory;
use punctual_units::{Clock, CoreId, Nanos, Time};

use super::PipelineError;

/// Cores of one pipeline: each has slots for two processes of a stage.
pub const CORES_MAX: usize = 8;
/// The longest that the process of a stage waits for its neighbours before it looks again. A process that was declared
/// dead and goes on wakes at the same bell as the one that has the stage now, and strikes what that one has said, that
/// it waits. A wake-up that is lost so costs this much at most, and ten looks a second where nothing flows.
pub(super) const LOOK_AGAIN: Nanos = Nanos::from_millis(100);

/// Makes the stage of that name as it is before the first frame; `None`: there is no such stage.
pub type Bodies = Arc<dyn Fn(&str) -> Option<Box<dyn AnyStage>> + Send + Sync>;

/// Words that the processes share.
const END: usize = 0;
const CORES: usize = 1;
const CORE: usize = 2;
/// The process of each worker.
const WORKER: usize = CORE + CORES_MAX;
/// When each worker looked last.
const LOOKED: usize = WORKER + CORES_MAX;
/// The longest that a step may take, in nanoseconds.
const STEP_MAX: usize = LOOKED + CORES_MAX;
/// See `planted.rs`.
const PLANTED: usize = STEP_MAX + 1;
/// In how many slots of a stage processes sleep that nothing asked for yet.
const KEEPS: usize = PLANTED + 1;
/// The programs of versions, from number 1 on: how many bytes the path has, and the path.
const PROGRAMS: usize = KEEPS + 1;
/// The longest path, in bytes.
const PROGRAM_MAX: usize = 256;
/// Words of a program.
const PROGRAM_WORDS: usize = 1 + PROGRAM_MAX / 8;
/// Programs at a time: those of all versions in force, and of the ones before them.
const PROGRAMS_MAX: u8 = 24;

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
    /// See [`Versions`].
    Versions,
    /// Steps when the version in force took over.
    StepsAtVersion,
    /// When the step under way began; zero between steps.
    StepBegan,
    /// Processes that were killed because a step took too long.
    Hung,
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

    /// The stages that have processes of their own.
    pub(super) fn migratable(&self) -> impl Iterator<Item = usize> + use<'_> {
        self.stages().filter(|stage| self.graph.stages()[*stage].migratable)
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

    /// The number of the program at that path, which is told to all processes.
    pub(super) fn add_program(&self, path: &Path) -> Result<u8, PipelineError> {
        let bytes = path.as_os_str().as_bytes();
        let refused = |why: String| Err(PipelineError::Memory(why));
        if bytes.len() > PROGRAM_MAX {
            return refused(format!(
                "the path of the new program has {} bytes, at most {PROGRAM_MAX}",
                bytes.len()
            ));
        }
        if let Some(known) = (1..=PROGRAMS_MAX).find(|number| self.program(*number) == path) {
            return Ok(known);
        }
        let Some(number) = (1..=PROGRAMS_MAX).find(|number| !self.is_in_use(*number)) else {
            return refused(format!(
                "stages of this pipeline are of {PROGRAMS_MAX} other programs already"
            ));
        };
        let words = self.program_words(number);
        words[0].store(0, Ordering::Release);
        for (word, bytes) in words[1..].iter().zip(bytes.chunks(8)) {
            let mut eight = [0; 8];
            eight[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(eight), Ordering::Relaxed);
        }
        words[0].store(bytes.len() as u64, Ordering::Release);
        Ok(number)
    }

    /// The program of that number.
    pub(super) fn program(&self, number: u8) -> PathBuf {
        let path = |words: &[AtomicU64]| {
            let length = (words[0].load(Ordering::Acquire) as usize).min(PROGRAM_MAX);
            let words = words[1..].iter();
            let bytes = words.flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes());
            OsString::from_vec(bytes.take(length).collect()).into()
        };
        match number {
            0 => "/proc/self/exe".into(),
            number => path(self.program_words(number)),
        }
    }

    fn program_words(&self, number: u8) -> &[AtomicU64] {
        let number = usize::from(number.clamp(1, PROGRAMS_MAX)) - 1;
        &self.words()[PROGRAMS + number * PROGRAM_WORDS..][..PROGRAM_WORDS]
    }

    /// Whether a stage is, was, or is about to be of that program.
    fn is_in_use(&self, program: u8) -> bool {
        let of_stage = |stage: usize| {
            let versions = self.versions(stage);
            let slots = (0..self.slots()).map(|slot| self.slot(stage, slot).version);
            slots
                .chain([versions.now, versions.before])
                .any(|it| it.program == program)
        };
        self.stages().any(of_stage)
    }

    /// The point at which a process dies; see `planted.rs`.
    pub(super) fn planted(&self) -> &AtomicU64 {
        &self.words()[PLANTED]
    }

    /// When a worker looked last at what it has to do.
    pub(super) fn looked(&self, core: usize) -> &AtomicU64 {
        &self.words()[LOOKED + core % CORES_MAX]
    }

    /// The longest that a step may take.
    pub(super) fn step_max(&self) -> Nanos {
        Nanos(self.words()[STEP_MAX].load(Ordering::Relaxed))
    }

    pub(super) fn set_step_max(&self, span: Nanos) {
        self.words()[STEP_MAX].store(span.0, Ordering::Relaxed);
    }

    /// Keeps processes ready in the first `slots` slots of each stage.
    pub(super) fn keep(&self, slots: u8) {
        self.words()[KEEPS].store(slots.into(), Ordering::Relaxed);
    }

    /// Whether a process is kept ready in `slot`.
    pub(super) fn is_kept(&self, slot: u8) -> bool {
        u64::from(slot) < self.words()[KEEPS].load(Ordering::Relaxed)
    }

    /// The versions of a stage.
    pub(super) fn versions(&self, stage: usize) -> Versions {
        Versions::of(self.note(stage, Note::Versions).load(Ordering::Acquire))
    }

    /// Said by the process that has the stage, or by the worker of one that has died.
    pub(super) fn set_versions(&self, stage: usize, versions: Versions) {
        if self.versions(stage) == versions {
            return;
        }
        let steps = self.layout.steps(&self.region, stage);
        self.note(stage, Note::StepsAtVersion).store(steps, Ordering::Relaxed);
        self.note(stage, Note::Versions)
            .store(versions.word(), Ordering::Release);
        // Those of the version before end.
        (0..self.slots()).for_each(|slot| self.ring(self.slot_bell(stage, slot)));
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

    /// Says `next` of a slot, of which `before` was said; whether that was so still.
    pub(super) fn change_slot(&self, stage: usize, slot: u8, before: Slot, next: Slot) -> bool {
        let word = self.layout.slot(&self.region, stage, slot);
        let (before, next) = (before.word(), next.word());
        word.compare_exchange(before, next, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    pub(super) fn slot_bell(&self, stage: usize, slot: u8) -> Bell<'_> {
        self.layout.slot_bell(&self.region, stage, slot)
    }

    pub(super) fn stage_bell(&self, stage: usize) -> Bell<'_> {
        self.layout.bell(&self.region, stage)
    }

    /// Gives the stages of a core, whose processes have died with their worker, to processes that are ready on other
    /// cores. A stage for which there is none waits for the next worker.
    ///
    /// The kernel may not have come to killing them yet: one that is still in a step cannot commit it.
    pub(super) fn leave_core(&self, core: usize) {
        for stage in self.migratable() {
            let owner = self.control(stage).owner;
            if self.core_of(owner) != core {
                continue;
            }
            let now = self.versions(stage).now;
            let ready = |slot: &u8| self.core_of(*slot) != core && may_go_on(self.slot(stage, *slot), now);
            let Some(spare) = (0..self.slots()).find(ready) else {
                continue;
            };
            if let Some(next) = self.change_control(stage, |control| control.died(owner, Some(spare))) {
                self.note(stage, Note::Restarts).fetch_add(1, Ordering::Relaxed);
                self.ring(self.slot_bell(stage, next.owner));
                self.ring(self.worker_bell(self.core_of(next.owner)));
            }
        }
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

    /// What the process of a stage looks at between two steps.
    pub(super) fn checkpoint(&self, stage: usize) -> Checkpoint<'_> {
        Checkpoint {
            control: self.layout.control(&self.region, stage),
            end: &self.words()[END],
            besides: self.note(stage, Note::Besides),
        }
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
