//! Memory that all processes of a running pipeline share, and the bells by which they wait for each other.

use std::ffi::OsString;
use std::fmt;
use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_os::LinuxOs;
use punctual_platform::linux::futex;
use punctual_platform::linux::shared_memory::SharedMemory;
use punctual_units::{Clock, CoreId, Nanos, Time};

use super::PipelineError;
use super::watchdog::{Beat, OwnerActivity};
use crate::region::{load_bytes, store_bytes};
use crate::{
    AnyStage, Bell, Checkpoint, Control, Deaths, Graph, Layout, LayoutError, Region, Slot, Versions, may_go_on,
};

/// Greatest number of cores of one pipeline; each has slots for two processes of a stage.
pub const CORES_MAX: usize = 8;
/// Longest wait of a stage's process for its neighbours before it looks again. A process that was wrongly declared dead
/// waits at the same bell as the new owner, and may clear the flag that says that the owner waits. Such a lost wake-up
/// costs at most this time, and the bound costs ten looks a second where no frames move.
pub(super) const LOOK_AGAIN: Nanos = Nanos::from_millis(100);
/// Least such wait, for very short steps.
const LOOK_AGAIN_MIN: Nanos = Nanos::from_millis(5);
/// Longest time for a process to start, beside the steps that it repeats: to be executed, and to read the state.
pub(super) const STARTS_MAX: Nanos = Nanos::from_secs(3);

/// Makes the stage of that name, in its state before the first frame; `None`: there is no such stage.
pub type Bodies = Arc<dyn Fn(&str) -> Option<Box<dyn AnyStage>> + Send + Sync>;

/// Words of the pipeline in shared memory.
const END: usize = 0;
const CORES: usize = 1;
const CORE: usize = 2;
/// Process id of each worker.
const WORKER: usize = CORE + CORES_MAX;
/// When each worker was last active.
const LOOKED: usize = WORKER + CORES_MAX;
/// Longest time of a step, in nanoseconds.
const STEP_MAX: usize = LOOKED + CORES_MAX;
/// Point of a planted kill, with the feature `fixtures` only: see `planted.rs`.
const PLANTED: usize = STEP_MAX + 1;
/// Number of slots of each stage in which sleeping processes are kept ready.
const KEEPS: usize = PLANTED + 1;
/// Programs of versions, from number 1 on: length of the path in bytes, and the path.
const PROGRAMS: usize = KEEPS + 1;
/// Greatest length of a path, in bytes.
const PROGRAM_MAX: usize = 256;
/// Words of one program.
const PROGRAM_WORDS: usize = 1 + PROGRAM_MAX / 8;
/// Greatest number of programs at a time: those of all versions in force, and of the previous ones.
const PROGRAMS_MAX: u8 = 24;

/// How a pipeline ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The pipeline still runs.
    Runs,
    /// The last stage has ended, or the caller wants the end.
    Asked,
    /// Workers end as soon as they are started.
    NoWorker,
    /// The stage of this number cannot continue.
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

/// Words about one stage, for its processes.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub(super) enum Note {
    /// When its owner was killed on purpose.
    KilledAt,
    AnnouncedAt,
    AskedAt,
    YieldedAt,
    /// Deaths in a row, of those that count: see [`Deaths`].
    Deaths,
    /// Number of steps at the last of them.
    StepsAtDeath,
    /// When that was.
    DiedAt,
    Restarts,
    Moves,
    /// Extra request to the owner for its next checkpoint: see [`Besides`].
    Besides,
    /// Total time in steps, in nanoseconds.
    Busy,
    /// Packed [`Versions`] of the stage.
    Versions,
    /// Number of steps when the version in force took over.
    StepsAtVersion,
    /// Packed [`Beat`] of its owner.
    Beat,
    /// Number of processes killed because they stood still: a step took too long, or none came although it could.
    Hung,
}

/// Request that an owner serves at a checkpoint without yielding the stage: the baselines of migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Besides {
    /// Pin the process to the core of this index among the pipeline's.
    Pin(usize),
    /// Do nothing, but log it as the others: the control of a measurement.
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

