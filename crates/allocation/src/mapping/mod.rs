//! Which stage of a pipeline runs on which core, and at which clock?
//!
//! **Problem.** A pipeline serves a frame rate if no core has more cycles to do for each frame than its clock makes
//! meanwhile. Many mappings do; they differ in power. When the rate, the loads or the temperatures change, another
//! mapping may be better, and going there costs a move.
//!
//! **Terms.** A *stage* needs a number of cycles for each frame that leaves the pipeline ([`StageModel`]). Cores of one
//! *domain* share a clock ([`Domain`]). A [`Mapping`] is the core of each stage; with the clock step of each domain it
//! is a [`Configuration`]. A *move* takes one stage to another core ([`Move`]) and costs what [`MoveCost`] says.
//!
//! **Method.** [`Search`] lists every mapping once (indistinguishable cores are not exchanged) and finds the
//! configuration that draws the least; [`MappingTable`] does so for all frame rates at once. [`Keeper`] follows a table
//! as far as it pays. [`balance`] levels loads, [`thermal`] cools the hottest core, and [`alone`] levels loads without
//! a coordinator. A [`Coordinator`] asks one of them with measurements of a running pipeline.
//!
//! After A. Acquaviva, A. Alimonda, S. Carta and M. Pittau, "Assessing Task Migration Impact on Embedded Soft Real-Time
//! Streaming Multimedia Applications", EURASIP Journal on Embedded Systems, 2008, section 6.3.

pub mod alone;
mod balance;
mod coordinator;
mod cost;
mod hysteresis;
mod model;
mod power;
mod relabel;
mod search;
mod table;
#[cfg(test)]
mod tests;
mod thermal;

pub use balance::balance;
pub use coordinator::{
    CAPACITY, Coordinator, Ground, MappingDecision, MappingPolicy, PeriodMeasurements, RUNNING_MAX, Reconfiguration,
    STAY, StageInfo, WINDOWS,
};
pub use cost::MoveCost;
pub use hysteresis::{ConfigurationChange, Keeper};
pub use model::{
    CORES_MAX, ClockStep, Configuration, Cores, Domain, Idle, Mapping, MappingError, Move, Problem, STAGES_MAX,
    StageModel,
};
pub use search::{MAPPINGS_MAX, Search};
pub use table::{MappingRow, MappingTable, ROWS_MAX};
pub use thermal::{Exchange, thermal};
