//! The threads that call a node's store.
//!
//! One executes and applies, because a store has one writer. Some answer queries, as many as the state machine was told
//! that there are. One copies and syncs, which may take long. What waits for them is bounded by the state machine: one
//! batch and one entry at a time, a sync and a copy for each peer, and a query for each executor, with those at which
//! the store still is though their time is over.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::{io, thread};

use punctual_federation::action::{Event, Ticket};
use punctual_federation::copying::IMAGE_BYTES_MAX;
use punctual_federation::entry::Entry;
use punctual_federation::ids::{BatchId, NodeId, Revision};
use punctual_federation::message::{Command, Key, Request};
use punctual_federation::replica::Replica;
use punctual_os::linux::thread::thread_cpu_time;
use punctual_os::{Os, Scheduling};
use punctual_store::StoreError;
use punctual_store::batch::Image;
use punctual_store::engine::Engine;
use punctual_units::{Clock, Nanos, Time};

/// As what queries run: what decides which of them are let in, and tells peers that the node lives, is woken before
/// them, and so is the one writer.
const QUERIES: Scheduling = Scheduling::Batch { nice: 5 };

/// Something that a node wants of its store.
#[derive(Debug)]
pub enum Task {
    /// `federation::action::Action::Execute`.
    Execute(BatchId, Revision, Vec<Request>),
    /// `federation::action::Action::Apply`.
    Apply(Revision, Arc<Entry>),
    /// `federation::action::Action::Query`.
    Query(Ticket, Vec<Key>, Nanos),
    /// `federation::action::Action::Look`.
    Look(Ticket, Command),
    /// `federation::action::Action::Sync`.
    Sync,
    /// `federation::action::Action::Copy`.
    Copy(NodeId, Option<Key>),
    /// `federation::action::Action::Install`.
    Install(Arc<Image>),
}

/// Why a task was not carried out. The node ends then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failed {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The call panicked; what it said is on standard error.
    #[error("a call of the store panicked, a defect of punctual: please report it with what is said above")]
    Panicked,
}

/// What came of a task.
#[derive(Debug)]
pub struct Done {
    /// What to tell the state machine.
    pub result: Result<Event, Failed>,
    /// When a thread began with it: until then it waited for that thread.
    pub begun: Time,
    /// When the thread had ended it.
    pub ended: Time,
}

fn carry_out<E: Engine, O: Os>(replica: &Replica<E, O>, each: Nanos, task: Task) -> Result<Event, StoreError> {
    Ok(match task {
        Task::Execute(batch, revision, requests) => {
            spend(Nanos(each.0.saturating_mul(requests.len() as u64)));
            Event::Executed(batch, replica.execute(revision, &requests)?)
        }
        Task::Apply(revision, entry) => {
            replica.apply(revision, &entry)?;
            Event::Applied(revision)
        }
        Task::Query(ticket, keys, max_age) => {
            spend(each);
            let (revision, values) = replica.query(&keys, max_age)?;
            Event::Queried(ticket, revision, values)
        }
        Task::Look(ticket, command) => {
            spend(each);
            let (revision, values) = replica.look(&command)?;
            Event::Queried(ticket, revision, values)
        }
        Task::Sync => Event::Synced(replica.sync()?),
        Task::Copy(peer, after) => {
            let image = replica.image_from(after.as_deref(), IMAGE_BYTES_MAX)?;
            Event::Copied(peer, Arc::new(image))
        }
        Task::Install(image) => {
            replica.install(&image)?;
            Event::Installed(image.revision, replica.reign()?)
        }
    })
}

/// Uses so much processor time of the calling thread.
fn spend(work: Nanos) {
    if work > Nanos::ZERO {
        let until = thread_cpu_time() + work;
        while thread_cpu_time() < until {
            std::hint::spin_loop();
        }
    }
}

/// The threads. They end when this is dropped, after what they have.
#[derive(Debug)]
pub struct Stores {
    writes: Option<Sender<Task>>,
    reads: Option<Sender<Task>>,
    slow: Option<Sender<Task>>,
    done: Receiver<Done>,
    threads: Vec<JoinHandle<()>>,
}

impl Stores {
    /// Starts the threads, with `executors` for queries; `wake` is called after each task. Each request takes `each` of
    /// its thread's processor time beside what it needs, so that a load can be stated for any machine.
    ///
    /// # Errors
    /// Those of the system.
    pub fn start<E: Engine + 'static, O: Os>(
        replica: &Arc<Replica<E, O>>,
        os: &O,
        executors: usize,
        each: Nanos,
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
                let carry_out = move |task| carry_out(&replica, each, task);
                let os = os.clone();
                threads.push(thread.spawn(move || {
                    if let Some(scheduling) = scheduling {
                        // Where it is refused, the thread has as much of a share as the others.
                        drop(os.set_scheduling(os.this_thread(), scheduling));
                    }
                    work(carry_out, &tasks, &told, &clock, &wake);
                })?);
            }
            io::Result::Ok(Some(send))
        };
        let (writes, reads, slow) = (
            lane("store-write", 1, None)?,
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

    /// Has a thread carry out a task.
    pub fn take(&self, task: Task) {
        let lane = match task {
            Task::Execute(..) | Task::Apply(..) | Task::Install(_) => &self.writes,
            Task::Query(..) | Task::Look(..) => &self.reads,
            Task::Sync | Task::Copy(..) => &self.slow,
        };
        // A thread ends before its lane does only where no loop takes what came of its tasks.
        drop(lane.as_ref().map(|lane| lane.send(task)));
    }

    /// What came of the next task that has ended.
    pub fn done(&self) -> Option<Done> {
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
    carry_out: impl Fn(Task) -> Result<Event, StoreError>,
    tasks: &Mutex<Receiver<Task>>,
    told: &Sender<Done>,
    clock: &impl Clock,
    wake: &impl Fn(),
) {
    loop {
        let task = tasks.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(task) = task else { return };
        // A node whose store is silent would beat on, and keep others from its place: a panic is told as a failure,
        // with which the node ends.
        let begun = clock.now();
        let result = catch_unwind(AssertUnwindSafe(|| carry_out(task)));
        let result = result.map_or(Err(Failed::Panicked), |done| done.map_err(Failed::Store));
        let ended = clock.now();
        if told.send(Done { result, begun, ended }).is_err() {
            return;
        }
        wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_and_the_thread_goes_on() {
        let (send, tasks) = channel();
        let (told, done) = channel();
        send.send(Task::Sync).unwrap();
        send.send(Task::Copy(NodeId(1), None)).unwrap();
        drop(send);
        let carry_out = |task| match task {
            Task::Sync => panic!("planted"),
            _ => Ok(Event::Synced(Revision(7))),
        };
        work(carry_out, &Mutex::new(tasks), &told, &punctual_os::LinuxOs, &|| {});
        let next = || done.recv().unwrap().result;
        assert!(matches!(next(), Err(Failed::Panicked)));
        assert!(matches!(next(), Ok(Event::Synced(Revision(7)))));
    }
}
