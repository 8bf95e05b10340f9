//! The movie experiment: one player, hogs on all cores, a busy disk, and four ways to run the player.
//!
//! **Question.** The second paper's, on this machine: a player reads, decodes and displays a frame in every period,
//! from a file larger than its cache. How many frames are late, and how much does the interactive side get done?
//!
//! | arm         | reads                                  | scheduled                                       |
//! |-------------|----------------------------------------|-------------------------------------------------|
//! | `alone`     | no player: what the hogs do by themselves |                                              |
//! | `fair`      | blocking, through the page cache       | as all other threads                            |
//! | `fifo`      | blocking, through the page cache       | `SCHED_FIFO`, pinned                            |
//! | `dual`      | mapped memory                          | `SCHED_FIFO` on an exclusive core, lent while idle |
//! | `dual-disk` | from the device, looking for the completion as long as the frame can be in time | likewise     |
//!
//! **Method.** Every repetition runs each arm once for the same number of frames, in an order that rotates; hogs and
//! disk traffic go on throughout. A frame that could not even begin before its deadline is dropped, and counts as late.
//! A late frame is *explained* by a gap of the probe on the player's core at least as long as its overrun (pinned arms
//! only). Each frame's bytes are checked.

pub(super) mod load;
mod medium;
mod player;
mod report;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;

use punctual_cores::first_set_apart;
use punctual_os::LinuxOs;
use punctual_platform::linux::emulated::EmulatedClock;
use punctual_platform::linux::exclusive::{ExclusiveCore, Lendee, spared};
use punctual_platform::linux::journal::Journal;
use punctual_platform::linux::probe::GapProbe;
use punctual_platform::linux::real_time::RealTimeLimits;
use punctual_platform::linux::{KernelTree, cores, thread};
use punctual_platform::{Neighbours, Refusal};
use punctual_runtime::linux::tenancy::{LendingMeasured, Observer, Tenancy, measure_lending, occupy};
use punctual_runtime::linux::{PROBE_PERIOD, PROBE_PRIORITY, TASK_PRIORITY};
use punctual_units::{Clock, CoreId, Nanos};
use serde::Serialize;
use thiserror::Error;

use self::load::Load;
pub use self::medium::Medium;
use self::player::{Film, Player, Source};
pub use self::report::{ArmSummary, MovieReport, Quantiles};

/// What is played, and beside what.
#[derive(Clone, Debug, Serialize)]
pub struct MoviePlan {
    /// Between two frames.
    pub period: Nanos,
    /// From a frame's release to the instant by which it is to be displayed.
    pub deadline: Nanos,
    /// What decoding one frame takes, alone.
    pub decode: Nanos,
    /// Bytes of one frame in the file, a multiple of 4096.
    pub frame_bytes: usize,
    /// Bytes of the file, at least one frame.
    pub file_bytes: u64,
    /// Bytes of the file that the page cache may keep.
    pub cache_bytes: u64,
    /// Frames in each run of an arm.
    pub frames: u32,
    /// Threads that never rest, on each core.
    pub hogs_per_core: u32,
    /// Whether the disk is kept busy.
    pub busy_disk: bool,
    /// Runs of each arm.
    pub repetitions: u32,
    /// The arms, in the order of the first repetition.
    pub arms: Vec<Arm>,
    /// What other programs have to do with the player's core.
    pub neighbours: Neighbours,
}

/// One way to run the player.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// No player.
    Alone,
    /// Blocking reads, fair scheduling.
    Fair,
    /// Blocking reads, real-time scheduling.
    Fifo,
    /// Mapped memory, an exclusive core.
    Dual,
    /// The device polled, an exclusive core.
    DualDisk,
}

impl Arm {
    /// All of them.
    pub const ALL: [Arm; 5] = [Arm::Alone, Arm::Fair, Arm::Fifo, Arm::Dual, Arm::DualDisk];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Arm::Alone => "alone",
            Arm::Fair => "fair",
            Arm::Fifo => "fifo",
            Arm::Dual => "dual",
            Arm::DualDisk => "dual-disk",
        }
    }

    /// Whether the player has a core of its own.
    pub const fn exclusive(self) -> bool {
        matches!(self, Arm::Dual | Arm::DualDisk)
    }
}

/// One frame, in time since its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Frame {
    /// When the player ran.
    pub woken: Nanos,
    /// When it had read the frame; `None` where it dropped it.
    pub read: Option<Nanos>,
    /// When the frame was displayed, or dropped.
    pub finished: Nanos,
    /// Whether that was after the deadline.
    pub late: bool,
    /// Whether a gap of the probe explains it.
    pub explained: bool,
}

