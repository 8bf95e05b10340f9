//! The evaluation of the fifth paper.
#![allow(missing_docs)]
pub mod carry;
pub mod columns;
pub mod decide;
pub mod half;
pub mod measured;
pub mod profiles;
pub mod tasksets;
pub mod variant;

pub use profiles::{File, ProfileSet, SCALED_WAY_BYTES, WAY_BYTES, read, shipped};
