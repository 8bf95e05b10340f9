//! The kernel's futexes under the model checker `loom`, for tests that take `parker.rs` in as a file. Time does not
//! pass; a thread of the model says when it has ([`expire`]).

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Condvar, Mutex};
use punctual_units::Time;

loom::lazy_static! {
    static ref KERNEL: Kernel = Kernel {
        sleeping: Mutex::new(Sleeping::default()),
        woken: Condvar::new(),
    };
}

struct Kernel {
    sleeping: Mutex<Sleeping>,
    woken: Condvar,
}

#[derive(Default)]
struct Sleeping {
    /// Whether every deadline has come, but [`Time::MAX`].
    expired: bool,
    /// How many threads went to sleep so far.
    count: u64,
    /// The words that threads sleep on, and which sleep that is, the longest first.
    threads: Vec<(usize, u64)>,
}

pub fn wait(word: &AtomicU32, expected: u32, deadline: Time) -> bool {
    let mut sleeping = KERNEL.sleeping.lock().unwrap();
    if word.load(Ordering::Relaxed) != expected {
        return false;
    }
    sleeping.count += 1;
    let this = (address(word), sleeping.count);
    sleeping.threads.push(this);
    loop {
        let Some(at) = sleeping.threads.iter().position(|thread| *thread == this) else {
            return false;
        };
        if sleeping.expired && deadline != Time::MAX {
            sleeping.threads.remove(at);
            return true;
        }
        sleeping = KERNEL.woken.wait(sleeping).unwrap();
    }
}

pub fn wake_one(word: &AtomicU32) {
    let mut sleeping = KERNEL.sleeping.lock().unwrap();
    let first = sleeping.threads.iter().position(|(on, _)| *on == address(word));
    if let Some(at) = first {
        sleeping.threads.remove(at);
        KERNEL.woken.notify_all();
    }
}

/// Lets every deadline come.
pub fn expire() {
    KERNEL.sleeping.lock().unwrap().expired = true;
    KERNEL.woken.notify_all();
}

fn address(word: &AtomicU32) -> usize {
    std::ptr::from_ref(word).addr()
}
