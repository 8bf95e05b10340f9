//! Pipelines whose stages migrate: cores with a clock, a low-power state and a temperature each, bounded queues between
//! stages, and frames that are due at a steady rate.
//!
//! **Problem.** The best mapping and clocks of a pipeline, and the effect of a migration on its frames, show only when
//! frames run through it.
//!
//! **Terms.** A *stage* makes one *step* after the other: it takes frames of its inputs and makes frames for its
//! outputs ([`PipelineModel`]). The stage without outputs is the *sink*: at each *due* instant it takes one step. A
//! frame is *late* if a queue before the sink is empty when the frame is due; the sink then takes it at a later due
//! instant, because no frame is lost. Stages without inputs have their input at hand at any time, so that queues are
//! full as long as the cores keep up.
//!
//! **Method.** A core works on one thing after the other, each to its end, in this order: moves, daemons, the sink,
//! then the stage whose latest step began the longest ago. A step takes its cycles at the clock of its core's domain;
//! input is taken and output made at its end, all at once. Between two events only the temperatures change, which
//! follow the power of their core as a resistor and a capacitor do:
//!
//! ```text
//! T(t + dt) = S + (T(t) - S) exp(-dt / tau),   S = ambient + R P
//! ```
//!
//! A move (migration of a stage) waits for the end of the present step. Then the stage's old core works for half of the
//! move's cycles and its new core for the other half; in between passes a time that no core works for. These numbers
//! define the mechanism of migration. Clocks that are ordered together with moves rise at once and fall when all moves
//! are done.
//!
//! Policies are those of [`punctual_allocation::mapping`]; callers drive them with [`PipelineSim::observe`] and
//! [`PipelineSim::order`].
//!
//! **Left out.** The bus: cores do not slow each other down. Heat does not flow between cores. Changing a clock, and
//! entering or leaving the low-power state, take no time.

mod cores;
mod engine;
mod graph;
mod mpsoc;
#[cfg(test)]
mod tests;

pub use cores::{CoreReport, Thermal, Times};
pub use engine::{CAPTURED_MAX, Daemon, FREEZES_MAX, Freeze, MigrationModel, PipelineReport, PipelineSim, PolicyView};
pub use graph::{Edge, PipelineError, PipelineModel, StepCost};
pub use mpsoc::{Checkpoint, DaemonModel, Mpsoc, Recreation};
