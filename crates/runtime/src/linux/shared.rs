//! State shared by the threads of a run, and the protocol by which each of them starts and stops.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle, ThreadId};

use punctual_loop::{JobRelease, Regulator};
use punctual_os::LinuxOs;
use punctual_os::linux::sync::{Parker, PiMutex};
use punctual_platform::Refusal;
use punctual_platform::linux::BestEffort;
use punctual_platform::linux::events::Bell;
use punctual_platform::linux::exclusive::{ExclusiveCore, Lendee};
use punctual_platform::linux::thread::{self, Tid};
use punctual_units::{Clock, CoreId, TaskId, Time};
use punctual_workload::{JobOutcome, JobProgress, Pace, TaskGoal};

use super::known::JobFacts;
use super::mailbox::Mailbox;
use super::starvation::Roster;
use super::tasks::TaskState;
use crate::causes::SkippedWhile;
use crate::error::RuntimeError;
use crate::figures::TaskFigures;
use crate::learn::Record;
use crate::report::{Protection, UserRequest};
use crate::under_way::Schedule;

/// Outcomes and checkpoints that may wait for the control thread: more than a second of the busiest scenario's jobs.
const JOB_EVENTS_MAX: usize = 4096;

/// Orders that may wait for the control thread: it takes them at once, unless it has ended.
const ORDERS_MAX: usize = 64;

/// Message to the control thread from a job.
#[derive(Clone, Copy, Debug)]
pub(super) enum JobEvent {
    /// A real-time job begins.
    Begun(JobRelease),
    /// The job has reached a checkpoint.
    Progress(JobProgress),
    /// The job is complete.
    Outcome(JobOutcome, JobFacts),
    /// The job ended with an error.
    Failed { task: TaskId, at: Time },
    /// A task has ended while the run continues.
    Ended { task: TaskId },
    /// Orders wait for the control thread ([`RunState::order`]).
    Ordered,
    /// Events came while others were waiting, or too early.
    Events {
        /// Task that the events release.
        task: TaskId,
        /// Number of events that have no job of their own, because they shared another event's job.
        merged: u64,
        /// Number of events that came more than a gap too early, and were put off.
        put_off: u64,
        /// Instant at which the events had come.
        at: Time,
    },
    /// Releases were skipped.
    Skipped {
        task: TaskId,
        why: SkippedWhile,
        /// Number of skipped releases.
        releases: u64,
        /// Instant by which they were skipped.
        at: Time,
    },
}

impl JobEvent {
    /// Whether the event completes a real-time job.
    pub(super) fn ends_a_real_time_job(&self) -> bool {
        matches!(self, JobEvent::Outcome(outcome, _) if outcome.deadline.is_some())
    }

    /// Whether the event completes a job that was not late: its report can wait.
    fn is_on_time(&self) -> bool {
        matches!(self, JobEvent::Outcome(outcome, _) if outcome.overrun().is_none())
    }
}

/// State shared by the threads of a run.
pub(super) struct RunState {
    stop: AtomicBool,
    /// When the run was asked to end; 0: not yet.
    stopped_at: AtomicU64,
    unreported: AtomicU64,
    /// Whether jobs report their checkpoints.
    within: bool,
    /// Whether real-time jobs report their begin: the clock falls between jobs.
    pub(super) rests: bool,
    /// Whether the control thread wakes at the end of each real-time job, and at checkpoints.
    wakes_at_jobs: AtomicBool,
    wakes_within: AtomicBool,
    /// Messages to the control thread.
    pub(super) job_events: Mailbox<JobEvent>,
    /// Wakes the thread that installs sensor updates.
    pub(super) updates: Parker,
    /// Rings at the end of the run, for threads that wait for events.
    pub(super) over: Bell,
    /// Set once no more updates will be offered.
    pub(super) feed_over: AtomicBool,
    orders: PiMutex<VecDeque<Order>>,
    /// Our own threads: none of them may wait for the end of the run.
    own: Mutex<Vec<ThreadId>>,
}

