//! Changes of single records that share a commit, on virtual threads: each gets its own answer, and all of it happened.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use punctual_os::{Os, Thread};
use punctual_store::engine::EngineError;
use punctual_store::{Deadline, Store, StoreError, StoreOptions};
use punctual_testing::{VirtualOs, explore};
use punctual_units::{Clock, Nanos, Time};

use crate::witnessed::{Step, Witness, WitnessedEngine};

const THREADS: u64 = 8;
const ROUNDS: u64 = 3;
/// Time that a commit takes.
const COMMIT: Nanos = Nanos(2 * HALF.0);
const HALF: Nanos = Nanos::from_micros(500);
/// Puts of this key fail, and lose their transaction, as far as the medium `loses`.
const BAD: &[u8] = b"bad";
/// A put of this key panics in the transaction of another thread than its own.
const PANICS: &[u8] = b"panics";

/// A slow medium that counts commits.
struct Medium {
    os: VirtualOs,
    commits: AtomicU64,
    loses: bool,
    /// The thread whose transaction is lost, by its number and one.
    lost: AtomicU64,
    /// The thread that puts `BAD` or `PANICS`, likewise.
    bad_thread: AtomicU64,
    /// The thread whose transaction was lost over another's change, and that must begin the next, likewise.
    goes_on: AtomicU64,
    /// Time that a put takes.
    put_takes: Nanos,
    /// Whether deletes fail.
    is_full: AtomicBool,
    /// Every commit by a multiple of this number fails; 0: none.
    fails_every: AtomicU64,
    /// Whether each step after a failed one answers `Broken`.
    breaks: AtomicBool,
    is_broken: AtomicBool,
    /// Puts since the transaction began.
    puts: AtomicU64,
    /// Failed commits of several puts.
    shared_failed: AtomicU64,
}

