//! `punctual profile`: what the machine's cache and bandwidth are worth to a program, along its execution.

mod document;
mod draw;
mod follow;
mod place;
mod show;
mod steps;
mod trace;

#[cfg(feature = "lab")]
pub use follow::tell;
pub use show::{Shown, named, ways};
pub use steps::Steps;

use crate::args::{Profile, ProfileCommand};
use crate::failure::Failure;

/// Carries out `punctual profile`: profiles a program, unless another thing is asked for.
pub fn profile(arguments: &Profile, command: &str) -> Result<(), Failure> {
    match &arguments.what {
        None => trace::trace(&arguments.trace),
        Some(ProfileCommand::Trace(arguments)) => trace::trace(arguments),
        Some(ProfileCommand::Show(arguments)) => show::show(arguments, command),
    }
}
