//! Shows a run while it goes on, and listens for the user's stop request.
//!
//! The run must not wait for a terminal, so the run's thread ([`Watcher::see`]) only puts news into a bounded queue. A
//! separate thread draws, reads keys and signals, and requests the stop through a flag, to which the next `see` answers
//! `Break`. The first Ctrl-C (or `q`, SIGTERM or SIGHUP) ends the run in order, with a report; the second Ctrl-C exits
//! at once with code 130. Changes to the machine are restored in either case: by the run itself, or by its guardian
//! (cleanup) process.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;

use punctual_platform::linux::recovery;
use punctual_runtime::report::{Progress, UserRequest};

use crate::feed::RunFeed;
use crate::plain::Plain;
use crate::settings::sentence;
use crate::terminal::{Live, STOPPING, Stop, TICK, is_live, say};
use crate::view::{self, Controls, News, ViewState};
use punctual_files::failure::Failure;

/// Capacity of the queue of news: a minute of a loop that steps every 10 ms. News beyond it are not shown.
pub(crate) const NEWS_MAX: usize = 6000;

/// Capacity of the queue of requests, of all views together.
const REQUESTS_MAX: usize = 64;

/// Shows one run after another until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    news: Option<SyncSender<News>>,
    /// For other processes; `None` in a view of another process' run, and where the system refuses it.
    feed: Option<RunFeed>,
    stop: Arc<AtomicBool>,
    /// Requests of the user to the run, by keys of this view and of others.
    requests: Receiver<UserRequest>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Starts to show: a live view if standard output and input are a terminal and `plain` is false, else a line per
    /// second on standard error. Runs of this process are shown to `punctual top`, too, which finds them by `name`;
    /// without one, this shows another process' run.
    ///
    /// # Errors
    /// [`Failure::Input`] if the terminal cannot be used, [`Failure::Internal`] if signal handlers cannot be installed.
    pub fn start(plain: bool, name: Option<&str>) -> Result<Watcher, Failure> {
        let unseen = |why: &std::io::Error| {
            let folder = recovery::folder();
            let folder = folder.display();
            // A script runs no `top`.
            say(std::io::stderr().is_terminal().then(|| {
                format!("`punctual top` does not find this run: {folder}: {why}; name a folder by PUNCTUAL_RUN_DIR")
            }));
        };
        let (asks, requests) = sync_channel(REQUESTS_MAX);
        let feed = |name| RunFeed::start(&recovery::folder(), name, asks.clone()).inspect_err(unseen);
        let feed = name.and_then(|name| feed(name).ok());
        let stop = Arc::new(AtomicBool::new(false));
        let heard = Stop::listen(stop.clone())?;
        let live = is_live(plain).then(Live::take).transpose()?;
        let (news, inbox) = sync_channel(NEWS_MAX);
        let display = Display {
            live,
            plain: Plain::default(),
            state: ViewState {
                is_visitor: name.is_none(),
                ..ViewState::default()
            },
            controls: Controls::default(),
            asks,
            stop: heard,
        };
        let thread = std::thread::Builder::new()
            .name("display".into())
            .spawn(move || display.show(&inbox));
        let thread = thread.map_err(|error| Failure::Internal(format!("no thread for the display: {error}")))?;
        Ok(Watcher {
            news: Some(news),
            feed,
            stop,
            requests,
            thread: Some(thread),
        })
    }

    /// Announces a run of `duration_s` seconds.
    pub fn begin(&self, duration_s: f64) {
        self.tell(News::Run(duration_s));
    }

    /// Says of the announced run that it learns a model.
    pub fn learns(&self) {
        self.tell(News::Learning);
    }

    /// Takes news of a run; returns `Break` once the user asked to stop.
    pub fn see(&self, progress: Progress<'_>) -> ControlFlow<()> {
        match progress {
            Progress::Requests(asked) => {
                for request in self.requests().take(REQUESTS_MAX.saturating_sub(asked.len())) {
                    if let UserRequest::Mark(mark) = &request {
                        self.tell(News::Mark(mark.clone()));
                    }
                    asked.push(request);
                }
            }
            progress => News::of(progress).into_iter().for_each(|news| self.tell(news)),
        }
        if self.stopped() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Requests of the user that were not taken yet.
    pub fn requests(&self) -> impl Iterator<Item = UserRequest> + '_ {
        self.requests.try_iter()
    }

    /// Shows the counts at the sinks of a scenario's stages.
    pub fn sinks(&self, told: String) {
        self.tell(News::Sinks(told));
    }

    /// Whether the user asked to stop.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Shows news, here and to other processes.
    pub fn tell(&self, news: News) {
        self.feed.iter().for_each(|feed| feed.publish(news.clone()));
        // Full if the terminal is stuck: the run goes on without display.
        let _ = self.news.as_ref().map(|to| to.try_send(news));
    }
}

