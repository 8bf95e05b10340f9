//! The integration tests of this crate, in one program: a module for each question.

#![cfg(target_os = "linux")]

mod door;
mod versions;
