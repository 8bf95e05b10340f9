//! Finds threads that were started later, and moves them away; keeps borrowers off cores that another process has
//! taken.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use punctual_custody::core_mask::CoreMask;
use punctual_custody::journal::Journal;
use punctual_units::{Clock, CoreId};

use super::super::thread;
use super::lendees::Lendees;
use super::{Fence, SWEEP_PERIOD};
use punctual_os::LinuxOs;

/// A thread that sweeps until this is dropped.
#[derive(Debug)]
pub(super) struct Sweeper {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sweeper {
    /// Sweeps `fence` from one of `others`; `None` if the kernel keeps other threads out, or grants us no thread.
    pub(super) fn start(
        fence: &Arc<Fence>,
        lendees: &Arc<Lendees>,
        journal: &Journal,
        others: &[CoreId],
    ) -> Option<Sweeper> {
        if matches!(**fence, Fence::Partition(_)) {
            return None;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (fence, stopped, others) = (Arc::downgrade(fence), Arc::clone(&stop), others.to_vec());
        let (lendees, journal) = (Arc::downgrade(lendees), journal.clone());
        let sweep = move || sweep_until(&fence, &lendees, &journal, &stopped, &others);
        let thread = std::thread::Builder::new().name("sweeper".into());
        let thread = thread.spawn(sweep).ok()?;
        Some(Sweeper {
            stop,
            thread: Some(thread),
        })
    }
}

fn sweep_until(fence: &Weak<Fence>, lendees: &Weak<Lendees>, journal: &Journal, stop: &AtomicBool, others: &[CoreId]) {
    // If pinning is refused, the thread sweeps from wherever it runs.
    let _ = thread::pin_to(others);
    while !stop.load(Ordering::Acquire) {
        LinuxOs.sleep_until(LinuxOs.now() + SWEEP_PERIOD);
        let (Some(fence), Some(lendees)) = (fence.upgrade(), lendees.upgrade()) else {
            return;
        };
        fence.sweep();
        let claims = journal.neighbours().into_iter();
        lendees.leave(claims.fold(CoreMask::default(), |all, (_, cores)| all.with(&cores)));
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has been printed.
            let _ = thread.join();
        }
    }
}
