//! A job as its own code sees it: its deadline, the store, and the time spent so far by part.

use punctual_loop::JobRelease;
use punctual_os::LinuxOs;
use punctual_platform::linux::thread::thread_cpu_time;
use punctual_store::engine::Engine;
use punctual_store::permit::WaitedFor;
use punctual_store::{Deadline, ReadTransaction, Store, StoreError, WriteTransaction};
use punctual_units::{Clock, Nanos, TaskId, Time};
use punctual_workload::{JobOutcome, JobProgress, Split};

use super::shared::{JobEvent, RunState};
use super::tasks::TaskState;

/// A release of a task, passed to the task's closure.
///
/// Store calls through [`Job::read`] and [`Job::write`] carry the job's deadline and are timed; all other time counts
/// as computation.
pub struct Job<'r, E: Engine> {
    store: &'r Store<E, LinuxOs>,
    /// Receiver of checkpoints, and the task that they belong to; `None`: not reported.
    told: Option<(&'r RunState, TaskId, &'r TaskState)>,
    /// Start of the run.
    start: Time,
    number: u64,
    released: Time,
    deadline: Option<Nanos>,
    begun: Time,
    /// Number of events that the job serves; 0: time released it.
    events: u64,
    /// CPU time of the job's thread when the job began.
    cpu_before: Nanos,
    in_store: Split,
    /// The thread for which the job waited longest to write.
    waited_for: Option<WaitedFor>,
    /// Whether a checkpoint came as forecast, and was not reported.
    spared: bool,
}

impl<'r, E: Engine> Job<'r, E> {
    /// A job without a task, which begins now.
    pub fn begin(store: &'r Store<E, LinuxOs>, number: u64, released: Time, deadline: Option<Nanos>) -> Job<'r, E> {
        Job {
            store,
            told: None,
            start: released,
            number,
            released,
            deadline,
            begun: LinuxOs.now(),
            events: 0,
            cpu_before: thread_cpu_time(),
            in_store: Split::default(),
            waited_for: None,
            spared: false,
        }
    }

    /// Sets the start of the run. The job reports its begin where the clock falls between jobs, and checkpoints if the
    /// run paces jobs from within.
    pub(super) fn telling(
        self,
        shared: &'r RunState,
        (task, state): (TaskId, &'r TaskState),
        start: Time,
    ) -> Job<'r, E> {
        if let (true, Some(deadline)) = (shared.rests, self.deadline) {
            shared.job_events.put(JobEvent::Begun(JobRelease {
                task,
                job: self.number,
                released: self.released,
                deadline,
                pending: self.store.pending_updates(),
            }));
        }
        Job {
            start,
            told: shared.within().then_some((shared, task, state)),
            ..self
        }
    }

    /// Sets the number of events that released the job.
    pub(super) fn released_by(self, events: u64) -> Job<'r, E> {
        Job { events, ..self }
    }

    /// Number of events that the job serves: several if they came during the previous job, 0 if time released it, 1 if
    /// the source does not count.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Sets when the (first) event of this job really happened, for example by a device's time stamp on
    /// `CLOCK_MONOTONIC`: response time and deadline count from then, so the wake-up counts, too. An instant after the
    /// job's begin counts as the begin. Ignored for a job that time released.
    pub fn happened_at(&mut self, at: Time) {
        if self.events > 0 {
            self.released = at.min(self.begun);
        }
    }

    /// Number of the job within its task, from 0.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Instant at which the job was released.
    pub fn released(&self) -> Time {
        self.released
    }

    /// Time from the start of the run to the job's release.
    pub fn released_after(&self) -> Nanos {
        self.released.since(self.start)
    }

    /// When the job should be complete; [`Time::MAX`] for best-effort jobs.
    pub fn deadline(&self) -> Time {
        self.deadline.map_or(Time::MAX, |deadline| self.released + deadline)
    }

    /// Reports that the job has reached checkpoint `done` (from 1) of `of`, the last of which is its end; at most 64.
    /// Where jobs are paced from within, the clock is then set so that the rest of the job ends at the goal; otherwise,
    /// and in best-effort jobs, the call has no effect. All jobs of a task should have the same checkpoints, because
    /// the usual time between two of them is learnt.
    ///
    /// Never waits. Costs about as much as reading the clock, or as waking a thread where the checkpoint does not come
    /// when it was expected.
    pub fn progress(&mut self, done: u32, of: u32) {
        let (Some((shared, task, state)), Some(deadline)) = (self.told, self.deadline) else {
            return;
        };
        let at = JobProgress {
            task,
            job: self.number,
            released: self.released,
            deadline,
            at: LinuxOs.now(),
            done,
            of,
        };
        match state.expects(&at) {
            true => self.spared = true,
            false => shared.progress(at),
        }
    }