/// Maps a region over memory that is populated; both live equally long.
fn mapped(memory: SharedMemory) -> (Region, Arc<SharedMemory>) {
    memory.populate();
    let memory = Arc::new(memory);
    let kept = Arc::clone(&memory) as Arc<_>;
    // SAFETY: the mapping begins at a page, has this length, and lives as long as `kept`; only the pipeline's code
    // writes there.
    let region = unsafe { Region::of(memory.base(), memory.bytes(), kept) };
    (region, memory)
}

/// The shared memory of a pipeline, with its graph and layout.
#[derive(Clone)]
pub(super) struct Segment {
    pub(super) graph: Arc<Graph>,
    pub(super) layout: Arc<Layout>,
    pub(super) region: Region,
    memory: Arc<SharedMemory>,
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segment({}, {:?})", self.graph.name(), self.region)
    }
}

impl Segment {
    /// Creates memory for a new pipeline on these cores.
    pub(super) fn create(graph: Graph, cores: &[CoreId]) -> Result<Segment, PipelineError> {
        let layout = Layout::new(&graph);
        let written = postcard::to_stdvec(&graph).map_err(|why| PipelineError::Memory(why.to_string()))?;
        let memory = SharedMemory::create("punctual-pipelines", layout.bytes_with(&written))?;
        let shared = Segment::over(graph, layout, mapped(memory));
        shared.layout.write_graph(&shared.region, &written)?;
        shared.layout.prepare(&shared.region)?;
        let words = shared.words();
        words[CORES].store(cores.len() as u64, Ordering::Relaxed);
        for (number, core) in cores.iter().enumerate() {
            words[CORE + number].store(core.0.into(), Ordering::Relaxed);
        }
        Ok(shared)
    }

    /// Opens the memory of a running pipeline, by a descriptor of its process. The graph is that of the process that
    /// has started the pipeline, whatever this program would make of the same input.
    pub(super) fn open(pid: i32, descriptor: i32) -> Result<Segment, PipelineError> {
        let path = format!("/proc/{pid}/fd/{descriptor}");
        let file = { OpenOptions::new() }.read(true).write(true).open(&path);
        let file = file.map_err(|why| PipelineError::Memory(format!("opening {path}: {why}")))?;
        let memory = SharedMemory::open(OwnedFd::from(file))?;
        let (region, memory) = mapped(memory);
        let graph = postcard::from_bytes(&Layout::read_graph(&region)?).map_err(|_| LayoutError::Foreign)?;
        let layout = Layout::new(&graph);
        layout.check(&region)?;
        Ok(Segment::over(graph, layout, (region, memory)))
    }

    fn over(graph: Graph, layout: Layout, (region, memory): (Region, Arc<SharedMemory>)) -> Segment {
        Segment {
            graph: Arc::new(graph),
            layout: Arc::new(layout),
            region,
            memory,
        }
    }

    /// Descriptor of this process through which others open the memory.
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

