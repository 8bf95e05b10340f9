//! A pipeline on Linux: a process for each stage on each core, a worker for each core, and the caller's own process.
//!
//! A worker is the caller's program, executed again: [`Pipeline::start`] then serves as a worker instead of starting.
//! So a program must call it with the same graph, before it does anything that a worker should not do.
//!
//! ```text
//!   the caller's process: pinned stages in its threads, the supervisor
//!     ├─ worker of core 0 ── processes of stages: one has the stage, the others sleep
//!     └─ worker of core 1 ── likewise
//! ```
//!
//! All of them die with the process above them, and the memory with the last of them: after a kill of any of them no
//! process and no mapping is left. One word names the process that owns a stage ([`crate::Control`]).

/// Kills this process at the point if a test has planted that (`planted.rs`).
macro_rules! may_die {
    ($segment:expr, $point:ident) => {
        #[cfg(any(test, feature = "fixtures"))]
        $segment.at(crate::linux::Point::$point);
    };
}

mod beside;
mod c_stage;
mod clocks;
mod coordinator;
mod desk;
mod entries;
mod instance;
mod last_words;
mod log;
mod panel;
mod pinned;
mod pipes;
#[cfg(any(test, feature = "fixtures"))]
mod planted;
mod priority;
mod registry;
mod shared;
mod statistics;
mod supervisor;
mod watchdog;
mod worker;

use std::ffi::OsString;

use punctual_allocation::mapping::{Cores, Ground, MappingError, MappingPolicy};
use punctual_platform::Refusal;
use punctual_platform::linux::cores;
use punctual_platform::linux::process::{die_with, leave_signals_to_parent};
use punctual_platform::linux::{KernelTree, LinuxMachine};
use punctual_units::{CoreId, Nanos};

use crate::{Control, FrameCounts, Graph, LayoutError, TakeError, TardinessFigures};

pub use punctual_allocation::mapping;

pub use c_stage::{CStage, CStageError};
pub use clocks::{ClockHand, ClockOptions};
pub use coordinator::{CoordinatorNow, SettingError};
pub use desk::{HOLD, PERIOD};
pub use log::{Cause, Handover};
pub use panel::{Mechanism, MoveError, Panel, QueueNow, StageNow};
pub use pinned::Pinned;
pub use pipes::{Peer, PipeError, PipeReport, PipeSpec, Pipes, RESTARTS_MAX};
#[cfg(any(test, feature = "fixtures"))]
pub use planted::Point;
pub use registry::{RunningPipeline, running};
pub use shared::{Bodies, CORES_MAX};
pub use statistics::{StageStatistics, Statistics};
pub use supervisor::Supervisor;

use beside::Announcement;
use clocks::Turning;
use shared::Segment;

/// Why a pipeline does not start, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// The machine refused something that the pipeline needs.
    #[error(transparent)]
    Machine(#[from] Refusal),
    /// The shared memory is not available, or unusable.
    #[error("{0}")]
    Memory(String),
    /// The shared memory belongs to another pipeline.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A stage cannot continue from its saved state.
    #[error(transparent)]
    Take(#[from] TakeError),
    /// The requested cores do not exist, or are too many.
    #[error("cores {asked}: {why}")]
    Cores {
        /// Cores in the request, as a list.
        asked: String,
        /// Reason for the refusal, with the allowed cores.
        why: String,
    },
    /// The program does not make a stage of the graph.
    #[error("no stage \"{0}\" is made by this program: name it in the function that makes stages")]
    NoSuchStage(String),
    /// A stage cannot continue; its name, and the reason.
    #[error("stage \"{0}\" cannot go on: {1}")]
    Failed(String, String),
    /// The policy cannot decide about these stages and cores.
    #[error(transparent)]
    Policy(#[from] MappingError),
    /// Workers end before they serve.
    #[error(
        "{0} workers in a row ended as soon as they were started: the program must call Pipeline::start with the same \
         graph when it is run again with the same arguments, before it opens what only one process can have"
    )]
    NoWorker(u32),
    /// The system refused a thread or process.
    #[error("{what}: {why}; raise the limits on processes and threads (ulimit -u)")]
    Start {
        /// Purpose of the thread or process.
        what: &'static str,
        /// The system's error, with its error number.
        why: std::io::Error,
    },
}

