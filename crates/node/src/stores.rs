//! The threads that call a node's store.
//!
//! One thread executes and applies, because a store has one writer. As many threads as the state machine was configured
//! with (executors) answer queries. One thread copies and syncs, which may take long. The state machine bounds the
//! tasks that wait for them: one batch and one entry at a time, a sync and a copy for each peer, and a query for each
//! executor, beside overdue queries that are still in the store.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::{io, thread};

use punctual_federation::action::{Action, Event};
use punctual_federation::copying::IMAGE_BYTES_MAX;
use punctual_federation::replica::Replica;
use punctual_os::linux::thread::thread_cpu_time;
use punctual_os::{Lock, Os, Park, Scheduling};
use punctual_server::net::Waker;
use punctual_store::StoreError;
use punctual_store::engine::Engine;
use punctual_units::{Clock, Nanos, Time};

/// Scheduling of query threads: lower than the event loop, which admits queries and sends heartbeats to peers, and
/// lower than the one writer.
const QUERIES: Scheduling = Scheduling::Batch { nice: 5 };

/// Scheduling of the writer, for which all transactions wait: a larger share than ordinary threads.
const WRITES: Scheduling = Scheduling::Other { nice: -10 };

/// Reason for which a task failed; the node ends then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failed {
    /// The store returned an error.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The call panicked; its message is on standard error.
    #[error("a call of the store panicked, a defect of punctual: please report it with what is said above")]
    Panicked,
}

/// Result of a task.
#[derive(Debug)]
pub struct TaskResult {
    /// The event for the state machine, or the failure.
    pub result: Result<Event, Failed>,
    /// When a thread began the task; before, the task waited for the thread.
    pub begun: Time,
    /// When the thread had finished the task.
    pub ended: Time,
}

/// Carries out an action of the store; no other one gets here.
fn carry_out<E: Engine, O: Os>(replica: &Replica<E, O>, extra: ExtraCost, task: Action) -> Result<Event, StoreError> {
    Ok(match task {
        Action::Execute(batch, revision, requests) => {
            spend(Nanos(extra.each.0.saturating_mul(requests.len() as u64)));
            Event::Executed(batch, replica.execute(revision, &requests)?)
        }
        Action::Apply(revision, entry) => {
            replica.apply(revision, &entry)?;
            Event::Applied(revision)
        }
        Action::Query(ticket, keys, max_age) => {
            extra.of_query(keys.len());
            let (revision, values) = replica.query(&keys, max_age)?;
            Event::Queried(ticket, revision, values)
        }
        Action::Look(ticket, command) => {
            extra.of_query(command.items as usize);
            let (revision, values) = replica.look(&command)?;
            Event::Queried(ticket, revision, values)
        }
        Action::Sync => Event::Synced(replica.sync()?),
        Action::Copy(peer, after) => {
            let image = replica.image_from(after.as_deref(), IMAGE_BYTES_MAX)?;
            Event::Copied(peer, Arc::new(image))
        }
        Action::Install(image) => {
            replica.install(&image)?;
            Event::Installed(image.revision, replica.reign()?)
        }
        _ => Event::Wake,
    })
}

/// Cost of requests beside what they need, so that a load can be stated for any machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtraCost {
    /// Processor time of each request.
    pub each: Nanos,
    /// Time for which each item of a query keeps its thread without the processor: several nodes of one machine then
    /// serve as if each had a machine of its own.
    pub item: Nanos,
}

impl ExtraCost {
    fn of_query(self, items: usize) {
        spend(self.each);
        if self.item > Nanos::ZERO {
            thread::sleep(Nanos(self.item.0.saturating_mul(items as u64)).into());
        }
    }
}

/// Burns `work` of the calling thread's processor time.
fn spend(work: Nanos) {
    if work > Nanos::ZERO {
        let until = thread_cpu_time() + work;
        while thread_cpu_time() < until {
            std::hint::spin_loop();
        }
    }
}

/// Tasks of one kind, and the threads that carry them out.
struct Lane<O: Os> {
    /// Inherits priorities: threads of a smaller share hold it while the event loop waits for it.
    state: O::Lock<LaneState>,
    /// Where each thread waits.
    places: Vec<Arc<O::Parker>>,
}

#[derive(Default)]
struct LaneState {
    tasks: VecDeque<Action>,
    /// Threads without work, by number.
    idle: Vec<usize>,
    ends: bool,
}

impl<O: Os> Lane<O> {
    fn new(os: &O, threads: usize) -> Arc<Lane<O>> {
        Arc::new(Lane {
            state: os.new_lock(LaneState::default()),
            places: (0..threads).map(|_| Arc::new(os.new_parker())).collect(),
        })
    }

    fn push(&self, task: Action) {
        let mut state = self.state.lock();
        state.tasks.push_back(task);
        let idle = state.idle.pop();
        drop(state);
        idle.into_iter().for_each(|thread| self.places[thread].unpark());
    }

    /// Takes the next task for thread `me`; without one, the thread is idle now, or ends.
    fn next(&self, me: usize) -> Result<Action, Option<Time>> {
        let mut state = self.state.lock();
        if let Some(task) = state.tasks.pop_front() {
            return Ok(task);
        }
        if !state.idle.contains(&me) {
            state.idle.push(me);
        }
        Err((!state.ends).then_some(Time::MAX))
    }
}

