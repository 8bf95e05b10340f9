//! A program under the processor's own counters, under the allocation in force.
//!
//! **Problem.** A trace tells what each number of ways would be worth in a model. Where a machine can split its cache
//! and its bandwidth, and has a performance monitoring unit (PMU), a program's rate along its execution can be measured
//! instead, one allocation after another.
//!
//! **Method.** A group of four events ([`Events`]; perf_event_open(2)) is opened for the program, and all threads and
//! children that it begins, in user mode. Every millisecond ([`Counting`]) the group is read as a whole. [`Cutter`],
//! which is pure, turns the readings into windows of equal progress: between two readings everything is taken to be in
//! proportion to progress. [`write_measured`] writes them in the format of measured profiles.
//!
//! **Terms.** *Progress* is what windows are cut by: instructions that were retired. *Enabled* is the time for which
//! the program's threads ran with the group switched on, all together; *running* is the part of it in which the
//! processor had counters to spare for the group. Where that is less, several groups share the counters (multiplexing),
//! and a count stands for enabled / running times as much.

mod cutter;
mod error;
mod event;
mod file;
mod group;
mod run;

pub use cutter::{CountedWindow, Cutter, Reading, WINDOWS_MAX};
pub use error::CountersError;
pub use event::{CounterEvent, EVENTS, Events};
pub use file::write_measured;
pub use group::examine;
pub use run::Counting;
