//! The integration tests of this crate, in one program: a module for each question.

mod control_loop;
mod dual;
