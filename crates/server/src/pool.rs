//! The threads that call the store.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use punctual_os::{Lock, Os, Park};
use punctual_store::engine::Engine;
use punctual_store::watch::{Change, Watched as WatchedKeys};
use punctual_store::{Store, StoreError};
use punctual_units::{Nanos, ObjectId, Time};

use crate::cursors::Cursors;
use crate::forecast::{Ahead, TOGETHER, reserve};
use crate::queue::{Lane, Open, Queue};
use crate::work::{Counts, Done, Job, Spent, TAKEN_MAX, Temporal, Worker};

/// The most changes that wait to be told. What does not fit is counted by the store's watch.
const CHANGES_MAX: usize = 4096;
/// How long a thread waits that has nothing else to do before it looks whether the server ends.
const LOOK_EVERY: Nanos = Nanos::from_millis(100);
/// How often records that are due are looked for where no thread writes.
const SWEEP_EVERY: Nanos = Nanos::from_secs(1);

/// A change of a key that is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A record was set.
    Set(Vec<u8>),
    /// A record was removed.
    Removed(Vec<u8>),
    /// A temporal object has got a value.
    Updated(Vec<u8>),
    /// So many were missed.
    Missed(u64),
}

/// What the pool and the event loop share.
pub struct Shared<E: Engine, O: Os> {
    pub store: Arc<Store<E, O>>,
    pub os: O,
    pub counts: Counts,
    pub cursors: Cursors,
    temporal: Temporal,
    state: O::Lock<State>,
    /// One for each thread.
    parkers: Vec<O::Parker>,
    done: O::Lock<Vec<Done>>,
    told: O::Lock<Vec<Told>>,
    stopping: AtomicBool,
    /// A thread of the pool has panicked: the server ends.
    failed: AtomicBool,
    /// One TSET at a time looks whether its value is the newest, and installs it.
    newest: O::Lock<()>,
    /// The thread that hears of changes, once a connection wants to.
    listener: Mutex<Option<JoinHandle<()>>>,
    /// Temporal objects by key, for figures.
    objects: Mutex<Vec<(Vec<u8>, ObjectId)>>,
    /// Why the keeper could not write temporal objects, last time.
    pub trouble: Mutex<Option<String>>,
    /// Wakes the event loop.
    wake: Box<dyn Fn() + Send + Sync>,
}

struct State {
    /// Each with what it is forecast to take.
    queue: Queue<(Job, Nanos)>,
    /// By lane.
    ahead: [Ahead; 2],
    /// Whether a thread has work that may write.
    writing: bool,
    /// Threads without work.
    idle: Vec<usize>,
}

impl State {
    /// The next work, and what it is forecast to take.
    fn pop(&mut self, open: Open) -> Option<(Job, Nanos)> {
        let (job, cost) = self.queue.pop(open)?;
        self.ahead[job.work.lane() as usize].remove(job.work.deadline(), cost);
        Some((job, cost))
    }
}

/// How a pool is made.
pub struct PoolOptions {
    pub threads: usize,
    /// The most pieces of work that wait.
    pub queue_max: usize,
    pub temporal: Temporal,
    /// The temporal objects that there are.
    pub objects: Vec<Vec<u8>>,
}

/// The threads.
pub struct Pool(Vec<JoinHandle<()>>);

/// Tells of a panic of the thread that has it.
struct Watchman<'s, E: Engine, O: Os>(&'s Shared<E, O>);

impl<E: Engine, O: Os> Drop for Watchman<'_, E, O> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.failed.store(true, Ordering::SeqCst);
            (self.0.wake)();
        }
    }
}

