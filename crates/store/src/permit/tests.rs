//! Order, bounds, exclusion and inheritance, on real threads. Nothing here depends on how fast they run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};

use punctual_os::linux::thread::{real_time, scheduling};
use punctual_os::{LinuxOs, Scheduling, Tid};
use punctual_units::{Clock, Nanos, Time};

use super::*;

impl PermitQueue<LinuxOs> {
    fn waiting(&self) -> usize {
        self.state.lock().queue.iter().count()
    }

    fn until_waiting(&self, threads: usize) {
        punctual_testing::wait_until("threads wait", || self.waiting() >= threads);
    }

    fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.holder.is_none() && state.queue.iter().next().is_none() && state.free_places.len() == WAITERS_MAX
    }
}

#[test]
fn waiters_are_served_by_deadline_and_equals_in_order_of_arrival() {
    let queue = PermitQueue::new(LinuxOs);
    let served = Mutex::new(Vec::new());
    let held = queue.acquire(Time::ZERO, Time::MAX).unwrap();
    std::thread::scope(|scope| {
        for (arrival, deadline) in [30, 10, 20, 10, 5, 30].into_iter().enumerate() {
            let (queue, served) = (&queue, &served);
            scope.spawn(move || {
                let _permit = queue.acquire(Time(deadline), Time::MAX).unwrap();
                served.lock().unwrap().push((deadline, arrival));
            });
            queue.until_waiting(arrival + 1);
        }
        drop(held);
    });
    assert_eq!(
        *served.lock().unwrap(),
        [(5, 4), (10, 1), (10, 3), (20, 2), (30, 0), (30, 5)]
    );
    assert!(queue.is_idle());
}

#[test]
fn a_waiter_that_gives_up_is_forgotten_and_the_others_are_served() {
    let queue = PermitQueue::new(LinuxOs);
    let held = queue.acquire(Time::ZERO, Time::MAX).unwrap();
    std::thread::scope(|scope| {
        let patient = scope.spawn(|| queue.acquire(Time(9), Time::MAX).map(drop));
        let hasty = scope.spawn(|| queue.acquire(Time(1), LinuxOs.now() + Nanos::from_millis(5)).map(drop));
        assert!(
            matches!(hasty.join().unwrap(), Err(Denied::TimedOut(HeldBy { thread, .. })) if thread == Tid::current())
        );
        let at_once = scope.spawn(|| queue.acquire(Time(1), Time::ZERO).map(drop));
        assert!(matches!(at_once.join().unwrap(), Err(Denied::TimedOut(_))));
        drop(held);
        assert_eq!(patient.join().unwrap(), Ok(()));
    });
    assert!(queue.is_idle());
}

#[test]
fn one_thread_at_a_time_holds_the_permit_and_no_wake_up_is_lost() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 2_000;
    let queue = PermitQueue::new(LinuxOs);
    let inside = AtomicBool::new(false);
    let (granted, denied) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (queue, inside, granted, denied) = (&queue, &inside, &granted, &denied);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    // Every fourth gives up at once or soon, so that timeouts meet grants.
                    let until = match round % 4 {
                        0 => LinuxOs.now() + Nanos((round * 37 + thread * 11) % 50_000),
                        _ => Time::MAX,
                    };
                    match queue.acquire(Time(round * 7919 % 13), until) {
                        Ok(permit) => {
                            assert!(!inside.swap(true, Ordering::SeqCst), "two threads hold the permit");
                            if round % 8 == 1 {
                                std::thread::yield_now();
                            }
                            inside.store(false, Ordering::SeqCst);
                            granted.fetch_add(1, Ordering::Relaxed);
                            drop(permit);
                        }
                        Err(_) => drop(denied.fetch_add(1, Ordering::Relaxed)),
                    }
                }
            });
        }
    });
    assert_eq!(granted.into_inner() + denied.into_inner(), THREADS * ROUNDS);
    assert!(queue.is_idle());
}

#[test]
fn the_crowd_is_bounded() {
    let queue = PermitQueue::new(LinuxOs);
    let held = queue.acquire(Time::ZERO, Time::MAX).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..WAITERS_MAX {
            scope.spawn(|| queue.acquire(Time(1), Time::MAX).map(drop).unwrap());
        }
        queue.until_waiting(WAITERS_MAX);
        let one_more = scope.spawn(|| queue.acquire(Time(0), Time::MAX).map(drop));
        assert_eq!(one_more.join().unwrap(), Err(Denied::Crowded));
        drop(held);
    });
    assert!(queue.is_idle());
}

