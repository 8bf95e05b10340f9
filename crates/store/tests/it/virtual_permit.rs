//! The permit to write on virtual threads: thousands of histories, each of which a seed brings back.
//!
//! Time stands still while any thread could run. So a thread that asked for the permit at an earlier instant than now
//! has lined up, and what is due to it can be checked exactly.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use punctual_os::{Os, Park, Refusal, Scheduling, Thread, Tid, Wake};
use punctual_store::permit::{Denied, ORDINARY_EVERY, PermitQueue};
use punctual_testing::{VirtualLock, VirtualOs, VirtualParker, explore};
use punctual_units::{Clock, Nanos, Time};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const THREADS: u64 = 5;
const ROUNDS: usize = 6;

/// A thread that has asked and has no answer yet.
#[derive(Clone, Copy, Debug, PartialEq)]
struct WaitingThread {
    thread: u64,
    since: Time,
    until: Time,
    deadline: Time,
    rank: u8,
}

#[derive(Default)]
struct PermitState {
    /// The contender that holds the permit, its thread, and since when.
    inside: Option<(u64, Tid, Time)>,
    asking: Vec<WaitingThread>,
    granted: usize,
    denied: usize,
    /// How many of those denied were told of the holder that is known here.
    named: usize,
}

/// Contending threads, as `seed` tells; panics at the first thing that must not be.
fn contend<O: Os>(os: &O, seed: u64) -> PermitState {
    let queue = PermitQueue::new(os.clone());
    let seen = Mutex::new(PermitState::default());
    let contender = |thread: u64| {
        let (queue, seen) = (&queue, &seen);
        let mut choices = ChaCha8Rng::seed_from_u64(seed * THREADS + thread);
        Thread::new(format!("contender {thread}"), move || {
            let own = match choices.random_range(0..3) {
                0 => Scheduling::Other { nice: 0 },
                urgent => Scheduling::Fifo(10 * urgent),
            };
            os.set_scheduling(os.this_thread(), own).unwrap();
            for _ in 0..ROUNDS {
                os.sleep(Nanos(choices.random_range(0..60)));
                let until = match choices.random_range(0..3) {
                    0 => os.now() + Nanos(choices.random_range(0..100)),
                    _ => Time::MAX,
                };
                let asking = WaitingThread {
                    thread,
                    since: os.now(),
                    until,
                    deadline: Time(choices.random_range(0..5)),
                    rank: own.rank(),
                };
                hold(os, queue, seen, asking, Nanos(choices.random_range(0..40)));
                assert_eq!(
                    os.scheduling(os.this_thread()),
                    Ok(own),
                    "{asking:?}: its own priority is back"
                );
            }
        })
    };
    os.together((0..THREADS).map(contender).collect());
    assert!(queue.try_acquire(os.now()).is_some(), "it is free in the end");
    seen.into_inner().unwrap()
}

fn hold<O: Os>(os: &O, queue: &PermitQueue<O>, seen: &Mutex<PermitState>, asking: WaitingThread, span: Nanos) {
    seen.lock().unwrap().asking.push(asking);
    let answer = queue.acquire(asking.deadline, asking.until);
    let now = os.now();
    {
        let mut seen = seen.lock().unwrap();
        seen.asking.retain(|other| *other != asking);
        if answer.is_err() {
            seen.denied += 1;
            assert_eq!(
                now,
                asking.until.max(asking.since),
                "{asking:?} gave up when it said it would"
            );
            let Err(Denied::TimedOut(held_by)) = answer.map(drop) else {
                panic!("{asking:?} was answered otherwise");
            };
            assert!(
                held_by.longest.held <= now.since(asking.since),
                "{asking:?}: {held_by:?}"
            );
            // Since the holder got it: the next one may have its turn already, and not have run yet.
            if let Some((holder, _, since)) = seen.inside.filter(|(_, holder, _)| *holder == held_by.thread) {
                assert_eq!(held_by.held, now.since(since), "{asking:?}: held by {holder}");
                seen.named += 1;
            }
            return;
        }
        seen.granted += 1;
        let inside = seen.inside.replace((asking.thread, os.this_thread(), now));
        assert_eq!(inside, None, "{asking:?} at {now:?}");
        let earlier =
            |other: &&WaitingThread| other.since < now && other.until > now && other.deadline < asking.deadline;
        // A thread that asked at this very instant and found the permit free owes nothing to those that line up later.
        let overtaken = seen.asking.iter().find(earlier).filter(|_| asking.since < now);
        assert_eq!(overtaken, None, "{asking:?} at {now:?}");
    }
    os.sleep(span);
    let now = os.now();
    let runs_as = os.scheduling(os.this_thread()).map(Scheduling::rank).unwrap();
    let mut seen = seen.lock().unwrap();
    let ranks = seen
        .asking
        .iter()
        .filter(|other| other.since < now && other.until > now);
    let most_urgent = ranks.map(|other| other.rank).max().unwrap_or(0);
    assert!(
        runs_as >= most_urgent,
        "{asking:?} runs as {runs_as} at {now:?}: {:?}",
        seen.asking
    );
    seen.inside = None;
    drop(seen); // before the release, which lets others run
    drop(answer);
}

