//! `punctual profile -- PROGRAM`: runs a program under the profiler, and writes its windows.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use punctual_profiler::{Cache, Ending, Geometry, Program, Progress, Run, Window, write};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::Trace;
use crate::failure::Failure;
use crate::output::Output;

/// How often signals are looked at.
const TICK: Duration = Duration::from_millis(100);
/// How long a program may take to end when it is asked to.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two lines of progress: over and over on the same line of a terminal, else now and then.
const TELL_TERMINAL: Duration = Duration::from_secs(1);
const TELL_FILE: Duration = Duration::from_secs(10);
/// Ways of the private caches.
const PRIVATE_WAYS: u8 = 8;

/// Carries out `punctual profile [trace] -- PROGRAM`.
pub fn trace(arguments: &Trace) -> Result<(), Failure> {
    let geometry = geometry(arguments);
    let search = std::env::var_os("PATH").unwrap_or_default();
    let (name, rest) = arguments
        .command
        .split_first()
        .ok_or_else(|| Failure::input(["name the program to profile: punctual profile -- PROGRAM ARGS"]))?;
    let program = Program::find(name, rest, &search).map_err(refused)?;
    let path = arguments.output.clone().unwrap_or_else(|| beside(name));
    let output = Output::prepare(&path)?;
    let mut signals =
        Signals::new([SIGINT, SIGTERM]).map_err(|error| Failure::Internal(format!("signals: {error}")))?;
    let mut run = Run::start(&program, &geometry, &search).map_err(refused)?;
    let begun = Instant::now();
    let (ending, stopped) = follow(&mut run, &mut signals)?;
    let (windows, progress) = (run.windows(), run.progress());
    let summary = Summary {
        windows,
        progress,
        took: begun.elapsed(),
        ways: geometry.ways.into(),
    };
    let whole = ending == Ending::Finished && !stopped && progress.uncounted_threads == 0;
    if whole {
        output.text(&rows(windows, geometry.ways)?)?;
        tell(&format!(
            "{}written to {}: {}\n",
            summary.text(),
            path.display(),
            counted(windows.len() as u64, "window", "windows")
        ));
        return Ok(());
    }
    let mut lines = vec![format!(
        "{}: {}",
        program.name.display(),
        why(ending, stopped, &progress)
    )];
    lines.extend(keep(windows, geometry.ways, &path)?);
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
        ways: arguments.ways,
        way_bytes: arguments.way_size,
        window: arguments.window,
    }
}

/// In this folder, under the program's own name.
fn beside(program: &OsString) -> PathBuf {
    let mut name = Path::new(program).file_name().unwrap_or(program).to_os_string();
    name.push(".profile.csv");
    name.into()
}

/// Waits for the end, tells how far the program is, and asks it to end on the first Ctrl-C; the second ends it at once. Returns
/// also whether it was asked to.
fn follow(run: &mut Run, signals: &mut Signals) -> Result<(Ending, bool), Failure> {
    let mut teller = Teller::new();
    let mut asked: Option<Instant> = None;
    loop {
        let ending = run.wait(TICK).map_err(refused)?;
        for _ in signals.pending() {
            match asked {
                None => run.ask_to_end(),
                Some(_) => run.kill(),
            }
            asked.get_or_insert_with(Instant::now);
        }
        if let Some(ending) = ending {
            teller.done();
            return Ok((ending, asked.is_some()));
        }
        if asked.is_some_and(|asked| asked.elapsed() > PATIENCE) {
            run.kill();
        }
        teller.tell(run);
    }
}

/// Why a profile is not whole.
fn why(ending: Ending, stopped: bool, progress: &Progress) -> String {
    if stopped {
        "was stopped".into()
    } else if ending == Ending::Finished {
        let threads = progress.uncounted_threads;
        format!("has {threads} threads more than can be counted; let it use fewer")
    } else {
        ending.to_string()
    }
}

/// What was counted of a program that did not end well goes beside the file, so that nobody takes it for a whole profile.
fn keep(windows: &[Window], ways: u8, path: &Path) -> Result<Option<String>, Failure> {
    let special = path.metadata().is_ok_and(|meta| !meta.is_file());
    if windows.is_empty() || special {
        return Ok(None);
    }
    let mut partial = path.as_os_str().to_os_string();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    Output::prepare(&partial)?.text(&rows(windows, ways)?)?;
    let instructions: u64 = windows.iter().map(|window| window.instructions).sum();
    Ok(Some(format!(
        "{}: {} instructions of it, in {}; there is no profile of the whole",
        partial.display(),
        millions(instructions),
        counted(windows.len() as u64, "window", "windows")
    )))
}

fn rows(windows: &[Window], ways: u8) -> Result<String, Failure> {
    let mut text = Vec::new();
    let internal = |error: &dyn std::fmt::Display| Failure::Internal(error.to_string());
    write(windows, ways.into(), &mut text).map_err(|error| internal(&error))?;
    String::from_utf8(text).map_err(|error| internal(&error))
}

/// What a profile says in a few lines.
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
            let children = counted(self.progress.children, "child process", "child processes");
            text += &format!("not in it: {children}, which ran as well\n");
        }
        text
    }
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn millions(instructions: u64) -> String {
    format!("{:.1} M", instructions as f64 / 1e6)
}

/// Tells how far the program is, on standard error.
struct Teller {
    every: Duration,
    begun: Instant,
    told: Instant,
    terminal: bool,
}

impl Teller {
    fn new() -> Teller {
        let terminal = std::io::stderr().is_terminal();
        Teller {
            every: if terminal { TELL_TERMINAL } else { TELL_FILE },
            begun: Instant::now(),
            told: Instant::now(),
            terminal,
        }
    }

    fn tell(&mut self, run: &Run) {
        if self.told.elapsed() < self.every {
            return;
        }
        self.told = Instant::now();
        let instructions = run.progress().instructions;
        let rate = instructions as f64 / self.begun.elapsed().as_secs_f64();
        let (before, after) = if self.terminal { ("\r\x1b[K", "") } else { ("", "\n") };
        let so_far = millions(instructions);
        tell(&format!(
            "{before}{so_far} instructions so far, {:.1} M/s{after}",
            rate / 1e6
        ));
    }

    /// Clears the line that was told over and over.
    fn done(&self) {
        if self.terminal && self.told > self.begun {
            tell("\r\x1b[K");
        }
    }
}

/// A closed standard error is no reason to stop.
fn tell(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn refused(error: punctual_profiler::ProfilerError) -> Failure {
    Failure::input([error.to_string()])
}
