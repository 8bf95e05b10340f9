//! The integration tests of this crate, in one program: a module for each question.

mod clock_origin;
mod conformance;
mod parker;