impl Drop for Watcher {
    /// Restores the terminal, so that later output (a report, an error) is readable.
    fn drop(&mut self) {
        (self.news, self.feed) = (None, None);
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
    controls: Controls,
    asks: SyncSender<UserRequest>,
    stop: Stop,
}

impl Display {
    fn show(mut self, inbox: &Receiver<News>) {
        loop {
            match inbox.recv_timeout(TICK) {
                Ok(news) => {
                    self.take(news);
                    inbox.try_iter().for_each(|news| self.take(news));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.hear();
            self.draw();
        }
        say(self.plain.flush());
        if self.live.is_none() && self.state.is_visitor {
            self.state.settings.iter().map(sentence).map(Some).for_each(say);
        }
        self.live.iter().for_each(Live::leave);
    }

    fn take(&mut self, news: News) {
        if self.live.is_some() {
            if matches!(news, News::Run(_) | News::Started(_)) {
                self.controls.keys.close();
            }
            return self.state.update(news);
        }
        match news {
            News::Run(_) | News::Learning | News::Ended | News::Mark(_) => {}
            News::Stage(stage) => {
                say(self.plain.flush());
                say(Some(format!("{stage} ...")));
            }
            News::Started(header) => say(Some(self.plain.started(&header))),
            News::Sample(sample) => say(self.plain.sample(&sample)),
            News::Samples(samples) => samples.last().into_iter().for_each(|last| say(self.plain.sample(last))),
            News::Tasks(tasks) => say(self.plain.tasks(&tasks)),
            News::Settings(settings) => self.state.settings = settings,
            News::Warning(text) => say(Some(text)),
            News::Sinks(sinks) if sinks.is_empty() => {}
            News::Sinks(sinks) => say(Some(format!("{:10}{sinks}", ""))),
        }
    }

    fn hear(&mut self) {
        let (stops, keys) = self.stop.hear(&mut self.live);
        for key in &keys {
            match self.controls.press(key, &self.state) {
                // Full after that many keys in a row without an answer of the run.
                Some(Ok(request)) => drop(self.asks.try_send(request)),
                Some(Err(wrong)) => self.state.warn([wrong]),
                None => {}
            }
        }
        if self.controls.keys.quits {
            self.stop.ask();
        }
        if self.state.is_visitor {
            return;
        }
        if stops && self.controls.keys.stop() && self.live.is_none() {
            say(Some(STOPPING.into()));
        }
    }

    fn draw(&mut self) {
        if let Some(live) = &mut self.live {
            live.draw(|frame| view::draw(frame, &self.state, &self.controls));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use punctual_runtime::report::RunMark;
    use punctual_workload::TaskGoal;

    #[test]
    fn a_run_hears_of_requests_and_of_a_signal() {
        let _signals = crate::terminal::SIGNALS.lock().unwrap();
        let mut watcher = Watcher::start(true, None).unwrap();
        watcher.begin(60.0);
        assert_eq!(
            watcher.see(Progress::Started(&fixture::header())),
            ControlFlow::Continue(())
        );
        let mark = UserRequest::Mark(RunMark {
            t_s: 1.0,
            text: "door".into(),
        });
        let goal = UserRequest::Goal("steer".into(), TaskGoal::Tardiness(0.5));
        let asked = [mark, goal];
        let (asks, requests) = sync_channel(REQUESTS_MAX);
        watcher.requests = requests;
        asked.iter().for_each(|request| asks.send(request.clone()).unwrap());
        let mut requests = Vec::new();
        let _ = watcher.see(Progress::Requests(&mut requests));
        assert_eq!(requests, asked);
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
