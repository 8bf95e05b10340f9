//! What the threads of a run share, and how each of them starts and stops.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle, ThreadId};

use punctual_loop::Regulator;
use punctual_os::linux::sync::{Parker, PiMutex};
use punctual_platform::Refusal;
use punctual_platform::linux::BestEffort;
use punctual_platform::linux::events::Bell;
use punctual_platform::linux::exclusive::{ExclusiveCore, Lendee};
use punctual_platform::linux::thread::{self, Tid};
use punctual_units::{CoreId, TaskId, Time};
use punctual_workload::{JobOutcome, JobProgress, Pace, TaskGoal};

use super::known::Beside;
use super::mailbox::Mailbox;
use super::tasks::TaskState;
use crate::error::RuntimeError;
use crate::figures::TaskFigures;
use crate::learn::Record;
use crate::report::Protection;

/// Outcomes and checkpoints that may wait for the control thread: more than a second of the busiest scenario's jobs.
const JOB_EVENTS_MAX: usize = 4096;

/// Orders that may wait for the control thread: it takes them at once, or it is not coming back.
const ORDERS_MAX: usize = 64;

/// What a job tells the control thread.
#[derive(Clone, Copy, Debug)]
pub(super) enum JobEvent {
    /// It has come to a checkpoint.
    Progress(JobProgress),
    /// It is complete.
    Outcome(JobOutcome, Beside),
    /// It ended with an error.
    Failed {
        /// The task whose job it was.
        task: TaskId,
        /// When it ended.
        at: Time,
    },
    /// A task has ended while the run goes on.
    Ended {
        /// Which.
        task: TaskId,
    },
    /// Orders wait for the control thread ([`Shared::order`]).
    Ordered,
    /// Events found others waiting.
    Events {
        /// The task that they were to release.
        task: TaskId,
        /// How many have no job of their own: one job served them and another one.
        merged: u64,
        /// How many came more than a gap too early, and were put off.
        put_off: u64,
        /// By when.
        at: Time,
    },
    /// Releases were dropped, because too many jobs were waiting.
    Skipped {
        /// The task that was to be released.
        task: TaskId,
        /// How many.
        releases: u64,
        /// By when.
        at: Time,
    },
}

impl JobEvent {
    /// Whether a real-time job is complete.
    pub(super) fn ends_a_real_time_job(&self) -> bool {
        matches!(self, JobEvent::Outcome(outcome, _) if outcome.deadline.is_some())
    }
}

/// What the threads of a run share.
pub(super) struct Shared {
    stop: AtomicBool,
    unreported: AtomicU64,
    /// Whether checkpoints are of interest.
    within: bool,
    /// For the control thread.
    pub(super) job_events: Mailbox<JobEvent>,
    /// Wakes the thread that installs sensor updates.
    pub(super) updates: Parker,
    /// Rung at the end, for threads that wait for events.
    pub(super) over: Bell,
    /// Set once no more updates will be offered.
    pub(super) feed_over: AtomicBool,
    orders: PiMutex<VecDeque<Order>>,
    /// Our own threads: none of them may wait for the end of the run.
    own: Mutex<Vec<ThreadId>>,
}

/// What the control thread is to do between two decisions.
pub(super) enum Order {
    /// Watch a task that was added.
    Watch {
        task: TaskId,
        /// What it asks for; nothing if it has no deadline.
        goal: Option<TaskGoal>,
        /// Its figures; none of a best-effort task.
        figures: Option<Box<TaskFigures>>,
        state: Arc<TaskState>,
        core: CoreId,
        /// Its core and thread, if it is a real-time thread.
        real_time: Vec<(CoreId, Tid)>,
        obtained: Vec<Protection>,
    },
    /// Say how things stand.
    Tell,
    /// Decide by another regulator from now on.
    Switch {
        regulator: Box<Regulator>,
        pace: Pace,
        /// What is to be recorded meanwhile, where it moves the knobs to learn a model.
        record: Option<Record>,
    },
}

impl Shared {
    /// # Errors
    /// [`Refusal`] where the process may open no more descriptors.
    pub(super) fn new(within: bool) -> Result<Shared, Refusal> {
        Ok(Shared {
            stop: AtomicBool::new(false),
            unreported: AtomicU64::new(0),
            within,
            job_events: Mailbox::new(JOB_EVENTS_MAX),
            updates: Parker::new(),
            over: Bell::new()?,
            feed_over: AtomicBool::new(false),
            orders: PiMutex::new(VecDeque::with_capacity(ORDERS_MAX)),
            own: Mutex::default(),
        })
    }

