//! The virtual system: one seed one history, the clock jumps, and a run that cannot go on says why.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use punctual_os::{Lock, Os, Park, Scheduling, Thread, Tid, Wake};
use punctual_testing::{CALLS_PER_INSTANT_MAX, Deadlock, DeadlockReason, VirtualOs, explore};
use punctual_units::{Clock, Nanos, Time};

const SECOND: Nanos = Nanos::from_secs(1);

/// Three threads that meet at a lock and a parking place; what they did, in order.
fn history(seed: u64) -> (Vec<String>, u64) {
    let os = VirtualOs::new(seed);
    let (log, lock, place) = (Mutex::new(Vec::new()), os.new_lock(0), os.new_parker());
    let worker = |name: &'static str| {
        let (os, log, lock, place) = (&os, &log, &lock, &place);
        let tell = move |what: String| log.lock().unwrap().push(format!("{:?} {name} {what}", os.now()));
        Thread::new(name, move || {
            for round in 0..20 {
                let mut count = lock.lock();
                *count += 1;
                tell(format!("counts {}", *count));
                if *count % 5 == 0 {
                    os.sleep(Nanos(u64::from(name.len() as u32)));
                }
                drop(count);
                match name {
                    "waits" => tell(format!("{:?}", place.park_until(os.now() + Nanos(3)))),
                    _ if round % 2 == 0 => place.unpark(),
                    _ => os.sleep(Nanos(2)),
                }
            }
        })
    };
    os.together(vec![worker("waits"), worker("wakes"), worker("works too")]);
    assert_eq!(*lock.lock(), 60);
    (log.into_inner().unwrap(), os.digest())
}

#[test]
fn the_same_seed_gives_the_same_history_and_another_seed_another() {
    let histories: Vec<_> = (0..100).map(history).collect();
    for (seed, first) in (0..).zip(&histories) {
        assert_eq!(*first, history(seed), "seed {seed}");
    }
    let mut different: Vec<_> = histories.iter().map(|(log, _)| log).collect();
    different.sort();
    different.dedup();
    assert!(different.len() > 95, "{} histories from 100 seeds", different.len());
}

#[test]
fn time_jumps_over_idleness_and_sleepers_wake_in_order() {
    explore(0..20, |os| {
        let woken = os.new_lock(Vec::new());
        let sleeper = |hours: u64| {
            let woken = &woken;
            Thread::new(format!("sleeps {hours} h"), move || {
                os.sleep(SECOND * 3600 * hours);
                woken.lock().push((hours, os.now()));
            })
        };
        os.together(vec![sleeper(3), sleeper(1), sleeper(2)]);
        let hour = |hours: u64| (hours, Time::ZERO + SECOND * 3600 * hours);
        assert_eq!(*woken.lock(), [hour(1), hour(2), hour(3)]);
    });
}

#[test]
fn a_higher_priority_runs_first_and_a_lock_passes_to_the_most_urgent() {
    explore(0..50, |os| {
        let (lock, order) = (os.new_lock(()), Mutex::new(Vec::new()));
        let contender = |priority: u8| {
            let (lock, order) = (&lock, &order);
            Thread::new(format!("priority {priority}"), move || {
                os.set_scheduling(os.this_thread(), Scheduling::Fifo(priority)).unwrap();
                let _held = lock.lock();
                order.lock().unwrap().push(priority);
            })
        };
        let holder = Thread::new("holds", || {
            let _held = lock.lock();
            os.sleep(SECOND);
        });
        os.together(vec![
            holder,
            Thread::new("later", || {
                os.sleep(Nanos(1));
                os.together(vec![contender(3), contender(9), contender(6)]);
            }),
        ]);
        assert_eq!(order.into_inner().unwrap(), [9, 6, 3]);
    });
}

/// Runs `body` on a system of `seed` and returns the report of why it was stopped.
fn stopped(seed: u64, body: impl Fn(&VirtualOs)) -> Deadlock {
    let os = VirtualOs::new(seed);
    let outcome = catch_unwind(AssertUnwindSafe(|| body(&os)));
    assert!(outcome.is_err(), "seed {seed}: it went on");
    os.deadlock().unwrap_or_else(|| panic!("seed {seed}: no report"))
}

