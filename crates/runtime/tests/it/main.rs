//! The integration tests of this crate, in one program: a module for each question.

mod announced;
mod events;
mod late;
mod mailbox;
mod reported;
mod seats;
mod service;
mod why_late;
