//! Which stage runs where, and how does it move? Stages hand frames on through bounded rings; the whole pipeline is one
//! piece of shared memory, and everything here decides from that memory and from values: no clock, no process, no wait.
//!
//! - [`Graph`]: the stages and the edges between them, checked.
//! - [`Stage`]: what a user writes: a state, and a function of the state and of frames.
//! - [`Region`] and [`Layout`]: the memory, and what lies where. It may be a mapping that processes share, or on the
//!   heap.
//! - [`Runner`]: takes a stage on, carries out its steps and commits each by one word (`commit.rs` says why that is
//!   enough).
//! - [`Control`]: which process has a stage, and how it goes to another: moving, replacing a version and starting again
//!   after a crash are one hand-over.
//! - [`run_serially`]: the whole graph in one thread, the reference for all else.

// The front crate shows its items to programs of others.
#![warn(missing_docs)]

mod checkpoint;
mod commit;
#[cfg(test)]
mod commit_tests;
mod control;
mod frames;
mod graph;
mod layout;
mod life;
mod region;
mod runner;
mod serial;
mod stage;
mod tardiness;

/// What `commit.rs` is made of: the model checker has its own (`tests/loom.rs`).
mod atomics {
    pub(crate) use std::hint::spin_loop as look_again;
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
}

pub use checkpoint::{Checkpoint, Told};
pub use commit::{Commit, Record};
pub use control::{Control, Phase, SLOTS_MAX};
pub use frames::{Frames, Head};
pub use graph::{EdgeSpec, Graph, GraphError, Link, PORTS_MAX, STAGES_MAX, StageSpec, WhenFull};
pub use layout::{Bell, LAST_WORDS_MAX, Layout, LayoutError};
pub use life::{
    Death, Doing, Granted, Slot, Version, Versions, Wish, after_end, buried, doing, emptied, grant, may_go_on, starts,
};
pub use region::Region;
pub use runner::{Runner, TakeError, Turn};
pub use serial::run_serially;
pub use stage::{AnyStage, Failure, Stage, State, erase};
pub use tardiness::{Tardiness, TardinessFigures, TardinessOf, TardinessSince};
