//! The `punctual` command: terminals, files and exit codes around the runtime. A library, because `punctual-lab` shares
//! its modules, and because [`main`] is the whole command for a program that adds kinds of stages.

// The documents of this crate are read with private items.
#![allow(rustdoc::private_intra_doc_links)]

pub mod args;
pub mod cluster;
pub mod commands;
pub mod decisions;
#[cfg(test)]
mod fuzz_tests;
pub mod names;
pub mod pipeline;
pub mod serve;
pub mod store;

use std::process::ExitCode;

use args::{Arguments, Command};
use clap::Parser;
use punctual_files::failure::Failure;
use punctual_report::terminal::fitted;
use punctual_scenario::stages::AddedKinds;

/// Reads the command line, carries it out, and returns the exit code of the program. Scenario files may also name the
/// `kinds` of stages of the program.
pub fn main(kinds: AddedKinds<'_>) -> ExitCode {
    exit_code(parsed().and_then(|arguments| {
        let command = arguments.command.unwrap_or_else(|| Command::Run(args::Run::default()));
        perform(command, kinds)
    }))
}

/// Parses the command line of the product; a mistake in it ends the process, as does `--help`.
fn parsed() -> Result<Arguments, Failure> {
    let typed: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    match names::command(&typed) {
        Some(present) => Err(Failure::of(present)),
        None => arguments(),
    }
}

/// Parses the command line of a program; a mistake in it ends the process, as does `--help`.
///
/// # Errors
/// [`Failure::Input`] with the present name of an option that is typed by its former one.
pub fn arguments<P: Parser>() -> Result<P, Failure> {
    P::try_parse().map_err(|error| match names::option(&error) {
        Some(present) => Failure::of(present),
        None => match error.print() {
            // A reader that closed the pipe (`| head`) is no failure.
            Err(why) if why.kind() != std::io::ErrorKind::BrokenPipe => {
                let stream = if error.use_stderr() { "error" } else { "output" };
                Failure::of(format!("standard {stream}: {why}"))
            }
            _ => std::process::exit(error.exit_code()),
        },
    })
}

/// Exit code of a program whose command had this result; prints a failure to standard error.
pub fn exit_code(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let text = match &failure {
                Failure::Refuted(verdict) => fitted(&format!("{verdict}\n"), &std::io::stderr()),
                _ => format!("{failure}\n"),
            };
            // If standard error is closed, only the exit code reports the failure.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
            ExitCode::from(failure.exit_code())
        }
    }
}

fn perform(command: Command, kinds: AddedKinds<'_>) -> Result<(), Failure> {
    match command {
        Command::Run(run) => commands::run::run(&run, kinds, &commands::run::request, &command_line("punctual")),
        Command::Attach(attach) => commands::attach::attach(&attach, &command_line("punctual")),
        Command::Top(top) => commands::top::top(&top, &command_line("punctual")),
        Command::Job(job) => commands::attach::job(&job),
        Command::New(new) => commands::new::new(&new),
        Command::Model(args::Model::Learn(learn)) => commands::learn::learn(&learn, kinds),
        Command::Model(args::Model::Design(design)) => commands::design::design(&design),
        Command::Replay(replay) => commands::replay::replay(&replay),
        Command::Compare(compare) => commands::compare::compare(&compare),
        Command::Doctor(doctor) => commands::doctor::doctor(&doctor),
        Command::Serve(arguments) => serve::serve(&arguments),
        Command::Store(what) => store::store(&what),
        Command::Pipeline(what) => commands::pipeline::pipeline(&what),
        Command::Cluster(what) => cluster::cluster(&what, &command_line("punctual")),
        Command::Process(what) => cluster::process(&what),
        Command::Profile(profile) => commands::profile::profile(&profile, &command_line("punctual")),
    }
}

/// Command line of `program` as typed, quoted where a shell needs it, for reports.
pub fn command_line(program: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:".contains(c);
    let quoted = |word: std::ffi::OsString| {
        let word = word.to_string_lossy();
        if !word.is_empty() && word.chars().all(plain) {
            word.into_owned()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    let words = std::env::args_os().skip(1).map(quoted);
    std::iter::once(program.to_string())
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}
