//! The integration tests of this crate, in one program: a module for each question.

#[cfg(target_os = "linux")]
mod client;
mod conformance;
mod interrupted;
mod suite;
mod trim;
mod unreliable;
mod versions;
