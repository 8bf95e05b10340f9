//! The integration tests of this crate, in one program: a module for each question.

mod conformance;
mod interrupted;
mod suite;
mod trim;
mod unreliable;
mod versions;
