//! The integration tests of this crate, in one program: a module for each question.

mod cache;
mod common;
mod determinism;
mod devices;
mod governors;
mod identities;
mod interference;
mod lending;
mod placement;
mod scheduling;
mod switching;
mod updates;
mod waits;
