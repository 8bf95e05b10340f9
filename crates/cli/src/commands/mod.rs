//! Commands of the program, one file each.

pub mod attach;
pub mod compare;
pub mod design;
pub mod doctor;
pub mod learn;
pub mod metrics;
pub mod new;
pub mod pipeline;
pub mod profile;
pub mod replay;
mod restore;
pub mod run;
mod stages;
pub mod top;

pub mod document;
pub mod failures;
mod matrices;

use std::io::Write;

use punctual_files::failure::Failure;
use punctual_platform::linux::{recovery, thread};
use punctual_report::terminal::fitted;
use punctual_runtime::report::Progress;

/// Once a run has started, keeps the threads of this process off its exclusive cores, but for those with work there.
/// The sweep of these cores moves only threads of other programs.
pub fn keep_off_exclusive_cores(progress: &Progress<'_>) {
    if let Progress::Started(_) = progress {
        keep_off();
    }
}

/// As [`keep_off_exclusive_cores`], at once.
pub fn keep_off() {
    let found = recovery::look(&recovery::folder()).unwrap_or_default();
    let own = { found.holders.iter() }.find(|holder| holder.process == std::process::id() as i32);
    if let Some(own) = own.filter(|own| !own.exclusive.is_empty()) {
        thread::keep_off(&own.exclusive);
    }
}

/// Prints a report as a terminal shows it ([`fitted`]).
pub fn print_report(text: &str) -> Result<(), Failure> {
    print(&fitted(text, &std::io::stdout()))
}

/// Prints a command's result. A reader that closed the pipe (`| head`) is no failure.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::of(format!("standard output: cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}
