//! The integration tests of this crate, in one program: a module for each question.

mod clusters;
mod reading;
mod shipped_profiles;
mod truths;