/// One run of one arm.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Which repetition, from 0.
    pub repetition: u32,
    /// Which arm.
    pub arm: Arm,
    /// The frames, in order; none in `alone`.
    pub frames: Vec<Frame>,
    /// Frames whose bytes were not those of the file: must be 0.
    pub wrong: u32,
    /// CPU time of the player's thread, lending included.
    pub player_cpu: Nanos,
    /// For how long the core was lent.
    pub lent: Nanos,
    /// What taking it back took in the run, wake-up included.
    pub take_back: Vec<Nanos>,
    /// Over how long the hogs' work was counted.
    pub window: Nanos,
    /// Units of work that the hogs got done in it.
    pub interactive_units: u64,
    /// Bytes that the disk took in it.
    pub disk_bytes: u64,
    /// What lending was measured to cost before the run; exclusive arms only.
    pub lending: Option<LendingMeasured>,
    /// Whether the player had a core of its own.
    pub exclusive: bool,
    /// What protection was obtained, and what was not, for people.
    pub protection: Vec<String>,
}

/// Why the experiment ended early.
#[derive(Debug, Error)]
pub enum MovieError {
    /// Something that it cannot do without was refused.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// A file failed.
    #[error("{what}: {why}")]
    File {
        /// What was done with which file.
        what: String,
        /// Why it failed.
        why: std::io::Error,
    },
    /// The user broke it off; the machine was put back.
    #[error("interrupted; the machine has been put back")]
    Interrupted,
    /// The machine is not as it was.
    #[error("not put back: {0}")]
    NotPutBack(Refusal),
}

/// Runs the experiment; `say` hears of each run before it begins, and says whether to go on.
///
/// # Errors
/// [`MovieError`]; the machine has been put back but for what the error names.
pub fn play(plan: &MoviePlan, say: &mut dyn FnMut(&str) -> ControlFlow<()>) -> Result<MovieReport, MovieError> {
    let tree = KernelTree::default();
    possible(plan)?;
    // Two journals: what belongs to one run is put back after it, what belongs to all of them at the end.
    let (journal, files) = (Journal::open(true)?, Journal::open(true)?);
    let stage = Stage::set(plan, &tree, &journal, &files)?;
    let mut runs = Vec::new();
    for repetition in 0..plan.repetitions {
        for place in 0..plan.arms.len() {
            let arm = plan.arms[(place + repetition as usize) % plan.arms.len()];
            let what = format!("repetition {} of {}: {}", repetition + 1, plan.repetitions, arm.name());
            if say(&what).is_break() {
                return Err(MovieError::Interrupted);
            }
            let run = stage.run(repetition, arm);
            // The journal holds what was done for this run only: all threads get the core back, whatever became of the
            // run.
            if let Some(left) = stage.put_back().pop() {
                return Err(MovieError::NotPutBack(left));
            }
            runs.push(run?);
        }
    }
    thread::unlock_memory();
    Ok(MovieReport::of(
        plan,
        stage.cores.len(),
        stage.medium.clone(),
        runs,
        stage.probe.as_ref().ok().map(GapProbe::summary),
    ))
}

/// Everything that stays the same from run to run.
struct Stage<'p> {
    plan: &'p MoviePlan,
    tree: &'p KernelTree,
    journal: &'p Journal,
    clock: Arc<EmulatedClock>,
    film: Film,
    /// What the film and the busy disk are on.
    medium: Medium,
    load: Load,
    cores: Vec<CoreId>,
    /// Where the film is when it is mapped.
    memory: PathBuf,
    probe: Result<GapProbe, Refusal>,
}

