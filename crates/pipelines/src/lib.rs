//! Which stage runs where, and how does it migrate and come back? Stages pass frames through bounded rings. The whole
//! pipeline is one piece of shared memory; all code but that in `linux` decides from that memory and from values: no
//! clock, no process, no wait.
//!
//! - [`Graph`]: the stages and the edges between them, checked.
//! - [`Stage`]: the user's code: a state, and a function of the state and of frames.
//! - [`Region`] and [`Layout`]: the memory, and the offsets in it. It may be a mapping that processes share, or on the
//!   heap.
//! - [`Runner`]: takes over a stage, executes its steps and commits each by one word (`commit.rs` proves that one is
//!   enough).
//! - [`Control`]: which process owns a stage, and how ownership passes to another: migrating, replacing a version and
//!   restarting after a crash are the same handover.
//! - [`run_serially`]: the whole graph in one thread, the reference for all other executions.
//! - `linux`: the processes, the coordinator and the pipes around programs.

// The front crate shows its items to programs of others.
#![warn(missing_docs)]

mod checkpoint;
mod commit;
#[cfg(test)]
mod commit_tests;
mod control;
mod counts;
mod deaths;
mod fingerprint;
mod frames;
mod graph;
mod layout;
mod life;
#[cfg(target_os = "linux")]
pub mod linux;
mod missing;
mod region;
mod runner;
mod serial;
mod stage;
mod tardiness;
#[cfg(test)]
mod waking_tests;

/// The atomics that `commit.rs` uses; the model checker substitutes its own (`tests/loom.rs`).
mod atomics {
    pub(crate) use std::hint::spin_loop as look_again;
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
}

/// Longest time of a step where no other is given.
pub const STEP_MAX: punctual_units::Nanos = punctual_units::Nanos::from_secs(5);

/// Format of saved states, for [`State::convert`].
pub use postcard;

pub use checkpoint::{Checkpoint, CheckpointAnswer};
pub use commit::{Commit, Record};
pub use control::{Control, Phase, SLOTS_MAX};
pub use counts::{FrameCounts, FrameReader};
pub use deaths::Deaths;
pub use frames::{Frames, Head};
pub use graph::{EdgeSpec, Graph, GraphError, Link, PORTS_MAX, STAGES_MAX, StageSpec, WhenFull};
pub use layout::{Bell, LAST_WORDS_MAX, Layout, LayoutError};
pub use life::{
    Death, Duty, Grant, Slot, Version, Versions, Wish, after_end, buried, doing, emptied, grant, may_go_on, started,
    starts,
};
pub use missing::Missing;
pub use region::Region;
pub use runner::{Runner, TakeError, TurnResult};
pub use serial::run_serially;
pub use stage::{AnyStage, Failure, Stage, State, erase};
pub use tardiness::{FRAMES_MAX, Tardiness, TardinessFigures, TardinessOf, TardinessSince};
