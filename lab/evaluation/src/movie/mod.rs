//! The movie experiment: a player beside a CPU-bound background load and a busy disk, and four ways to run the player.
//!
//! **Question.** The second paper's question, on this machine: a player reads, decodes and displays a frame in every
//! period, from a file larger than its cache. How many frames are late, and how much work does the background load get
//! done?
//!
//! | arm         | reads                                  | scheduled                                       |
//! |-------------|----------------------------------------|-------------------------------------------------|
//! | `alone`     | no player: the baseline of the load's work |                                             |
//! | `fair`      | blocking, through the page cache       | like all other threads                          |
//! | `fifo`      | blocking, through the page cache       | `SCHED_FIFO`, pinned                            |
//! | `dual`      | mapped memory                          | `SCHED_FIFO` on an exclusive core, lent while idle |
//! | `dual-disk` | from the device, polling for the completion as long as the frame can be in time | likewise      |
//!
//! **Method.** Every repetition runs each arm once for the same number of frames, in an order that rotates; the
//! background load runs throughout. A frame that could not even begin before its deadline is dropped, and counts as
//! late. A late frame is *explained* by a gap of the probe on the player's core at least as long as its overrun (pinned
//! arms only). Each frame's bytes are checked.

mod player;
mod report;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use punctual_platform::linux::probe::GapProbe;
use punctual_platform::linux::real_time::{FairServer, RealTimeLimits, Throttling};
use punctual_platform::linux::thread;
use punctual_platform::{Neighbours, Refusal};
use punctual_runtime::linux::TASK_PRIORITY;
use punctual_runtime::linux::tenancy::{LendingMeasured, Observer, Tenancy, occupy};
use punctual_units::{Nanos, Share};
use serde::Serialize;

use self::player::{Film, Performance, Player, Source};
pub use self::report::{ArmSummary, MovieReport};
use crate::beside::{Begin, BesideError, Effort, LoadedMachine, Medium, Place, ReservedCore};

/// Parameters of the film, and of the load beside it.
#[derive(Clone, Debug, Serialize)]
pub struct MoviePlan {
    /// Time between two frames.
    pub period: Nanos,
    /// Time from a frame's release to the instant by which it must be displayed.
    pub deadline: Nanos,
    /// Time to decode a frame when the player runs alone.
    pub decode: Nanos,
    /// Size of a frame in the file, in bytes, a multiple of 4096.
    pub frame_bytes: usize,
    /// Size of the file, in bytes: at least one frame.
    pub file_bytes: u64,
    /// Bytes of the file that may stay in the page cache.
    pub cache_bytes: u64,
    /// Number of frames in each run.
    pub frames: u32,
    /// Number of CPU-bound background threads for each core.
    pub hogs_per_core: u32,
    /// Whether the disk is kept busy.
    pub busy_disk: bool,
    /// Number of runs of each arm.
    pub repetitions: u32,
    /// The arms, in the order in which the first repetition runs them.
    pub arms: Vec<Arm>,
    /// Rules for other programs on the player's core.
    pub neighbours: Neighbours,
}

punctual_units::named! {
    /// A way to run the player; the table above has the details.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Arm by name {
        Alone = "alone",
        /// Blocking reads, fair scheduling.
        Fair = "fair",
        /// Blocking reads, real-time scheduling.
        Fifo = "fifo",
        /// Mapped memory, an exclusive core.
        Dual = "dual",
        /// The device polled, an exclusive core.
        DualDisk = "dual-disk",
    }
}

impl Arm {
    /// Whether the player runs on an exclusive core.
    pub const fn exclusive(self) -> bool {
        matches!(self, Arm::Dual | Arm::DualDisk)
    }
}

/// Times of one frame, relative to its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Frame {
    /// When the player began to run.
    pub woken: Nanos,
    /// When the player had read the frame; `None`: the frame was dropped.
    pub read: Option<Nanos>,
    /// When the frame was displayed, or dropped.
    pub finished: Nanos,
    /// Whether the frame was finished after its deadline.
    pub late: bool,
    /// Whether a gap of the probe explains that the frame is late.
    pub explained: bool,
}