impl<'p> Stage<'p> {
    fn set(
        plan: &'p MoviePlan,
        tree: &'p KernelTree,
        journal: &'p Journal,
        files: &Journal,
    ) -> Result<Stage<'p>, MovieError> {
        let cores = cores::usable(tree);
        let mountinfo = tree.read("/proc/self/mountinfo").unwrap_or_default();
        let (folder, medium) = medium::folder(std::env::temp_dir(), &mountinfo);
        let folder = files.temporary_dir(&folder)?;
        let memory = files
            .temporary_dir(Path::new(SHARED_MEMORY))
            .unwrap_or_else(|_| folder.clone());
        let film = Film::record(&folder.join("movie"), plan.frame_bytes, plan.file_bytes)?;
        // Calibrated before any load disturbs it.
        let clock = Arc::new(EmulatedClock::of(tree, &LinuxOs));
        let core = first_set_apart(&cores).unwrap_or_default();
        let probe = GapProbe::start(core, PROBE_PRIORITY, PROBE_PERIOD);
        let busy_disk = plan.busy_disk.then(|| folder.join("busy"));
        let load = Load::start(plan.hogs_per_core as usize * cores.len(), busy_disk.as_deref(), &clock)?;
        Ok(Stage {
            plan,
            tree,
            journal,
            clock,
            film,
            medium,
            load,
            cores,
            memory: memory.join("mapped"),
            probe,
        })
    }

    fn core(&self) -> CoreId {
        first_set_apart(&self.cores).unwrap_or_default()
    }

    /// What became of the disk that was to be busy, and which one it is.
    fn disk_told(&self, run: &Run) -> String {
        let Medium { name, in_memory } = &self.medium;
        let memory = if *in_memory { ", which is memory" } else { "" };
        let busy = match (self.plan.busy_disk, self.load.disk_failed()) {
            (false, _) => "idle".to_owned(),
            (true, Some(why)) => format!("NOT kept busy, its writer ended: {why}"),
            (true, None) if run.disk_bytes == 0 => "kept busy, but nothing was written in this run".into(),
            (true, None) => "kept busy".into(),
        };
        format!("disk: {name}{memory}, {busy}")
    }

    fn put_back(&self) -> Vec<Refusal> {
        self.journal.restore()
    }

    fn run(&self, repetition: u32, arm: Arm) -> Result<Run, MovieError> {
        let mut told = vec![told("memory locked", &thread::lock_memory())];
        if let Err(refusal) = &self.probe {
            told.push(format!("no probe, so nothing explains late frames: {refusal}"));
        }
        let taken = match arm.exclusive() {
            true => self.take_core(&mut told),
            false => None,
        };
        let (exclusive, _lendees) = taken.unzip();
        let lend = self.plan.neighbours.lend;
        let measured = exclusive
            .as_ref()
            .map(|core| measure_lending(core, TASK_PRIORITY, lend))
            .transpose();
        let lending = measured.unwrap_or_else(|refusal| {
            told.push(format!("core not lent: {refusal}"));
            None
        });
        let player = (arm != Arm::Alone).then(|| Player {
            film: &self.film,
            clock: &self.clock,
            period: self.plan.period,
            deadline: self.plan.deadline,
            decode: self.plan.decode,
            frames: self.plan.frames,
            tenancy: exclusive
                .clone()
                .zip(lending.as_ref().filter(|_| lend))
                .map(|(core, it)| Tenancy::new(core, it.costs())),
        });
        let watched = player
            .as_ref()
            .and_then(|player| player.tenancy.as_ref())
            .map(Tenancy::accountant);
        let _observer = Observer::start(watched.into_iter().collect());
        let place = || match (&exclusive, arm) {
            (_, Arm::Alone | Arm::Fair) => Ok(()),
            (Some(core), _) => occupy(core, TASK_PRIORITY),
            (None, _) => thread::pin(self.core()).and_then(|()| thread::real_time(TASK_PRIORITY)),
        };
        let mut run = self.perform(player, arm, exclusive.is_some(), &place)?;
        run.repetition = repetition;
        run.arm = arm;
        run.lending = lending;
        run.exclusive &= exclusive.is_some();
        told.append(&mut run.protection);
        told.push(self.disk_told(&run));
        run.protection = told;
        if arm == Arm::Fair {
            // It ran wherever it was put: no probe speaks for it.
            run.frames.iter_mut().for_each(|frame| frame.explained = false);
        }
        Ok(run)
    }

    /// The core for this run, or none, with the reason told.
    fn take_core(&self, told: &mut Vec<String>) -> Option<(ExclusiveCore, Vec<Lendee>)> {
        let mut neighbours = self.plan.neighbours.clone();
        neighbours.spare.extend(spared());
        let taken = ExclusiveCore::take(self.tree, self.journal, self.core(), &neighbours);
        let core = taken
            .map_err(|refusal| told.push(format!("no exclusive core: {refusal}")))
            .ok()?;
        told.push(core.obtained().to_string());
        told.extend(
            core.obtained()
                .refused
                .iter()
                .map(|better| format!("better, but refused: {better}")),
        );
        let mut lendees = Vec::new();
        for thread in self.load.threads() {
            match core.lend_to(thread) {
                Ok(lendee) => lendees.push(lendee),
                Err(refusal) => told.push(refusal.to_string()),
            }
        }
        if let Ok(probe) = &self.probe
            && let Err(refusal) = core.enter(probe.tid())
        {
            told.push(refusal.to_string());
        }
        Some((core, lendees))
    }

    /// For a player that has a core of its own or not.
    fn source(&self, arm: Arm, exclusive: bool, told: &mut Vec<String>) -> Result<Source, MovieError> {
        let slack = exclusive.then(|| self.slack());
        match arm {
            Arm::Dual => Source::mapped(&self.film, &self.memory, slack, told),
            Arm::DualDisk => Source::polled(&self.film, slack, told),
            Arm::Alone | Arm::Fair | Arm::Fifo => {
                told.push("film read through the page cache, blocking".into());
                Source::cached(&self.film, self.plan.cache_bytes)
            }
        }
    }

    /// For how long reading a frame may take, and be polled for: the rest is for decoding, and for what the kernel
    /// keeps from real-time threads.
    fn slack(&self) -> Nanos {
        let usable = RealTimeLimits::read(self.tree).usable();
        let granted = Nanos((self.plan.period.0 as f64 * usable.get()) as u64);
        self.plan.deadline.min(granted).saturating_sub(self.plan.decode)
    }

    /// Lets the player play and counts what the hogs do meanwhile.
    fn perform(
        &self,
        player: Option<Player<'_>>,
        arm: Arm,
        exclusive: bool,
        place: &(dyn Fn() -> Result<(), Refusal> + Sync),
    ) -> Result<Run, MovieError> {
        let (ready, prepared) = channel();
        let (go, going) = channel();
        std::thread::scope(|scope| {
            // The player prepares where it will play: what it measures there is what it will meet.
            let playing = player.map(|player| {
                scope.spawn(move || {
                    let placed = place().err();
                    let mut told = Vec::from_iter(placed.map(|refusal| format!("not obtained: {refusal}")));
                    let source = self.source(arm, exclusive, &mut told)?;
                    let _ = ready.send(());
                    let Ok(start) = going.recv() else {
                        return Err(MovieError::Interrupted);
                    };
                    Ok((player.play(source, start)?, told))
                })
            });
            // Without a player, or with one that failed, no thread is left to say so.
            let _ = prepared.recv();
            let start = LinuxOs.now() + START_AFTER;
            let end = start + self.plan.period * u64::from(self.plan.frames);
            let _ = go.send(start);
            let counting = scope.spawn(move || {
                // On time even where hogs are many; where that is refused, the clock still gives the time.
                let _ = thread::pin(self.cores[0]).and_then(|()| thread::real_time(COUNTER_PRIORITY));
                LinuxOs.sleep_until(start);
                let (began, before) = (LinuxOs.now(), self.load.done());
                LinuxOs.sleep_until(end);
                let (ended, after) = (LinuxOs.now(), self.load.done());
                (ended.since(began), after - before)
            });
            let played = playing.map(|playing| playing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            let (window, done) = counting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let (played, mut told) = played.transpose()?.unwrap_or_default();
            told.extend(played.trouble);
            let explained = |frame: &player::Played| {
                let gap = self
                    .probe
                    .as_ref()
                    .map_or(Nanos::ZERO, |probe| probe.longest_gap(frame.released, frame.finished));
                frame.overrun.is_some_and(|overrun| gap >= overrun)
            };
            Ok(Run {
                repetition: 0,
                arm: Arm::Alone,
                frames: played.frames.iter().map(|frame| frame.told(explained(frame))).collect(),
                wrong: played.wrong,
                player_cpu: played.cpu,
                lent: played.lending.lent,
                take_back: played.lending.take_back,
                window,
                interactive_units: done.units,
                disk_bytes: done.disk_bytes,
                lending: None,
                // A core that was not given back is none of one's own.
                exclusive: played.lending.beside == 0,
                protection: told,
            })
        })
    }
}