/// Order to the control thread, executed between two decisions.
pub(super) enum Order {
    /// Add a task to the loop and to the report.
    Watch {
        task: TaskId,
        /// Goal of the task; `None` without a deadline.
        goal: Option<TaskGoal>,
        /// Empty figures of the task; `None` for a best-effort task.
        figures: Option<Box<TaskFigures>>,
        /// Releases of the task; `None` if events release it.
        schedule: Option<Box<Schedule>>,
        state: Arc<TaskState>,
        core: CoreId,
        /// Core and thread of the task, if it is a real-time thread.
        real_time: Vec<(CoreId, Tid)>,
        obtained: Vec<Protection>,
    },
    /// A thread of another program that reports `task` has a core, or was refused one.
    Seated {
        task: TaskId,
        /// Its core and number; `None`: it runs as it did.
        real_time: Option<(CoreId, Tid)>,
        obtained: Vec<Protection>,
    },
    /// Send the state of the run.
    Tell,
    /// Carry out a request of the user.
    Request(UserRequest),
    /// Decide by another regulator from now on.
    Switch {
        regulator: Box<Regulator>,
        pace: Pace,
        /// Record to fill, if the regulator moves the knobs to learn a model.
        record: Option<Record>,
    },
}

impl RunState {
    /// # Errors
    /// [`Refusal`] if the process may open no more descriptors.
    pub(super) fn new(within: bool, rests: bool) -> Result<RunState, Refusal> {
        Ok(RunState {
            stop: AtomicBool::new(false),
            stopped_at: AtomicU64::new(0),
            unreported: AtomicU64::new(0),
            within,
            rests,
            wakes_at_jobs: AtomicBool::new(false),
            wakes_within: AtomicBool::new(false),
            job_events: Mailbox::new(JOB_EVENTS_MAX),
            updates: Parker::new(),
            over: Bell::new()?,
            feed_over: AtomicBool::new(false),
            orders: PiMutex::new(VecDeque::with_capacity(ORDERS_MAX)),
            own: Mutex::default(),
        })
    }

    /// Whether the run must end.
    pub(super) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// When the run was asked to end, if it was.
    pub(super) fn stopped_at(&self) -> Option<Time> {
        Some(Time(self.stopped_at.load(Ordering::Acquire))).filter(|at| *at > Time::ZERO)
    }

    pub(super) fn stop(&self) {
        let now = LinuxOs.now().0;
        // The first caller counts.
        let _ = self
            .stopped_at
            .compare_exchange(0, now, Ordering::AcqRel, Ordering::Acquire);
        self.stop.store(true, Ordering::Release);
        self.updates.unpark();
        self.wake_control();
        self.over.ring();
    }