    /// The stages that have their own processes.
    pub(super) fn migratable(&self) -> impl Iterator<Item = usize> + use<'_> {
        self.stages().filter(|stage| self.graph.stages()[*stage].migratable)
    }

    pub(super) fn name(&self, stage: usize) -> &str {
        self.graph.stages().get(stage).map_or("", |spec| spec.name.as_str())
    }

    /// Number of the pipeline's cores.
    pub(super) fn cores(&self) -> usize {
        (self.words()[CORES].load(Ordering::Relaxed) as usize).clamp(1, CORES_MAX)
    }

    /// The core of that index among the pipeline's.
    pub(super) fn core(&self, number: usize) -> CoreId {
        CoreId(self.words()[CORE + number % CORES_MAX].load(Ordering::Relaxed) as u32)
    }

    pub(super) fn end(&self) -> End {
        End::of(self.words()[END].load(Ordering::Acquire))
    }

    /// Ends the pipeline, for the first reason given, and wakes all of its threads.
    pub(super) fn end_by(&self, end: End) {
        let runs = End::Runs.word();
        let _ = self.words()[END].compare_exchange(runs, end.word(), Ordering::AcqRel, Ordering::Relaxed);
        for stage in self.stages() {
            self.ring(self.layout.bell(&self.region, stage));
            (0..self.slots()).for_each(|slot| self.ring(self.slot_bell(stage, slot)));
        }
        (0..self.cores()).for_each(|core| self.ring(self.worker_bell(core)));
    }

    /// Process id of a worker; 0 until it has started.
    pub(super) fn worker(&self, core: usize) -> &AtomicU64 {
        &self.words()[WORKER + core % CORES_MAX]
    }

    /// Registers the program at `path` for all processes; returns its number.
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
        store_bytes(&words[1..], bytes);
        words[0].store(bytes.len() as u64, Ordering::Release);
        Ok(number)
    }

    /// Path of the program with that number.
    pub(super) fn program(&self, number: u8) -> PathBuf {
        let path = |words: &[AtomicU64]| {
            let length = (words[0].load(Ordering::Acquire) as usize).min(PROGRAM_MAX);
            OsString::from_vec(load_bytes(&words[1..], length)).into()
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

    /// Whether a stage or slot uses that program, or the previous version of a stage did.
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

    /// Point at which the next process dies; see `planted.rs`.
    #[cfg(any(test, feature = "fixtures"))]
    pub(super) fn planted(&self) -> &AtomicU64 {
        &self.words()[PLANTED]
    }

    /// When a worker was last active.
    pub(super) fn looked(&self, core: usize) -> &AtomicU64 {
        &self.words()[LOOKED + core % CORES_MAX]
    }

    /// Longest time of a step.
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

    /// Current and previous version of a stage.
    pub(super) fn versions(&self, stage: usize) -> Versions {
        Versions::of(self.note(stage, Note::Versions).load(Ordering::Acquire))
    }

    /// Sets the versions; called by the process that owns the stage, or by the worker of one that has died.
    pub(super) fn set_versions(&self, stage: usize, versions: Versions) {
        if self.versions(stage) == versions {
            return;
        }
        let steps = self.layout.steps(&self.region, stage);
        self.note(stage, Note::StepsAtVersion).store(steps, Ordering::Relaxed);
        self.note(stage, Note::Versions)
            .store(versions.word(), Ordering::Release);
        // Wakes processes of the previous version, so that they end.
        (0..self.slots()).for_each(|slot| self.ring(self.slot_bell(stage, slot)));
    }

    pub(super) fn worker_bell(&self, core: usize) -> Bell<'_> {
        self.layout.shared_bell(&self.region, core)
    }

    /// Number of slots of each stage: two on each core, so that a new version can be ready beside the old one.
    pub(super) fn slots(&self) -> u8 {
        (2 * self.cores()) as u8
    }

    /// Index of the core that a slot belongs to.
    pub(super) fn core_of(&self, slot: u8) -> usize {
        usize::from(slot) % self.cores()
    }

    pub(super) fn slot(&self, stage: usize, slot: u8) -> Slot {
        Slot::of(self.layout.slot(&self.region, stage, slot).load(Ordering::Acquire))
    }

    /// Applies `change` to a slot's word.
    pub(super) fn set_slot(&self, stage: usize, slot: u8, change: impl Fn(&mut Slot)) {
        let word = self.layout.slot(&self.region, stage, slot);
        let changed = |word| {
            let mut slot = Slot::of(word);
            change(&mut slot);
            Some(slot.word())
        };
        let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed);
    }

    /// Changes a slot's word from `before` to `next`; returns false if the word was no longer `before`.
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
    /// cores. A stage without such a process waits for the next worker.
    ///
    /// The kernel may not have killed the old processes yet: one that is still in a step cannot commit it.
    pub(super) fn leave_core(&self, core: usize) {
        for stage in self.migratable() {
            let owner = self.control(stage).owner;
            if self.core_of(owner) != core {
                continue;
            }
            self.forget_yield(stage, owner);
            let now = self.versions(stage).now;
            let ready = |slot: &u8| self.core_of(*slot) != core && may_go_on(self.slot(stage, *slot), now);
            let Some(spare) = (0..self.slots()).find(ready) else {
                continue;
            };
            if let Some(next) = self.change_control(stage, |control| control.died(owner, Some(spare))) {
                self.note(stage, Note::Restarts).fetch_add(1, Ordering::Relaxed);
                // The next owner has given no sign yet.
                self.set_beat(stage, self.now(), OwnerActivity::Starts);
                self.ring(self.slot_bell(stage, next.owner));
                self.ring(self.worker_bell(self.core_of(next.owner)));
            }
        }
    }

    pub(super) fn control(&self, stage: usize) -> Control {
        Control::of(self.layout.control(&self.region, stage).load(Ordering::Acquire))
    }

    /// Applies `change` to the control word; returns the new word, or `None` if `change` does.
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

    /// The words that the process of a stage reads between two steps.
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

    /// Last sign of life of the process that owns a stage.
    pub(super) fn beat(&self, stage: usize) -> Beat {
        Beat::of(self.note(stage, Note::Beat).load(Ordering::Relaxed))
    }

    pub(super) fn set_beat(&self, stage: usize, at: Time, activity: OwnerActivity) {
        self.note(stage, Note::Beat)
            .store(Beat::word(at, activity), Ordering::Relaxed);
    }

    /// Longest time for a process to start, to read the state and to repeat the steps since it was saved.
    pub(super) fn start_max(&self, stage: usize) -> Nanos {
        let repeated = u64::from(self.graph.stages()[stage].save_every);
        Nanos(self.step_max().0.saturating_mul(repeated).saturating_add(STARTS_MAX.0))
    }

    /// Longest sleep of a process that owns a stage and waits for its neighbours. Its beat must be younger than the
    /// longest step, so that its worker can distinguish one that stands still from one that rests.
    pub(super) fn rest_max(&self) -> Nanos {
        Nanos(self.step_max().0 / 2).clamp(LOOK_AGAIN_MIN, LOOK_AGAIN)
    }

    /// The deaths of a stage in a row.
    pub(super) fn deaths(&self, stage: usize) -> Deaths {
        let word = |note| self.note(stage, note).load(Ordering::Relaxed);
        Deaths {
            count: word(Note::Deaths),
            steps: word(Note::StepsAtDeath),
            at: Time(word(Note::DiedAt)),
        }
    }

    pub(super) fn set_deaths(&self, stage: usize, deaths: Deaths) {
        let set = |note, value| self.note(stage, note).store(value, Ordering::Relaxed);
        set(Note::Deaths, deaths.count);
        set(Note::StepsAtDeath, deaths.steps);
        set(Note::DiedAt, deaths.at.0);
    }

    /// Sets a note to the present time.
    pub(super) fn stamp(&self, stage: usize, note: Note) {
        self.note(stage, note).store(self.now().0, Ordering::Relaxed);
    }

    /// Time in a note, which is cleared.
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

    /// Rings for the neighbours of a stage that has committed steps, and wakes those that wait and can go on. Not
    /// `at_once`, only those for which enough of a queue is ready: a later call is for the others.
    pub(super) fn tell_neighbours(&self, stage: usize, at_once: bool) {
        for neighbour in self.layout.neighbours(stage) {
            let bell = self.stage_bell(neighbour);
            // Looked at after the ring: of two that ring for a third at a time, the later one sees the steps of both.
            if bell.ring() && self.layout.is_worth_waking(&self.region, stage, neighbour, at_once) {
                futex::wake(bell.count);
            }
        }
    }

    /// Waits until the bell rings again, for at most `at_most` or, without it, `rest_max`.
    pub(super) fn wait(&self, bell: Bell<'_>, heard: u32, at_most: Option<Nanos>) {
        bell.waits(true);
        if bell.heard() == heard {
            futex::wait(bell.count, heard, Some(at_most.unwrap_or_else(|| self.rest_max())));
        }
        bell.waits(false);
    }
}
