//! `punctual store`: inspects, checks and copies a store, even while a program has it open.

pub mod health;
mod inspect;

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::args::StoreCommand;
use punctual_engines::lmdb::transfer::{self, CopyCount, TransferError};
use punctual_engines::lmdb::{Verify, VerifyProgress, Visitor};
use punctual_os::linux::thread::set_scheduling;
use punctual_os::{Scheduling, Tid};
use punctual_store::engine::{EngineError, Space, Table};

use crate::commands::print;
use punctual_files::failure::Failure;
use punctual_files::size;
use punctual_report::output::{OutputFile, OutputKind};
use punctual_report::summary::counted;

/// Carries out `punctual store`.
pub fn store(what: &StoreCommand) -> Result<(), Failure> {
    match what {
        StoreCommand::Inspect(inspect) => inspect::inspect(inspect),
        StoreCommand::Verify(verify) => self::verify(verify),
        StoreCommand::Export(export) => {
            step_back();
            // Opened before the first record is read, so that a bad destination fails early.
            let output = OutputFile::prepare(&export.to, OutputKind::Export)?;
            let mut answer = Ok(CopyCount::default());
            let written = output.write(|out| {
                answer = told(|progress| transfer::export(&export.store, out, progress));
                match &answer {
                    Ok(_) => Ok(()),
                    Err(TransferError::Write(refused)) => Err(refused.kind().into()),
                    Err(_) => Err(std::io::Error::other("the export was not finished")),
                }
            });
            match answer {
                Ok(_) | Err(TransferError::Write(_)) => written,
                Err(other) => Err(refused(other)),
            }
        }
        StoreCommand::Import(import) => {
            let (mut from, name) = source(&import.from)?;
            let answer = told(|progress| transfer::import(&mut *from, &import.store, progress));
            let done = answer.map_err(|error| match error {
                TransferError::Damaged { .. } | TransferError::Read(_) => Failure::of(format!("{name}: {error}")),
                other => refused(other),
            })?;
            print(&summary("imported", done, &import.store))
        }
        StoreCommand::Backup(backup) => {
            step_back();
            let answer = told(|progress| transfer::backup(&backup.store, &backup.to, backup.share, progress));
            print(&summary("copied", answer.map_err(refused)?, &backup.to))
        }
        StoreCommand::Compact(compact) => {
            let before = on_medium(&compact.store)?;
            let answer = told(|progress| transfer::compact(&compact.store, progress));
            let done = answer.map_err(refused)?;
            let after = on_medium(&compact.store)?;
            let (before, after) = (size::shown(before), size::shown(after));
            print(&format!(
                "{}on the medium: {before} before, {after} now\n",
                summary("kept", done, &compact.store)
            ))
        }
    }
}

fn verify(arguments: &crate::args::store::Verify) -> Result<(), Failure> {
    step_back();
    let engine = |error| refused(TransferError::Engine(error));
    let visitor = Visitor::open(&arguments.store).map_err(engine)?;
    let what = if arguments.structure {
        Verify::Structure
    } else {
        Verify::Full
    };
    let mut shown = ProgressLine::default();
    let answer = visitor.verify(what, |VerifyProgress { read, all }| {
        shown.show(|| format!("{} %", read * 100 / all.max(1)))
    });
    shown.clear();
    answer.map_err(engine)?;
    let records = |table| visitor.records(table);
    print(&format!(
        "{}: sound: commit {}, {} and {}{}\n",
        arguments.store.display(),
        visitor.commit(),
        counted(records(Table::Data), "record"),
        counted(records(Table::Temporal), "temporal object"),
        if arguments.structure {
            "; values were not compared with their checksums"
        } else {
            ""
        }
    ))
}

/// Checks the structure of a store whose file is shorter than its pages take: it was truncated, unless the last of them
/// are free and were never written.
fn check_length(visitor: &Visitor<'_>, space: &Space) -> Result<(), EngineError> {
    let (_, bytes) = visitor.on_medium()?;
    match bytes < space.taken {
        true => visitor.verify(Verify::Structure, |_| ()),
        false => Ok(()),
    }
}

/// Maps damage to exit code 1, because a check is meant to find it; every other error is for the user to fix.
fn refused(error: TransferError) -> Failure {
    match error {
        TransferError::Engine(corrupt @ EngineError::Corrupt { .. }) => Failure::Refuted(corrupt.to_string()),
        other => Failure::of(other),
    }
}

/// Lowers this process's priority, so that other programs go first, above all the owner of the store. Not to
/// `SCHED_IDLE`: on a busy machine the snapshot would be held for long. A kernel that refuses is no reason to fail.
fn step_back() {
    let _ = set_scheduling(Tid::current(), Scheduling::Batch { nice: 10 });
    /// The kind of target "process" with number 0, this one, and the idle class of input and output (ioprio_set(2)).
    const THIS_PROCESS: libc::c_int = 1;
    const IDLE: libc::c_int = 3 << 13;
    // SAFETY: plain numbers.
    unsafe { libc::syscall(libc::SYS_ioprio_set, THIS_PROCESS, 0, IDLE) };
}

fn on_medium(store: &Path) -> Result<u64, Failure> {
    let visitor = Visitor::open(store).map_err(|error| refused(error.into()))?;
    Ok(visitor.on_medium().map_err(|error| refused(error.into()))?.0)
}

/// Opens an export for reading: an ordinary file, or standard input. A pipe is refused, because opening one without a
/// writer would block without limit.
fn source(path: &Path) -> Result<(Box<dyn BufRead>, String), Failure> {
    if path == Path::new("-") {
        return Ok((Box::new(std::io::stdin().lock()), "standard input".to_owned()));
    }
    let name = path.display().to_string();
    let cannot = |why: &dyn std::fmt::Display| Failure::of(format!("{name}: {why}; name a file, or - for a pipe"));
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = opened.map_err(|error| cannot(&format!("cannot be read: {error}")))?;
    match file.metadata() {
        Ok(about) if about.is_file() => Ok((Box::new(BufReader::with_capacity(1 << 16, file)), name)),
        Ok(_) => Err(cannot(&"is no ordinary file")),
        Err(error) => Err(cannot(&error)),
    }
}

fn summary(done: &str, what: CopyCount, store: &Path) -> String {
    let CopyCount { records, bytes } = what;
    let (store, bytes) = (store.display(), size::shown(bytes));
    format!("{store}: {done} {}, {bytes}\n", counted(records, "record"))
}

/// Runs `work` and shows its progress on a terminal.
fn told<T>(work: impl FnOnce(&mut dyn FnMut(CopyCount)) -> T) -> T {
    let mut shown = ProgressLine::default();
    let answer = work(&mut |CopyCount { records, bytes }| {
        shown.show(|| format!("{records} records, {}", size::shown(bytes)));
    });
    shown.clear();
    answer
}

/// Progress line that is overwritten on a terminal; prints nothing elsewhere.
#[derive(Default)]
struct ProgressLine {
    len: usize,
}

impl ProgressLine {
    fn show(&mut self, text: impl FnOnce() -> String) {
        let mut error = std::io::stderr();
        if !error.is_terminal() {
            return;
        }
        let text = text();
        let _ = write!(error, "\r{text:<width$}", width = self.len);
        self.len = text.len();
    }

    fn clear(&mut self) {
        if self.len > 0 {
            let _ = write!(std::io::stderr(), "\r{:width$}\r", "", width = self.len);
        }
    }
}
