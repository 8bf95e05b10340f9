//! Thread that draws the live view and reads keys and signals while a pipeline runs.
//!
//! The pipeline never waits for this thread: pictures go through a queue of capacity one, and a picture that finds it
//! full is dropped. The thread has no real-time priority.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use punctual_units::Nanos;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::meddler::Wish;
use super::shown::ViewContent;
use super::view;
use punctual_files::failure::Failure;
use punctual_report::terminal::{Live, STOPPING, Stop, TICK, say};

/// Highest frame rate, in frames per second.
pub const RATE_MAX: f64 = 100_000.0;
/// Capacity of the queue of requests by keys.
const ASKED_MAX: usize = 16;
/// Lowest frame rate that keys can set, in frames per second.
const RATE_MIN: f64 = 1.0;

/// Requests to the run.
#[derive(Clone, Debug, PartialEq)]
pub enum ViewRequest {
    Stage(Wish),
    Rate(Rate),
    /// A change that the run should look at.
    Look,
}

/// Guard of a thread: when the thread ends in any way, its drop sets a flag and notifies the run.
#[derive(Debug)]
pub struct Ending {
    ended: Arc<AtomicBool>,
    asks: SyncSender<ViewRequest>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        // If the queue is full, the run looks anyway.
        let _ = self.asks.try_send(ViewRequest::Look);
    }
}

/// Changes of the frame rate by a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    Real,
    Twice,
    Half,
}

impl Rate {
    /// Time between two frames after this change of `period`; `real` is the time of the recording.
    pub fn of(self, real: Nanos, period: Option<Nanos>) -> Nanos {
        let real = real.as_secs_f64();
        let now = period.map_or(real, Nanos::as_secs_f64);
        let changed = match self {
            Rate::Real => real,
            Rate::Twice => now / 2.0,
            Rate::Half => now * 2.0,
        };
        Nanos::from_secs_f64(changed.clamp(1.0 / RATE_MAX, 1.0 / RATE_MIN))
    }
}

enum Notice {
    Show(Box<ViewContent>),
    /// Restore the terminal, then reply on the channel.
    Leave(SyncSender<()>),
}

/// Front end of the thread: reads keys and signals, and draws if there is a terminal.
pub struct Display {
    /// Set once the user asks to stop.
    pub stop: Arc<AtomicBool>,
    /// Whether there is a live view.
    pub live: bool,
    notices: SyncSender<Notice>,
    asks: SyncSender<ViewRequest>,
    asked: Receiver<ViewRequest>,
}

impl Display {
    /// Starts the thread, with a picture if `live`.
    ///
    /// # Errors
    /// [`Failure`] if signal handlers cannot be installed, or the terminal cannot be used.
    pub fn start(live: bool) -> Result<Display, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let heard = Stop::listen(Arc::clone(&stop))?;
        let live = live.then(Live::take).transpose()?;
        let (notices, inbox) = sync_channel(1);
        let (asks, asked) = sync_channel(ASKED_MAX);
        let display = Display {
            stop,
            live: live.is_some(),
            notices,
            asks: asks.clone(),
            asked,
        };
        let screen = Screen {
            live,
            stop: heard,
            asks,
            shown: ViewContent::default(),
            chosen: 0,
            told: false,
        };
        let thread = std::thread::Builder::new().name("display".into());
        let thread = thread.spawn(move || screen.show(&inbox));
        thread.map_err(|error| Failure::Internal(format!("no thread for the display: {error}")))?;
        Ok(display)
    }

    /// Shows this picture, unless the thread still draws the previous one.
    pub fn show(&self, shown: ViewContent) {
        let _ = self.notices.try_send(Notice::Show(Box::new(shown)));
    }

    /// Next request by a key, if there is one.
    pub fn asked(&self) -> Option<ViewRequest> {
        self.asked.try_recv().ok()
    }

    /// Waits at most `at_most` until a key requests something, the user asks to stop or a thread has ended. Returns the
    /// request.
    pub fn wait(&self, at_most: Duration) -> Option<ViewRequest> {
        self.asked.recv_timeout(at_most).ok()
    }

    /// Guard for a new thread, and the flag that is set when the thread ends.
    pub fn ending(&self) -> (Ending, Arc<AtomicBool>) {
        let (ended, asks) = (Arc::new(AtomicBool::new(false)), self.asks.clone());
        let flag = Arc::clone(&ended);
        (Ending { ended, asks }, flag)
    }

    /// Restores the terminal, so that later output (a report, an error) is readable. Signals are still handled.
    pub fn leave(&mut self) {
        let (told, left) = sync_channel(1);
        if self.notices.send(Notice::Leave(told)).is_ok() {
            // If the thread has panicked, the terminal is restored already.
            let _ = left.recv();
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        self.leave();
    }
}

struct Screen {
    live: Option<Live>,
    stop: Stop,
    asks: SyncSender<ViewRequest>,
    shown: ViewContent,
    /// Index of the stage that keys act on.
    chosen: usize,
    /// Whether the user was notified that the run is stopping.
    told: bool,
}

impl Screen {
    fn show(mut self, inbox: &Receiver<Notice>) {
        loop {
            match inbox.recv_timeout(TICK) {
                Ok(Notice::Show(shown)) => self.shown = *shown,
                Ok(Notice::Leave(told)) => {
                    self.leave();
                    let _ = told.try_send(());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.hear();
            if let Some(live) = &mut self.live {
                live.draw(|frame| {
                    super::planted_panic("view");
                    view::draw(frame, &self.shown, self.chosen, self.told);
                });
            }
        }
    }

    fn leave(&mut self) {
        if let Some(live) = self.live.take() {
            live.leave();
        }
    }

    fn hear(&mut self) {
        let keys = self.live.as_mut().map(Live::keys).unwrap_or_default();
        let live = &self.live;
        let stops = self.stop.hear(&keys, || live.iter().for_each(Live::leave));
        if stops && !self.told && self.live.is_none() {
            say(Some(STOPPING.into()));
        }
        if stops && !self.told {
            let _ = self.asks.try_send(ViewRequest::Look);
        }
        self.told |= stops;
        for key in keys {
            self.chosen = chosen(self.chosen, self.shown.stages.len(), &key);
            if let Some(asked) = self.meant(&key) {
                // Dropped if the queue is full.
                let _ = self.asks.try_send(asked);
            }
        }
    }

    fn meant(&self, key: &KeyEvent) -> Option<ViewRequest> {
        let name = self.shown.stages.get(self.chosen)?.name.clone();
        if !key.modifiers.difference(KeyModifiers::SHIFT).is_empty() {
            return None;
        }
        Some(match key.code {
            KeyCode::Char('m') => ViewRequest::Stage(Wish::Move(name)),
            KeyCode::Char('u') => ViewRequest::Stage(Wish::Upgrade(name)),
            KeyCode::Char('k') => ViewRequest::Stage(Wish::Kill(name)),
            KeyCode::Char('r') => ViewRequest::Rate(Rate::Real),
            KeyCode::Char('+' | '=') => ViewRequest::Rate(Rate::Twice),
            KeyCode::Char('-') => ViewRequest::Rate(Rate::Half),
            _ => return None,
        })
    }
}

/// Index of the chosen stage after a key.
fn chosen(now: usize, stages: usize, key: &KeyEvent) -> usize {
    match key.code {
        KeyCode::Down | KeyCode::Tab => (now + 1) % stages.max(1),
        KeyCode::Up | KeyCode::BackTab => (now + stages.saturating_sub(1)) % stages.max(1),
        _ => now,
    }
}
