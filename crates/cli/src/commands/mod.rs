//! One file per command.

pub mod bench;
pub mod calibrate;
pub mod design;
pub mod doctor;
mod dual;
pub mod experiment;
pub mod identify;
pub mod run;

mod document;
mod failures;
mod matrices;

use std::io::Write;

use crate::failure::Failure;

/// Prints a command's result. A reader that has gone away (`| head`) is no failure.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::input([format!("standard output: cannot be written: {error}")]))
        }
        _ => Ok(()),
    }
}
