//! The integration tests of this crate, in one program: a module for each question.

mod ages;
mod batch;
mod batches;
mod concurrency;
mod created;
mod expiry;
mod linearizability;
mod mapped;
mod messages;
mod offers;
mod permit;
mod records;
mod registered;
mod ring;
mod shared;
mod slot;
mod split;
mod tables;
mod temporal;
mod together;
mod virtual_permit;
mod virtual_time;
mod watch;
mod witnessed;
