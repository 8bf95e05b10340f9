//! A pipeline on Linux: a process for each stage on each core, a worker for each core, and the caller's own process.
//!
//! The caller's program is its own worker: it runs itself again, and [`Pipeline::start`] then serves in place of
//! starting. So a program calls it before it does anything else that a worker should not do, with the same graph.
//!
//! ```text
//!   the caller's process: pinned stages in its threads, the supervisor
//!     ├─ worker of core 0 ── processes of stages: one has the stage, the others sleep
//!     └─ worker of core 1 ── likewise
//! ```
//!
//! All of them die with the process above them, and the memory with the last of them: after a kill of any of them no
//! process and no mapping is left. Which process has a stage is said by one word ([`punctual_pipeline::Control`]).

mod c_stage;
mod clocks;
mod coordinator;
mod desk;
mod instance;
mod last_words;
mod log;
mod panel;
mod pinned;
mod pipes;
mod planted;
mod registry;
mod shared;
mod statistics;
mod supervisor;
mod watchdog;
mod worker;

use std::ffi::OsString;

use punctual_allocation::mapping::{Cores, Ground, MappingError, MappingPolicy};
use punctual_pipeline::{Control, Graph, LayoutError, TakeError, TardinessFigures};
use punctual_platform::Refusal;
use punctual_platform::linux::cores;
use punctual_platform::linux::process::{die_with, leave_signals_to_parent};
use punctual_platform::linux::{KernelTree, LinuxMachine};
use punctual_units::{CoreId, Nanos};

pub use punctual_allocation::mapping;

pub use c_stage::{CStage, CStageError};
pub use clocks::{ClockHand, ClockOptions};
pub use coordinator::{CoordinatorNow, SettingError};
pub use desk::{HOLD, PERIOD};
pub use log::{Cause, Handover};
pub use panel::{Mechanism, MoveError, Panel, QueueNow, StageNow};
pub use pinned::Pinned;
pub use pipes::{Peer, PipeError, PipeReport, Piped, Pipes, RESTARTS_MAX};
#[doc(hidden)]
pub use planted::Point;
pub use registry::{Running, running};
pub use shared::{Bodies, CORES_MAX};
pub use statistics::{StageStatistics, Statistics};
pub use supervisor::Supervisor;

use clocks::Turning;
use shared::Shared;

/// Why a pipeline does not start, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// The machine does not allow it.
    #[error(transparent)]
    Machine(#[from] Refusal),
    /// The shared memory cannot be had.
    #[error("{0}")]
    Memory(String),
    /// It is another pipeline's.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A stage does not go on from its state.
    #[error(transparent)]
    Take(#[from] TakeError),
    /// Cores that are not there, or too many.
    #[error("cores {asked}: {why}")]
    Cores {
        /// What was asked for.
        asked: String,
        /// What is wrong.
        why: String,
    },
    /// A stage of the graph that the program does not make.
    #[error("no stage \"{0}\" is made by this program: name it in the function that makes stages")]
    NoSuchStage(String),
    /// A stage cannot go on.
    #[error("stage \"{0}\" cannot go on: {1}")]
    Failed(String, String),
    /// A policy that cannot be asked about these stages and cores.
    #[error(transparent)]
    Policy(#[from] MappingError),
    /// Workers that end before they serve.
    #[error(
        "{0} workers in a row ended as soon as they were started: the program must call Pipeline::start with the same \
         graph when it is run again with the same arguments, before it opens what only one process can have"
    )]
    NoWorker(u32),
    /// A thread or process that the system has no room for.
    #[error("{what}: {why}; raise the limits on processes and threads (ulimit -u)")]
    Start {
        /// What was to be started.
        what: &'static str,
        /// In the system's words.
        why: std::io::Error,
    },
}

/// The environment variable that tells a process of a pipeline what it is.
const ROLE: &str = "PUNCTUAL_PIPELINE_ROLE";
/// The one that tells it which pipeline.
const TAG: &str = "PUNCTUAL_PIPELINE_TAG";

/// What a process of a pipeline is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Role {
    Worker { core: usize },
    Instance { core: usize, stage: usize, slot: u8 },
}

/// What all processes of a pipeline are told.
#[derive(Clone, Debug, Default)]
struct Kin {
    /// The process that starts this one, and with which it ends.
    parent: i32,
    priority: Option<u8>,
    tag: String,
}

