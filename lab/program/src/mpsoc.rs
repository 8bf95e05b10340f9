//! Input of `punctual-lab experiment mig-*`: a machine whose cores have clocks of their own, from a file.

use punctual_evaluation::mig::{Part, parts};
use punctual_mpsoc::Mpsoc;

use crate::args::Experiment;
use punctual_files::document;
use punctual_files::failure::Failure;

/// The wanted parts of the fourth paper's evaluation, and their machine; `None` for any other experiment.
pub fn of(arguments: &Experiment) -> Result<Option<(Vec<Part>, Mpsoc)>, Failure> {
    let Some(parts) = parts(&arguments.name) else {
        return Ok(None);
    };
    let machine = match arguments.machines.as_slice() {
        [] => Mpsoc::paper(),
        [path] => document::load(path, "a machine file, such as machines/mpsoc.toml", Mpsoc::from_toml)?,
        [_, another, ..] => {
            return Err(Failure::of(format!(
                "--machines: {} runs on one machine; leave out {}",
                arguments.name,
                another.display()
            )));
        }
    };
    Ok(Some((parts, machine)))
}
