//! The stages of a scenario, as a file describes them: checked, and run on Linux. In simulated time they run by
//! `simulated/stages.rs`.
//!
//! A stage is a program with pipes, a file, a shared library in C, or code of the program that runs the scenario, named
//! by its kind. Programs and files stay in the process that runs the scenario; libraries and kinds may move. A program
//! in the middle is two stages of the graph ([`punctual_pipelines::linux::PipeSpec`] says why).

mod check;
mod cores;
mod kinds;
mod libraries;
mod plan;
mod run;

use std::path::PathBuf;

use punctual_allocation::mapping::MappingPolicy;
use punctual_pipelines::EdgeSpec;
use punctual_units::{CoreId, Nanos};
use punctual_workload::TaskGoal;

pub(crate) use cores::simulated_cores;
pub use cores::stage_cores;
pub(crate) use kinds::COPY;
pub use kinds::{AddedKinds, StageKind, StageKinds, kind};
pub(crate) use plan::Parts;
pub use plan::StagePlan;
pub use run::{StageError, StageRun, Stages};
pub(crate) use run::{frames_of, frames_report};

/// All stages of a scenario, and the edges between them.
#[derive(Clone, Debug, Default)]
pub struct StagesSpec {
    /// Tables `[[stage]]` of the file.
    pub stages: Vec<StageNeeds>,
    /// Tables `[[edge]]` of the file.
    pub edges: Vec<EdgeNeeds>,
    /// The cores of stages that may move; empty: all that there are, up to 8.
    pub cores: Vec<CoreId>,
    /// The cores that there are for them beside exclusive tasks, if `cores` names none; empty: all that this process
    /// may use ([`stage_cores`]).
    pub open: Vec<CoreId>,
    /// The real-time priority of their processes, where that is allowed.
    pub priority: Option<u8>,
    /// Policy that decides where they run.
    pub policy: MappingPolicy,
    /// Whether the rows of a table set clocks; not beside tasks, whose loop may turn them.
    pub turns_clocks: bool,
    /// Frames per second that policies count on; `None`: the measured rate.
    pub rate: Option<f64>,
    /// The longest that a step may take: a process that takes longer is killed, and the step is done again.
    pub step_max: Option<Nanos>,
}

/// A stage, as the file describes it.
#[derive(Clone, Debug)]
pub struct StageNeeds {
    /// Unique in the scenario.
    pub name: String,
    /// Program, file or code of the stage.
    pub does: Body,
    /// Frames that a step takes from each input; `None`: one from each that an edge leads to.
    pub takes: Option<Vec<u32>>,
    /// Frames that a step makes at each output, at most; `None`: one at each that an edge comes from.
    pub makes: Option<Vec<u32>>,
    /// Room for its state, in bytes; `None`: as much as it says that it needs.
    pub state_bytes: Option<usize>,
    /// Steps from one save of the state to the next.
    pub save_every: u32,
    /// Whether it may run in a process of its own, and so migrate; `None`: it does where its kind allows that.
    pub migratable: Option<bool>,
    /// The core that it begins on; `None`: dealt out in order.
    pub core: Option<CoreId>,
    /// Work of a step, alone at full clock: of every stage on the simulated machine, of the kind `copy` on Linux.
    pub compute: Nanos,
    /// Of a source: time between the beginnings of two frames; missed frames are made up.
    pub period: Option<Nanos>,
    /// Of a source: time from a frame's capture to its deadline.
    pub deadline: Option<Nanos>,
    /// Whether a program that fails is started again.
    pub restart: bool,
    /// Goal of the frames that it takes.
    pub goal: Option<TaskGoal>,
}

/// Program, file or code of a stage.
#[derive(Clone, Debug)]
pub enum Body {
    /// A program with its arguments.
    Program(Vec<String>),
    /// A file that is read, or written.
    File(PathBuf),
    /// A shared library in C.
    Library(PathBuf),
    /// A stage of the program itself: name and kind.
    Kind(String, StageKind),
}

/// An edge, as the file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeNeeds {
    /// The stage and its output.
    pub from: (String, usize),
    /// The stage and its input.
    pub to: (String, usize),
    /// Ring between the two stages.
    pub edge: EdgeSpec,
}
