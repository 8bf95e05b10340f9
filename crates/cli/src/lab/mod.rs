//! Evidence on the command line: `bench`, `experiment`, `calibrate`. Only in a build with the feature `lab`.

pub mod args;
pub mod bench;
pub mod calibrate;
mod claims;
mod dual;
pub mod experiment;
mod limits;
mod movie;
mod page;
mod profiles;
mod referees;