    /// The store, for calls that should not be timed.
    pub fn store(&self) -> &'r Store<E, LinuxOs> {
        self.store
    }

    /// Runs `body` on a snapshot of the store.
    ///
    /// # Errors
    /// The error of the store or of `body`.
    pub fn read<T>(
        &mut self,
        body: impl FnOnce(&mut ReadTransaction<'_, E, LinuxOs>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut transaction = self.store.read_transaction(self.soft_deadline())?;
        self.waited(transaction.waited_for());
        let result = body(&mut transaction);
        let split = transaction.finish();
        self.account(split, result)
    }

    /// Runs `body` in a write transaction and commits it.
    ///
    /// # Errors
    /// The error of the store or of `body`; nothing was written then.
    pub fn write<T>(
        &mut self,
        body: impl FnOnce(&mut WriteTransaction<'_, E, LinuxOs>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut transaction = match self.store.write_transaction(self.soft_deadline()) {
            Ok(transaction) => transaction,
            Err(error) => return Err(self.refused(error)),
        };
        self.waited(transaction.waited_for());
        match body(&mut transaction) {
            Ok(value) => {
                let split = transaction.commit()?;
                self.account(split, Ok(value))
            }
            Err(error) => {
                let split = transaction.abort();
                self.account(split, Err(error))
            }
        }
    }

    /// Orders the job among the writers; a late soft real-time job is still worth finishing.
    fn soft_deadline(&self) -> Deadline {
        self.deadline
            .map_or(Deadline::NONE, |_| Deadline::soft(self.deadline()))
    }

    /// Counts a wait for the lock that timed out as waiting for the lock.
    fn refused(&mut self, error: StoreError) -> StoreError {
        if let StoreError::LockTimeout { waited, holder } = &error {
            self.in_store.lock += *waited;
            self.waited(Some(holder.longest));
        }
        error
    }

    fn waited(&mut self, waited_for: Option<WaitedFor>) {
        let longest = |a: WaitedFor, b: WaitedFor| if b.held > a.held { b } else { a };
        self.waited_for = self.waited_for.into_iter().chain(waited_for).reduce(longest);
    }

    /// The thread for which the job waited longest to write.
    pub(super) fn waited_for(&self) -> Option<WaitedFor> {
        self.waited_for
    }

    /// Whether a checkpoint came as forecast, and was not reported.
    pub(super) fn spared(&self) -> bool {
        self.spared
    }

    fn account<T>(&mut self, split: Split, result: Result<T, StoreError>) -> Result<T, StoreError> {
        // The transaction's own computation belongs to the job, and is computed as the rest at the end.
        self.in_store += Split {
            computation: Nanos::ZERO,
            ..split
        };
        result
    }

    pub(super) fn end(self, task: TaskId) -> JobOutcome {
        let finished = LinuxOs.now();
        let cpu = thread_cpu_time().saturating_sub(self.cpu_before);
        let in_store = self.in_store.data_response();
        let split = Split {
            released_late: self.begun.since(self.released),
            computation: finished.since(self.begun).saturating_sub(in_store),
            ..self.in_store
        };
        JobOutcome {
            task,
            job: self.number,
            released: self.released,
            deadline: self.deadline,
            finished,
            split: split.preempting(cpu),
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_engines::Memory;
    use punctual_store::StoreOptions;

    use super::*;

    /// What reading two clocks one after the other may differ by.
    const APART: Nanos = Nanos::from_micros(500);

    fn outcome(body: impl FnOnce(&mut Job<'_, Memory>)) -> JobOutcome {
        let store = Store::open(Memory::default(), LinuxOs, StoreOptions::default()).unwrap();
        let mut job = Job::begin(&store, 0, LinuxOs.now(), Some(Nanos::from_secs(1)));
        body(&mut job);
        job.end(TaskId(0))
    }

    #[test]
    fn time_off_the_core_is_told_apart_from_work() {
        let slept = Nanos::from_millis(5);
        let asleep = outcome(|_| LinuxOs.sleep_until(LinuxOs.now() + slept));
        assert!(asleep.split.preempted + APART >= slept, "{asleep:?}");
        assert_eq!(asleep.split.response(), asleep.response());

        let worked = Nanos::from_millis(2);
        let busy = outcome(|_| {
            let before = thread_cpu_time();
            while thread_cpu_time().saturating_sub(before) < worked {}
        });
        // However often other threads had the core meanwhile.
        assert!(busy.split.computation + APART >= worked, "{busy:?}");
        assert_eq!(busy.split.response(), busy.response());
    }
}
