//! The real-time side of the data: temporal objects, admission, deadlines, transactions

pub mod conformance;
pub mod deadline;
pub mod engine;
mod error;
mod group;
pub mod permit;
pub mod sensors;
mod store;
pub mod temporal;
mod transaction;
pub mod updates;

pub use deadline::Deadline;
pub use error::StoreError;
pub use group::{Flushed, GROUP_OBJECTS_MAX};
pub use punctual_workload::{Split, UpdateMode};
pub use store::{Freshness, Store, StoreOptions};
pub use transaction::{ReadTransaction, WriteTransaction};
