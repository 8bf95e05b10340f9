//! The event loop's claim on the processor: real time, while it leaves most of the time to others.
//!
//! Heartbeats and commits must not wait for ordinary programs. But the loop reads what clients send, too: a flood of
//! requests at a real-time priority would hold up the threads that write and every other program of its core.

use punctual_os::linux::thread::thread_cpu_time;
use punctual_os::{Os, Refusal, Scheduling, claim_processor};
use punctual_units::{Nanos, Time};

/// Divisor of the time: real time is given up above this part.
const BUSY: u64 = 2;
/// Divisor of the time: real time is taken again below this part.
const CALM: u64 = 4;

pub struct ProcessorClaim {
    /// Whether real time is allowed.
    is_allowed: bool,
    is_held: bool,
    /// Processor time of the thread, and the instant, at the last review.
    seen: (Nanos, Time),
}

impl ProcessorClaim {
    /// Claims the processor for the calling thread; also returns the refusal of real time.
    pub fn take(os: &impl Os) -> (ProcessorClaim, Option<Refusal>) {
        let refused = claim_processor(os).err();
        let claim = ProcessorClaim {
            is_allowed: refused.is_none(),
            is_held: refused.is_none(),
            seen: (thread_cpu_time(), os.now()),
        };
        (claim, refused)
    }

    /// Gives real time up, or takes it again, by the time that the thread has used since the last review. To be called
    /// a few times a second.
    pub fn review(&mut self, os: &impl Os, now: Time) {
        let (used, at) = std::mem::replace(&mut self.seen, (thread_cpu_time(), now));
        let holds = holds(self.is_held, self.seen.0.saturating_sub(used), now.since(at));
        if !self.is_allowed || holds == self.is_held {
            return;
        }
        let done = match holds {
            true => claim_processor(os),
            false => os.set_scheduling(os.this_thread(), Scheduling::Other { nice: -10 }),
        };
        if done.is_ok() {
            self.is_held = holds;
        }
    }
}

/// Whether a thread that has used `used` of `span` holds the claim from now on.
fn holds(is_held: bool, used: Nanos, span: Nanos) -> bool {
    let parts = if is_held { BUSY } else { CALM };
    used.0.saturating_mul(parts) <= span.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_is_busy_gives_real_time_up_until_it_is_calm() {
        let of = |is_held, percent| holds(is_held, Nanos(percent), Nanos(100));
        assert!(of(true, 0) && of(true, 50) && !of(true, 51));
        assert!(!of(false, 51) && !of(false, 26) && of(false, 25));
    }
}