/// The threads; dropping this ends them, each after the tasks that wait.
pub struct Stores<O: Os> {
    /// For writes, reads and slow tasks.
    lanes: [Arc<Lane<O>>; 3],
    done: Receiver<TaskResult>,
    threads: Vec<JoinHandle<()>>,
}

impl<O: Os> Stores<O> {
    /// Starts the threads, `executors` of them for queries; `wake` is called after each task. Requests have an `extra`
    /// cost.
    ///
    /// # Errors
    /// The system refuses to start a thread.
    pub fn start<E: Engine + 'static>(
        replica: &Arc<Replica<E, O>>,
        os: &O,
        executors: usize,
        extra: ExtraCost,
        wake: &Waker,
    ) -> io::Result<Stores<O>> {
        let replica = Arc::clone(replica);
        Stores::carrying(os, executors, wake, move |task| carry_out(&replica, extra, task))
    }

    fn carrying(
        os: &O,
        executors: usize,
        wake: &Waker,
        carry_out: impl Fn(Action) -> Result<Event, StoreError> + Clone + Send + 'static,
    ) -> io::Result<Stores<O>> {
        let (told, done) = channel();
        // Before the first thread, so that those that run end if another one is refused.
        let mut stores = Stores {
            lanes: [1, executors, 1].map(|threads| Lane::new(os, threads)),
            done,
            threads: Vec::new(),
        };
        let kinds = [
            ("store-write", Some(WRITES)),
            ("store-read", Some(QUERIES)),
            ("store-slow", None),
        ];
        for (lane, (name, scheduling)) in stores.lanes.iter().zip(kinds) {
            for (me, place) in lane.places.iter().enumerate() {
                let (carry_out, told, wake) = (carry_out.clone(), told.clone(), Arc::clone(wake));
                let (clock, lane, mut scheduling) = (os.clone(), Arc::clone(lane), scheduling);
                let turn = move || {
                    if let Some(scheduling) = scheduling.take() {
                        // If that is refused, the thread has the same share as the others.
                        drop(clock.set_scheduling(clock.this_thread(), scheduling));
                    }
                    match lane.next(me) {
                        Ok(task) => {
                            told.send(work(&carry_out, task, &clock)).ok()?;
                            wake();
                            Some(Time::ZERO)
                        }
                        Err(rest) => rest,
                    }
                };
                stores
                    .threads
                    .extend(os.start(name, Arc::clone(place), Box::new(turn))?);
            }
        }
        Ok(stores)
    }

    /// Queues an action of the store for the thread of its kind; ignores others.
    pub fn take(&self, task: Action) {
        let [writes, reads, slow] = &self.lanes;
        match task {
            Action::Execute(..) | Action::Apply(..) | Action::Install(_) => writes.push(task),
            Action::Query(..) | Action::Look(..) => reads.push(task),
            Action::Sync | Action::Copy(..) => slow.push(task),
            _ => {}
        }
    }

    /// Returns the next result, if a task has ended.
    pub fn done(&self) -> Option<TaskResult> {
        self.done.try_recv().ok()
    }
}

impl<O: Os> Drop for Stores<O> {
    fn drop(&mut self) {
        for lane in &self.lanes {
            lane.state.lock().ends = true;
            lane.places.iter().for_each(|place| place.unpark());
        }
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Carries out a task. A node whose store is silent would go on with its heartbeats, and keep other nodes from taking
/// its place. So a panic is returned as a failure, which ends the node.
fn work(carry_out: impl Fn(Action) -> Result<Event, StoreError>, task: Action, clock: &impl Clock) -> TaskResult {
    let begun = clock.now();
    let result = catch_unwind(AssertUnwindSafe(|| carry_out(task)));
    let result = result.map_or(Err(Failed::Panicked), |done| done.map_err(Failed::Store));
    let ended = clock.now();
    TaskResult { result, begun, ended }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use punctual_federation::ids::{NodeId, Revision};
    use punctual_os::LinuxOs;
    use punctual_testing::WAIT_MAX;

    use super::*;

    #[test]
    fn a_panic_is_told_and_waiting_tasks_are_carried_out_at_the_end() {
        let copied = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&copied);
        let carry_out = move |task| match task {
            Action::Sync => panic!("planted"),
            _ => Ok(Event::Synced(Revision(count.fetch_add(1, Ordering::SeqCst)))),
        };
        let (woken, wakes) = channel();
        let wake: Waker = Arc::new(move || _ = woken.send(()));
        let stores = Stores::carrying(&LinuxOs, 2, &wake, carry_out).unwrap();
        let result = |task| {
            stores.take(task);
            wakes.recv_timeout(WAIT_MAX).expect("a wake-up");
            stores.done().expect("a result").result
        };
        for round in 0..2 {
            assert!(matches!(result(Action::Sync), Err(Failed::Panicked)));
            let copy = result(Action::Copy(NodeId(1), None));
            assert!(matches!(copy, Ok(Event::Synced(Revision(at))) if at == 2 * round));
            let query = result(Action::Query(1, Vec::new(), Nanos::ZERO));
            assert!(matches!(query, Ok(Event::Synced(Revision(at))) if at == 2 * round + 1));
        }
        (0..1000).for_each(|peer| stores.take(Action::Copy(NodeId(peer), None)));
        drop(stores);
        assert_eq!(copied.load(Ordering::SeqCst), 1004);
    }
}