#[test]
fn a_deadlock_is_reported_with_what_each_thread_waits_for() {
    for seed in 0..20 {
        let report = stopped(seed, |os| {
            let locks = [os.new_lock(()), os.new_lock(())];
            let crossing = |name: &str, first: usize| {
                let locks = &locks;
                Thread::new(name, move || {
                    let _one = locks[first].lock();
                    os.sleep(SECOND);
                    let _other = locks[1 - first].lock();
                })
            };
            let parked = Thread::new("parked", || {
                os.new_parker().park_until(Time::MAX);
            });
            os.together(vec![crossing("left", 0), crossing("right", 1), parked]);
        });
        assert_eq!(
            (report.cause, report.at),
            (DeadlockReason::AllWait, Time::ZERO + SECOND)
        );
        let text = report.to_string();
        for line in [
            "the first thread: waits for the end of 3 threads",
            "left: waits for lock 2, which right holds",
            "right: waits for lock 1, which left holds",
            "parked: is parked at place 3",
        ] {
            assert!(text.contains(line), "seed {seed}: {line} in {text}");
        }
    }
}

#[test]
fn threads_that_are_stopped_drop_what_they_have_even_through_the_locks_of_others() {
    struct LocksAtTheEnd<'l, L: Lock<u32>>(&'l L, &'l AtomicU64);
    impl<L: Lock<u32>> Drop for LocksAtTheEnd<'_, L> {
        fn drop(&mut self) {
            *self.0.lock() += 1;
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
    let dropped = AtomicU64::new(0);
    let report = stopped(1, |os| {
        let locks = [os.new_lock(0), os.new_lock(0)];
        let crossing = |first: usize| {
            let (locks, dropped) = (&locks, &dropped);
            Thread::new("crossing", move || {
                let _locks = LocksAtTheEnd(&locks[1 - first], dropped);
                let _one = locks[first].lock();
                os.sleep(SECOND);
                let _other = locks[1 - first].lock();
            })
        };
        os.together(vec![crossing(0), crossing(1)]);
    });
    assert_eq!((report.cause, dropped.into_inner()), (DeadlockReason::AllWait, 2));
}

#[test]
fn the_first_thread_may_be_the_one_that_waits_in_vain() {
    let report = stopped(0, |os| {
        os.new_parker().park_until(Time::MAX);
    });
    assert_eq!(
        report.threads,
        [("the first thread".to_owned(), "is parked at place 1".to_owned())]
    );
}

#[test]
fn a_loop_that_asks_the_clock_until_it_moves_is_stopped() {
    let report = stopped(0, |os| {
        let flag = AtomicBool::new(false);
        let spins = || {
            while !flag.load(Ordering::Relaxed) && os.now() < Time::ZERO + SECOND {
                std::hint::spin_loop();
            }
        };
        os.together(vec![Thread::new("spins", spins)]);
    });
    assert_eq!(report.cause, DeadlockReason::TimeStands);
    assert!(report.to_string().contains(&CALLS_PER_INSTANT_MAX.to_string()));
}

#[test]
fn a_panic_of_a_thread_ends_it_and_arrives_when_all_have_ended() {
    let os = VirtualOs::new(3);
    let ended = AtomicBool::new(false);
    let survives = || {
        os.sleep(SECOND);
        ended.store(true, Ordering::Relaxed);
    };
    let panics = || std::panic::resume_unwind(Box::new("planted"));
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        os.together(vec![Thread::new("panics", panics), Thread::new("survives", survives)]);
    }));
    assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&"planted"));
    assert!(ended.into_inner());
    assert_eq!(os.deadlock(), None);
}

#[test]
#[should_panic(expected = "is no task of this virtual system: start it with `together`")]
fn a_thread_from_outside_is_refused() {
    let os = VirtualOs::new(0);
    let outcome = std::thread::scope(|scope| scope.spawn(|| os.sleep(SECOND)).join());
    std::panic::resume_unwind(outcome.unwrap_err());
}

#[test]
fn bad_scheduling_is_refused_and_says_what_would_do() {
    let os = VirtualOs::new(0);
    let me = os.this_thread();
    for wrong in [
        Scheduling::Fifo(0),
        Scheduling::RoundRobin(100),
        Scheduling::Other { nice: 20 },
    ] {
        assert!(os.set_scheduling(me, wrong).unwrap_err().remedy.contains("1 to 99"));
    }
    assert!(os.scheduling(Tid(77)).unwrap_err().remedy.contains("alive"));
    assert_eq!(os.scheduling(me), Ok(Scheduling::Other { nice: 0 }));
}

#[test]
fn a_seed_that_fails_is_named() {
    let outcome = catch_unwind(|| {
        explore(5..9, |os| {
            assert_ne!(os.new_parker().park_until(Time::ZERO), Wake::TimedOut)
        })
    });
    let message = outcome.unwrap_err().downcast::<String>().unwrap();
    assert!(message.starts_with("seed 5: "), "{message}");
}
