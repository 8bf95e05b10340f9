//! The thread that checks passwords: neither the event loop nor the threads of the store wait for it.
//!
//! A check costs a tenth of a second of a core by intention. So what strangers can make this thread do is bounded:
//! after a wrong password it rests for `REST` times as long as the check took, and what finds [`CLAIMS_MAX`] before
//! it is told to come again.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::users::Users;
use crate::work::Handle;

/// The most passwords that wait to be checked; a connection has one at a time.
pub const CLAIMS_MAX: usize = 64;
/// Wrong passwords take at most a fifth of a core.
const REST: u32 = 4;
/// The longest rest: four times what a check with the most rounds takes, and longer.
const REST_MAX: Duration = Duration::from_secs(60);

/// How long it rests after a wrong password whose check took so long.
fn rest(took: Duration) -> Duration {
    (took * REST).min(REST_MAX)
}

/// A client says which user it is.
pub struct Claim {
    /// Which connection says so.
    pub connection: Handle,
    /// None of that name if `None`.
    pub user: Option<usize>,
    /// The password.
    pub password: Vec<u8>,
}

/// What came of a claim.
pub struct Judged {
    /// Which connection has made the claim.
    pub connection: Handle,
    /// Which user it is; `None` where the password was wrong.
    pub user: Option<usize>,
}

/// The thread, which ends when this is dropped.
pub struct Prover {
    claims: SyncSender<Claim>,
    judged: Arc<Mutex<Vec<Judged>>>,
}

impl Prover {
    /// Starts the thread; `wake` is called when something was judged.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub fn start(users: Arc<Users>, wake: impl Fn() + Send + 'static) -> std::io::Result<Prover> {
        let (claims, taken) = sync_channel::<Claim>(CLAIMS_MAX);
        let judged = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&judged);
        let prove = move || {
            for claim in taken {
                let begin = Instant::now();
                let is_right = users.check(claim.user, &claim.password);
                let took = begin.elapsed();
                told.lock().unwrap_or_else(PoisonError::into_inner).push(Judged {
                    connection: claim.connection,
                    user: claim.user.filter(|_| is_right),
                });
                wake();
                if !is_right {
                    std::thread::sleep(rest(took));
                }
            }
        };
        // Nothing waits for its end: it has no part of the store.
        std::thread::Builder::new().name("serve-prover".into()).spawn(prove)?;
        Ok(Prover { claims, judged })
    }

    /// Has a claim judged; whether there was room.
    pub fn ask(&self, claim: Claim) -> bool {
        self.claims.try_send(claim).is_ok()
    }

    /// What was judged since the last call.
    pub fn take(&self) -> Vec<Judged> {
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