    /// Reports to the control thread how a job ended, or that releases were dropped, without ever waiting for it: a
    /// transaction never waits for the controller. If the mailbox is full, counts that instead. A job on time does not
    /// wake a control thread that does not step at its end.
    pub(super) fn report(&self, event: JobEvent) {
        let steps = event.ends_a_real_time_job() && self.wakes_at_jobs.load(Ordering::Relaxed);
        let waits = event.is_on_time() && !steps;
        let taken = match waits {
            true => self.job_events.leave(event),
            false => self.job_events.put(event),
        };
        if !taken {
            self.unreported.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sets whether the control thread wakes at the end of each real-time job, because its loop steps there.
    pub(super) fn wake_at_jobs(&self, wakes: bool) {
        self.wakes_at_jobs.store(wakes, Ordering::Relaxed);
    }

    /// Gives the control thread an order; returns false if [`ORDERS_MAX`] earlier orders are waiting.
    pub(super) fn order(&self, order: Order) -> bool {
        {
            let mut orders = self.orders.lock();
            if orders.len() == ORDERS_MAX {
                return false;
            }
            orders.push_back(order);
        }
        self.wake_control();
        true
    }

    /// Lets the control thread look at its orders, and whether the run is over.
    fn wake_control(&self) {
        // Where the mailbox is full it is awake.
        self.job_events.put(JobEvent::Ordered);
    }

    /// Removes the oldest waiting order.
    pub(super) fn next_order(&self) -> Option<Order> {
        self.orders.lock().pop_front()
    }

    /// Whether the calling thread is one of the run's own.
    pub(super) fn is_own_thread(&self) -> bool {
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.contains(&std::thread::current().id())
    }

    /// Registers the calling thread as one of the run's own.
    pub(super) fn enter(&self) {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.push(std::thread::current().id());
    }

    /// Removes the calling thread, which ends, from the run's own.
    pub(super) fn leave(&self) {
        let me = std::thread::current().id();
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.retain(|thread| *thread != me);
    }

    /// Whether jobs report their checkpoints.
    pub(super) fn within(&self) -> bool {
        self.within
    }

    /// Sets whether a checkpoint wakes the control thread, because it may change the clock.
    pub(super) fn wake_within(&self, wakes: bool) {
        self.wakes_within.store(wakes, Ordering::Relaxed);
    }

    /// Reports a checkpoint to the control thread, also without waiting. A lost one is replaced by the next.
    pub(super) fn progress(&self, progress: JobProgress) {
        let event = JobEvent::Progress(progress);
        match self.wakes_within.load(Ordering::Relaxed) {
            true => self.job_events.put(event),
            false => self.job_events.leave(event),
        };
    }

    /// Outcomes that were lost because the mailbox was full.
    pub(super) fn unreported(&self) -> u64 {
        self.unreported.load(Ordering::Relaxed)
    }
}

/// Ends the run when one of its threads panics, so that the others do not continue alone.
pub(super) struct StopOnPanic<'s>(pub(super) &'s RunState);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}

/// Where and how a thread runs.
#[derive(Clone, Debug)]
pub(super) struct ThreadPlace {
    /// Name in reports: that of the task, or such as `thread control`, because a task may have any thread's name.
    pub(super) role: String,
    /// Name of the thread, for `top -H` and debuggers.
    pub(super) name: String,
    /// Core that the thread is pinned to.
    pub(super) core: CoreId,
    /// SCHED_FIFO priority; `None` for ordinary scheduling.
    pub(super) priority: Option<u8>,
    /// Group whose CPU share bounds the thread, if any.
    pub(super) bounded: Option<BestEffort>,
    /// The thread's role on an exclusive core; `None`: not on one.
    pub(super) tenure: Option<Tenure>,
    /// Whether it is a thread of the runtime, not of a task.
    pub(super) serves: bool,
}

/// A thread's role on an exclusive core.
#[derive(Clone, Debug)]
pub(super) enum Tenure {
    /// Works on the core.
    Occupant(ExclusiveCore),
    /// Borrows the core while it is lent.
    Lendee(ExclusiveCore),
}

/// Report of a thread that runs on its core.
pub(super) struct Ready {
    obtained: Vec<Protection>,
    /// Core and thread, if it is a real-time thread now.
    real_time: Option<(CoreId, Tid)>,
}

/// A thread's side of the start: reports what it obtained, then waits for the common start.
pub(super) struct ThreadStart {
    pub(super) place: ThreadPlace,
    pub(super) ready: Sender<Ready>,
    pub(super) go: Receiver<Time>,
    roster: Roster,
}

impl ThreadStart {
    /// Pins and schedules the calling thread, reports what it obtained, and waits for the start of the run. `None` if
    /// the run was cancelled.
    pub(super) fn start(self) -> Option<StartedThread> {
        let ThreadPlace {
            role,
            name: _,
            core,
            priority,
            bounded,
            tenure,
            serves,
        } = &self.place;
        if let Some(priority) = priority {
            self.roster.enter(role, *core, *priority);
        }
        let mut lendee = None;
        let mut obtained = vec![match tenure {
            None => protection(format!("{role}: on core {core}"), thread::pin(*core)),
            Some(Tenure::Occupant(exclusive)) => protection(
                format!("{role}: on core {core}, exclusively"),
                exclusive.enter(Tid::current()).and_then(|()| thread::pin(*core)),
            ),
            Some(Tenure::Lendee(exclusive)) => {
                let added = exclusive.lend_to(Tid::current());
                protection(
                    format!("{role}: off core {} unless that is lent", exclusive.obtained().core),
                    added.map(|added| lendee = Some(added)),
                )
            }
        }];
        let mut real_time = None;
        if let Some(priority) = priority {
            let result = thread::real_time(*priority);
            real_time = result.is_ok().then(|| (*core, Tid::current()));
            obtained.push(protection(format!("{role}: SCHED_FIFO {priority}"), result));
        }
        if let Some(group) = bounded {
            obtained.push(protection(
                format!("{role}: under the best-effort share"),
                group.adopt(Tid::current()),
            ));
        }
        self.ready.send(Ready { obtained, real_time }).ok()?;
        let at = self.go.recv().ok()?;
        if !serves {
            self.roster.started();
        }
        Some(StartedThread { at, _lendee: lendee })
    }
}

