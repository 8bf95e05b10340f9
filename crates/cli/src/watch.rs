//! Shows a run while it goes on, and hears when the user wants it to end.
//!
//! The run must not wait for a terminal, so that the thread that tells ([`Watcher::see`]) only puts news into a
//! bounded queue. A thread of its own draws, reads keys and signals, and asks for the end through a flag that the next
//! `see` answers with `Break`. The first Ctrl-C (or `q`, or SIGTERM) ends the run in order, with a report; the second
//! Ctrl-C leaves at once with exit code 130. What a run has changed on the machine is put back in either case: by the
//! run itself, or by its guardian process.

use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use punctual_runtime::report::Progress;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;
use crate::plain::Plain;
use crate::view::{self, News, ViewState};

/// News that may wait to be shown: a minute of a loop that steps every 10 ms. What does not fit is not shown.
const NEWS_MAX: usize = 6000;
/// How often keys and signals are looked at, and the most that news wait to be shown.
const TICK: Duration = Duration::from_millis(50);
/// Between two frames: a picture 10 times a second looks alive and costs little.
const FRAME: Duration = Duration::from_millis(100);
/// What a shell reports for a program ended by Ctrl-C.
const EXIT_INTERRUPTED: i32 = 130;

/// Shows one run after another until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    news: Option<SyncSender<Notice>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Notice {
    /// The next run begins and lasts so many seconds.
    Run(f64),
    News(News),
}

impl Watcher {
    /// Begins to show: the live view where standard output and error are a terminal and `plain` is not asked for, else
    /// a line per second on standard error.
    ///
    /// # Errors
    /// [`Failure::Input`] where the terminal cannot be used, [`Failure::Internal`] where signals cannot be heard.
    pub fn start(plain: bool) -> Result<Watcher, Failure> {
        let live = !plain && std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
        let signals =
            Signals::new([SIGINT, SIGTERM]).map_err(|error| Failure::Internal(format!("signals: {error}")))?;
        let panicked = Arc::new(AtomicBool::new(false));
        let screen = if live {
            live_screen(panicked.clone())?
        } else {
            Screen::Plain(Plain::default())
        };
        let (news, inbox) = sync_channel(NEWS_MAX);
        let stop = Arc::new(AtomicBool::new(false));
        let display = Display {
            screen,
            state: ViewState::default(),
            signals,
            stop: stop.clone(),
            panicked,
            drawn: None,
        };
        let thread = std::thread::Builder::new()
            .name("display".into())
            .spawn(move || display.show(&inbox));
        let thread = thread.map_err(|error| Failure::Internal(format!("no thread for the display: {error}")))?;
        Ok(Watcher {
            news: Some(news),
            stop,
            thread: Some(thread),
        })
    }

    /// Announces a run of `duration_s` seconds.
    pub fn begin(&self, duration_s: f64) {
        self.tell(Notice::Run(duration_s));
    }

    /// Takes what a run tells; `Break` once the user asked for the end.
    pub fn see(&self, progress: Progress<'_>) -> ControlFlow<()> {
        if let Some(news) = News::of(progress) {
            self.tell(Notice::News(news));
        }
        if self.stopped() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Shows what came to the sinks of a scenario's stages.
    pub fn sinks(&self, told: String) {
        self.tell(Notice::News(News::Sinks(told)));
    }

    /// Whether the user asked for the end.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn tell(&self, notice: Notice) {
        if let Some(news) = &self.news {
            // Full, because the terminal is stuck: the run goes on unseen.
            let _ = news.try_send(notice);
        }
    }
}