/// Measurements of one run of one arm.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The repetition, from 0.
    pub repetition: u32,
    pub arm: Arm,
    /// The frames, in order; none in `alone`.
    pub frames: Vec<Frame>,
    /// Number of frames with bytes other than the file's: must be 0.
    pub wrong: u32,
    /// CPU time of the player's thread, lending included.
    pub player_cpu: Nanos,
    /// Time for which the core was lent.
    pub lent: Nanos,
    /// Times of taking the core back in the run, each with the wake-up.
    pub take_back: Vec<Nanos>,
    /// Work of the background load during the run.
    #[serde(flatten)]
    pub counted: Effort,
    /// Costs of lending, as measured before the run; exclusive arms only.
    pub lending: Option<LendingMeasured>,
    /// Whether the player in fact had an exclusive core.
    pub exclusive: bool,
    /// Messages about protection: what was obtained and what was refused.
    pub protection: Vec<String>,
}

/// Runs the experiment. Calls `say` before each run; it returns whether to go on.
///
/// # Errors
/// [`BesideError`]; the machine has been restored except for what the error names.
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

/// State that all runs share.
struct Stage<'p> {
    plan: &'p MoviePlan,
    film: Film,
    /// Path of the film's copy in shared memory, for mapping.
    memory: PathBuf,
    beside: LoadedMachine,
}

impl<'p> Stage<'p> {
    fn set(plan: &'p MoviePlan) -> Result<Stage<'p>, BesideError> {
        let place = Place::find(&plan.neighbours.cores)?;
        Ok(Stage {
            plan,
            film: Film::record(&place.folder.join("movie"), plan.frame_bytes, plan.file_bytes)?,
            memory: place.folder_in(Path::new(SHARED_MEMORY)).join("mapped"),
            beside: LoadedMachine::start(place, plan.hogs_per_core, plan.busy_disk)?,
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
        let tenancy = kept.as_ref().and_then(ReservedCore::tenancy);
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
        let explained = |frame: &player::FrameInstants| {
            let gap = |overrun| self.beside.explains(overrun, frame.released, frame.finished);
            // In the fair class the player may run on any core, so the probe of one core cannot explain its delays.
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
            // A core that was not given back in time was not exclusive.
            exclusive: exclusive.is_some() && played.lending.beside == 0,
            lending: kept.and_then(|kept| kept.lending),
            protection: told,
        })
    }

    /// The source of the frames for `arm`; `exclusive` says whether the player has an exclusive core.
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

    /// Time that reading a frame may take, and so the limit of polling: the period or the deadline, less the time for
    /// decoding and the share that the kernel keeps from real-time threads.
    fn slack(&self) -> Nanos {
        let usable = usable(&RealTimeLimits::read(&self.beside.place.tree));
        let granted = Nanos((self.plan.period.0 as f64 * usable.get()) as u64);
        self.plan.deadline.min(granted).saturating_sub(self.plan.decode)
    }
}

/// The share of a core that real-time threads may use, as far as known, while ordinary threads wait; 1 if nothing
/// bounds them.
fn usable(limits: &RealTimeLimits) -> Share {
    let unthrottled = match limits.throttling {
        Throttling::Bounded { runtime, period } | Throttling::Possible { runtime, period } => runtime.ratio(period),
        Throttling::Off | Throttling::Unknown => 1.0,
    };
    let unserved = match limits.fair_server {
        FairServer::Reserves { runtime, period, .. } if period > Nanos::ZERO => 1.0 - runtime.ratio(period),
        _ => 1.0,
    };
    Share::clamped(unthrottled.min(unserved))
}

/// Where Linux keeps POSIX shared memory (shm_overview(7)).
const SHARED_MEMORY: &str = "/dev/shm";

/// Checks the sizes of the plan.
///
/// # Errors
/// [`Refusal`] that says which size is invalid.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usable_share_is_the_least_that_throttling_and_the_fair_server_leave() {
        let (second, unknown) = (Nanos::from_secs(1), Throttling::Unknown);
        let bounded = Throttling::Bounded {
            runtime: Nanos::from_millis(950),
            period: second,
        };
        let served = |runtime| FairServer::Reserves {
            runtime: Nanos::from_millis(runtime),
            period: second,
            cores: 1,
        };
        for (throttling, fair_server, expected) in [
            (bounded, FairServer::None, 0.95),
            (unknown, FairServer::None, 1.0),
            (bounded, served(100), 0.9),
            (bounded, served(10), 0.95),
        ] {
            let limits = RealTimeLimits {
                throttling,
                fair_server,
            };
            assert!((usable(&limits).get() - expected).abs() < 1e-9, "{limits}");
        }
    }
}
