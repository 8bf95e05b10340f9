//! Tasks, sensors and goals, as data: the work of a device.
//!
//! A [`Scenario`] says in the user's terms what a device has to do: tasks with periods and deadlines, sensors that
//! stream in, goals. [`compile()`] turns its demands ("14 ms of computation at full clock") into [`Program`]s
//! (cycles and store accesses) with the [`Costs`] of one machine; `runtime::linux` interprets the same program with
//! real loops and real store calls that `sim` interprets as timed segments.
//!
//! Two features are off by default, for programs that bring sensors of their own: `csv` reads recorded traces,
//! `synthetic` draws made-up ones.
//!
//! Nothing here reads a clock, a file or the environment; randomness comes from the scenario's seed.

mod active;
mod check;
mod compile;
mod goal;
mod late;
mod outcome;
mod program;
mod progress;
#[cfg(feature = "csv")]
mod recorded;
mod scenario;
mod stream;
mod surge;
#[cfg(feature = "synthetic")]
mod synthetic;
mod trace;

pub use active::Active;
pub use check::{Problem, Problems, too_long};
pub use compile::{CompiledScenario, Costs, ImpossibleDemand, compile};
pub use goal::{Goal, TaskGoal};
pub use late::{Cause, CauseSpans, JobMeasurements, Usual};
pub use outcome::{JobOutcome, Part, Split, SplitSum};
pub use program::{ObjectSet, Op, Program};
pub use progress::{CHECKPOINTS_MAX, JobProgress, checkpoint};
#[cfg(feature = "csv")]
pub use recorded::TraceError;
pub use scenario::{
    Arrival, Class, ControlSpec, ControllerKind, Demand, Durability, Excitation, Pace, Prices, Scenario, SensorLoad,
    SensorSource, StoreCheck, StoreNeeds, TaskSpec, UpdateMode, Volume,
};
pub use stream::{SensorStream, SensorUpdate};
pub use surge::Surge;
pub use trace::{Reading, Sensor, Trace};