impl Drop for Watcher {
    /// Gives the terminal back, so that what follows (a report, an error) can be read.
    fn drop(&mut self) {
        self.news = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

enum Screen {
    Live(DefaultTerminal),
    Plain(Plain),
}

struct Display {
    screen: Screen,
    state: ViewState,
    signals: Signals,
    stop: Arc<AtomicBool>,
    /// A thread has panicked, and its message is on the terminal that was given back.
    panicked: Arc<AtomicBool>,
    /// When the last frame was drawn.
    drawn: Option<Instant>,
}

impl Display {
    fn show(mut self, inbox: &Receiver<Notice>) {
        loop {
            match inbox.recv_timeout(TICK) {
                Ok(notice) => {
                    self.take(notice);
                    inbox.try_iter().for_each(|notice| self.take(notice));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.hear();
            self.draw();
        }
        if let Screen::Plain(plain) = &mut self.screen {
            say(plain.flush());
        }
        self.leave();
    }

    fn take(&mut self, notice: Notice) {
        match (notice, &mut self.screen) {
            (Notice::Run(duration_s), _) => {
                self.state = ViewState {
                    stopping: self.state.stopping,
                    ..ViewState::new(duration_s)
                }
            }
            (Notice::News(news), Screen::Live(_)) => self.state.update(news),
            (Notice::News(News::Stage(stage)), Screen::Plain(plain)) => {
                say(plain.flush());
                say(Some(format!("{stage} ...")));
            }
            (Notice::News(News::Started(header)), Screen::Plain(plain)) => say(Some(plain.started(&header))),
            (Notice::News(News::Sample(sample)), Screen::Plain(plain)) => say(plain.sample(&sample)),
            (Notice::News(News::Tasks(tasks)), Screen::Plain(plain)) => say(plain.tasks(&tasks)),
            (Notice::News(News::Sinks(sinks)), Screen::Plain(_)) => say(Some(format!("{:10}{sinks}", ""))),
        }
    }

    fn hear(&mut self) {
        let signals = self.signals.pending().count();
        let (mut stop, mut interrupts) = (false, signals);
        if matches!(self.screen, Screen::Live(_)) {
            while event::poll(Duration::ZERO).unwrap_or(false) {
                match event::read() {
                    Ok(Event::Key(key)) if is_interrupt(&key) => interrupts += 1,
                    Ok(Event::Key(key)) if key.kind == KeyEventKind::Press && key.code == KeyCode::Char('q') => {
                        stop = true
                    }
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
        }
        for _ in 0..interrupts {
            if self.stop.swap(true, Ordering::AcqRel) {
                self.leave();
                std::process::exit(EXIT_INTERRUPTED);
            }
        }
        if stop {
            self.stop.store(true, Ordering::Release);
        }
        if self.stop.load(Ordering::Acquire) && !self.state.stopping {
            self.state.stopping = true;
            if matches!(self.screen, Screen::Plain(_)) {
                say(Some(
                    "stopping in order; Ctrl-C again leaves at once without a report".into(),
                ));
            }
        }
    }

    fn draw(&mut self) {
        let Screen::Live(terminal) = &mut self.screen else {
            return;
        };
        let fresh = self.drawn.is_some_and(|drawn| drawn.elapsed() < FRAME);
        if fresh || self.panicked.load(Ordering::Acquire) {
            return;
        }
        // A terminal that fails now (closed, say) must not end the run.
        let _ = terminal.draw(|frame| view::draw(frame, &self.state));
        self.drawn = Some(Instant::now());
    }

    fn leave(&self) {
        // A panic has given the terminal back already; once more would move the cursor over its message.
        if matches!(self.screen, Screen::Live(_)) && !self.panicked.load(Ordering::Acquire) {
            ratatui::restore();
        }
    }
}

/// Takes the terminal. Our panic hook comes before ratatui's, which then runs first and gives the terminal back.
fn live_screen(panicked: Arc<AtomicBool>) -> Result<Screen, Failure> {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        panicked.store(true, Ordering::Release);
        usual(panic);
    }));
    let cannot = |error| Failure::input([format!("the terminal cannot be drawn on: {error}; use --plain")]);
    Ok(Screen::Live(ratatui::try_init().map_err(cannot)?))
}

fn is_interrupt(key: &KeyEvent) -> bool {
    key.kind == KeyEventKind::Press && key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL)
}

/// A closed standard error is no reason to end a run.
fn say(line: Option<String>) {
    if let Some(line) = line {
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_signal_asks_for_the_end_in_order() {
        let watcher = Watcher::start(true).unwrap();
        watcher.begin(60.0);
        assert_eq!(
            watcher.see(Progress::Started(&fixture::header())),
            ControlFlow::Continue(())
        );
        signal_hook::low_level::raise(SIGTERM).unwrap();
        while !watcher.stopped() {
            std::thread::yield_now();
        }
        assert_eq!(
            watcher.see(Progress::Sample(&fixture::sample(0))),
            ControlFlow::Break(())
        );
    }
}
