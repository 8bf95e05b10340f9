//! The integration tests of this crate, in one program: a module for each question.

mod deaths;
mod full;
mod loom;
mod versions;
