//! The integration tests of this crate, in one program: a module for each question.

mod bad_machines;
mod bad_radio;
mod benches;
mod clocks;
mod cluster;
mod cluster_run;
mod common;
mod deciding;
mod dual;
mod experiments;
mod fm;
mod live_view;
mod mapping;
mod protection;
mod radio;
mod tasks_with_profiles;
