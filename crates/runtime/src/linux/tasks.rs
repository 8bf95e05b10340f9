//! Task threads: release, run, report. A fault in a closure ends at most its own task.

use std::any::Any;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use punctual_loop::Forecast;
use punctual_os::LinuxOs;
use punctual_os::linux::sync::PiMutex;
use punctual_platform::linux::events::{Bell, EventSource, EventWait};
use punctual_platform::linux::thread::Tid;
use punctual_store::Store;
use punctual_store::engine::Engine;
use punctual_units::{Clock, Nanos, TaskId, Time};
use punctual_workload::{Active, Arrival, Durability, JobProgress};
use rand::rngs::Xoshiro256PlusPlus;

use super::events::EventReleases;
use super::job::Job;
use super::known::{Accounts, JobFacts};
use super::releases::Releases;
use super::shared::{JobEvent, RunState, ThreadStart};
use super::tenancy::Tenancy;
use crate::causes::SkippedWhile;
use crate::schedule::NextRelease;

/// Longest sleep of a thread between checks whether it must end.
const NAP: Nanos = Nanos::from_millis(50);

/// Error with which a job failed.
pub type JobError = Box<dyn Error + Send + Sync>;

/// Closure of a task, called once per job.
pub type Body<E> = Box<dyn FnMut(&mut Job<'_, E>) -> Result<(), JobError> + Send>;

/// Result of a job's closure: nothing, or a result with any error.
pub trait JobResult {
    /// Converts the result, with the error in a box.
    ///
    /// # Errors
    /// The error that the closure returned.
    fn into_result(self) -> Result<(), JobError>;
}

impl JobResult for () {
    fn into_result(self) -> Result<(), JobError> {
        Ok(())
    }
}

impl<F: Into<JobError>> JobResult for Result<(), F> {
    fn into_result(self) -> Result<(), JobError> {
        self.map_err(Into::into)
    }
}

/// How a task ended while the runtime continued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskEnd {
    /// Stopped by a caller, or its part of the run was over.
    Stopped,
    /// The source of its events has ended, for this reason, for example because the other side was closed.
    SourceClosed(String),
    /// A job panicked, with this message. The task's other jobs are not run any more.
    Panicked(String),
}

impl std::fmt::Display for TaskEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TaskEnd::Stopped => f.write_str("stopped"),
            TaskEnd::SourceClosed(why) => write!(f, "no more events: {why}"),
            TaskEnd::Panicked(words) => write!(f, "a job panicked: {words}"),
        }
    }
}

/// State shared by a task's thread and the callers that hold its handle.
#[derive(Debug, Default)]
pub(super) struct TaskState {
    stop: AtomicBool,
    /// Wakes the thread while it waits for an event.
    bell: OnceLock<Arc<Bell>>,
    thread: OnceLock<Tid>,
    /// First error that a job returned.
    first_failure: OnceLock<String>,
    /// Number of jobs that failed.
    failed: AtomicU64,
    /// Number of jobs that have begun, and the releases of the last two, by their numbers' lowest bit: a job that hangs
    /// reports nothing else.
    begun: AtomicU64,
    begun_release: [AtomicU64; 2],
    /// Number of releases behind that job that are late by now, where only other programs report them.
    behind: AtomicU64,
    /// When checkpoints of the job under way, and of later ones, need no report, where they are paced from within.
    forecasts: PiMutex<[Option<Forecast>; 2]>,
    ended: Mutex<Option<TaskEnd>>,
    end: Condvar,
}

