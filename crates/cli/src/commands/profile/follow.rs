//! A program under way, until its end or Ctrl-C.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use punctual_profiler::{Ending, Run};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::place::millions;
use crate::failure::Failure;

/// How often signals are looked at.
const TICK: Duration = Duration::from_millis(100);
/// How long a program may take to end when it is asked to.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two lines of progress: over and over on the same line of a terminal, else now and then.
const TELL_TERMINAL: Duration = Duration::from_secs(1);
const TELL_FILE: Duration = Duration::from_secs(10);

/// The signals that end a program early.
pub fn signals() -> Result<Signals, Failure> {
    Signals::new([SIGINT, SIGTERM]).map_err(|error| Failure::Internal(format!("signals: {error}")))
}

/// Waits for the end, tells how far the program is, and asks it to end on the first Ctrl-C; the second ends it at once.
/// Returns also whether it was asked to.
pub fn follow(run: &mut Run, signals: &mut Signals) -> Result<(Ending, bool), Failure> {
    let mut teller = Teller::new();
    let mut asked: Option<Instant> = None;
    loop {
        let ending = run.wait(TICK).map_err(|error| Failure::input([error.to_string()]))?;
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
        teller.tell(run.progress().instructions);
    }
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

    /// Clears the line that was told over and over.
    fn done(&self) {
        if self.terminal && self.told > self.begun {
            tell("\r\x1b[K");
        }
    }
}

/// A closed standard error is no reason to stop.
pub fn tell(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
