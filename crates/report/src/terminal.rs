//! Terminal and stop requests, shared by all live views.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
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
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use punctual_files::failure::Failure;

use crate::columns::wrapped;

/// Interval between looks at keys and signals, and the longest delay of news on the screen.
pub const TICK: Duration = Duration::from_millis(50);
/// Least interval between two frames: ten a second look fluent and cost little.
pub const FRAME: Duration = Duration::from_millis(100);
/// Most keys read in one tick; more do not come from a person.
const KEYS_MAX: usize = 64;
/// Exit code that a shell reports for a program ended by Ctrl-C.
const EXIT_INTERRUPTED: i32 = 130;

/// Terminal while a live view owns it.
pub struct Live {
    terminal: Terminal<CrosstermBackend<File>>,
    /// Set once a thread panicked: the terminal was restored, and shows the panic's message.
    panicked: Arc<AtomicBool>,
    /// Instant of the last frame.
    drawn: Option<Instant>,
}

impl Live {
    /// Takes the terminal; a panic restores it before the message is printed.
    ///
    /// # Errors
    /// [`Failure::Input`] if the terminal cannot be used.
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
        let cannot = |error| Failure::of(format!("the terminal cannot be drawn on: {error}; use --plain"));
        Ok(Live {
            terminal: taken.map_err(cannot)?,
            panicked,
            drawn: None,
        })
    }

    /// Draws a frame, at most every `FRAME`. If the picture panics, later frames are skipped and the thread goes on,
    /// because it also listens for the user's stop request.
    pub fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) {
        let fresh = self.drawn.is_some_and(|drawn| drawn.elapsed() < FRAME);
        if fresh || self.panicked.load(Ordering::Acquire) {
            return;
        }
        let terminal = &mut self.terminal;
        // A terminal that fails now (closed, for example) must not end the run.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(terminal.draw(picture))));
        self.drawn = Some(Instant::now());
    }

    /// Keys pressed since the last call.
    pub fn keys(&mut self) -> Vec<KeyEvent> {
        let mut keys = Vec::new();
        // After a panic, keys belong to the shell.
        while keys.len() < KEYS_MAX
            && !self.panicked.load(Ordering::Acquire)
            && !is_hung_up()
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

    /// Restores the terminal to its state before the view.
    pub fn leave(&self) {
        // A panic has restored it already; a second time would move the cursor over the message.
        if !self.panicked.load(Ordering::Acquire) {
            give_back();
        }
    }
}

/// Whether a command shows a live view: standard output and input are a terminal, and no `plain` lines are wanted.
pub fn is_live(plain: bool) -> bool {
    !plain && io::stdout().is_terminal() && io::stdin().is_terminal()
}

/// Columns of the terminal to which `stream` leads, 80 where it does not say; `None` if it leads elsewhere.
pub fn width(stream: &impl IsTerminal) -> Option<usize> {
    let size = || ratatui::crossterm::terminal::size().ok().filter(|size| size.0 > 0);
    stream.is_terminal().then(|| size().map_or(80, |size| size.0.into()))
}

/// Text as `stream` shows it: wrapped on a terminal; elsewhere a sentence a line, for programs that search it.
pub fn fitted(text: &str, stream: &impl IsTerminal) -> String {
    width(stream).map_or_else(|| text.to_owned(), |width| wrapped(text, width))
}

/// Whether the process has a terminal that a view can take.
pub fn is_there() -> bool {
    device().is_ok()
}

/// Whether the terminal was closed: `event::poll` would read its end without limit.
fn is_hung_up() -> bool {
    let mut input = libc::pollfd {
        fd: libc::STDIN_FILENO,
        events: 0,
        revents: 0,
    };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&mut input, 1, 0) };
    input.revents != 0
}

/// Opens the terminal device itself, because standard output may lead to a player.
fn device() -> io::Result<File> {
    OpenOptions::new().write(true).open("/dev/tty")
}

fn taken() -> io::Result<Terminal<CrosstermBackend<File>>> {
    let mut device = device()?;
    enable_raw_mode()?;
    execute!(device, EnterAlternateScreen)?;
    Terminal::new(CrosstermBackend::new(device))
}

/// Restores the terminal. Ignores errors: a failing terminal is no place to report them.
fn give_back() {
    let _ = disable_raw_mode();
    let _ = device().and_then(|mut device| execute!(device, LeaveAlternateScreen, Show));
}