impl TaskState {
    /// Asks the thread to end after the current job.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        if let Some(bell) = self.bell.get() {
            bell.ring();
        }
    }

    /// Sets the bell that wakes the thread.
    pub(super) fn wake_by(&self, bell: Arc<Bell>) {
        self.bell.get_or_init(|| bell);
    }

    pub(super) fn first_failure(&self) -> Option<&str> {
        self.first_failure.get().map(String::as_str)
    }

    /// Number of jobs that failed.
    pub(super) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Records that job `number`, counted from 0, begins.
    pub(super) fn begin(&self, number: u64, released: Time) {
        self.begun_release[number as usize % 2].store(released.0, Ordering::Release);
        self.begun.store(number + 1, Ordering::Release);
    }

    /// Records how many releases behind the job that began last are late by now.
    pub(super) fn late_behind(&self, releases: u64) {
        self.behind.store(releases, Ordering::Relaxed);
    }

    /// Number of releases behind the job that began last that are late by now; 0 unless recorded.
    pub(super) fn behind(&self) -> u64 {
        self.behind.load(Ordering::Relaxed)
    }

    /// Number and release of the job that began last; `None` if there is none, or others begin at this moment.
    pub(super) fn begun(&self) -> Option<(u64, Time)> {
        let begun = self.begun.load(Ordering::Acquire);
        let number = begun.checked_sub(1)?;
        let released = self.begun_release[number as usize % 2].load(Ordering::Acquire);
        // The place is written again only once the next job has begun.
        (self.begun.load(Ordering::Relaxed) == begun).then_some((number, Time(released)))
    }

    /// The clock is turned: nothing that was expected of checkpoints holds any more.
    pub(super) fn clock_turned(&self) {
        *self.forecasts.lock() = [None; 2];
    }

    /// Sets which checkpoints need no report: of the job under way (`None`: as before), and of later ones.
    pub(super) fn forecast(&self, under_way: Option<Option<Forecast>>, next: Option<Forecast>) {
        let mut forecasts = self.forecasts.lock();
        let under_way = under_way.unwrap_or(forecasts[0]);
        *forecasts = [under_way, next];
    }

    /// Whether the clock stays where it is at this checkpoint.
    pub(super) fn expects(&self, at: &JobProgress) -> bool {
        let forecasts = self.forecasts.lock();
        forecasts.iter().flatten().any(|it| it.holds(at))
    }

    pub(super) fn fail(&self, words: impl FnOnce() -> String) {
        self.first_failure.get_or_init(words);
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn ended(&self) -> Option<TaskEnd> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How the task ended, as text, if a caller or a panic ended it and not the run.
    pub(super) fn ended_early(&self) -> Option<String> {
        self.ended()
            .filter(|how| self.stopping() || *how != TaskEnd::Stopped)
            .map(|how| how.to_string())
    }

    /// Waits at most `at_most` for the thread to end; returns how the task ended, if it has.
    pub(super) fn wait(&self, at_most: Duration) -> Option<TaskEnd> {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.end.wait_timeout_while(ended, at_most, |ended| ended.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// The task's thread, once it has begun.
    pub(super) fn thread(&self) -> Option<Tid> {
        self.thread.get().copied()
    }

    /// Whether the thread was asked to end.
    pub(super) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn end(&self, how: TaskEnd) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(how);
        self.end.notify_all();
    }
}

/// A task, ready to run in its thread.
pub(super) struct ReadyTask<E: Engine> {
    pub(super) id: TaskId,
    pub(super) deadline: Option<Nanos>,
    pub(super) arrival: Arrival,
    /// Source of events that release its jobs instead, and the least gap between them.
    pub(super) events: Option<(EventSource, Nanos)>,
    pub(super) active: Active,
    pub(super) body: Body<E>,
    pub(super) rng: Xoshiro256PlusPlus,
    /// Lease of the exclusive core, which lends it between jobs; `None` for other tasks.
    pub(super) tenancy: Option<Tenancy>,
    pub(super) state: Arc<TaskState>,
    /// Kernel statistics of the thread, once it runs; `None` for a task without a deadline.
    pub(super) accounts: Option<Accounts>,
}

impl<E: Engine> ReadyTask<E> {
    /// Runs the task until it or the run ends.
    pub(super) fn run(mut self, store: &Store<E, LinuxOs>, shared: &RunState, thread: ThreadStart) {
        self.state.thread.get_or_init(Tid::current);
        shared.enter();
        let syncs = store.durability() != Durability::Volatile;
        self.accounts = self.deadline.map(|_| Accounts::of_this_thread(syncs));
        let how = match thread.start() {
            Some(started) => match self.events.take() {
                Some(events) => self.jobs_on_events(store, shared, started.at, events),
                None => self.jobs(store, shared, started.at),
            },
            None => TaskEnd::Stopped,
        };
        // The closure's resources are released before a caller that waits for the end is notified.
        let ReadyTask { id, body, state, .. } = self;
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(body)));
        state.end(match dropped {
            Ok(()) => how,
            Err(panic) => TaskEnd::Panicked(words(&*panic)),
        });
        shared.leave();
        shared.report(JobEvent::Ended { task: id });
    }

    fn jobs(&mut self, store: &Store<E, LinuxOs>, shared: &RunState, start: Time) -> TaskEnd {
        let mut releases = Releases::new(NextRelease::new(self.arrival, self.active, start, &mut self.rng));
        let mut number = 0;
        let mut tenancy = self.tenancy.take();
        let state = Arc::clone(&self.state);
        let going_on = || !shared.stopping() && !state.stopping();
        let mut wait = |release| match &mut tenancy {
            Some(tenancy) => tenancy.wait(release, |until| sleep_until(until, going_on)),
            None => sleep_until(release, going_on),
        };
        while self.active.admit(start, releases.next()).is_some() && wait(releases.next()) {
            let (now, awaited) = (LinuxOs.now(), releases.next());
            let missed = releases.resumed(now, &mut self.rng);
            if missed > 0 {
                let stood = |accounts: &Accounts| accounts.stood_still(now.since(awaited));
                let why = self.accounts.as_ref().map_or(SkippedWhile::NotRun, stood);
                self.skipped(shared, missed, now, why);
                continue;
            }
            let job = Job::begin(store, number, releases.next(), self.deadline);
            let at = match self.job(shared, job.telling(shared, (self.id, &state), start)) {
                Ok(finished) => finished,
                Err(how) => return how,
            };
            number += 1;
            let missed = releases.ended(at, &mut self.rng);
            self.skipped(shared, missed, at, SkippedWhile::Behind);
        }
        TaskEnd::Stopped
    }

    /// Runs the jobs of a task that events release. An exclusive core is lent until the next event may come and taken
    /// back then, because the instant of the event is unknown.
    fn jobs_on_events(
        &mut self,
        store: &Store<E, LinuxOs>,
        shared: &RunState,
        start: Time,
        (mut events, gap): (EventSource, Nanos),
    ) -> TaskEnd {
        let mut releases = EventReleases::new(gap);
        let mut number = 0;
        let mut tenancy = self.tenancy.take();
        let state = Arc::clone(&self.state);
        let going_on = || !shared.stopping() && !state.stopping();
        if !sleep_until(start + self.active.from, going_on) {
            return TaskEnd::Stopped;
        }
        loop {
            let found = events.waiting();
            let slept = found == EventWait::Nothing;
            let mut heard = found;
            let mut wait = |until: Option<Time>| {
                while heard == EventWait::Nothing && going_on() && until.is_none_or(|until| LinuxOs.now() < until) {
                    heard = events.wait(Some(&shared.over), until);
                }
                going_on()
            };
            // Waits until the core must be back; an event that comes early ends the lease.
            if let (Some(tenancy), true) = (&mut tenancy, slept) {
                tenancy.wait(releases.next(), |until| wait(Some(until)));
            }
            wait(None);
            let count = match heard {
                EventWait::Event { count } if going_on() => count,
                EventWait::Closed(why) => return TaskEnd::SourceClosed(why),
                EventWait::Event { .. } | EventWait::Nothing => return TaskEnd::Stopped,
            };
            let now = LinuxOs.now();
            let release = releases.seen(now, !slept);
            if self.active.admit(start, release.at).is_none() {
                return TaskEnd::Stopped;
            }
            if count > 1 || release.put_off {
                shared.report(JobEvent::Events {
                    task: self.id,
                    merged: count - 1,
                    put_off: u64::from(release.put_off),
                    at: now,
                });
            }
            if !sleep_until(release.at, going_on) {
                return TaskEnd::Stopped;
            }
            let job = Job::begin(store, number, release.at, self.deadline).released_by(count);
            if let Err(how) = self.job(shared, job.telling(shared, (self.id, &state), start)) {
                return how;
            }
            number += 1;
        }
    }

    /// Runs a job and reports its outcome; returns when the job ended, or how it ended the task.
    fn job(&mut self, shared: &RunState, mut job: Job<'_, E>) -> Result<Time, TaskEnd> {
        self.state.begin(job.number(), job.released());
        let body = &mut self.body;
        let result = match catch_unwind(AssertUnwindSafe(|| body(&mut job))) {
            Ok(result) => result,
            Err(panic) => return Err(self.panicked(shared, &*panic)),
        };
        let (waited_for, spared) = (job.waited_for(), job.spared());
        let outcome = job.end(self.id);
        let accounts = self.accounts.as_mut();
        let beside = JobFacts {
            spared,
            ..accounts.map_or_else(JobFacts::default, |it| it.ended(&outcome, waited_for))
        };
        let (task, at) = (self.id, outcome.finished);
        // A job that failed at once was not early: it has no response time.
        match result {
            Ok(()) => shared.report(JobEvent::Outcome(outcome, beside)),
            Err(error) => {
                self.state.fail(|| error.to_string());
                shared.report(JobEvent::Failed { task, at });
            }
        }
        Ok(at)
    }

    fn skipped(&self, shared: &RunState, releases: u64, at: Time, why: SkippedWhile) {
        let task = self.id;
        if releases > 0 {
            shared.report(JobEvent::Skipped {
                task,
                why,
                releases,
                at,
            });
        }
    }

    /// Counts the job that panicked as failed.
    fn panicked(&self, shared: &RunState, panic: &(dyn Any + Send)) -> TaskEnd {
        let words = words(panic);
        self.state.fail(|| format!("panicked: {words}"));
        let (task, at) = (self.id, LinuxOs.now());
        shared.report(JobEvent::Failed { task, at });
        TaskEnd::Panicked(words)
    }
}

/// Message of a panic.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "without words".into())
}

/// Sleeps until `wake`; returns false as soon as `going_on` does.
pub(super) fn sleep_until(wake: Time, going_on: impl Fn() -> bool) -> bool {
    loop {
        if !going_on() {
            return false;
        }
        let now = LinuxOs.now();
        if now >= wake {
            return true;
        }
        LinuxOs.sleep_until(wake.min(now + NAP));
    }
}