impl<E: Engine + 'static, O: Os> Shared<E, O> {
    /// Starts the threads.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub fn start(
        store: Arc<Store<E, O>>,
        options: &PoolOptions,
        wake: Box<dyn Fn() + Send + Sync>,
    ) -> std::io::Result<(Arc<Shared<E, O>>, Pool)> {
        let os = store.os().clone();
        let shared = Arc::new(Shared {
            state: os.new_lock(State {
                queue: Queue::new(options.queue_max),
                ahead: Default::default(),
                writing: false,
                idle: Vec::with_capacity(options.threads),
            }),
            parkers: (0..=options.threads).map(|_| os.new_parker()).collect(),
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
            store,
            os,
            wake,
        });
        let mut threads = Vec::new();
        for me in 0..options.threads {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name(format!("serve-{me}"));
            threads.push(thread.spawn(move || shared.work(me))?);
        }
        let keeper = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("serve-keeper".into());
        threads.push(thread.spawn(move || keeper.keep())?);
        Ok((shared, Pool(threads)))
    }

    /// Queues work; what does not fit, or cannot end in time, is given back, with the time after which it may.
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
                // What has a command without a deadline is never late as a whole.
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

    /// How many threads carry out work.
    fn threads(&self) -> usize {
        (self.parkers.len() - 1).max(1)
    }

    /// All temporal objects that are known by their keys.
    pub fn objects(&self) -> Vec<(Vec<u8>, ObjectId)> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How much work waits.
    pub fn waiting(&self) -> usize {
        self.state.lock().queue.len()
    }

    /// What was done since the last call.
    pub fn take_done(&self, done: &mut Vec<Done>) {
        std::mem::swap(&mut *self.done.lock(), done);
    }

    /// What was told since the last call.
    pub fn take_told(&self) -> Vec<Told> {
        std::mem::take(&mut *self.told.lock())
    }

    /// Has all threads end: each after the command that it has in the store. What waits is forgotten.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        while let Some(job) = self.state.lock().pop(Open::Both) {
            drop(job); // not while the lock is held, because arguments take up to 32 MiB
        }
        self.parkers.iter().for_each(Park::unpark);
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Whether a thread of the pool has panicked. What it had begun is undone and not answered, and whether it has the
    /// one lane of writes is not known: no more can be promised to any client.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    fn work(self: &Arc<Self>, me: usize) {
        let _watch = Watchman(self);
        let worker = Worker {
            store: &*self.store,
            cursors: &self.cursors,
            counts: &self.counts,
            temporal: self.temporal,
            newest: &self.newest,
            ending: &self.stopping,
            listen: &|| self.listen(),
            made: &|key, object| {
                let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
                objects.push((key.to_vec(), object));
            },
            spent: Spent::default(),
        };
        let mut done = Vec::new();
        loop {
            let Some((jobs, lane, is_alone)) = self.take(me) else {
                if self.is_stopping() {
                    return;
                }
                self.parkers[me].park_until(Time::MAX);
                continue;
            };
            worker.spent.is_alone.set(is_alone);
            worker.carry_out(jobs, &mut done);
            if lane == Lane::Write {
                let taken = worker.spent.taken();
                self.counts.costs.learn_turn(self.os.now().since(taken));
                self.state.lock().writing = false;
            }
            let mut all = self.done.lock();
            let was_empty = all.is_empty();
            all.append(&mut done);
            drop(all);
            if was_empty {
                (self.wake)();
            }
        }
    }

    /// The next work for thread `me`, more of its kind, and whether no other work waited; else the thread counts as
    /// idle.
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
        // Writers share a commit. Readers leave some to the other threads.
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

    /// Writes temporal objects to the engine, and removes what is due.
    fn keep(&self) {
        let _watch = Watchman(self);
        let parker = &self.parkers[self.parkers.len() - 1];
        let interval = self.store.group_interval().unwrap_or(LOOK_EVERY);
        let mut swept = self.os.now();
        while !self.is_stopping() {
            parker.park_until(self.os.now() + interval);
            let mut kept = Ok(());
            if self.store.objects() > 0 {
                kept = self.store.commit_group().map(drop);
            }
            if self.os.now().since(swept) >= SWEEP_EVERY {
                kept = kept.and_then(|()| self.store.sweep_expired().map(drop));
                swept = self.os.now();
            }
            if let Err(error) = kept {
                self.note_trouble(&error.to_string());
            }
        }
    }

    fn note_trouble(&self, error: &str) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_owned());
    }

    /// Has changes told from now on.
    fn listen(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if listener.is_some() {
            return Ok(());
        }
        let mut watch = self.store.watch(WatchedKeys::Prefix(b""), CHANGES_MAX)?;
        let shared = Arc::clone(self);
        let hear = move || {
            let _watch = Watchman(&*shared);
            while !shared.is_stopping() {
                let told = match watch.wait(shared.os.now() + LOOK_EVERY) {
                    None => continue,
                    Some(Change::Put { key }) => Told::Set(key.to_vec()),
                    Some(Change::Deleted { key }) => Told::Removed(key.to_vec()),
                    Some(Change::Updated { key, .. }) => Told::Updated(key.to_vec()),
                    Some(Change::Missed { changes }) => Told::Missed(changes),
                };
                // The event loop is behind: so is this thread, and the watch counts what it misses.
                while shared.told.lock().len() >= CHANGES_MAX && !shared.is_stopping() {
                    shared.os.sleep(Nanos::from_millis(1));
                }
                let mut all = shared.told.lock();
                let was_empty = all.is_empty();
                all.push(told);
                drop(all);
                if was_empty {
                    (shared.wake)();
                }
            }
        };
        let thread = std::thread::Builder::new().name("serve-listener".into());
        match thread.spawn(hear) {
            Ok(thread) => *listener = Some(thread),
            Err(error) => self.note_trouble(&error.to_string()),
        }
        Ok(())
    }

    /// Waits for all threads, after [`stop`](Shared::stop).
    pub fn join(&self, pool: Pool) {
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
        for thread in pool.0.into_iter().chain(listener) {
            // A thread that panicked has said so; the others end in order all the same.
            drop(thread.join());
        }
    }
}
