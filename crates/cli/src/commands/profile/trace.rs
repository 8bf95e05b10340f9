//! `punctual profile -- PROGRAM`: runs a program under the profiler, and writes its windows.

use std::time::{Duration, Instant};

use punctual_profiler::{Cache, Geometry, ProfilerRun, Program, ProgramEnding, Progress, Window, write};

use super::follow::{follow, tell};
use super::place::{beside, keep, millions};
use crate::args::Trace;
use punctual_files::failure::Failure;
use punctual_report::output::{OutputFile, OutputKind};
use punctual_report::summary::counted;
use punctual_report::terminal::stop_signals;

/// Associativity of the private caches (first and second level).
const PRIVATE_WAYS: u8 = 8;
/// Associativity of the last-level cache, unless it is given.
const WAYS: u8 = 20;

/// Carries out `punctual profile -- PROGRAM`.
pub fn trace(arguments: &Trace) -> Result<(), Failure> {
    let geometry = geometry(arguments);
    let search = std::env::var_os("PATH").unwrap_or_default();
    let (name, rest) = arguments
        .command
        .split_first()
        .ok_or_else(|| Failure::of("name the program to profile: punctual profile -- PROGRAM ARGS"))?;
    let program = Program::find(name, rest, &search).map_err(Failure::of)?;
    let path = arguments.output.clone().unwrap_or_else(|| beside(name));
    let output = OutputFile::prepare(&path, OutputKind::Profile)?;
    let mut signals = stop_signals()?;
    let mut run = ProfilerRun::start(&program, &geometry, &search).map_err(Failure::of)?;
    let begun = Instant::now();
    let (ending, stopped) = follow(&mut run, &mut signals)?;
    let (windows, progress) = (run.windows(), run.progress());
    let summary = Summary {
        windows,
        progress,
        took: begun.elapsed(),
        ways: geometry.ways.into(),
    };
    let whole = ending == ProgramEnding::Finished && !stopped && progress.uncounted_threads == 0;
    if whole {
        output.text(&rows(windows, &geometry)?)?;
        let (place, windows) = (path.display(), counted(windows.len() as u64, "window"));
        tell(&format!("{}written to {place}: {windows}\n", summary.text()));
        return Ok(());
    }
    let why = why(ending, stopped, &progress);
    let mut lines = vec![format!("{}: {why}", program.name.display())];
    let instructions = windows.iter().map(|window| window.instructions).sum();
    lines.extend(keep(&path, windows.len(), instructions, || rows(windows, &geometry))?);
    Err(Failure::Input(lines))
}

fn geometry(arguments: &Trace) -> Geometry {
    let private = |bytes| Cache {
        bytes,
        ways: PRIVATE_WAYS,
    };
    Geometry {
        l1: private(arguments.l1),
        l2: Some(arguments.l2).filter(|bytes| *bytes > 0).map(private),
        ways: arguments.ways.unwrap_or(WAYS),
        way_bytes: arguments.way_size,
        window: arguments.window,
    }
}

/// Reason why a profile is incomplete.
fn why(ending: ProgramEnding, stopped: bool, progress: &Progress) -> String {
    if stopped {
        "was stopped".into()
    } else if ending == ProgramEnding::Finished {
        let threads = progress.uncounted_threads;
        format!("has {threads} threads more than can be counted; let it use fewer")
    } else {
        ending.to_string()
    }
}

fn rows(windows: &[Window], geometry: &Geometry) -> Result<String, Failure> {
    let mut text = Vec::new();
    let internal = |error: &dyn std::fmt::Display| Failure::Internal(error.to_string());
    write(windows, geometry, &mut text).map_err(|error| internal(&error))?;
    String::from_utf8(text).map_err(|error| internal(&error))
}

/// Summary of a profile in a few lines.
struct Summary<'a> {
    windows: &'a [Window],
    progress: Progress,
    took: Duration,
    ways: usize,
}

impl Summary<'_> {
    fn text(&self) -> String {
        let sum = |of: fn(&Window) -> u64| self.windows.iter().map(of).sum::<u64>();
        let instructions = sum(|window| window.instructions);
        let per_1000 = |count: u64| count as f64 * 1000.0 / instructions.max(1) as f64;
        let mut misses = vec![0; self.ways];
        for window in self.windows {
            misses
                .iter_mut()
                .zip(window.misses())
                .for_each(|(sum, more)| *sum += more);
        }
        let mut shown = vec![1, self.ways.div_ceil(4), self.ways.div_ceil(2), self.ways];
        shown.dedup();
        let curve: Vec<String> = shown
            .iter()
            .map(|ways| format!("{:.2} ({ways})", per_1000(misses[ways - 1])))
            .collect();
        let mut text = format!(
            "{} instructions in {:.1} s; per 1000: {:.2} requests to the LLC, misses by ways {}\n",
            millions(instructions),
            self.took.as_secs_f64(),
            per_1000(sum(|window| window.requests)),
            curve.join(", ")
        );
        if self.progress.threads > 1 {
            text += &format!(
                "{} threads, each with L1 and L2 of its own; they met in the LLC as they happened to run\n",
                self.progress.threads
            );
        }
        if self.progress.children > 0 {
            let children = counted(self.progress.children, "child process");
            text += &format!("not in it: {children}, which ran as well\n");
        }
        text
    }
}
