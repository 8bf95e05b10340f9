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

mod player;
mod report;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use punctual_platform::linux::probe::GapProbe;
use punctual_platform::linux::real_time::RealTimeLimits;
use punctual_platform::linux::thread;
use punctual_platform::{Neighbours, Refusal};
use punctual_runtime::linux::TASK_PRIORITY;
use punctual_runtime::linux::tenancy::{LendingMeasured, Observer, Tenancy, occupy};
use punctual_units::Nanos;
use serde::Serialize;

use self::player::{Film, Performance, Player, Source};
pub use self::report::{ArmSummary, MovieReport};
use crate::beside::{Begin, Beside, BesideError, Counted, Kept, Medium, Place};

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
    /// What the others got done meanwhile.
    #[serde(flatten)]
    pub counted: Counted,
    /// What lending was measured to cost before the run; exclusive arms only.
    pub lending: Option<LendingMeasured>,
    /// Whether the player had a core of its own.
    pub exclusive: bool,
    /// What protection was obtained, and what was not, for people.
    pub protection: Vec<String>,
}

/// Runs the experiment; `say` hears of each run before it begins, and says whether to go on.
///
/// # Errors
/// [`BesideError`]; the machine has been put back but for what the error names.
pub fn play(plan: &MoviePlan, say: &mut dyn FnMut(&str) -> ControlFlow<()>) -> Result<MovieReport, BesideError> {
    possible(plan)?;
    let stage = Stage::set(plan)?;
    let beside = &stage.beside;
    let runs = beside.by_turns(&plan.arms, plan.repetitions, Arm::name, say, |repetition, arm| {
        stage.run(repetition, arm)
    })?;
    let cores = beside.place.cores.len();
    let medium = beside.place.medium.clone();
    let probe = beside.probe().map(GapProbe::summary);
    Ok(MovieReport::of(plan, cores, medium, runs, probe))
}

/// Everything that stays the same from run to run.
struct Stage<'p> {
    plan: &'p MoviePlan,
    film: Film,
    /// Where the film is when it is mapped.
    memory: PathBuf,
    beside: Beside,
}

impl<'p> Stage<'p> {
    fn set(plan: &'p MoviePlan) -> Result<Stage<'p>, BesideError> {
        let place = Place::find(&plan.neighbours.cores)?;
        Ok(Stage {
            plan,
            film: Film::record(&place.folder.join("movie"), plan.frame_bytes, plan.file_bytes)?,
            memory: place.folder_in(Path::new(SHARED_MEMORY)).join("mapped"),
            beside: Beside::start(place, plan.hogs_per_core, plan.busy_disk)?,
        })
    }

    fn run(&self, repetition: u32, arm: Arm) -> Result<Run, BesideError> {
        let mut told = self.beside.lock_memory();
        let kept = arm
            .exclusive()
            .then(|| self.beside.keep(&self.plan.neighbours, &mut told));
        let kept = kept.and_then(|kept| {
            kept.map_err(|refusal| told.push(format!("no exclusive core: {refusal}")))
                .ok()
        });
        let tenancy = kept.as_ref().and_then(Kept::tenancy);
        let _observer = Observer::start(tenancy.iter().map(Tenancy::accountant).collect());
        let exclusive = kept.as_ref().map(|kept| &kept.core);
        let place = || match (exclusive, arm) {
            (_, Arm::Alone | Arm::Fair) => Ok(()),
            (Some(core), _) => occupy(core, TASK_PRIORITY),
            (None, _) => thread::pin(self.beside.place.core).and_then(|()| thread::real_time(TASK_PRIORITY)),
        };
        let player = Player {
            film: &self.film,
            clock: &self.beside.place.clock,
            period: self.plan.period,
            deadline: self.plan.deadline,
            decode: self.plan.decode,
            frames: self.plan.frames,
            tenancy,
        };
        let play = |begin: Begin| {
            let mut told: Vec<String> = place().err().iter().map(|why| format!("not obtained: {why}")).collect();
            let source = self.source(arm, exclusive.is_some(), &mut told)?;
            Ok((player.play(source, begin.at()?)?, told))
        };
        let lasts = self.plan.period * u64::from(self.plan.frames);
        let (played, counted) = self.beside.perform(lasts, (arm != Arm::Alone).then_some(play))?;
        let (played, obtained): (Performance, Vec<String>) = played.unwrap_or_default();
        told.extend(obtained);
        told.extend(played.trouble);
        told.push(self.beside.disk_told(&counted));
        let explained = |frame: &player::Played| {
            let gap = |overrun| self.beside.explains(overrun, frame.released, frame.finished);
            // Under the fair class it ran wherever it was put: no probe speaks for it.
            arm != Arm::Fair && frame.overrun.is_some_and(gap)
        };
        Ok(Run {
            repetition,
            arm,
            frames: played.frames.iter().map(|frame| frame.told(explained(frame))).collect(),
            wrong: played.wrong,
            player_cpu: played.cpu,
            lent: played.lending.lent,
            take_back: played.lending.take_back,
            counted,
            // A core that was not given back is none of one's own.
            exclusive: exclusive.is_some() && played.lending.beside == 0,
            lending: kept.and_then(|kept| kept.lending),
            protection: told,
        })
    }

    /// For a player that has a core of its own or not.
    fn source(&self, arm: Arm, exclusive: bool, told: &mut Vec<String>) -> Result<Source, BesideError> {
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
        let usable = RealTimeLimits::read(&self.beside.place.tree).usable();
        let granted = Nanos((self.plan.period.0 as f64 * usable.get()) as u64);
        self.plan.deadline.min(granted).saturating_sub(self.plan.decode)
    }
}

/// Where Linux keeps POSIX shared memory (shm_overview(7)).
const SHARED_MEMORY: &str = "/dev/shm";

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
