//! Thread that draws the live view and reads keys and signals while a pipeline runs.
//!
//! The pipeline never waits for this thread: pictures go through a queue of capacity one, and a picture that finds it
//! full is dropped. The thread has no real-time priority.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use super::meddler::Wish;
use super::shown::ViewContent;
use super::view;
use punctual_files::failure::Failure;
use punctual_report::terminal::{Live, STOPPING, Stop, TICK, say};
use punctual_report::view::keys::Keys;

/// Capacity of the queue of requests by keys.
const ASKED_MAX: usize = 16;

/// Requests to the run.
#[derive(Clone, Debug, PartialEq)]
pub enum ViewRequest {
    Stage(Wish),
    /// A key without a meaning for stages.
    Key(char),
    /// A change that the run should look at.
    Look,
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
    /// Queue of requests, for threads whose end the run should look at.
    pub asks: SyncSender<ViewRequest>,
    notices: SyncSender<Notice>,
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
            keys: Keys::default(),
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

    /// Waits at most `at_most` until there is a request; also when the user asks to stop.
    pub fn wait(&self, at_most: Duration) -> Option<ViewRequest> {
        self.asked.recv_timeout(at_most).ok()
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
    /// State of the keys, which act on the stage of the selected row.
    keys: Keys<ViewContent>,
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
                    view::draw(frame, &self.shown, &self.keys);
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
        let (stops, keys) = self.stop.hear(&mut self.live);
        for key in keys {
            let own = self.keys.press(&key, self.shown.stages.len(), &self.shown, &[]);
            // Dropped if the queue is full.
            let _ = own.and_then(|(key, _)| self.asks.try_send(self.meant(key)?).ok());
        }
        if self.keys.quits {
            self.stop.ask();
        }
        if stops && self.keys.stop() {
            say(Some(STOPPING.into()).filter(|_| self.live.is_none()));
            let _ = self.asks.try_send(ViewRequest::Look);
        }
    }

    fn meant(&self, key: char) -> Option<ViewRequest> {
        let name = self.shown.stages.get(self.keys.row)?.name.clone();
        Some(match key {
            'm' => ViewRequest::Stage(Wish::Move(name)),
            'u' => ViewRequest::Stage(Wish::Upgrade(name)),
            'k' => ViewRequest::Stage(Wish::Kill(name)),
            key => ViewRequest::Key(key),
        })
    }
}
