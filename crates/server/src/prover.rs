//! The thread that checks passwords, so that neither the event loop nor the threads of the store wait for it.
//!
//! A check costs a tenth of a second of a core by intention. So the work that strangers can cause is bounded: after a
//! wrong password the thread rests for `REST` times as long as the check took, and a client that finds [`CLAIMS_MAX`]
//! claims waiting is asked to come again.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::login::LoginClaim;
use crate::users::Users;
use crate::work::Handle;

/// The most passwords that wait to be checked; a connection has at most one.
pub const CLAIMS_MAX: usize = 64;
/// Rest after a wrong password, in check times: wrong passwords take at most a fifth of a core.
const REST: u32 = 4;
/// The longest rest, more than four times a check with the most rounds.
const REST_MAX: Duration = Duration::from_secs(60);

/// Rest after a wrong password whose check took `took`.
fn rest(took: Duration) -> Duration {
    (took * REST).min(REST_MAX)
}

/// Connections with their users, by index; `None` where the password was wrong.
pub type Checks = Vec<(Handle, Option<usize>)>;

/// Handle of the thread, which ends when this is dropped.
pub struct Prover {
    claims: SyncSender<(Handle, LoginClaim)>,
    judged: Arc<Mutex<Checks>>,
}

impl Prover {
    /// Starts the thread; it calls `wake` after each result.
    ///
    /// # Errors
    /// The system refuses to start a thread.
    pub fn start(users: Arc<Users>, wake: impl Fn() + Send + 'static) -> std::io::Result<Prover> {
        let (claims, taken) = sync_channel::<(Handle, LoginClaim)>(CLAIMS_MAX);
        let judged = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&judged);
        let prove = move || {
            for (connection, claim) in taken {
                let begin = Instant::now();
                let is_right = users.check(claim.user, &claim.password);
                let took = begin.elapsed();
                let user = claim.user.filter(|_| is_right);
                let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                told.push((connection, user));
                drop(told);
                wake();
                if !is_right {
                    std::thread::sleep(rest(took));
                }
            }
        };
        // Detached: the thread has no part of the store.
        std::thread::Builder::new().name("serve-prover".into()).spawn(prove)?;
        Ok(Prover { claims, judged })
    }

    /// Queues the claim of a connection; returns whether there was room.
    pub fn ask(&self, connection: Handle, claim: LoginClaim) -> bool {
        self.claims.try_send((connection, claim)).is_ok()
    }

    /// Takes all results since the last call.
    pub fn take(&self) -> Checks {
        std::mem::take(&mut *self.judged.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A check of 10 million rounds takes seconds.
    #[test]
    fn wrong_passwords_take_a_fifth_of_a_core() {
        for took in [Duration::ZERO, Duration::from_millis(100), Duration::from_secs(15)] {
            assert_eq!(rest(took), 4 * took);
        }
        assert_eq!(rest(Duration::from_secs(3600)), REST_MAX);
    }
}
