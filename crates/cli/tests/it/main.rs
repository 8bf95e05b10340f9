//! The integration tests of this crate, in one program: a module for each question.

mod attach;
mod bad_input;
mod bad_pipelines;
mod beside_programs;
mod common;
mod comparing;
mod endless;
mod federation;
mod fixing;
mod profiles;
mod profiling;
mod replaying;
mod restoring;
mod serve;
mod serve_redis;
mod stage_faults;
mod stages;
mod stopping;
mod store;
mod whole_runs;
