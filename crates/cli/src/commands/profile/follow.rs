//! Follows a running program until its end or Ctrl-C.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use punctual_profiler::{ProfilerRun, ProgramEnding};
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;

use super::place::millions;
use punctual_files::failure::Failure;
use punctual_report::terminal::ECHO;

/// Interval between looks for signals.
const TICK: Duration = Duration::from_millis(100);
/// Time for a program to end after it was asked to.
const PATIENCE: Duration = Duration::from_secs(2);
/// Intervals between lines of progress: overwritten on a terminal, appended elsewhere.
const TELL_TERMINAL: Duration = Duration::from_secs(1);
const TELL_FILE: Duration = Duration::from_secs(10);

/// Waits for the program's end, reports its progress, and asks it to end on the first Ctrl-C; the second ends it at
/// once. Also returns whether it was asked to end.
pub fn follow(run: &mut ProfilerRun, signals: &mut Signals) -> Result<(ProgramEnding, bool), Failure> {
    let mut teller = Teller::new();
    let mut asked: Option<(i32, Instant)> = None;
    loop {
        let ending = run.wait(TICK).map_err(Failure::of)?;
        for signal in signals.pending() {
            match asked {
                None => run.ask_to_end(),
                Some(_) if signal == SIGHUP => {} // reported twice
                Some((first, at)) if signal == first && at.elapsed() < ECHO => {}
                Some(_) => run.kill(),
            }
            asked.get_or_insert_with(|| (signal, Instant::now()));
        }
        if let Some(ending) = ending {
            teller.done();
            return Ok((ending, asked.is_some()));
        }
        if asked.is_some_and(|(_, at)| at.elapsed() > PATIENCE) {
            run.kill();
        }
        teller.tell(run.progress().instructions);
    }
}

/// Reports of the program's progress on standard error.
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

    fn tell(&mut self, instructions: u64) {
        if self.told.elapsed() < self.every {
            return;
        }
        self.told = Instant::now();
        let rate = instructions as f64 / self.begun.elapsed().as_secs_f64();
        let (before, after) = if self.terminal { ("\r\x1b[K", "") } else { ("", "\n") };
        let so_far = millions(instructions);
        tell(&format!(
            "{before}{so_far} instructions so far, {:.1} M/s{after}",
            rate / 1e6
        ));
    }

    /// Clears the line of progress on a terminal.
    fn done(&self) {
        if self.terminal && self.told > self.begun {
            tell("\r\x1b[K");
        }
    }
}

/// Prints on standard error; a closed one is no reason to stop.
pub fn tell(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
