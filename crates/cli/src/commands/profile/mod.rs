//! `punctual profile`: what cache ways are worth to a program, along its execution.

mod trace;

use crate::args::{Profile, ProfileCommand};
use crate::failure::Failure;

/// Carries out `punctual profile`: profiles a program, unless another thing is asked for.
pub fn profile(arguments: &Profile) -> Result<(), Failure> {
    match &arguments.what {
        None => trace::trace(&arguments.trace),
        Some(ProfileCommand::Trace(arguments)) => trace::trace(arguments),
    }
}
