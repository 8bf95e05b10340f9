//! How a program reports its jobs: it says when each begins and ends, for a runtime that holds it to a goal.
//!
//! **Problem.** A control loop, an audio callback or a script knows when its jobs begin and end; a runtime must learn
//! that from outside, start later or again, and never delay the program. **Method.** Each thread of the program has a
//! ring in shared memory ([`wire`], one page): beginning and ending a job write to it without a system call, and a job
//! that finds no room is dropped and counted. One word in a file of the user's folder for run-time data says whether a
//! runtime listens; while none does, a job costs the program a load and a branch. The first job after that word has
//! changed hands the ring over by a Unix socket.
//!
//! - [`JobReporter`] is the program's side, as `include/punctual_job.h` is in C and `punctual_job.py` in Python;
//! - [`Listener`] is the runtime's side, one in each folder.
//! - [`JobSource`] is a thread's jobs, from such a ring or, for a program that reports none, from the kernel.
//!
//! Limits: a ring belongs to one thread. A forked child reports nothing by its parent's reporter; it opens its own.

#![cfg(target_os = "linux")]
#![warn(missing_docs)]

mod client;
mod listener;
mod shared;
pub mod wire;

pub use client::{JobGuard, JobReporter, note};
pub use listener::{Arrival, JobSource, Listener, ReportedJob, Reporter};
pub use punctual_custody::recovery::folder;
pub use shared::user_of;
