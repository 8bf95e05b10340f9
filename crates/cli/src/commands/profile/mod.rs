//! `punctual profile`: how fast a program runs with how much of the machine.

mod document;
mod draw;
mod show;
mod steps;

pub use show::{Shown, named, ways};
pub use steps::Steps;

use crate::args::{Profile, ProfileCommand};
use crate::failure::Failure;

/// Carries out `punctual profile`.
pub fn profile(arguments: &Profile, command: &str) -> Result<(), Failure> {
    match &arguments.what {
        ProfileCommand::Show(arguments) => show::show(arguments, command),
    }
}
