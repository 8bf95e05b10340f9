//! The operating system of one host: the world's clock, and threads whose turns the world calls, all on one thread.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use punctual_os::{Lock, Os, Park, Refusal, Scheduling, Thread, Tid, Turn, Wake};
use punctual_units::{Clock, Nanos, Time};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// The longest time from a wake-up to the turn of the thread.
const WAKE_UP_MAX: Nanos = Nanos::from_micros(80);

/// The world's clock.
#[derive(Clone, Debug, Default)]
pub struct WorldClock(Arc<AtomicU64>);

impl WorldClock {
    pub fn now(&self) -> Time {
        Time(self.0.load(Ordering::Relaxed))
    }

    /// Moves the clock to `now`; it never goes back.
    pub fn set(&self, now: Time) {
        self.0.fetch_max(now.0, Ordering::Relaxed);
    }
}

/// An operating system of one host.
#[derive(Clone)]
pub struct HostOs {
    clock: WorldClock,
    threads: Arc<Mutex<Vec<HostThread>>>,
    seed: Arc<AtomicU64>,
    /// Time that a turn takes which has done something, in nanoseconds; 0: it is drawn.
    slow: Arc<AtomicU64>,
}

struct HostThread {
    place: Arc<Place>,
    turn: Turn,
    /// When the next turn is, unless the thread is unparked before.
    due: Time,
    /// When its last turn ends; unparking does not shorten that.
    busy: Time,
}

impl HostOs {
    pub fn new(clock: &WorldClock, seed: u64) -> HostOs {
        HostOs {
            clock: clock.clone(),
            threads: Arc::default(),
            seed: Arc::new(AtomicU64::new(seed)),
            slow: Arc::default(),
        }
    }

    /// Has each turn that does something take this long.
    pub fn slow(&self, turn: Nanos) {
        self.slow.store(turn.0, Ordering::Relaxed);
    }

    fn threads(&self) -> MutexGuard<'_, Vec<HostThread>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the next thread is due; of one that was unparked, that is drawn.
    pub fn next_due(&self, random: &mut ChaCha8Rng) -> Time {
        let (now, mut next) = (self.clock.now(), Time::MAX);
        for thread in self.threads().iter_mut() {
            if thread.place.0.swap(false, Ordering::Relaxed) {
                let woken = now + Nanos(random.random_range(0..WAKE_UP_MAX.0));
                thread.due = thread.due.min(woken);
            }
            next = next.min(thread.due.max(thread.busy));
        }
        next
    }

    /// Calls the turns that are due, each once.
    pub fn turn(&self, random: &mut ChaCha8Rng) {
        let now = self.clock.now();
        // A turn may start another thread.
        let due: Vec<_> = self
            .threads()
            .extract_if(.., |thread| thread.due.max(thread.busy) <= now)
            .collect();
        for mut thread in due {
            if let Some(until) = (thread.turn)() {
                thread.due = until;
                if until == Time::ZERO {
                    thread.busy = now
                        + match self.slow.load(Ordering::Relaxed) {
                            0 => Nanos(random.random_range(1..WAKE_UP_MAX.0)),
                            slow => Nanos(slow),
                        };
                }
                self.threads().push(thread);
            }
        }
    }

    /// Forgets all threads, as the end of a process does.
    pub fn end(&self) {
        let threads = std::mem::take(&mut *self.threads());
        drop(threads);
    }
}

impl Clock for HostOs {
    fn now(&self) -> Time {
        self.clock.now()
    }
}

/// A place whose thread the world calls once it is unparked.
#[derive(Debug, Default)]
pub struct Place(AtomicBool);

impl Park for Place {
    /// Never waits: no other thread could unpark the only one.
    fn park_until(&self, _: Time) -> Wake {
        match self.0.swap(false, Ordering::Relaxed) {
            true => Wake::Woken,
            false => Wake::TimedOut,
        }
    }

    fn unpark(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A lock of the only thread.
#[derive(Debug, Default)]
pub struct OnlyLock<T>(Mutex<T>);

impl<T: Send> Lock<T> for OnlyLock<T> {
    type Guard<'l>
        = MutexGuard<'l, T>
    where
        Self: 'l;

    fn lock(&self) -> MutexGuard<'_, T> {
        self.0
            .try_lock()
            .unwrap_or_else(|_| panic!("the only thread waits for itself"))
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

impl Os for HostOs {
    type Lock<T: Send> = OnlyLock<T>;
    type Parker = Place;

    fn new_lock<T: Send>(&self, data: T) -> OnlyLock<T> {
        OnlyLock(Mutex::new(data))
    }

    fn new_parker(&self) -> Place {
        Place::default()
    }

    /// Returns at once: time passes between turns only.
    fn sleep_until(&self, _: Time) {}

    fn this_thread(&self) -> Tid {
        Tid(1)
    }

    fn scheduling(&self, _: Tid) -> Result<Scheduling, Refusal> {
        Ok(Scheduling::Other { nice: 0 })
    }

    fn set_scheduling(&self, _: Tid, _: Scheduling) -> Result<(), Refusal> {
        Ok(())
    }

    fn together(&self, threads: Vec<Thread<'_>>) {
        threads.into_iter().for_each(|thread| (thread.body)());
    }

    fn start(&self, _: &str, place: Arc<Place>, turn: Turn) -> io::Result<Option<JoinHandle<()>>> {
        let due = self.now();
        self.threads().push(HostThread {
            place,
            turn,
            due,
            busy: due,
        });
        Ok(None)
    }

    fn random(&self) -> u64 {
        self.seed.fetch_add(1, Ordering::Relaxed)
    }
}
