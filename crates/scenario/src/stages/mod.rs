//! The stages of a scenario: what a file says of them, checked, and carried out on Linux.
//!
//! A stage is a program with pipes, a file, a shared library in C, or a kind that is built in. Programs and files stay
//! in the process that runs the scenario; libraries and built-in kinds may move. A program in the middle is two stages
//! of the graph ([`punctual_runtime::linux::pipeline::Piped`] says why).

mod check;
mod kinds;
mod plan;
mod run;

use std::path::PathBuf;

use punctual_allocation::mapping::MappingPolicy;
use punctual_pipeline::EdgeSpec;
use punctual_units::{CoreId, Nanos};
use punctual_workload::TaskGoal;

pub use kinds::KINDS;
pub use plan::StagePlan;
pub use run::{StageError, StageRun, Stages};

/// All stages of a scenario, and the edges between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StagesSpec {
    /// `[[stage]]`.
    pub stages: Vec<StageNeeds>,
    /// `[[edge]]`.
    pub edges: Vec<EdgeNeeds>,
    /// The cores of stages that may move; none: all that there are, up to 8.
    pub cores: Vec<CoreId>,
    /// The real-time priority of their processes, where that is allowed.
    pub priority: Option<u8>,
    /// What decides where they run.
    pub policy: MappingPolicy,
    /// Whether the rows of a table set clocks: not beside tasks, of which the loop may turn them.
    pub turns_clocks: bool,
    /// Frames per second that policies count on; none: those that come.
    pub rate: Option<f64>,
    /// The longest that a step may take: a process that takes longer is killed, and the step is done again.
    pub step_max: Option<Nanos>,
}

/// One stage.
#[derive(Clone, Debug, PartialEq)]
pub struct StageNeeds {
    /// Unique in the scenario.
    pub name: String,
    /// What carries it out.
    pub does: Does,
    /// Frames that a step takes from each input; `None`: one from each that an edge leads to.
    pub takes: Option<Vec<u32>>,
    /// Frames that a step makes at each output, at most; `None`: one at each that an edge comes from.
    pub makes: Option<Vec<u32>>,
    /// Room for its state, in bytes; `None`: as much as it says that it needs.
    pub state_bytes: Option<usize>,
    /// The state is saved at every so manieth step.
    pub save_every: u32,
    /// Whether it may run in another process, and move; `None`: where it can.
    pub migratable: Option<bool>,
    /// The core that it begins on.
    pub core: Option<CoreId>,
    /// Of a source: between the beginnings of two frames, at least.
    pub period: Option<Nanos>,
    /// Of a source: from a frame's capture until it is due.
    pub deadline: Option<Nanos>,
    /// Whether a program that fails is started again.
    pub restart: bool,
    /// What is asked of the frames that it takes.
    pub goal: Option<TaskGoal>,
}

/// What carries a stage out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Does {
    /// A program with its arguments.
    Program(Vec<String>),
    /// A file that is read, or written.
    File(FileEnd),
    /// A shared library.
    Library(PathBuf),
    /// A kind that is built in: see [`KINDS`].
    Kind(String),
}

/// A file at an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEnd {
    /// Where it is.
    pub path: PathBuf,
    /// What the program has in it, where no such file is there.
    pub built_in: Option<&'static [u8]>,
}

/// One edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeNeeds {
    /// The stage and its output.
    pub from: (String, usize),
    /// The stage and its input.
    pub to: (String, usize),
    /// The ring.
    pub edge: EdgeSpec,
}
