//! The integration tests of this crate, in one program: a module for each question.

mod common;
mod exclusive_ancestors;
mod exclusive_cpuset;
mod exclusive_neighbours;
mod exclusive_put_back;
mod linux_machine;
mod put_back;
mod starvation;
