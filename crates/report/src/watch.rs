//! Shows a run while it goes on, and listens for the user's stop request.
//!
//! The run must not wait for a terminal, so the run's thread ([`Watcher::see`]) only puts news into a bounded queue. A
//! separate thread draws, reads keys and signals, and requests the stop through a flag, to which the next `see` answers
//! `Break`. The first Ctrl-C (or `q`, SIGTERM or SIGHUP) ends the run in order, with a report; the second Ctrl-C exits
//! at once with code 130. Changes to the machine are restored in either case: by the run itself, or by its guardian
//! (cleanup) process.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;

use punctual_runtime::report::Progress;

use crate::plain::Plain;
use crate::terminal::{Live, STOPPING, Stop, TICK, is_live, say};
use crate::view::{self, News, ViewState};
use punctual_files::failure::Failure;

/// Capacity of the queue of news: a minute of a loop that steps every 10 ms. News beyond it are not shown.
const NEWS_MAX: usize = 6000;

/// Shows one run after another until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    news: Option<SyncSender<Notice>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Notice {
    /// The next run begins; its length in seconds.
    Run(f64),
    News(News),
}

impl Watcher {
    /// Starts to show: a live view if standard output and input are a terminal and `plain` is false, else a line per
    /// second on standard error.
    ///
    /// # Errors
    /// [`Failure::Input`] if the terminal cannot be used, [`Failure::Internal`] if signal handlers cannot be installed.
    pub fn start(plain: bool) -> Result<Watcher, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let heard = Stop::listen(stop.clone())?;
        let live = is_live(plain).then(Live::take).transpose()?;
        let (news, inbox) = sync_channel(NEWS_MAX);
        let display = Display {
            live,
            plain: Plain::default(),
            state: ViewState::default(),
            stop: heard,
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

    /// Takes news of a run; returns `Break` once the user asked to stop.
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

    /// Shows the counts at the sinks of a scenario's stages.
    pub fn sinks(&self, told: String) {
        self.tell(Notice::News(News::Sinks(told)));
    }

    /// Whether the user asked to stop.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn tell(&self, notice: Notice) {
        if let Some(news) = &self.news {
            // Full if the terminal is stuck: the run goes on without display.
            let _ = news.try_send(notice);
        }
    }
}

impl Drop for Watcher {
    /// Restores the terminal, so that later output (a report, an error) is readable.
    fn drop(&mut self) {
        self.news = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Display {
    /// The live view; `None`: lines are printed.
    live: Option<Live>,
    plain: Plain,
    state: ViewState,
    stop: Stop,
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
        say(self.plain.flush());
        self.live.iter().for_each(Live::leave);
    }

    fn take(&mut self, notice: Notice) {
        match (notice, &self.live) {
            (Notice::Run(duration_s), _) => {
                self.state = ViewState {
                    stopping: self.state.stopping,
                    ..ViewState::new(duration_s)
                }
            }
            (Notice::News(news), Some(_)) => self.state.update(news),
            (Notice::News(News::Stage(stage)), None) => {
                say(self.plain.flush());
                say(Some(format!("{stage} ...")));
            }
            (Notice::News(News::Started(header)), None) => say(Some(self.plain.started(&header))),
            (Notice::News(News::Sample(sample)), None) => say(self.plain.sample(&sample)),
            (Notice::News(News::Tasks(tasks)), None) => say(self.plain.tasks(&tasks)),
            (Notice::News(News::Sinks(sinks)), None) => say(Some(format!("{:10}{sinks}", ""))),
        }
    }

    fn hear(&mut self) {
        let (stops, _) = self.stop.hear(&mut self.live);
        if stops && !self.state.stopping && self.live.is_none() {
            say(Some(STOPPING.into()));
        }
        self.state.stopping |= stops;
    }

    fn draw(&mut self) {
        if let Some(live) = &mut self.live {
            live.draw(|frame| view::draw(frame, &self.state));
        }
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
        signal_hook::low_level::raise(signal_hook::consts::SIGTERM).unwrap();
        while !watcher.stopped() {
            std::thread::yield_now();
        }
        assert_eq!(
            watcher.see(Progress::Sample(&fixture::sample(0))),
            ControlFlow::Break(())
        );
    }
}
