//! `punctual profile`: measures the benefit of cache and bandwidth for a program, along its execution.

mod document;
mod draw;
mod follow;
mod place;
mod show;
mod steps;
mod trace;

pub use follow::tell;
pub use show::{Shown, named, ways};
pub use steps::Steps;

use crate::args::{Profile, ProfileCommand};
use crate::failure::Failure;

/// Carries out `punctual profile`: profiles a program, unless a command is given.
pub fn profile(arguments: &Profile, command: &str) -> Result<(), Failure> {
    match &arguments.what {
        None => trace::trace(&arguments.trace),
        Some(ProfileCommand::Trace(arguments)) => trace::trace(arguments),
        Some(ProfileCommand::Show(arguments)) => show::show(arguments, command),
    }
}