/// Listens for stop requests: the first Ctrl-C, SIGTERM or SIGHUP (of a terminal that is closed) stops in order, the
/// second Ctrl-C or SIGTERM ends the program at once with exit code 130, unless it is the first one's echo
/// ([`ECHO`]).
#[derive(Debug)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    signals: Signals,
    /// The first signal, and when it was seen.
    first: Option<(libc::c_int, Instant)>,
}

impl Stop {
    /// Starts to listen; sets `asked` at the first request.
    ///
    /// # Errors
    /// [`Failure::Internal`] if signal handlers cannot be installed.
    pub fn listen(asked: Arc<AtomicBool>) -> Result<Stop, Failure> {
        Ok(Stop {
            asked,
            signals: stop_signals()?,
            first: None,
        })
    }

    /// Handles pending signals and Ctrl-C. Returns whether the user has asked to stop, and the keys of the view, if
    /// there is one; the caller knows which key ends it ([`Stop::ask`]).
    pub fn hear(&mut self, live: &mut Option<Live>) -> (bool, Vec<KeyEvent>) {
        let keys = live.as_mut().map(Live::keys).unwrap_or_default();
        let (hang_ups, signals): (Vec<_>, Vec<_>) = self.signals.pending().partition(|signal| *signal == SIGHUP);
        let mut interrupts = keys.iter().filter(|key| is_interrupt(key)).count();
        for signal in signals {
            let was_asked = self.asked.load(Ordering::Acquire);
            let is_echo = |(first, at): (_, Instant)| was_asked && first == signal && at.elapsed() < ECHO;
            interrupts += usize::from(!self.first.is_some_and(is_echo));
            self.first = self.first.or((!was_asked).then(|| (signal, Instant::now())));
        }
        for _ in 0..interrupts {
            if self.asked.swap(true, Ordering::AcqRel) {
                live.iter().for_each(Live::leave);
                std::process::exit(EXIT_INTERRUPTED);
            }
        }
        // A shell and the kernel may both report the end of a terminal: a second SIGHUP is no second request.
        if !hang_ups.is_empty() {
            self.ask();
        }
        (self.asked.load(Ordering::Acquire), keys)
    }

    /// Takes the user's request to stop by a key.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Release);
    }
}

/// SIGHUP, unless this process ignores it, as under nohup(1).
pub fn hang_up() -> Option<libc::c_int> {
    // SAFETY: all zeros is a valid action, and a null pointer changes none.
    let is_ignored = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(SIGHUP, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    };
    (!is_ignored).then_some(SIGHUP)
}

/// Signals that end a run in order.
///
/// # Errors
/// [`Failure::Internal`] if signal handlers cannot be installed.
pub fn stop_signals() -> Result<Signals, Failure> {
    let signals = Signals::new([SIGINT, SIGTERM].into_iter().chain(hang_up()));
    signals.map_err(|error| Failure::Internal(format!("signals: {error}")))
}

/// Whether a key is Ctrl-C, which is no signal while a view has the terminal.
pub fn is_interrupt(key: &KeyEvent) -> bool {
    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL)
}

/// Time within which a signal of the same kind is no second request: timeout(1) sends one to a program, and one to the
/// group of it. A busy machine may put off a test for longer.
pub const ECHO: Duration = Duration::from_millis(if cfg!(test) { 3_600_000 } else { 200 });

/// Message after the first Ctrl-C.
pub const STOPPING: &str = "stopping in order; Ctrl-C again leaves at once without a report";

/// Prints lines on standard error, without escapes, as another process may have named things; a closed one is no reason
/// to end a run.
pub fn say(line: Option<String>) {
    if let Some(line) = line {
        let line = line.replace(|c: char| c.is_control() && c != '\n', "?");
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

/// Held by each test that signals this process: all that listen in it hear the signal.
#[cfg(test)]
pub(crate) static SIGNALS: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;

    /// A second request would end this process.
    #[test]
    fn an_echo_is_no_second_request() {
        let _signals = SIGNALS.lock().unwrap();
        let mut stop = Stop::listen(Arc::default()).unwrap();
        for _ in 0..2 {
            // SAFETY: sends this thread a signal that is handled.
            assert_eq!(unsafe { libc::raise(SIGTERM) }, 0);
            assert!(stop.hear(&mut None).0);
        }
    }
}
