//! The terminal, and how a user asks for the end: what every live view shares.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::{Frame, Terminal};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// How often keys and signals are looked at, and the most that news wait to be shown.
pub const TICK: Duration = Duration::from_millis(50);
/// Between two frames: a picture 10 times a second looks alive and costs little.
pub const FRAME: Duration = Duration::from_millis(100);
/// Keys that are looked at in one tick: a terminal that sends more is not a person's.
const KEYS_MAX: usize = 64;
/// What a shell reports for a program ended by Ctrl-C.
const EXIT_INTERRUPTED: i32 = 130;

/// The terminal while a live view has it.
pub struct Live {
    terminal: Terminal<CrosstermBackend<File>>,
    /// A thread has panicked, and its message is on the terminal that was given back.
    panicked: Arc<AtomicBool>,
    /// When the last frame was drawn.
    drawn: Option<Instant>,
}

impl Live {
    /// Takes the terminal; a panic gives it back before its message.
    ///
    /// # Errors
    /// [`Failure::Input`] where the terminal cannot be used.
    pub fn take() -> Result<Live, Failure> {
        let panicked = Arc::new(AtomicBool::new(false));
        let (usual, seen) = (std::panic::take_hook(), panicked.clone());
        std::panic::set_hook(Box::new(move |panic| {
            if !seen.swap(true, Ordering::AcqRel) {
                give_back();
            }
            usual(panic);
        }));
        let taken = taken().inspect_err(|_| give_back());
        let cannot = |error| Failure::input([format!("the terminal cannot be drawn on: {error}; use --plain")]);
        Ok(Live {
            terminal: taken.map_err(cannot)?,
            panicked,
            drawn: None,
        })
    }

    /// Draws, unless it has just drawn. Where the picture panics there is none from then on, and the thread goes on: it
    /// is the one that hears when the user wants the end.
    pub fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) {
        let fresh = self.drawn.is_some_and(|drawn| drawn.elapsed() < FRAME);
        if fresh || self.panicked.load(Ordering::Acquire) {
            return;
        }
        let terminal = &mut self.terminal;
        // A terminal that fails now (closed, say) must not end the run.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(terminal.draw(picture))));
        self.drawn = Some(Instant::now());
    }

    /// The keys that were pressed since the last call.
    pub fn keys(&mut self) -> Vec<KeyEvent> {
        let mut keys = Vec::new();
        // After a panic, keys are the shell's.
        while keys.len() < KEYS_MAX
            && !self.panicked.load(Ordering::Acquire)
            && event::poll(Duration::ZERO).unwrap_or(false)
        {
            match event::read() {
                Ok(Event::Key(key)) if key.kind == KeyEventKind::Press => keys.push(key),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        keys
    }

    /// Gives the terminal back.
    pub fn leave(&self) {
        // A panic has given the terminal back already; once more would move the cursor over its message.
        if !self.panicked.load(Ordering::Acquire) {
            give_back();
        }
    }
}

/// Whether there is a terminal that can be taken.
pub fn is_there() -> bool {
    device().is_ok()
}

/// The terminal itself: standard output may lead to a player.
fn device() -> io::Result<File> {
    OpenOptions::new().write(true).open("/dev/tty")
}

fn taken() -> io::Result<Terminal<CrosstermBackend<File>>> {
    let mut device = device()?;
    enable_raw_mode()?;
    execute!(device, EnterAlternateScreen)?;
    Terminal::new(CrosstermBackend::new(device))
}

/// Has the terminal be as it was. One that fails now is no use to tell it on.
fn give_back() {
    let _ = disable_raw_mode();
    let _ = device().and_then(|mut device| execute!(device, LeaveAlternateScreen, Show));
}

/// Hears that a user wants the end: the first Ctrl-C, SIGTERM or `q` asks for it in order, the second Ctrl-C or SIGTERM
/// ends the program at once with exit code 130.
#[derive(Debug)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    signals: Signals,
}

impl Stop {
    /// Begins to listen; `asked` tells from then on whether the user has asked.
    ///
    /// # Errors
    /// [`Failure::Internal`] where signals cannot be heard.
    pub fn listen(asked: Arc<AtomicBool>) -> Result<Stop, Failure> {
        let signals = Signals::new([SIGINT, SIGTERM]);
        let signals = signals.map_err(|error| Failure::Internal(format!("signals: {error}")))?;
        Ok(Stop { asked, signals })
    }

    /// Takes signals and these keys in; whether the user has asked by now. `leave` gives the terminal back.
    pub fn hear(&mut self, keys: &[KeyEvent], leave: impl Fn()) -> bool {
        let interrupts = self.signals.pending().count() + keys.iter().filter(|key| is_interrupt(key)).count();
        for _ in 0..interrupts {
            if self.asked.swap(true, Ordering::AcqRel) {
                leave();
                std::process::exit(EXIT_INTERRUPTED);
            }
        }
        if keys.iter().any(|key| key.code == KeyCode::Char('q')) {
            self.asked.store(true, Ordering::Release);
        }
        self.asked.load(Ordering::Acquire)
    }
}

fn is_interrupt(key: &KeyEvent) -> bool {
    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL)
}

/// What a user is told after the first Ctrl-C.
pub const STOPPING: &str = "stopping in order; Ctrl-C again leaves at once without a report";

/// Tells the user something on standard error. A closed one is no reason to end a run.
pub fn say(line: Option<String>) {
    if let Some(line) = line {
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}
