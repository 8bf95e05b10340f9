//! Which transaction may read and write what, how fresh, and by when? A key/value store that knows deadlines, and how
//! fresh its data is.
//!
//! **Problem.** A robot, a vehicle or a gateway keeps its sensors' values and its programs' decisions in one place, and
//! its jobs must be done on time. An ordinary store answers without saying how old the answer is, lets a job wait for a
//! lock without end, and cannot tell afterwards where the time went.
//!
//! **Method.** A [`Store`] adds to any [`engine`]:
//!
//! - a deadline for each transaction ([`Deadline`]), which orders the one write lock and bounds the wait for it
//!   ([`permit`]);
//! - temporal objects with an age ([`temporal`]), read in a few dozen nanoseconds and written to the engine in
//!   groups, or in a transaction each: [`Store::get_fresh`], [`Store::fresh_share`];
//! - several temporal objects read or installed all at once, with a history of earlier values ([`together`]);
//! - notice of changes, for watching threads that the writing threads never wait for ([`watch`]);
//! - the path of sensor updates into temporal objects ([`sensors`]); a controller may shed a part of them
//!   ([`updates`]);
//! - an account of each transaction's time ([`Split`]) and of each sensor's updates ([`Store::reconcile`]);
//! - several transactions in one commit that waits for a log; other stores apply their write sets ([`batch`]);
//! - iterators from both ends and from any key ([`Records`]);
//! - records that are removed when they are old ([`expiry`]);
//! - tables with names, raw or with types ([`tables`], [`codec`]);
//! - backup and export while it is open ([`Store::backup`]);
//! - readers that no writer waits for: a forgotten snapshot is ended ([`readers`]);
//! - durability that is reported only once it is there ([`Store::flush`], [`Store::durable_seq`]).
//!
//! [`Store`] begins with an example. Engines live in `punctual-engines` and pass the conformance suite of
//! `punctual-testing`.

// The front crate shows its items to programs of others.
#![warn(missing_docs)]

pub mod batch;
mod builder;
pub mod codec;
pub mod deadline;
pub mod engine;
mod error;
pub mod expiry;
mod files;
mod group;
mod lanes;
mod offers;
pub mod permit;
pub mod readers;
mod records;
pub mod sensors;
mod shared;
mod store;
pub mod tables;
pub mod temporal;
pub mod together;
mod transaction;
pub mod updates;
mod value;
pub mod watch;

pub use builder::{OpenEngine, StoreBuilder};
pub use codec::{Codec, Encode, Postcard};
pub use deadline::Deadline;
pub use error::{LockHolder, StoreError};
pub use group::{FlushResult, GROUP_OBJECTS_MAX};
pub use punctual_workload::{Split, UpdateMode};
pub use records::Records;
pub use store::{Freshness, OBJECT_BYTES_MAX, OBJECT_LEN_MAX, Store, StoreOptions};
pub use tables::{Table, TableRecords};
pub use together::Together;
pub use transaction::{
    ReadState, ReadTransaction, Transaction, TransactionState, WriteState, WriteTransaction, unless_impossible,
};
pub use value::Value;
