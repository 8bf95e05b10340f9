//! The pool of threads that call the store, its queue, and the threads beside it that store values and report changes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use punctual_os::{Lock, Os, Park};
use punctual_store::engine::Engine;
use punctual_store::watch::WatchTarget as WatchedKeys;
use punctual_store::{Store, StoreError};
use punctual_units::{Nanos, ObjectId, Time};

use crate::commands::events::{self, KeyNotice};
use crate::cursors::Cursors;
use crate::door::Asker;
use crate::forecast::{Ahead, TOGETHER, reserve};
use crate::net::Waker;
use crate::queue::{Lane, Open, Queue};
use crate::session::Call;
use crate::usage::{KeyCount, StoreFigures};
use crate::work::{Counts, Job, JobReply, TAKEN_MAX, Temporal, Worker};

/// The most changes that wait for the event loop; the store's watch counts those beyond as missed.
const CHANGES_MAX: usize = 4096;
/// How long the thread that reports changes rests while there is none, or no room for one.
const BEHIND_WAIT: Nanos = Nanos::from_millis(1);
/// How often an idle thread looks whether the server ends.
const LOOK_EVERY: Nanos = Nanos::from_millis(100);

/// State that the pool and the event loop share.
pub struct PoolState<E: Engine, O: Os> {
    pub store: Arc<Store<E, O>>,
    pub os: O,
    pub counts: Counts,
    pub cursors: Cursors,
    pub(crate) temporal: Temporal,
    state: O::Lock<State>,
    /// The parker of each thread of the pool, and last the keeper's.
    parkers: Vec<Arc<O::Parker>>,
    done: O::Lock<Vec<JobReply>>,
    told: O::Lock<Vec<KeyNotice>>,
    stopping: AtomicBool,
    /// Whether a thread of the pool has panicked; then the server ends.
    failed: AtomicBool,
    /// Lock around "is this value the newest?" and its installation, for TSET.
    pub(crate) newest: O::Lock<()>,
    /// The thread that reports changes of keys, once a connection subscribes to them.
    listener: Mutex<Option<Option<JoinHandle<()>>>>,
    /// Temporal objects by key, for figures.
    objects: Mutex<Vec<(Vec<u8>, ObjectId)>>,
    /// Why the keeper last failed to write temporal objects or to remove expired records.
    pub trouble: Mutex<Option<String>>,
    /// Figures of the store that the keeper has looked for.
    pub usage: Mutex<StoreFigures>,
    /// Wakes the event loop.
    wake: Waker,
}

struct State {
    /// Jobs, each with the time that it is forecast to take.
    queue: Queue<(Job, Nanos)>,
    /// Work that waits, by lane.
    ahead: [Ahead; 2],
    /// Whether a thread has taken jobs of the lane for writes.
    writing: bool,
    /// Threads without work, by number.
    idle: Vec<usize>,
}

impl State {
    /// Takes the next job, with its forecast time.
    fn pop(&mut self, open: Open) -> Option<(Job, Nanos)> {
        let (job, cost) = self.queue.pop(open)?;
        self.ahead[job.work.lane() as usize].remove(job.work.deadline(), cost);
        Some((job, cost))
    }
}

/// Settings of a pool.
pub struct PoolOptions {
    pub threads: usize,
    /// The most jobs that wait.
    pub queue_max: usize,
    pub temporal: Temporal,
    /// Keys of the temporal objects that the store has already.
    pub objects: Vec<Vec<u8>>,
}

pub struct Pool(Vec<JoinHandle<()>>);

/// Reports a panic of the thread that owns it: sets `failed` and wakes the event loop.
struct Watchman<'s, E: Engine, O: Os>(&'s PoolState<E, O>);

impl<E: Engine, O: Os> Drop for Watchman<'_, E, O> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.failed.store(true, Ordering::SeqCst);
            (self.0.wake)();
        }
    }
}

