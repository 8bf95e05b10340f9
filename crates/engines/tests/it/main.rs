//! The integration tests of this crate, in one program: a module for each question.

mod apply_crash;
mod bad_input;
mod batch;
mod brim;
mod common;
mod conformance;
mod copies;
mod corruption;
mod crash;
mod fork;
mod formats;
mod leaving;
mod power_cut;
mod promises;
mod quota;
mod readers;
mod serializability;
mod slot;
mod visitors;