/// Where Linux keeps POSIX shared memory (shm_overview(7)).
const SHARED_MEMORY: &str = "/dev/shm";
/// Between preparation and the first frame.
const START_AFTER: Nanos = Nanos::from_millis(50);
/// Of the thread that counts the hogs' work: it only sleeps and reads.
const COUNTER_PRIORITY: u8 = 90;

fn told(what: &str, result: &Result<(), Refusal>) -> String {
    match result {
        Ok(()) => what.to_owned(),
        Err(refusal) => format!("not {what}: {refusal}"),
    }
}

/// What was done with `path` when it failed.
pub(super) fn failed<'p>(what: &'p str, path: &'p Path) -> impl Fn(std::io::Error) -> MovieError + 'p {
    move |why| MovieError::File {
        what: format!("{what} {}", path.display()),
        why,
    }
}

/// Whether the plan can be played at all.
///
/// # Errors
/// [`Refusal`] that says what is missing.
pub fn possible(plan: &MoviePlan) -> Result<(), Refusal> {
    let refusal = |why: String, remedy: &str| Refusal {
        what: "the movie experiment".into(),
        why,
        remedy: remedy.into(),
    };
    if plan.frame_bytes == 0 || !plan.frame_bytes.is_multiple_of(4096) || plan.file_bytes < plan.frame_bytes as u64 {
        return Err(refusal(
            "a frame must be a multiple of 4096 bytes, and the file at least one frame".into(),
            "correct movie.frame_bytes and movie.file_bytes",
        ));
    }
    Ok(())
}