impl Witness for Medium {
    fn before(&self, step: Step<'_>) -> Result<(), EngineError> {
        let path = || "(medium)".into();
        let me = self.os.this_thread().0 as u64 + 1;
        let fail = || {
            self.is_broken
                .store(self.breaks.load(Ordering::Relaxed), Ordering::Relaxed);
            Err(EngineError::DiskFull { path: path() })
        };
        if let Step::Put(_) = step {
            self.puts.fetch_add(1, Ordering::Relaxed);
        }
        match step {
            Step::Begin => {
                let goes_on = self.goes_on.swap(0, Ordering::Relaxed);
                assert!(goes_on == 0 || goes_on == me, "it keeps the write lock");
                self.lost.store(0, Ordering::Relaxed);
                self.puts.store(0, Ordering::Relaxed);
                if self.is_broken.load(Ordering::Relaxed) {
                    return Err(EngineError::Broken { path: path() });
                }
            }
            _ if self.lost.load(Ordering::Relaxed) == me => panic!("a lost transaction is used"),
            Step::Put(PANICS) if self.bad_thread.load(Ordering::Relaxed) != me => {
                self.goes_on.store(me, Ordering::Relaxed);
                panic!("over the change of another thread");
            }
            Step::Put(BAD) => {
                if self.bad_thread.load(Ordering::Relaxed) != me {
                    self.goes_on.store(me, Ordering::Relaxed);
                }
                self.lost.store(if self.loses { me } else { 0 }, Ordering::Relaxed);
                return fail();
            }
            Step::Delete if self.is_full.load(Ordering::Relaxed) => {
                return Err(EngineError::DiskFull { path: path() });
            }
            Step::Put(_) if self.put_takes > Nanos::ZERO => self.os.sleep(self.put_takes),
            Step::Commit => {
                self.os.sleep(COMMIT);
                let number = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
                let fails_every = self.fails_every.load(Ordering::Relaxed);
                if fails_every > 0 && number.is_multiple_of(fails_every) {
                    if self.puts.load(Ordering::Relaxed) > 1 {
                        self.shared_failed.fetch_add(1, Ordering::Relaxed);
                        self.goes_on.store(me, Ordering::Relaxed);
                    }
                    return fail();
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn store(os: &VirtualOs, loses: bool, lock_wait_max: Nanos) -> Store<WitnessedEngine<Medium>, VirtualOs> {
    slow_store(os, loses, lock_wait_max, Nanos::ZERO)
}

fn slow_store(
    os: &VirtualOs,
    loses: bool,
    lock_wait_max: Nanos,
    put_takes: Nanos,
) -> Store<WitnessedEngine<Medium>, VirtualOs> {
    let (os, commits, lost) = (os.clone(), AtomicU64::new(0), AtomicU64::new(0));
    let medium = Medium {
        os: os.clone(),
        commits,
        loses,
        lost,
        bad_thread: AtomicU64::new(0),
        goes_on: AtomicU64::new(0),
        put_takes,
        is_full: AtomicBool::new(false),
        fails_every: AtomicU64::new(0),
        breaks: AtomicBool::new(false),
        is_broken: AtomicBool::new(false),
        puts: AtomicU64::new(0),
        shared_failed: AtomicU64::new(0),
    };
    let options = StoreOptions {
        lock_wait_max,
        ..StoreOptions::default()
    };
    Store::open(WitnessedEngine::new(medium), os, options).unwrap()
}

fn in_threads<'t>(os: &VirtualOs, run: impl Fn(u64) + Sync + 't) {
    let run = &run;
    let thread = |number| Thread::new(format!("changes {number}"), move || run(number));
    os.together((0..THREADS).map(thread).collect());
}

/// Puts and deletes of threads that wait for each other's commits; perhaps beside one whose puts fail.
fn change(os: &VirtualOs, bad: Option<bool>) -> u64 {
    let store = store(os, bad == Some(true), Nanos::from_secs(60));
    store
        .update(|tx| {
            (0..THREADS)
                .step_by(2)
                .try_for_each(|old| tx.put(format!("old/{old}"), "x"))
        })
        .unwrap();
    let before = store.engine().witness.commits.load(Ordering::Relaxed);
    let table = store.table("named").unwrap();
    in_threads(os, |thread| {
        if thread == 1 && bad.is_some() {
            store
                .engine()
                .witness
                .bad_thread
                .store(os.this_thread().0 as u64 + 1, Ordering::Relaxed);
            let refused = (0..ROUNDS).map(|_| store.put(BAD, "never"));
            refused
                .for_each(|refused| assert!(matches!(refused, Err(StoreError::Engine(EngineError::DiskFull { .. })))));
            return;
        }
        for round in 0..ROUNDS {
            store.put(format!("{thread}/{round}"), format!("{round}")).unwrap();
            let mine = store.get(format!("{thread}/{round}")).unwrap();
            assert_eq!(mine, Some(format!("{round}").into_bytes()), "it reads its own write");
        }
        assert_eq!(store.delete(format!("old/{thread}")).unwrap(), thread % 2 == 0);
        table.put(&format!("{thread}").into_bytes()[..], &b"value"[..]).unwrap();
    });
    let writers = (0..THREADS).filter(|thread| *thread != 1 || bad.is_none());
    for thread in writers {
        for round in 0..ROUNDS {
            assert!(store.contains_key(format!("{thread}/{round}")).unwrap(), "{thread}");
        }
        assert!(!store.contains_key(format!("old/{thread}")).unwrap());
        assert!(table.contains_key(&format!("{thread}").into_bytes()[..]).unwrap());
    }
    assert_eq!(store.get(BAD).unwrap(), None);
    store.engine().witness.commits.load(Ordering::Relaxed) - before
}

#[test]
fn changes_of_waiting_threads_share_commits() {
    explore(0..60, |os| {
        let (changes, commits) = (THREADS * (ROUNDS + 2), change(os, None));
        assert!(commits <= changes / 4, "{changes} changes in {commits} commits");
    });
}

#[test]
fn a_change_that_is_refused_is_its_own_threads_alone() {
    for loses in [false, true] {
        explore(0..60, |os| _ = change(os, Some(loses)));
    }
}

/// A put whose wait has timed out has changed nothing, even if another thread was carrying it out; one that returned
/// has.
#[test]
fn a_change_that_waited_too_long_has_not_happened() {
    let refused = AtomicU64::new(0);
    explore(0..60, |os| {
        let store = store(os, false, HALF);
        in_threads(os, |thread| {
            for round in 0..ROUNDS {
                os.sleep(Nanos(thread * 130_000 + round * 70_000));
                let key = format!("{thread}/{round}");
                match store.put(&key, "value") {
                    Ok(()) => assert!(store.contains_key(&key).unwrap(), "{key}"),
                    Err(StoreError::LockTimeout { .. }) => {
                        refused.fetch_add(1, Ordering::Relaxed);
                        os.sleep(COMMIT * 3);
                        assert!(!store.contains_key(&key).unwrap(), "{key}");
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        });
    });
    assert!(refused.into_inner() > 0);
}

/// Puts without a deadline that wait are carried out together, and a thread with a deadline waits for one commit only.
#[test]
fn a_deadline_comes_before_changes_that_wait() {
    explore(0..60, |os| {
        let store = store(os, false, Nanos::from_secs(60));
        let began = os.now();
        in_threads(os, |thread| {
            if thread == 0 {
                os.sleep(HALF);
                let urgent = store.write_transaction(Deadline::soft(Time(1))).unwrap();
                assert!(os.now().since(began) <= COMMIT, "{:?}", os.now());
                return urgent.commit().map(drop).unwrap();
            }
            store.put(format!("{thread}"), "value").unwrap();
        });
    });
}

/// The thread that has the lock carries out no change once a thread with a deadline waits.
#[test]
fn a_deadline_waits_for_one_change_and_a_commit_at_most() {
    explore(0..60, |os| {
        let store = slow_store(os, false, Nanos::from_secs(60), HALF);
        let began = os.now();
        in_threads(os, |thread| {
            if thread == 0 {
                os.sleep(Nanos(HALF.0 / 2));
                let urgent = store.write_transaction(Deadline::soft(Time(1))).unwrap();
                assert!(os.now().since(began) <= HALF * 2 + COMMIT, "{:?}", os.now());
                return urgent.commit().map(drop).unwrap();
            }
            store.put(format!("{thread}"), "value").unwrap();
        });
    });
}

#[test]
fn a_commit_carries_out_few_bytes_for_others() {
    explore(0..20, |os| {
        let store = store(os, false, Nanos::from_secs(60));
        let before = store.engine().witness.commits.load(Ordering::Relaxed);
        in_threads(os, |thread| store.put(format!("{thread}"), vec![7; 40 << 10]).unwrap());
        let commits = store.engine().witness.commits.load(Ordering::Relaxed) - before;
        assert!(commits >= THREADS / 2, "{commits}");
    });
}

#[test]
fn a_panic_over_a_change_of_another_thread_is_contained() {
    explore(0..20, |os| {
        let store = store(os, false, Nanos::from_secs(60));
        in_threads(os, |thread| {
            if thread == 1 {
                let me = os.this_thread().0 as u64 + 1;
                store.engine().witness.bad_thread.store(me, Ordering::Relaxed);
                return store.put(PANICS, "value").unwrap();
            }
            store.put(format!("{thread}"), "value").unwrap();
        });
        assert!(store.contains_key(PANICS).unwrap() && store.contains_key("0").unwrap());
    });
}

/// One transaction in some removes a record that is over as it begins, and that fails here.
#[test]
fn a_put_whose_transaction_cannot_begin_is_refused() {
    let os = VirtualOs::new(1);
    let store = store(&os, false, Nanos::from_secs(60));
    store.put_for("old", "value", COMMIT).unwrap();
    os.sleep(COMMIT * 2);
    store.engine().witness.is_full.store(true, Ordering::Relaxed);
    let puts: Vec<_> = (0..8).map(|number| store.put(format!("{number}"), "value")).collect();
    assert!(
        puts.iter().any(Result::is_err) && puts.iter().any(Result::is_ok),
        "{puts:?}"
    );
    for (number, put) in puts.into_iter().enumerate() {
        assert_eq!(store.contains_key(format!("{number}")).unwrap(), put.is_ok());
    }
}

/// Puts of all threads, of which a put has changed the store exactly if it answered so; returns the errors. `bad`: the
/// first thread puts `BAD`.
fn puts_on_a_failing_medium(
    os: &VirtualOs,
    store: &Store<WitnessedEngine<Medium>, VirtualOs>,
    bad: bool,
) -> Vec<StoreError> {
    let medium = &store.engine().witness;
    let answers = Mutex::new(Vec::new());
    in_threads(os, |thread| {
        for round in 0..ROUNDS {
            let key = match thread {
                0 if bad => {
                    medium
                        .bad_thread
                        .store(os.this_thread().0 as u64 + 1, Ordering::Relaxed);
                    BAD.to_vec()
                }
                thread => format!("{thread}/{round}").into_bytes(),
            };
            let answer = store.put(&key, "value");
            answers.lock().unwrap().push((key, answer));
        }
    });
    let answers = answers.into_inner().unwrap();
    for (key, answer) in &answers {
        assert_eq!(store.contains_key(key).unwrap(), answer.is_ok(), "{key:?}: {answer:?}");
    }
    answers.into_iter().filter_map(|(_, answer)| answer.err()).collect()
}

/// Threads whose put was carried out by a commit that fails, and that still wait or wait no more.
#[test]
fn a_put_is_acknowledged_only_if_it_is_committed() {
    for lock_wait_max in [Nanos::from_secs(60), HALF] {
        let shared_failed = AtomicU64::new(0);
        explore(0..60, |os| {
            let store = store(os, false, lock_wait_max);
            let medium = &store.engine().witness;
            medium.fails_every.store(3, Ordering::Relaxed);
            puts_on_a_failing_medium(os, &store, false);
            shared_failed.fetch_add(medium.shared_failed.load(Ordering::Relaxed), Ordering::Relaxed);
        });
        assert!(shared_failed.into_inner() > 0, "{lock_wait_max}");
    }
}

/// The first error of a medium that answers no call after it: of a commit, or of a put for another thread.
#[test]
fn the_cause_of_a_broken_store_is_reported_once() {
    for (lock_wait_max, bad) in [(60_000, false), (60_000, true), (1, false), (1, true)] {
        explore(0..60, |os| {
            let store = store(os, false, Nanos::from_millis(lock_wait_max));
            let medium = &store.engine().witness;
            medium.breaks.store(true, Ordering::Relaxed);
            medium.fails_every.store(if bad { 0 } else { 3 }, Ordering::Relaxed);
            let errors = puts_on_a_failing_medium(os, &store, bad);
            let is_cause = |error: &&StoreError| matches!(error, StoreError::Engine(EngineError::DiskFull { .. }));
            assert_eq!(errors.iter().filter(is_cause).count(), 1, "{errors:?}");
        });
    }
}

/// The time of a failed shared commit is no part of the commit that follows.
#[test]
fn a_waiter_is_told_of_the_last_commit_alone() {
    let waited = AtomicU64::new(0);
    explore(0..60, |os| {
        let store = store(os, false, Nanos::from_secs(60));
        store.engine().witness.fails_every.store(3, Ordering::Relaxed);
        in_threads(os, |thread| {
            for round in 0..ROUNDS {
                if thread > 0 {
                    let _ = store.put(format!("{thread}/{round}"), "value");
                    continue;
                }
                let transaction = store.write_transaction(Deadline::NONE).unwrap();
                let committing = transaction.waited_for().and_then(|holder| holder.committing);
                assert!(
                    committing.is_none_or(|committing| committing <= COMMIT),
                    "{committing:?}"
                );
                waited.fetch_add(committing.map_or(0, |it| it.0), Ordering::Relaxed);
            }
        });
    });
    assert!(waited.into_inner() > 0);
}
