//! The thread that checks passwords, so that neither the event loop nor the threads of the store wait for it. Which it
//! checks, and when it answers, is in `logins`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_os::{Os, Park};
use punctual_units::{Nanos, Time};

use crate::login::LoginClaim;
use crate::logins::{LoginStep, Logins, Source, Waiting};
use crate::net::Waker;
use crate::users::Users;
use crate::work::Handle;

/// Connections with their users, by index; `None` where the password was wrong.
pub type Checks = Vec<(Handle, Option<usize>)>;

/// The state that the thread shares with its handle.
struct ClaimQueue {
    users: Arc<Users>,
    state: Mutex<State>,
    /// Where the thread waits.
    place: Arc<dyn Park>,
    wake: Waker,
    now: Box<dyn Fn() -> Time + Send + Sync>,
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

    /// Takes the next step; returns until when to rest, `None` once the handle is dropped.
    fn prove(&self) -> Option<Time> {
        let mut state = self.lock();
        if state.ends {
            return None;
        }
        let now = (self.now)();
        match state.logins.step(now) {
            LoginStep::Check(waiting) => {
                drop(state);
                let is_right = self.users.check(waiting.claim.user, &waiting.claim.password);
                let end = (self.now)();
                let mut state = self.lock();
                if is_right {
                    let knows = |claim: &LoginClaim| self.users.knows(claim.user, &claim.password);
                    let right = state.logins.settle(waiting.source, knows);
                    state.judged.extend(right);
                    (self.wake)();
                } else {
                    state.logins.failed(&waiting, end.since(now), end);
                }
                Some(Time::ZERO)
            }
            LoginStep::Refuse(connection) => {
                state.judged.push((connection, None));
                (self.wake)();
                Some(Time::ZERO)
            }
            LoginStep::Rest(until) => Some(until),
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
    pub fn start<O: Os>(users: Arc<Users>, os: &O, wake: Waker) -> std::io::Result<Prover> {
        let (place, clock) = (Arc::new(os.new_parker()), os.clone());
        let shared = Arc::new(ClaimQueue {
            users,
            state: Mutex::new(State {
                logins: Logins::new(os.random()),
                judged: Vec::new(),
                ends: false,
            }),
            place: Arc::clone(&place) as Arc<dyn Park>,
            wake,
            now: Box::new(move || clock.now()),
        });
        let (proving, mut is_first) = (Arc::clone(&shared), true);
        let turn = move || {
            if std::mem::take(&mut is_first) {
                // The quickest of some: the least that it takes.
                let took = (0..3).map(|_| {
                    let begin = (proving.now)();
                    proving.users.check_longest();
                    (proving.now)().since(begin)
                });
                let took = took.min().unwrap_or(Nanos::ZERO);
                proving.lock().logins.takes(took);
            }
            proving.prove()
        };
        // Detached: the thread has no part of the store.
        os.start("serve-prover", place, Box::new(turn))?;
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
            since: (self.0.now)(),
            is_closed: false,
        };
        let gives_way = self.0.lock().logins.push(waiting);
        self.0.place.unpark();
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
        self.0.place.unpark();
    }
}
