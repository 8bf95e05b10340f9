//! Commands of the program, one file each.

pub mod design;
pub mod doctor;
pub mod learn;
pub mod new;
pub mod pipeline;
pub mod profile;
pub mod replay;
mod restore;
pub mod run;
mod stages;

pub mod document;
pub mod failures;
mod matrices;

use std::io::Write;

use punctual_files::failure::Failure;

/// Prints a command's result. A reader that closed the pipe (`| head`) is no failure.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::input([format!("standard output: cannot be written: {error}")]))
        }
        _ => Ok(()),
    }
}