/// What tells a process that this one starts its role.
fn environment(shared: &Shared, role: &Role, kin: &Kin) -> [(&'static str, OsString); 2] {
    let (pid, descriptor) = (std::process::id(), shared.descriptor());
    let (parent, priority) = (kin.parent, kin.priority.unwrap_or(0));
    let said = match role {
        Role::Worker { core } => format!("{pid} {descriptor} {parent} {priority} {core}"),
        Role::Instance { core, stage, slot } => {
            format!("{pid} {descriptor} {parent} {priority} {core} {stage} {slot}")
        }
    };
    [(ROLE, said.into()), (TAG, kin.tag.clone().into())]
}

/// The role that the environment tells: memory (process and descriptor), parent, priority, role.
fn said_role() -> Option<(i32, i32, i32, Option<u8>, Role)> {
    let said = std::env::var(ROLE).ok()?;
    let numbers: Option<Vec<i64>> = said.split(' ').map(|number| number.parse().ok()).collect();
    let of = |number: &i64| *number as usize;
    let (rest, role) = match numbers?.as_slice() {
        [rest @ .., core, stage, slot] if rest.len() == 4 => {
            let (core, stage, slot) = (of(core), of(stage), *slot as u8);
            (rest.to_vec(), Role::Instance { core, stage, slot })
        }
        [rest @ .., core] if rest.len() == 4 => (rest.to_vec(), Role::Worker { core: of(core) }),
        _ => return None,
    };
    let priority = Some(rest[3] as u8).filter(|priority| *priority > 0);
    Some((rest[0] as i32, rest[1] as i32, rest[2] as i32, priority, role))
}

/// The tag of the pipeline that this process was started for; `None` where it was started by a user. A program with
/// several pipelines asks it which graph to start.
pub fn told() -> Option<String> {
    said_role()?;
    Some(std::env::var(TAG).unwrap_or_default())
}

/// How a pipeline runs.
#[derive(Clone, Debug, Default)]
pub struct PipelineOptions {
    /// The cores of its stages; none: all that this process may use, up to 8.
    pub cores: Vec<CoreId>,
    /// The real-time priority of its processes (`SCHED_FIFO`), where that is allowed.
    pub priority: Option<u8>,
    /// Tells pipelines of one program apart: what [`told`] answers in the processes of this one.
    pub tag: String,
    /// The number of the core, among `cores`, that each stage begins on; missing ones on the first.
    pub placement: Vec<usize>,
    /// What decides where stages run from then on.
    pub policy: MappingPolicy,
    /// Frames per second that are asked for, which policies count on; none: those that come.
    pub rate: Option<f64>,
    /// The clocks and powers of the cores, for policies that ask for them; none: as far as the machine says.
    pub machine: Option<Cores>,
    /// How clocks are turned by the rows of a table; none: they are left as they are.
    pub clocks: Option<ClockOptions>,
    /// The longest that a step may take: a process that takes longer is killed, and the step is done again. None: 5 s.
    pub step_max: Option<Nanos>,
}

/// [`PipelineOptions::step_max`] where the caller says nothing.
const STEP_MAX: Nanos = Nanos::from_secs(5);

/// A running pipeline. Dropping it ends it.
#[derive(Debug)]
pub struct Pipeline {
    shared: Shared,
    supervisor: Supervisor,
    ground: Ground,
    /// What turns clocks, or why nothing does. Clocks are put back after all processes have ended.
    clocks: Option<Result<Turning, Refusal>>,
}

impl Pipeline {
    /// Starts the stages that may move, on these cores. `bodies` makes each stage, and is asked in every process.
    ///
    /// In a process that a pipeline of this program has started, this serves and does not return. No other thread may
    /// run there yet: call it first in `main`.
    ///
    /// # Errors
    /// [`PipelineError`].
    pub fn start(graph: Graph, options: &PipelineOptions, bodies: Bodies) -> Result<Pipeline, PipelineError> {
        serve_if_told(&graph, options, &bodies)?;
        let cores = chosen(&options.cores)?;
        for stage in graph.stages().iter().filter(|stage| stage.migratable) {
            bodies(&stage.name).ok_or_else(|| PipelineError::NoSuchStage(stage.name.clone()))?;
        }
        let shared = Shared::create(graph, &cores)?;
        shared.set_step_max(options.step_max.unwrap_or(STEP_MAX));
        for stage in shared.stages() {
            let at = options.placement.get(stage).copied().unwrap_or(0) % shared.cores();
            shared.set_control(stage, Control::held(at as u8, 1));
            if shared.graph.stages()[stage].migratable {
                shared.set_slot(stage, at as u8, |slot| slot.wanted = true);
            }
        }
        // Before there are other threads: its guardian is forked.
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
        Ok(Pipeline {
            shared,
            supervisor,
            ground,
            clocks,
        })
    }

    /// A stage that stays in this process, to be carried out by a thread of the caller's.
    ///
    /// # Errors
    /// [`PipelineError::NoSuchStage`] where there is no such stage, or it may move.
    pub fn pinned(&self, name: &str) -> Result<Pinned, PipelineError> {
        Pinned::new(&self.shared, name)
    }

    /// What turns the clocks beneath it, or why nothing does; `None` where that was not asked for.
    ///
    /// # Errors
    /// [`Refusal`]: the machine has no clocks that can be set.
    pub fn clocks(&self) -> Option<Result<ClockHand, Refusal>> {
        let clocks = self.clocks.as_ref()?;
        Some(
            clocks
                .as_ref()
                .map(|turning| turning.hand.clone())
                .map_err(Refusal::clone),
        )
    }

    /// What its coordinators know: with their decisions, a log that can be replayed.
    pub fn ground(&self) -> &Ground {
        &self.ground
    }

    /// How late the frames were that a stage took; `None` where there is no such stage.
    pub fn tardiness(&self, name: &str) -> Option<TardinessFigures> {
        let stage = self.shared.graph.number(name)?;
        Some(self.shared.layout.tardiness(&self.shared.region, stage).figures())
    }

    /// Frames that a stage has made, at all outputs; 0 where there is no such stage.
    pub fn made(&self, name: &str) -> u64 {
        let shared = &self.shared;
        let Some(stage) = shared.graph.number(name) else {
            return 0;
        };
        let outputs = 0..shared.graph.stages()[stage].makes.len();
        outputs
            .map(|port| shared.layout.made(&shared.region, stage, port))
            .sum()
    }

    /// Frames that were dropped before a stage, at all inputs; 0 where there is no such stage.
    pub fn dropped(&self, name: &str) -> u64 {
        let shared = &self.shared;
        let Some(stage) = shared.graph.number(name) else {
            return 0;
        };
        let inputs = 0..shared.graph.stages()[stage].takes.len();
        inputs
            .map(|port| shared.layout.dropped(&shared.region, stage, port))
            .sum()
    }

    /// Whether all stages without outputs have ended: no frame will be delivered any more.
    pub fn sinks_have_ended(&self) -> bool {
        let shared = &self.shared;
        let mut sinks = shared
            .stages()
            .filter(|stage| shared.graph.stages()[*stage].makes.is_empty());
        sinks.all(|stage| shared.layout.has_ended(&shared.region, stage))
    }

    /// Something to ask and tell it by beside the supervisor, for another thread. It is of use as long as the pipeline
    /// runs.
    pub fn panel(&self) -> Panel {
        Panel::new(&self.shared)
    }

    /// What moves stages, and tells about them.
    pub fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Ends it: all processes have ended when this returns.
    ///
    /// # Errors
    /// [`PipelineError::Failed`] where it had ended because a stage could not go on.
    pub fn end(self) -> Result<(), PipelineError> {
        self.supervisor.end()
    }
}

/// Serves as a worker or as a process of a stage, where the environment says so.
fn serve_if_told(graph: &Graph, options: &PipelineOptions, bodies: &Bodies) -> Result<(), PipelineError> {
    let Some((pid, descriptor, parent, priority, role)) = said_role() else {
        return Ok(());
    };
    let tag = told().unwrap_or_default();
    leave_signals_to_parent();
    // Programs that a stage starts are none of this pipeline.
    // SAFETY: a process of a pipeline has one thread here: the caller starts none before.
    unsafe {
        std::env::remove_var(ROLE);
        std::env::remove_var(TAG);
    }
    let shared = Shared::open(graph.clone(), pid, descriptor)?;
    match role {
        Role::Worker { core } => {
            let kin = Kin { parent, priority, tag };
            worker::serve(shared, core, &kin, bodies, options)
        }
        Role::Instance { core, stage, slot } => {
            die_with(parent);
            let _ = punctual_platform::linux::thread::pin(shared.core(core));
            let name = shared.name(stage).to_owned();
            let body = bodies(&name).ok_or(PipelineError::NoSuchStage(name))?;
            let shared = &shared;
            instance::Instance {
                shared,
                stage,
                slot,
                body,
            }
            .live()
        }
    }
}

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
    let all = if asked.is_empty() { &usable } else { asked };
    Ok(all.iter().copied().take(CORES_MAX).collect())
}
