//! What the threads of a run share, and how each of them starts and stops.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Scope, ScopedJoinHandle};

use crossbeam_channel::{Receiver, Sender, unbounded};
use punctual_platform::Refusal;
use punctual_platform::linux::BestEffort;
use punctual_platform::linux::exclusive::ExclusiveCore;
use punctual_platform::linux::sync::Parker;
use punctual_platform::linux::thread::{self, Tid};
use punctual_units::{CoreId, Share, Time};
use punctual_workload::{JobOutcome, JobProgress};

use super::mailbox::Mailbox;
use crate::error::RuntimeError;
use crate::report::Protection;

/// Outcomes and checkpoints that may wait for the control thread: more than a second of the busiest scenario's jobs.
const TIDINGS_MAX: usize = 4096;

/// What a job tells the control thread.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tidings {
    /// It has come to a checkpoint.
    Progress(JobProgress),
    /// It is complete.
    Outcome(JobOutcome),
}

/// What the threads of a run share.
#[derive(Debug)]
pub(super) struct Shared {
    stop: AtomicBool,
    admitted: AtomicU64,
    rebalance: AtomicBool,
    skipped: AtomicU64,
    unreported: AtomicU64,
    /// Whether checkpoints are of interest.
    within: bool,
    /// For the control thread.
    pub(super) tidings: Mailbox<Tidings>,
    /// Wakes the thread that installs sensor updates.
    pub(super) updates: Parker,
    /// Set once no more updates will be offered.
    pub(super) feed_over: AtomicBool,
}

impl Shared {
    pub(super) fn new(admitted: Share, within: bool) -> Shared {
        Shared {
            stop: AtomicBool::new(false),
            admitted: AtomicU64::new(admitted.get().to_bits()),
            rebalance: AtomicBool::new(false),
            skipped: AtomicU64::new(0),
            unreported: AtomicU64::new(0),
            within,
            tidings: Mailbox::new(TIDINGS_MAX),
            updates: Parker::new(),
            feed_over: AtomicBool::new(false),
        }
    }

    /// Whether the run is to end.
    pub(super) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.updates.unpark();
    }

    pub(super) fn set_admitted(&self, share: Share) {
        self.admitted.store(share.get().to_bits(), Ordering::Release);
        self.rebalance.store(true, Ordering::Release);
    }

    pub(super) fn admitted(&self) -> Share {
        Share::clamped(f64::from_bits(self.admitted.load(Ordering::Acquire)))
    }

    /// Whether a control period has ended since the last call.
    pub(super) fn rebalance_due(&self) -> bool {
        self.rebalance.swap(false, Ordering::AcqRel)
    }

    /// Hands an outcome to the control thread without ever waiting for it: a transaction never waits for the
    /// controller. Where the mailbox is full the outcome is counted instead.
    pub(super) fn report(&self, outcome: JobOutcome) {
        if !self.tidings.put(Tidings::Outcome(outcome)) {
            self.unreported.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether jobs are to tell their checkpoints.
    pub(super) fn within(&self) -> bool {
        self.within
    }

    /// Hands a checkpoint to the control thread, likewise without waiting. The next one makes up for one that is lost.
    pub(super) fn progress(&self, progress: JobProgress) {
        self.tidings.put(Tidings::Progress(progress));
    }

    pub(super) fn skip(&self, jobs: u64) {
        self.skipped.fetch_add(jobs, Ordering::Relaxed);
    }

    /// Releases that were dropped since the last call.
    pub(super) fn take_skipped(&self) -> u64 {
        self.skipped.swap(0, Ordering::Relaxed)
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
    /// It gets the core lent, beside all others.
    Guest(ExclusiveCore),
}

/// One thread's side of the start: says what it obtained, then waits for the common start.
pub(super) struct Starter {
    pub(super) place: ThreadPlace,
    pub(super) ready: Sender<Vec<Protection>>,
    pub(super) go: Receiver<Time>,
}

impl Starter {
    /// Places the calling thread, reports what was obtained, and waits for the start of the run. None where the run
    /// was called off.
    pub(super) fn start(self) -> Option<Time> {
        let ThreadPlace {
            role,
            core,
            priority,
            bounded,
            tenure,
        } = &self.place;
        let mut obtained = vec![match tenure {
            None => protection(format!("{role}: on core {core}"), thread::pin(*core)),
            Some(Tenure::Occupant(exclusive)) => protection(
                format!("{role}: on core {core}, exclusively"),
                exclusive.enter(Tid::current()).and_then(|()| thread::pin(*core)),
            ),
            Some(Tenure::Guest(exclusive)) => protection(
                format!("{role}: off core {} but while it is lent", exclusive.obtained().core),
                exclusive.confine(Tid::current()),
            ),
        }];
        if let Some(priority) = priority {
            let what = format!("{role}: SCHED_FIFO {priority}");
            obtained.push(protection(what, thread::real_time(*priority)));
        }
        if let Some(group) = bounded {
            obtained.push(protection(
                format!("{role}: under the best-effort share"),
                group.adopt(Tid::current()),
            ));
        }
        self.ready.send(obtained).ok()?;
        self.go.recv().ok()
    }
}

/// The threads of a run, started together.
pub(super) struct Crew<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    ready: (Sender<Vec<Protection>>, Receiver<Vec<Protection>>),
    go: (Sender<Time>, Receiver<Time>),
    spawned: usize,
    reported: usize,
}

impl<'scope, 'env> Crew<'scope, 'env> {
    pub(super) fn new(scope: &'scope Scope<'scope, 'env>) -> Self {
        Crew {
            scope,
            ready: unbounded(),
            go: unbounded(),
            spawned: 0,
            reported: 0,
        }
    }

    pub(super) fn spawn<T: Send + 'scope>(
        &mut self,
        place: ThreadPlace,
        body: impl FnOnce(Starter) -> T + Send + 'scope,
    ) -> Result<ScopedJoinHandle<'scope, T>, RuntimeError> {
        // For `top -H` and debuggers.
        let role = place.role.clone();
        let thread = std::thread::Builder::new().name(role.clone());
        let starter = Starter {
            place,
            ready: self.ready.0.clone(),
            go: self.go.1.clone(),
        };
        let started = thread.spawn_scoped(self.scope, move || body(starter));
        let thread = started.map_err(|why| RuntimeError::Thread { role, why })?;
        self.spawned += 1;
        Ok(thread)
    }

    /// Waits until every thread spawned so far is in its place; returns what those obtained that had not said so yet.
    pub(super) fn ready(&mut self) -> Vec<Protection> {
        let waiting = self.spawned - std::mem::replace(&mut self.reported, self.spawned);
        (0..waiting)
            .filter_map(|_| self.ready.1.recv().ok())
            .flatten()
            .collect()
    }

    /// Lets every thread start at `start`.
    pub(super) fn go(self, start: Time) {
        for _ in 0..self.spawned {
            // The receiver lives in `self`.
            let _ = self.go.0.send(start);
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
    }
}
