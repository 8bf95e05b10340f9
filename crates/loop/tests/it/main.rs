//! The integration tests of this crate, in one program: a module for each question.

mod allocation;
mod common;
#[cfg(feature = "allocation")]
mod look;
