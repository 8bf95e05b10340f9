//! The integration tests of this crate, in one program: a module for each question.

mod ahead;
mod reading;
mod shipped_profiles;
mod truths;
