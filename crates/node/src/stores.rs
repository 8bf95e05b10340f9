//! The threads that call a node's store.
//!
//! One thread executes and applies, because a store has one writer. As many threads as the state machine was configured
//! with (executors) answer queries. One thread copies and syncs, which may take long. The state machine bounds the
//! tasks that wait for them: one batch and one entry at a time, a sync and a copy for each peer, and a query for each
//! executor, beside overdue queries that are still in the store.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::{io, thread};

use punctual_federation::action::{Action, Event};
use punctual_federation::copying::IMAGE_BYTES_MAX;
use punctual_federation::replica::Replica;
use punctual_os::linux::thread::thread_cpu_time;
use punctual_os::{Os, Scheduling};
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

/// The threads; dropping this ends them, each after its present task.
#[derive(Debug)]
pub struct Stores {
    writes: Option<Sender<Action>>,
    reads: Option<Sender<Action>>,
    slow: Option<Sender<Action>>,
    done: Receiver<TaskResult>,
    threads: Vec<JoinHandle<()>>,
}

impl Stores {
    /// Starts the threads, `executors` of them for queries; `wake` is called after each task. Requests have an `extra`
    /// cost.
    ///
    /// # Errors
    /// The system refuses to start a thread.
    pub fn start<E: Engine + 'static, O: Os>(
        replica: &Arc<Replica<E, O>>,
        os: &O,
        executors: usize,
        extra: ExtraCost,
        wake: &(impl Fn() + Clone + Send + 'static),
    ) -> io::Result<Stores> {
        let (told, done) = channel();
        let mut threads = Vec::new();
        let mut lane = |name: &str, count: usize, scheduling: Option<Scheduling>| {
            let (send, tasks) = channel();
            let tasks = Arc::new(Mutex::new(tasks));
            for _ in 0..count {
                let (replica, tasks, told, wake) =
                    (Arc::clone(replica), Arc::clone(&tasks), told.clone(), wake.clone());
                let (thread, clock) = (thread::Builder::new().name(name.into()), os.clone());
                let carry_out = move |task| carry_out(&replica, extra, task);
                let os = os.clone();
                threads.push(thread.spawn(move || {
                    if let Some(scheduling) = scheduling {
                        // If that is refused, the thread has the same share as the others.
                        drop(os.set_scheduling(os.this_thread(), scheduling));
                    }
                    work(carry_out, &tasks, &told, &clock, &wake);
                })?);
            }
            io::Result::Ok(Some(send))
        };
        let (writes, reads, slow) = (
            lane("store-write", 1, Some(WRITES))?,
            lane("store-read", executors, Some(QUERIES))?,
            lane("store-slow", 1, None)?,
        );
        Ok(Stores {
            writes,
            reads,
            slow,
            done,
            threads,
        })
    }

    /// Queues an action of the store for the thread of its kind; ignores others.
    pub fn take(&self, task: Action) {
        let lane = match task {
            Action::Execute(..) | Action::Apply(..) | Action::Install(_) => &self.writes,
            Action::Query(..) | Action::Look(..) => &self.reads,
            Action::Sync | Action::Copy(..) => &self.slow,
            _ => return,
        };
        // The send fails only if the thread has ended because the loop takes no more results.
        if let Some(lane) = lane {
            drop(lane.send(task));
        }
    }

    /// Returns the next result, if a task has ended.
    pub fn done(&self) -> Option<TaskResult> {
        self.done.try_recv().ok()
    }
}

impl Drop for Stores {
    fn drop(&mut self) {
        (self.writes, self.reads, self.slow) = (None, None, None);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

fn work(
    carry_out: impl Fn(Action) -> Result<Event, StoreError>,
    tasks: &Mutex<Receiver<Action>>,
    told: &Sender<TaskResult>,
    clock: &impl Clock,
    wake: &impl Fn(),
) {
    loop {
        let task = tasks.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(task) = task else { return };
        // A node whose store is silent would go on with its heartbeats, and keep other nodes from taking its place. So
        // a panic is returned as a failure, which ends the node.
        let begun = clock.now();
        let result = catch_unwind(AssertUnwindSafe(|| carry_out(task)));
        let result = result.map_or(Err(Failed::Panicked), |done| done.map_err(Failed::Store));
        let ended = clock.now();
        if told.send(TaskResult { result, begun, ended }).is_err() {
            return;
        }
        wake();
    }
}

#[cfg(test)]
mod tests {
    use punctual_federation::ids::{NodeId, Revision};

    use super::*;

    #[test]
    fn a_panic_is_told_and_the_thread_goes_on() {
        let (send, tasks) = channel();
        let (told, done) = channel();
        send.send(Action::Sync).unwrap();
        send.send(Action::Copy(NodeId(1), None)).unwrap();
        drop(send);
        let carry_out = |task| match task {
            Action::Sync => panic!("planted"),
            _ => Ok(Event::Synced(Revision(7))),
        };
        work(carry_out, &Mutex::new(tasks), &told, &punctual_os::LinuxOs, &|| {});
        let next = || done.recv().unwrap().result;
        assert!(matches!(next(), Err(Failed::Panicked)));
        assert!(matches!(next(), Ok(Event::Synced(Revision(7)))));
    }
}