/// A thread that runs on its core.
pub(super) struct StartedThread {
    /// Start of the run.
    pub(super) at: Time,
    /// Kept for as long as the thread works.
    _lendee: Option<Lendee>,
}

/// The threads of a run, started together.
pub(super) struct ThreadGroup<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    ready: (Sender<Ready>, Receiver<Ready>),
    /// Senders to the threads that have not been started yet.
    go: Vec<Sender<Time>>,
    /// Number of threads that have not reported what they obtained.
    unready: usize,
    /// Real-time threads among those that have reported.
    real_time: Vec<(CoreId, Tid)>,
    roster: Roster,
}

impl<'scope, 'env> ThreadGroup<'scope, 'env> {
    pub(super) fn new(scope: &'scope Scope<'scope, 'env>, roster: Roster) -> Self {
        ThreadGroup {
            scope,
            ready: channel(),
            go: Vec::new(),
            unready: 0,
            real_time: Vec::new(),
            roster,
        }
    }

    pub(super) fn spawn<T: Send + 'scope>(
        &mut self,
        place: ThreadPlace,
        body: impl FnOnce(ThreadStart) -> T + Send + 'scope,
    ) -> Result<ScopedJoinHandle<'scope, T>, RuntimeError> {
        let role = place.name.clone();
        let thread = std::thread::Builder::new().name(role.clone());
        let (go, gone) = channel();
        let thread_start = ThreadStart {
            place,
            ready: self.ready.0.clone(),
            go: gone,
            roster: self.roster.clone(),
        };
        let started = thread.spawn_scoped(self.scope, move || body(thread_start));
        let thread = started.map_err(|why| RuntimeError::Thread { role, why })?;
        self.go.push(go);
        self.unready += 1;
        Ok(thread)
    }

    /// Waits until every thread spawned so far has reported; returns the protections of those that report for the first
    /// time.
    pub(super) fn ready(&mut self) -> Vec<Protection> {
        let waiting = std::mem::take(&mut self.unready);
        let ready: Vec<Ready> = (0..waiting).filter_map(|_| self.ready.1.recv().ok()).collect();
        self.real_time.extend(ready.iter().filter_map(|ready| ready.real_time));
        ready.into_iter().flat_map(|ready| ready.obtained).collect()
    }

    /// Real-time threads that have reported since the last call.
    pub(super) fn take_real_time(&mut self) -> Vec<(CoreId, Tid)> {
        std::mem::take(&mut self.real_time)
    }

    /// Starts every thread spawned since the last call, at `start`.
    pub(super) fn go(&mut self, start: Time) {
        for thread in self.go.drain(..) {
            // A thread that has panicked does not listen any more, and is noticed when it is joined.
            let _ = thread.send(start);
        }
    }
}

/// Result of a thread. A panic of the thread continues in the caller.
pub(super) fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

pub(super) fn protection(what: String, result: Result<(), Refusal>) -> Protection {
    Protection {
        what,
        refused: result.err(),
        stays: Vec::new(),
    }
}

/// Entry for a protection that is lacking.
pub(super) fn unprotected(what: String, why: String, remedy: &str) -> Protection {
    let refusal = Refusal {
        what: what.clone(),
        why,
        remedy: remedy.into(),
    };
    protection(what, Err(refusal))
}