#[test]
fn the_permit_keeps_its_promises_in_every_history() {
    let (granted, denied, named) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    explore(0..200, |os| {
        let seen = contend(os, os.seed());
        granted.fetch_add(seen.granted, Ordering::Relaxed);
        denied.fetch_add(seen.denied, Ordering::Relaxed);
        named.fetch_add(seen.named, Ordering::Relaxed);
    });
    // Both ways out were taken often.
    let (granted, denied) = (granted.into_inner(), denied.into_inner());
    assert!(granted > 1_000 && denied > 50, "{granted} granted, {denied} denied");
    let named = named.into_inner();
    assert!(named > denied / 2, "{named} of {denied} know the holder");
}

/// Threads that leave the permit no pause, and one without a deadline (or with the one given) that asks for it now and
/// then; how many turns it has to wait for at the most.
fn turns_waited(os: &VirtualOs, seed: u64, deadline: Time) -> usize {
    const HOGS: u64 = 3;
    let queue = PermitQueue::new(os.clone());
    let (turns, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let most = AtomicUsize::new(0);
    let hog = |number: u64| {
        let (queue, turns, over) = (&queue, &turns, &over);
        let mut choices = ChaCha8Rng::seed_from_u64(seed * HOGS + number);
        Thread::new(format!("hog {number}"), move || {
            // Bounded, so that a thread that starves is found and not waited for.
            for _ in 0..100 {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let permit = queue
                    .acquire(os.now() + Nanos(choices.random_range(0..50)), Time::MAX)
                    .unwrap();
                turns.fetch_add(1, Ordering::Relaxed);
                os.sleep(Nanos(choices.random_range(1..40)));
                drop(permit);
            }
        })
    };
    let mut threads: Vec<_> = (0..HOGS).map(hog).collect();
    threads.push(Thread::new("ordinary", || {
        for _ in 0..5 {
            os.sleep(Nanos(45));
            let before = turns.load(Ordering::Relaxed);
            let permit = queue.acquire(deadline, Time::MAX).unwrap();
            most.fetch_max(turns.load(Ordering::Relaxed) - before, Ordering::Relaxed);
            os.sleep(Nanos(5));
            drop(permit);
        }
        over.store(true, Ordering::Relaxed);
    }));
    os.together(threads);
    most.into_inner()
}

#[test]
fn a_thread_without_a_deadline_waits_for_ten_turns_at_the_most() {
    // One turn more may be under way when it asks.
    explore(0..100, |os| {
        assert!(turns_waited(os, os.seed(), Time::MAX) <= ORDINARY_EVERY as usize)
    });
}

/// A thread that waits in vain, for `early` while one thread has the permit and for `late` while another one has: which
/// one it blames.
#[test]
fn a_wait_in_vain_names_the_thread_that_took_most_of_it() {
    for (early, late, blamed) in [(90, 20, "early"), (20, 90, "late")] {
        explore(0..20, |os| {
            let queue = PermitQueue::new(os.clone());
            let names = std::sync::Mutex::new(Vec::new());
            let has = |name: &'static str, asks_at: u64, holds: u64| {
                let (queue, names) = (&queue, &names);
                Thread::new(name, move || {
                    os.sleep(Nanos(asks_at));
                    let permit = queue.acquire(Time(1), Time::MAX).unwrap();
                    names.lock().unwrap().push((os.this_thread(), name));
                    os.sleep(Nanos(holds));
                    drop(permit);
                })
            };
            let waits = Thread::new("waits", || {
                os.sleep(Nanos(10));
                let until = os.now() + Nanos(early + late);
                let Err(Denied::TimedOut(held_by)) = queue.acquire(Time::MAX, until).map(drop) else {
                    panic!("it got the permit");
                };
                let names = names.lock().unwrap();
                let name = |thread| names.iter().find(|(other, _)| *other == thread).map(|(_, name)| *name);
                assert_eq!(name(held_by.thread), Some("late"));
                assert_eq!(name(held_by.longest.thread), Some(blamed));
                assert!(held_by.longest.held >= Nanos(early.max(late)), "{held_by:?}");
            });
            os.together(vec![has("early", 0, 10 + early), has("late", 5, late + 50), waits]);
        });
    }
}

