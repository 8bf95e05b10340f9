//! What several implementations of one trait promise alike, one suite for each trait.

pub mod batch;
pub mod engine;
pub mod machine;
pub mod os;
