//! `punctual profile`: measures the benefit of cache and bandwidth for a program, along its execution.

mod document;
mod draw;
mod follow;
mod page;
mod place;
mod show;
mod steps;
mod trace;

pub use follow::tell;
pub use show::{ProfileView, named, ways};
pub use steps::Steps;

use crate::args::Profile;
use punctual_files::failure::Failure;

/// Carries out `punctual profile`: profiles a program, or shows the profile in a file.
pub fn profile(arguments: &Profile, command: &str) -> Result<(), Failure> {
    match &arguments.file {
        None => trace::trace(&arguments.trace),
        Some(file) => show::show(file, arguments, command),
    }
}
