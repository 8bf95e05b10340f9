//! Experiments on the command line: `bench` and `experiment`. Only in a build with the feature `lab`.

pub mod args;
pub mod bench;
mod claims;
mod dual;
pub mod experiment;
mod movie;
mod mpsoc;
mod page;
mod profiles;
mod referees;
