//! The integration tests of this crate, in one program: a module for each question.

mod common;
mod follower;
mod front;
mod knob;
mod records;
mod refusals;
mod schedules;
