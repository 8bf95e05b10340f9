//! The integration tests of this crate, in one program: a module for each question.

mod against_naive;
mod common;
mod emulators;
#[path = "../../../tracer/tests/it/naive/mod.rs"]
mod naive;
mod referee;
