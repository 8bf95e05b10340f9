//! The integration tests of this crate, in one program: a module for each question.

mod ahead;
#[path = "../../../../crates/scenario/tests/it/common/mod.rs"]
mod common;
mod conformance;
mod faults;
mod governors;
mod kept;
#[path = "../../../../crates/scenario/tests/it/learnt/mod.rs"]
mod learnt;
#[path = "../../../../crates/sim/tests/it/common/mod.rs"]
mod loads;
mod media;
mod split;
