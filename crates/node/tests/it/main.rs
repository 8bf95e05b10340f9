//! The integration tests of this crate, in one program: a module for each question.

#![cfg(target_os = "linux")]

mod commands;
mod door;
mod versions;