#[test]
fn the_holder_is_told_at_once_where_it_asks_again() {
    let queue = PermitQueue::new(LinuxOs);
    let held = queue.acquire(Time(9), Time::MAX).unwrap();
    assert_eq!(queue.acquire(Time(1), Time::MAX).map(drop), Err(Denied::Nested));
    drop(held);
    assert!(queue.is_idle());
}

/// Puts the calling thread under `SCHED_DEADLINE`, 1 ms of each 100; false where the machine does not allow that.
fn under_sched_deadline() -> bool {
    #[repr(C)]
    #[derive(Default)]
    struct SchedAttr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let attr = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        policy: 6,
        runtime: 1_000_000,
        deadline: 100_000_000,
        period: 100_000_000,
        ..SchedAttr::default()
    };
    // SAFETY: `attr` is as sched_setattr(2) wants it, and valid for the call.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &attr, 0) == 0 }
}

#[test]
fn a_waiter_under_sched_deadline_lends_the_highest_priority() {
    let queue = PermitQueue::new(LinuxOs);
    let own = scheduling(Tid::current()).unwrap();
    let held = queue.acquire(Time(9), Time::MAX).unwrap();
    let (report, obtained) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let permitted = under_sched_deadline();
            report.send(permitted).unwrap();
            if permitted {
                drop(queue.acquire(Time(1), Time::MAX).unwrap());
            }
        });
        if !obtained.recv().unwrap() || real_time_is_refused() {
            eprintln!("skipped: SCHED_DEADLINE or real-time scheduling is not permitted here");
            return drop(held);
        }
        queue.until_waiting(1);
        assert_eq!(scheduling(Tid::current()), Ok(Scheduling::Fifo(99)));
        drop(held);
        assert_eq!(scheduling(Tid::current()), Ok(own));
        assert!(queue.refusal().is_none());
    });
    assert!(queue.is_idle());
}

fn real_time_is_refused() -> bool {
    std::thread::spawn(|| real_time(99).is_err()).join().unwrap()
}

/// Lines up a thread with real-time `priority`; false where the machine does not allow that.
fn urgent<'s>(
    scope: &'s std::thread::Scope<'s, '_>,
    queue: &'s PermitQueue<LinuxOs>,
    deadline: u64,
    priority: u8,
    granted: mpsc::Sender<Scheduling>,
) -> bool {
    let (report, obtained) = mpsc::channel();
    let waiting = queue.waiting();
    scope.spawn(move || {
        let permitted = real_time(priority).is_ok();
        report.send(permitted).unwrap();
        if permitted {
            let _permit = queue.acquire(Time(deadline), Time::MAX).unwrap();
            granted.send(scheduling(Tid::current()).unwrap()).unwrap();
        }
    });
    let permitted = obtained.recv().unwrap();
    if permitted {
        queue.until_waiting(waiting + 1);
    } else {
        eprintln!("skipped: real-time scheduling is not permitted here");
    }
    permitted
}

#[test]
fn the_holder_runs_with_the_priority_of_its_most_urgent_waiter_until_it_releases() {
    let queue = PermitQueue::new(LinuxOs);
    let me = Tid::current();
    let own = scheduling(me).unwrap();
    let (granted, grants) = mpsc::channel();
    std::thread::scope(|scope| {
        let permit = queue.acquire(Time::ZERO, Time::MAX).unwrap();
        if !urgent(scope, &queue, 9, 20, granted.clone()) {
            return;
        }
        assert_eq!(scheduling(me).unwrap(), Scheduling::Fifo(20));
        // A later deadline and a higher priority: it lines up behind, and boosts all before it.
        assert!(urgent(scope, &queue, 99, 30, granted.clone()));
        assert_eq!(scheduling(me).unwrap(), Scheduling::Fifo(30));
        assert!(urgent(scope, &queue, 5, 10, granted));
        assert_eq!(scheduling(me).unwrap(), Scheduling::Fifo(30));
        drop(permit);
        assert_eq!(scheduling(me).unwrap(), own, "given back on release");
        assert_eq!(
            grants.recv().unwrap(),
            Scheduling::Fifo(30),
            "the earliest deadline, boosted"
        );
        assert_eq!(grants.recv().unwrap(), Scheduling::Fifo(30), "the next one, boosted");
        assert_eq!(grants.recv().unwrap(), Scheduling::Fifo(30), "its booster");
        assert!(queue.refusal().is_none());
    });
    assert!(queue.is_idle());
}
