//! The thread that checks passwords, so that neither the event loop nor the threads of the store wait for it. Which it
//! checks, and when it answers, is in `logins`.

use std::hash::BuildHasher;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use punctual_units::{Nanos, Time};

use crate::login::LoginClaim;
use crate::logins::{LoginStep, Logins, Source, Waiting};
use crate::users::Users;
use crate::work::Handle;

/// Connections with their users, by index; `None` where the password was wrong.
pub type Checks = Vec<(Handle, Option<usize>)>;

/// The state that the thread shares with its handle.
struct ClaimQueue {
    users: Arc<Users>,
    begin: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    logins: Logins,
    judged: Checks,
    ends: bool,
}

impl ClaimQueue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        Time(Nanos::from(self.begin.elapsed()).0)
    }

    /// Checks and answers claims until the handle is dropped; calls `wake` after each answer.
    fn prove(&self, wake: impl Fn()) {
        let mut state = self.lock();
        while !state.ends {
            let now = self.now();
            match state.logins.step(now) {
                LoginStep::Check(waiting) => {
                    drop(state);
                    let is_right = self.users.check(waiting.claim.user, &waiting.claim.password);
                    let end = self.now();
                    state = self.lock();
                    if is_right {
                        let knows = |claim: &LoginClaim| self.users.knows(claim.user, &claim.password);
                        let right = state.logins.settle(waiting.source, knows);
                        state.judged.extend(right);
                        wake();
                    } else {
                        state.logins.failed(&waiting, end.since(now), end);
                    }
                }
                LoginStep::Refuse(connection) => {
                    state.judged.push((connection, None));
                    wake();
                }
                LoginStep::Rest(until) => {
                    let rest = until.since(now).into();
                    let waited = self.changed.wait_timeout(state, rest);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }
}

/// Handle of the thread, which ends when this is dropped.
pub struct Prover(Arc<ClaimQueue>);

impl Prover {
    /// Starts the thread; it calls `wake` after each answer.
    ///
    /// # Errors
    /// The system refuses to start a thread.
    pub fn start(users: Arc<Users>, wake: impl Fn() + Send + 'static) -> std::io::Result<Prover> {
        let shared = Arc::new(ClaimQueue {
            users,
            begin: Instant::now(),
            state: Mutex::new(State {
                logins: Logins::new(std::hash::RandomState::new().hash_one(0)),
                judged: Vec::new(),
                ends: false,
            }),
            changed: Condvar::new(),
        });
        let proving = Arc::clone(&shared);
        let prove = move || {
            // The quickest of some: the least that it takes.
            let took = (0..3).map(|_| {
                let begin = Instant::now();
                proving.users.check_longest();
                begin.elapsed().into()
            });
            let took = took.min().unwrap_or(Nanos::ZERO);
            proving.lock().logins.takes(took);
            proving.prove(wake);
        };
        // Detached: the thread has no part of the store.
        std::thread::Builder::new().name("serve-prover".into()).spawn(prove)?;
        Ok(Prover(shared))
    }

    /// Queues the claim of a connection. Returns the connection that gives way to it, if there is no room.
    pub fn ask(&self, connection: Handle, source: Source, claim: LoginClaim) -> Option<Handle> {
        let is_wrong = self.0.users.knows(claim.user, &claim.password) == Some(false);
        let waiting = Waiting {
            connection,
            source,
            claim,
            is_wrong,
            numbers: [0; 2],
            since: self.0.now(),
            is_closed: false,
        };
        let gives_way = self.0.lock().logins.push(waiting);
        self.0.changed.notify_one();
        gives_way
    }

    /// Takes note that a client sends no more.
    pub fn closed(&self, connection: Handle) {
        self.0.lock().logins.closed(connection);
    }

    /// Forgets the claim of a connection that has ended.
    pub fn forget(&self, connection: Handle) {
        self.0.lock().logins.forget(connection);
    }

    /// Takes all answers since the last call.
    pub fn take(&self) -> Checks {
        std::mem::take(&mut self.0.lock().judged)
    }
}

impl Drop for Prover {
    fn drop(&mut self) {
        self.0.lock().ends = true;
        self.0.changed.notify_one();
    }
}