    /// Whether the run is to end.
    pub(super) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.updates.unpark();
        self.over.ring();
    }

    /// Tells the control thread how a job ended, or that releases were dropped, without ever waiting for it: a
    /// transaction never waits for the controller. Where the mailbox is full, that is counted instead.
    pub(super) fn report(&self, event: JobEvent) {
        if !self.job_events.put(event) {
            self.unreported.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Gives the control thread an order; false where it has not come to [`ORDERS_MAX`] earlier ones.
    pub(super) fn order(&self, order: Order) -> bool {
        {
            let mut orders = self.orders.lock();
            if orders.len() == ORDERS_MAX {
                return false;
            }
            orders.push_back(order);
        }
        // A full mailbox wakes the control thread as well.
        self.job_events.put(JobEvent::Ordered);
        true
    }

    /// The oldest order that was not taken yet.
    pub(super) fn next_order(&self) -> Option<Order> {
        self.orders.lock().pop_front()
    }

    /// Whether the calling thread is one of the run's own.
    pub(super) fn is_own_thread(&self) -> bool {
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.contains(&std::thread::current().id())
    }

    /// The calling thread is one of the run's own from now on.
    pub(super) fn enter(&self) {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.push(std::thread::current().id());
    }

    /// The calling thread ends.
    pub(super) fn leave(&self) {
        let me = std::thread::current().id();
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.retain(|thread| *thread != me);
    }

    /// Whether jobs are to tell their checkpoints.
    pub(super) fn within(&self) -> bool {
        self.within
    }

    /// Hands a checkpoint to the control thread, likewise without waiting. The next one makes up for one that is lost.
    pub(super) fn progress(&self, progress: JobProgress) {
        self.job_events.put(JobEvent::Progress(progress));
    }

    /// Outcomes that found the channel full.
    pub(super) fn unreported(&self) -> u64 {
        self.unreported.load(Ordering::Relaxed)
    }
}

/// Ends the run when a thread of it panics, so that the others do not go on alone.
pub(super) struct StopOnPanic<'s>(pub(super) &'s Shared);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}

/// How a thread is to run.
#[derive(Clone, Debug)]
pub(super) struct ThreadPlace {
    /// For people, e.g. the task's name.
    pub(super) role: String,
    /// Where.
    pub(super) core: CoreId,
    /// SCHED_FIFO priority; none for ordinary scheduling.
    pub(super) priority: Option<u8>,
    /// The group whose CPU share bounds the thread, if any.
    pub(super) bounded: Option<BestEffort>,
    /// What the thread is to the exclusive core, if there is one and it has to do with it.
    pub(super) tenure: Option<Tenure>,
}

/// What a thread is to an exclusive core.
#[derive(Clone, Debug)]
pub(super) enum Tenure {
    /// It works there.
    Occupant(ExclusiveCore),
    /// It has the core while that is lent.
    Lendee(ExclusiveCore),
}

/// What a thread says once it is in its place.
pub(super) struct Ready {
    obtained: Vec<Protection>,
    /// Where it runs, if it is a real-time thread now.
    real_time: Option<(CoreId, Tid)>,
}

/// One thread's side of the start: says what it obtained, then waits for the common start.
pub(super) struct ThreadStart {
    pub(super) place: ThreadPlace,
    pub(super) ready: Sender<Ready>,
    pub(super) go: Receiver<Time>,
}

impl ThreadStart {
    /// Places the calling thread, reports what was obtained, and waits for the start of the run. `None` where the run
    /// was called off.
    pub(super) fn start(self) -> Option<Started> {
        let ThreadPlace {
            role,
            core,
            priority,
            bounded,
            tenure,
        } = &self.place;
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
        Some(Started { at, _lendee: lendee })
    }
}

/// A thread in its place.
pub(super) struct Started {
    /// When the run starts.
    pub(super) at: Time,
    /// To be held for as long as the thread works.
    _lendee: Option<Lendee>,
}

/// The threads of a run, started together.
pub(super) struct ThreadGroup<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    ready: (Sender<Ready>, Receiver<Ready>),
    /// One for each thread that has not been let go yet.
    go: Vec<Sender<Time>>,
    /// Threads that have not said yet what they obtained.
    unready: usize,
    /// Of the threads in their places, the real-time ones.
    real_time: Vec<(CoreId, Tid)>,
}

impl<'scope, 'env> ThreadGroup<'scope, 'env> {
    pub(super) fn new(scope: &'scope Scope<'scope, 'env>) -> Self {
        ThreadGroup {
            scope,
            ready: channel(),
            go: Vec::new(),
            unready: 0,
            real_time: Vec::new(),
        }
    }

    pub(super) fn spawn<T: Send + 'scope>(
        &mut self,
        place: ThreadPlace,
        body: impl FnOnce(ThreadStart) -> T + Send + 'scope,
    ) -> Result<ScopedJoinHandle<'scope, T>, RuntimeError> {
        // For `top -H` and debuggers.
        let role = place.role.clone();
        let thread = std::thread::Builder::new().name(role.clone());
        let (go, gone) = channel();
        let thread_start = ThreadStart {
            place,
            ready: self.ready.0.clone(),
            go: gone,
        };
        let started = thread.spawn_scoped(self.scope, move || body(thread_start));
        let thread = started.map_err(|why| RuntimeError::Thread { role, why })?;
        self.go.push(go);
        self.unready += 1;
        Ok(thread)
    }

    /// Waits until every thread spawned so far is in its place; returns what those obtained that had not said so yet.
    pub(super) fn ready(&mut self) -> Vec<Protection> {
        let waiting = std::mem::take(&mut self.unready);
        let ready: Vec<Ready> = (0..waiting).filter_map(|_| self.ready.1.recv().ok()).collect();
        self.real_time.extend(ready.iter().filter_map(|ready| ready.real_time));
        ready.into_iter().flat_map(|ready| ready.obtained).collect()
    }

    /// The real-time threads that came to their places since the last time.
    pub(super) fn take_real_time(&mut self) -> Vec<(CoreId, Tid)> {
        std::mem::take(&mut self.real_time)
    }

    /// Lets every thread start at `start` that was spawned since the last time.
    pub(super) fn go(&mut self, start: Time) {
        for thread in self.go.drain(..) {
            // A thread that has panicked does not listen any more, and is found when it is joined.
            let _ = thread.send(start);
        }
    }
}

/// What a thread returned. A thread that panicked takes the run down with it.
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