impl PipelineError {
    /// Error of starting the thread or process `what`, from that of the system.
    pub fn start(what: &'static str) -> impl FnOnce(std::io::Error) -> PipelineError {
        move |why| PipelineError::Start { what, why }
    }
}

/// Environment variable with the role of a process of a pipeline.
const ROLE: &str = "PUNCTUAL_PIPELINE_ROLE";
/// Environment variable with the tag of the process's pipeline.
const TAG: &str = "PUNCTUAL_PIPELINE_TAG";

/// What a process of a stage runs.
#[derive(Clone, Copy, Debug)]
struct StageProcess {
    stage: usize,
    slot: u8,
    /// Number of the program; 0: the one that started the pipeline.
    program: u8,
}

/// Facts that every process of a pipeline is given.
#[derive(Clone, Debug, Default)]
struct Kin {
    /// The process that starts this one, and with which it ends.
    parent: i32,
    priority: Option<u8>,
    tag: String,
}

/// Environment variables that give a process its role on a core; a worker has none of a stage.
fn environment(shared: &Segment, kin: &Kin, core: usize, role: Option<StageProcess>) -> [(&'static str, OsString); 2] {
    let (pid, descriptor) = (std::process::id(), shared.descriptor());
    let (parent, priority) = (kin.parent, kin.priority.unwrap_or(0));
    let mut said = format!("{pid} {descriptor} {parent} {priority} {core}");
    if let Some(StageProcess { stage, slot, program }) = role {
        said.push_str(&format!(" {stage} {slot} {program}"));
    }
    [(ROLE, said.into()), (TAG, kin.tag.clone().into())]
}

/// The role from the environment: memory (process and descriptor), kin, core, role.
fn said_role() -> Option<(i32, i32, Kin, usize, Option<StageProcess>)> {
    let said = std::env::var(ROLE).ok()?;
    let numbers: Option<Vec<i64>> = said.split(' ').map(|number| number.parse().ok()).collect();
    let numbers = numbers?;
    let (&[pid, descriptor, parent, priority, core], role) = numbers.split_first_chunk()?;
    let role = match *role {
        [] => None,
        [stage, slot, program] => Some(StageProcess {
            stage: stage as usize,
            slot: slot as u8,
            program: program as u8,
        }),
        _ => return None,
    };
    let kin = Kin {
        parent: parent as i32,
        priority: Some(priority as u8).filter(|priority| *priority > 0),
        tag: std::env::var(TAG).unwrap_or_default(),
    };
    Some((pid as i32, descriptor as i32, kin, core as usize, role))
}

/// The tag of the pipeline for which this process was started; `None` if a user started it. A program with several
/// pipelines needs it to know which graph to start.
pub fn told() -> Option<String> {
    said_role().map(|(_, _, kin, ..)| kin.tag)
}

/// Whether this process was started to replace a stage by another program or version ([`Panel::replace`]). Such a
/// process reads anew what may have changed since the pipeline was started; all others take what was there at the
/// start.
pub fn replaces() -> bool {
    matches!(said_role(), Some((.., Some(StageProcess { program: 1.., .. }))))
}

/// Options of a pipeline; the defaults suit most programs.
#[derive(Clone, Debug, Default)]
pub struct PipelineOptions {
    /// Cores of the stages; empty: those that this process may use and where no other program has announced real-time
    /// work, if there are any, up to 8.
    pub cores: Vec<CoreId>,
    /// Real-time priority of the stages' processes (`SCHED_FIFO`), where that is allowed. Their workers have one more,
    /// or, where this is the highest that is allowed, the stages one less.
    pub priority: Option<u8>,
    /// Distinguishes the pipelines of one program; [`told`] returns it in this pipeline's processes.
    pub tag: String,
    /// First core of each stage, as an index in `cores`; missing entries mean the first core.
    pub placement: Vec<usize>,
    /// Policy that decides where stages run from then on.
    pub policy: MappingPolicy,
    /// Requested frames per second, which policies rely on; `None`: as they come.
    pub rate: Option<f64>,
    /// Clocks and powers of the cores, for policies that need them; `None`: as far as the machine reports them.
    pub machine: Option<Cores>,
    /// How clocks are set by the rows of a table; `None`: they stay as they are.
    pub clocks: Option<ClockOptions>,
    /// Pairs of stages without an edge between them, the one that feeds a program and the one that reads it: frames
    /// that are late before the first are missing behind the second, one for one: a program that makes fewer frames
    /// than it takes has too many missing.
    pub joined: Vec<(String, String)>,
    /// Longest time of a step: a process that takes longer, or that has frames and room and begins no step for that
    /// time, is killed, and the step is repeated by the next one. `None`: [`STEP_MAX`](crate::STEP_MAX).
    pub step_max: Option<Nanos>,
}

/// A running pipeline. Dropping it ends it.
#[derive(Debug)]
pub struct Pipeline {
    shared: Segment,
    supervisor: Supervisor,
    ground: Ground,
    /// The thread that sets clocks, or why there is none. Clocks are restored after all processes have ended.
    clocks: Option<Result<Turning, Refusal>>,
    beside: Announcement,
    counts: FrameCounts,
}

impl Pipeline {
    /// Starts the migratable stages on these cores. `bodies` makes each stage, and is called in every process.
    ///
    /// In a process that a pipeline of this program has started, this serves and does not return. No other thread may
    /// run there yet: call it first in `main`.
    ///
    /// # Errors
    /// [`PipelineError`] says what to change.
    pub fn start(graph: Graph, options: &PipelineOptions, bodies: Bodies) -> Result<Pipeline, PipelineError> {
        serve_if_told(Some(&graph), options, &bodies)?;
        let (cores, beside) = Announcement::place(options)?;
        for stage in graph.stages().iter().filter(|stage| stage.migratable) {
            bodies(&stage.name).ok_or_else(|| PipelineError::NoSuchStage(stage.name.clone()))?;
        }
        let shared = Segment::create(graph, &cores)?;
        shared.set_step_max(options.step_max.unwrap_or(crate::STEP_MAX));
        for stage in shared.stages() {
            let at = options.placement.get(stage).copied().unwrap_or(0) % shared.cores();
            shared.set_control(stage, Control::held(at as u8, 1));
            if shared.graph.stages()[stage].migratable {
                shared.set_slot(stage, at as u8, |slot| slot.wanted = true);
            }
        }
        // Before other threads start, because this forks the guardian.
        let machine = { options.clocks.as_ref() }.map(|clocks| {
            let opened = clocks::open(clocks, &shared, options.machine.as_ref());
            (clocks, opened)
        });
        shared.set_turns_clocks(machine.as_ref().is_some_and(|(_, opened)| opened.is_ok()));
        let ground = shared.ground(options);
        coordinator::set_up(&shared, &ground, options.policy, options.rate)?;
        let turn = |(clocks, opened): (&ClockOptions, Result<LinuxMachine, Refusal>)| {
            Ok(match opened {
                Ok(machine) => Ok(Turning::start(&shared, machine, &ground.cores, clocks)?),
                Err(refusal) => Err(refusal),
            })
        };
        let clocks = machine.map(turn).transpose().map_err(|why: PipelineError| why)?;
        let supervisor = Supervisor::start(&shared, options)?;
        let Segment {
            graph, layout, region, ..
        } = &shared;
        Ok(Pipeline {
            counts: FrameCounts::new(graph, layout, region, &options.joined),
            shared,
            supervisor,
            ground,
            clocks,
            beside,
        })
    }

    /// Serves in a process that a pipeline of this program has started, and does not return there; elsewhere this does
    /// nothing. [`Pipeline::start`] does the same; this is for programs whose graph takes time to make, or can no
    /// longer be made. The options are those of the pipeline, but for cores and placement.
    ///
    /// # Errors
    /// [`PipelineError`] if the process cannot serve.
    pub fn serve(options: &PipelineOptions, bodies: &Bodies) -> Result<(), PipelineError> {
        serve_if_told(None, options, bodies)
    }

    /// A stage that stays in this process; a thread of the caller executes it.
    ///
    /// # Errors
    /// [`PipelineError::NoSuchStage`] if there is no such stage, or it may migrate.
    pub fn pinned(&self, name: &str) -> Result<Pinned, PipelineError> {
        Pinned::new(&self.shared, name)
    }

    /// Reader of the thread that sets clocks, or why there is none; `None` if clocks were not requested.
    ///
    /// # Errors
    /// [`Refusal`]: the machine has no clocks that can be set.
    pub fn clocks(&self) -> Option<Result<ClockHand, Refusal>> {
        let clocks = self.clocks.as_ref()?.as_ref();
        Some(clocks.map(|turning| turning.hand.clone()).map_err(Refusal::clone))
    }

    /// Real-time work that other programs have on its cores, and why its own is not announced to them.
    pub fn beside(&self) -> Vec<Refusal> {
        self.beside.told()
    }

    /// Facts given to its coordinators: together with their decisions, a log that can be replayed.
    pub fn ground(&self) -> &Ground {
        &self.ground
    }

    /// Counts of its frames.
    pub fn counts(&self) -> &FrameCounts {
        &self.counts
    }

    /// Tardiness of the frames that a stage took, and the late ones that it has not taken; `None` if there is no such
    /// stage.
    pub fn tardiness(&self, name: &str) -> Option<TardinessFigures> {
        self.counts.tardiness(name, self.shared.now())
    }

    /// Ends the start-up: tardiness counts from here.
    pub fn settle(&mut self) {
        self.counts.settle(self.shared.now());
    }

    /// Whether all stages without outputs have ended: no further frame will be delivered.
    pub fn sinks_have_ended(&self) -> bool {
        let shared = &self.shared;
        let mut sinks = shared
            .stages()
            .filter(|stage| shared.graph.stages()[*stage].makes.is_empty());
        sinks.all(|stage| shared.layout.has_ended(&shared.region, stage))
    }

    /// A control panel of the pipeline for another thread. It works while the pipeline runs.
    pub fn panel(&self) -> Panel {
        Panel::new(&self.shared)
    }

    /// Supervisor of the workers; also the control panel of the pipeline.
    pub fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Ends the pipeline: all processes have ended when this returns.
    ///
    /// # Errors
    /// [`PipelineError::Failed`] if the pipeline had ended because a stage could not continue.
    pub fn end(self) -> Result<(), PipelineError> {
        self.supervisor.end()
    }
}

/// Serves as a worker or as a process of a stage, if the environment gives such a role.
fn serve_if_told(graph: Option<&Graph>, options: &PipelineOptions, bodies: &Bodies) -> Result<(), PipelineError> {
    let Some((pid, descriptor, kin, core, role)) = said_role() else {
        return Ok(());
    };
    leave_signals_to_parent();
    // Programs that a stage starts do not belong to this pipeline.
    // SAFETY: a process of a pipeline has one thread here: the caller starts none before.
    unsafe {
        std::env::remove_var(ROLE);
        std::env::remove_var(TAG);
    }
    let shared = Segment::open(pid, descriptor)?;
    if graph.is_some_and(|graph| !graph.is_like(&shared.graph)) {
        let other = LayoutError::OtherGraph;
        if let Some(StageProcess { stage, .. }) = role {
            shared.refuse(stage, &other.to_string());
        }
        return Err(other.into());
    }
    let Some(StageProcess { stage, slot, .. }) = role else {
        worker::serve(shared, core, &kin, bodies, options)
    };
    die_with(kin.parent);
    let _ = punctual_platform::linux::thread::pin(shared.core(core));
    let name = shared.name(stage).to_owned();
    let missing = PipelineError::NoSuchStage(name.clone());
    let body = bodies(&name).ok_or_else(|| {
        shared.refuse(stage, &missing.to_string());
        missing
    })?;
    let shared = &shared;
    instance::Instance {
        shared,
        stage,
        slot,
        body,
    }
    .live()
}

/// The cores that were asked for, or all of this process.
fn chosen(asked: &[CoreId]) -> Result<Vec<CoreId>, PipelineError> {
    let usable = cores::usable(&KernelTree::default());
    let list = |cores: &[CoreId]| cores.iter().map(CoreId::to_string).collect::<Vec<_>>().join(",");
    let refusal = |why: String| {
        let asked = list(asked);
        Err(PipelineError::Cores { asked, why })
    };
    if let Some(missing) = asked.iter().find(|core| !usable.contains(core)) {
        return refusal(format!(
            "this process may not use core {missing}; it may use {}",
            list(&usable)
        ));
    }
    if asked.len() > CORES_MAX {
        return refusal(format!("a pipeline has {CORES_MAX} cores at most"));
    }
    Ok(if asked.is_empty() { usable } else { asked.to_vec() })
}
