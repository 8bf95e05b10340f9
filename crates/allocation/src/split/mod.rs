//! Ways and bandwidth, split among cores.

pub mod ahead;
pub(crate) mod allocator;
pub mod cluster;
pub(crate) mod grid;
pub(crate) mod here;
pub mod hysteresis;
pub(crate) mod levels;
pub(crate) mod masks;
pub mod policy;
pub(crate) mod pool;
pub mod profile;
pub(crate) mod programs;
pub(crate) mod running;
pub(crate) mod settings;
pub(crate) mod table;

pub use ahead::{Ahead, Foresight};
pub use allocator::{Allocator, CoreShares, placed};
pub use grid::{Grid, PARTS_MAX, Share};
pub use hysteresis::Refill;
pub use levels::{LEVELS, Levels};
pub use masks::{WayMask, place, side_by_side};
pub use policy::{Loads, PeriodicTask, Policy};
pub use pool::{CORES_MAX, PerCore, Pool};
pub use profile::{Phase, Profile, SplitError};
pub use programs::{Objective, PHASES_MAX, Programs};
pub use running::{CoreJobs, RunningJob, WAITING_MAX, WaitingJob, virtual_deadline_with};
pub use settings::{AllocatorSettings, Base};
pub use table::RateTable;