#[test]
fn planted_fault_a_thread_that_is_not_known_to_be_without_a_deadline_starves() {
    let caught =
        (0..20).any(|seed| turns_waited(&VirtualOs::new(seed), seed, Time(u64::MAX - 1)) > ORDINARY_EVERY as usize);
    assert!(caught);
}

#[test]
fn planted_fault_a_lost_wake_up_ends_in_a_deadlock_that_is_reported() {
    let reported = (0..100).any(|seed| {
        let os = VirtualOs::new(seed);
        let planted = FaultyOs(os.clone(), Fault::ForgetsEarlyPermits);
        let outcome = catch_unwind(AssertUnwindSafe(|| contend(&planted, seed)));
        let report = os.deadlock().map(|report| report.to_string());
        outcome.is_err() && report.is_some_and(|report| report.contains("is parked at place"))
    });
    assert!(reported);
}

#[test]
fn planted_fault_a_holder_that_is_not_boosted_is_caught() {
    let caught = (0..100).any(|seed| {
        let planted = FaultyOs(VirtualOs::new(seed), Fault::NeverBoosts);
        catch_unwind(AssertUnwindSafe(|| contend(&planted, seed))).is_err()
    });
    assert!(caught);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// A permit that comes before its thread parks is lost.
    ForgetsEarlyPermits,
    /// A thread cannot change the priority of another, and is not told.
    NeverBoosts,
}

/// A virtual system with a fault.
#[derive(Clone)]
struct FaultyOs(VirtualOs, Fault);

struct PlantedParker {
    fault: Fault,
    place: VirtualParker,
    parked: AtomicBool,
}

impl Park for PlantedParker {
    fn park_until(&self, deadline: Time) -> Wake {
        self.parked.store(true, Ordering::Relaxed);
        let wake = self.place.park_until(deadline);
        self.parked.store(false, Ordering::Relaxed);
        wake
    }

    fn unpark(&self) {
        if self.fault != Fault::ForgetsEarlyPermits || self.parked.load(Ordering::Relaxed) {
            self.place.unpark();
        }
    }
}

impl Clock for FaultyOs {
    fn now(&self) -> Time {
        self.0.now()
    }
}

impl Os for FaultyOs {
    type Lock<T: Send> = VirtualLock<T>;
    type Parker = PlantedParker;

    fn new_lock<T: Send>(&self, data: T) -> VirtualLock<T> {
        self.0.new_lock(data)
    }

    fn new_parker(&self) -> PlantedParker {
        PlantedParker {
            fault: self.1,
            place: self.0.new_parker(),
            parked: AtomicBool::new(false),
        }
    }

    fn sleep_until(&self, wake: Time) {
        self.0.sleep_until(wake);
    }

    fn this_thread(&self) -> Tid {
        self.0.this_thread()
    }

    fn scheduling(&self, thread: Tid) -> Result<Scheduling, Refusal> {
        self.0.scheduling(thread)
    }

    fn set_scheduling(&self, thread: Tid, scheduling: Scheduling) -> Result<(), Refusal> {
        if self.1 == Fault::NeverBoosts && thread != self.this_thread() {
            return Ok(());
        }
        self.0.set_scheduling(thread, scheduling)
    }

    fn together(&self, threads: Vec<Thread<'_>>) {
        self.0.together(threads);
    }
}
