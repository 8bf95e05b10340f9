//! Time that a thread was ready to run while another one had its core, by `/proc/<tid>/schedstat`
//! (Documentation/scheduler/sched-stats.rst): nanoseconds on the core, nanoseconds of waiting for it, number of turns
//! on it.
//!
//! The kernel adds a wait when it ends, so a running thread reads all of its own waits. It adds time on the core at the
//! timer tick; the thread's clock (`thread_cpu_time`) is exact.

use std::fs::File;
use std::os::unix::fs::FileExt;

use punctual_os::Tid;
use punctual_units::Nanos;

/// Room for the text in bytes: longer than three numbers of 64 bits.
const TEXT_BYTES: usize = 80;

/// The calling thread's `schedstat`, kept open: reading it makes one system call and allocates nothing.
#[derive(Debug)]
pub struct RunQueue(File);

impl RunQueue {
    /// Opens the calling thread's file; `None` if this kernel does not account for waits (`CONFIG_SCHED_INFO`).
    pub fn of_this_thread() -> Option<RunQueue> {
        RunQueue::at("/proc/thread-self/schedstat")
    }

    /// Opens the file of a thread of any process; `None` if there is no such thread or account.
    pub fn of(process: i32, thread: Tid) -> Option<RunQueue> {
        RunQueue::at(&format!("/proc/{process}/task/{thread}/schedstat"))
    }

    fn at(path: &str) -> Option<RunQueue> {
        let account = RunQueue(File::open(path).ok()?);
        account.waited().map(|_| account)
    }

    /// Time that the thread has waited for its core since it started; `None` if the file cannot be read.
    pub fn waited(&self) -> Option<Nanos> {
        let mut text = [0; TEXT_BYTES];
        let read = self.0.read_at(&mut text, 0).ok()?;
        waited_in(text.get(..read)?)
    }
}

fn waited_in(text: &[u8]) -> Option<Nanos> {
    let waited = text.split(|byte| byte.is_ascii_whitespace()).nth(1)?;
    std::str::from_utf8(waited).ok()?.parse().ok().map(Nanos)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Instant;

    use punctual_testing::{WAIT_MAX, shared_machine};

    use super::super::cores;
    use super::super::thread::pin;
    use super::*;
    use crate::linux::KernelTree;

    #[test]
    fn the_second_number_is_the_wait() {
        assert_eq!(waited_in(b"3021 77 5\n"), Some(Nanos(77)));
        for none in [b"".as_slice(), b"3021", b"1 x 2", b"1  2"] {
            assert_eq!(waited_in(none), None);
        }
    }

    #[test]
    fn two_threads_on_one_core_wait_for_each_other() {
        let _machine = shared_machine();
        let core = *cores::usable(&KernelTree::default()).first().unwrap();
        let (pinned, count) = (&Barrier::new(2), &AtomicU32::new(0));
        // Until both have waited: a busy machine may put one off for all of any time.
        let busy = move || {
            let is_pinned = pin(core);
            pinned.wait();
            is_pinned.unwrap();
            let account = RunQueue::of_this_thread()?;
            let (before, begin) = (account.waited()?, Instant::now());
            let mut waited = Nanos::ZERO;
            while count.load(Ordering::Relaxed) < 2 && begin.elapsed() < WAIT_MAX {
                if waited == Nanos::ZERO {
                    waited = account.waited()?.saturating_sub(before);
                    count.fetch_add(u32::from(waited > Nanos::ZERO), Ordering::Relaxed);
                }
            }
            Some(waited)
        };
        let both = std::thread::scope(|scope| [busy, busy].map(|busy| scope.spawn(busy)).map(|it| it.join().unwrap()));
        let [Some(one), Some(other)] = both else {
            return eprintln!("skipped: this kernel keeps no accounts");
        };
        assert!(one > Nanos::ZERO && other > Nanos::ZERO, "{one} and {other}");
    }
}