impl<E: Engine + 'static, O: Os> PoolState<E, O> {
    /// Makes a pool without threads.
    pub fn new(store: Arc<Store<E, O>>, options: &PoolOptions, wake: Waker) -> PoolState<E, O> {
        let os = store.os().clone();
        PoolState {
            state: os.new_lock(State {
                queue: Queue::new(options.queue_max),
                ahead: Default::default(),
                writing: false,
                idle: Vec::with_capacity(options.threads),
            }),
            parkers: (0..=options.threads).map(|_| Arc::new(os.new_parker())).collect(),
            done: os.new_lock(Vec::new()),
            told: os.new_lock(Vec::new()),
            counts: Counts::default(),
            cursors: Cursors::default(),
            temporal: options.temporal,
            stopping: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            newest: os.new_lock(()),
            listener: Mutex::new(None),
            objects: Mutex::new(
                options
                    .objects
                    .iter()
                    .filter_map(|key| Some((key.clone(), store.object(key)?)))
                    .collect(),
            ),
            trouble: Mutex::new(None),
            usage: Mutex::default(),
            store,
            os,
            wake,
        }
    }

    /// Starts the threads of the pool and the keeper.
    ///
    /// # Errors
    /// The system refuses to start a thread.
    pub fn start(
        store: Arc<Store<E, O>>,
        options: &PoolOptions,
        wake: Waker,
    ) -> std::io::Result<(Arc<PoolState<E, O>>, Pool)> {
        let shared = Arc::new(PoolState::new(store, options, wake));
        let (os, mut threads) = (shared.os.clone(), Vec::new());
        let mut start = |name: &str, me: usize, turn| {
            threads.extend(os.start(name, Arc::clone(&shared.parkers[me]), turn)?);
            std::io::Result::Ok(())
        };
        for me in 0..options.threads {
            let (pool, mut done) = (Arc::clone(&shared), Vec::new());
            let turn = Box::new(move || pool.work(me, &mut done));
            start(&format!("serve-{me}"), me, turn)?;
        }
        let (keeper, mut keys) = (Arc::clone(&shared), KeyCount::default());
        let turn = Box::new(move || keeper.keep(&mut keys));
        start("serve-keeper", options.threads, turn)?;
        Ok((shared, Pool(threads)))
    }

    /// Queues jobs. Returns those that do not fit or cannot end in time, each with the time after which to try again.
    pub fn submit(&self, jobs: &mut Vec<Job>) -> Vec<(Job, Nanos)> {
        let mut refused = Vec::new();
        let waited = Nanos(self.counts.waited.load(Ordering::Relaxed));
        let now = self.os.now();
        let mut state = self.state.lock();
        for job in jobs.drain(..) {
            let (lane, deadline) = (job.work.lane(), job.work.deadline());
            let cost = job.work.cost(&self.counts.costs, self.threads());
            if job.work.has_begun() {
                state.queue.push_again(lane, deadline, (job, cost));
            } else {
                // A job that holds a command without a deadline is never late as a whole.
                let last = job.work.last_deadline();
                let time = last.since(now).saturating_sub(reserve(last.since(now)));
                let time = time.saturating_sub(cost * self.threads() as u64);
                let ahead = &state.ahead[lane as usize];
                let before = ahead.before(deadline, time);
                if last < Time::MAX && before > time && before > Nanos::ZERO {
                    refused.push((job, ahead.before(deadline, Nanos::MAX).saturating_sub(time)));
                    continue;
                }
                if let Err((job, _)) = state.queue.push(lane, deadline, (job, cost)) {
                    refused.push((job, waited));
                    continue;
                }
            }
            state.ahead[lane as usize].add(deadline, cost);
        }
        let awake = state.idle.len().saturating_sub(state.queue.len());
        let woken = state.idle.split_off(awake);
        drop(state);
        woken.into_iter().for_each(|thread| self.parkers[thread].unpark());
        refused
    }

    /// Number of threads that carry out jobs; the keeper's parker does not count.
    fn threads(&self) -> usize {
        (self.parkers.len() - 1).max(1)
    }

    /// Temporal objects with their keys: those given at the start, and those that TSET has made.
    pub fn objects(&self) -> Vec<(Vec<u8>, ObjectId)> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Number of jobs that wait.
    pub fn waiting(&self) -> usize {
        self.state.lock().queue.len()
    }

    /// Takes all results since the last call, and puts them behind `done`.
    pub fn take_done(&self, done: &mut Vec<JobReply>) {
        done.append(&mut self.done.lock());
    }

    /// Takes all changes since the last call.
    pub fn take_told(&self) -> Vec<KeyNotice> {
        std::mem::take(&mut *self.told.lock())
    }

    /// Ends all threads, each after the command that it has in the store; drops the jobs that wait.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        while let Some(job) = self.state.lock().pop(Open::Both) {
            drop(job); // without the lock, because arguments take up to 32 MiB
        }
        self.parkers.iter().for_each(|parker| parker.unpark());
    }

    /// Whether the server ends; no further command begins then.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Whether a thread of the pool has panicked. Its commands are undone and never answered, and it may still hold the
    /// lane for writes: the server can promise nothing more to any client.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    /// Takes note of a temporal object that TSET has made.
    pub(crate) fn note_object(&self, key: &[u8], object: ObjectId) {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        objects.push((key.to_vec(), object));
    }

    /// Carries out commands that read on the present thread, and writes their replies. Returns those left over because
    /// replies are long.
    pub fn read_at_once(self: &Arc<Self>, asked: Vec<Call>, asker: &mut Asker<'_>) -> Vec<Call> {
        let client = (asker.handle(), asker.session.version);
        Worker::new(self).read_at_once(asked, client, &mut asker.link.out)
    }

    /// A turn of thread `me`: carries out jobs, or waits for some.
    fn work(self: &Arc<Self>, me: usize, done: &mut Vec<JobReply>) -> Option<Time> {
        let _watch = Watchman(&**self);
        let Some((jobs, lane, is_alone)) = self.take(me) else {
            return (!self.is_stopping()).then_some(Time::MAX);
        };
        let worker = Worker::new(self);
        worker.spent.is_alone.set(is_alone);
        worker.carry_out(jobs, done);
        if lane == Lane::Write {
            let taken = worker.spent.taken();
            self.counts.costs.learn_turn(self.os.now().since(taken));
            self.state.lock().writing = false;
        }
        let mut all = self.done.lock();
        let was_empty = all.is_empty();
        all.append(done);
        drop(all);
        if was_empty {
            (self.wake)();
        }
        Some(Time::ZERO)
    }

    /// Takes the next job for thread `me`, more of the same lane, and whether no other job waited; `None`: the thread
    /// is idle now.
    fn take(&self, me: usize) -> Option<(Vec<Job>, Lane, bool)> {
        let mut state = self.state.lock();
        let open = if state.writing {
            Open::Only(Lane::Read)
        } else {
            Open::Both
        };
        let Some((first, mut cost)) = state.pop(open) else {
            if !state.idle.contains(&me) {
                state.idle.push(me);
            }
            return None;
        };
        let lane = first.work.lane();
        state.writing |= lane == Lane::Write;
        let is_alone = state.queue.is_empty();
        let mut commands = first.work.commands();
        let mut jobs = vec![first];
        // Jobs that write share a commit. Jobs that read are shared out among the threads.
        let share = match lane {
            Lane::Write => usize::MAX,
            Lane::Read => state.queue.len() / self.threads(),
        };
        let together = Nanos(TOGETHER.0 / self.threads() as u64);
        while commands < TAKEN_MAX
            && jobs.len() <= share
            && (lane == Lane::Write || cost < together)
            && let Some((more, its_cost)) = state.pop(Open::Only(lane))
        {
            commands += more.work.commands();
            cost += its_cost;
            jobs.push(more);
        }
        Some((jobs, lane, is_alone))
    }

    /// Writes temporal objects to the engine, removes expired records, and looks for figures, every interval.
    fn keep(&self, keys: &mut KeyCount) -> Option<Time> {
        let _watch = Watchman(self);
        if self.is_stopping() {
            return None;
        }
        keys.renew(self);
        let mut kept = Ok(());
        if self.store.objects() > 0 {
            kept = self.store.commit_group().map(drop);
        }
        kept = kept.and_then(|()| self.store.sweep_expired().map(drop));
        if let Err(error) = kept {
            self.note_trouble(&error.to_string());
        }
        Some(self.os.now() + self.store.group_interval().unwrap_or(LOOK_EVERY))
    }

    fn note_trouble(&self, error: &str) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_owned());
    }

    /// Starts the thread that reports changes of keys, if it does not run yet.
    pub(crate) fn listen(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if listener.is_some() {
            return Ok(());
        }
        let mut watch = self.store.watch(WatchedKeys::Prefix(b""), CHANGES_MAX)?;
        let shared = Arc::clone(self);
        let hear = move || {
            let _watch = Watchman(&*shared);
            if shared.is_stopping() {
                return None;
            }
            // While the event loop is behind, this thread waits, and the watch counts the changes that it misses.
            if shared.told.lock().len() >= CHANGES_MAX {
                return Some(shared.os.now() + BEHIND_WAIT);
            }
            let until = shared.os.now() + LOOK_EVERY;
            let Some((change, label)) = watch.wait_labelled(until) else {
                // A thread that waited begins anew; where the system calls its turns, no turn waits.
                let now = shared.os.now();
                return Some(if now < until { now + BEHIND_WAIT } else { Time::ZERO });
            };
            let notices = events::of(&change, label);
            let mut all = shared.told.lock();
            let was_empty = all.is_empty();
            all.extend(notices);
            drop(all);
            if was_empty {
                (shared.wake)();
            }
            Some(Time::ZERO)
        };
        match self
            .os
            .start("serve-listener", Arc::new(self.os.new_parker()), Box::new(hear))
        {
            Ok(thread) => *listener = Some(thread),
            Err(error) => self.note_trouble(&error.to_string()),
        }
        Ok(())
    }

    /// Waits for all threads to end, after [`stop`](PoolState::stop).
    pub fn join(&self, pool: Pool) {
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
        for thread in pool.0.into_iter().chain(listener.flatten()) {
            // The panic of a thread was reported by its `Watchman`.
            drop(thread.join());
        }
    }
}
