//! The integration tests of this crate, in one program: a module for each question.

mod allocation;
mod closed_loop;
mod common;
mod exclusive_run;
mod goals;
mod learnt;
mod lending;
mod linux_run;
mod prices;
mod stages;
mod user;
mod why_late;
