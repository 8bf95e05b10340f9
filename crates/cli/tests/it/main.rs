//! The integration tests of this crate, in one program: a module for each question.

mod bad_input;
mod bad_pipelines;
mod benches;
mod clocks;
mod common;
mod deciding;
mod dual;
mod endless;
mod experiments;
mod federation;
mod live_view;
mod mapping;
mod profiles;
mod profiling;
mod protection;
mod radio;
mod replaying;
mod restoring;
mod serve;
mod serve_redis;
mod stages;
mod stopping;
mod store;
mod tasks_with_profiles;
mod whole_runs;
mod zenoh;
