//! Observes whether lent cores are used.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use punctual_os::LinuxOs;
use punctual_platform::linux::{KernelTree, busy};
use punctual_units::{Clock, Nanos};

use super::Accountant;

/// Length of a window of `cores::Usage`: 25 times the resolution of the kernel's figures.
const WINDOW: Nanos = Nanos::from_millis(250);

/// A thread that observes the cores of `accountants` in every window, until it is dropped. It has ordinary priority,
/// because no lease waits for it.
#[derive(Debug)]
pub struct Observer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Observer {
    /// Begins to observe. Without the thread, which the kernel may refuse, cores are lent as if they were used.
    pub fn start(accountants: Vec<Accountant>) -> Observer {
        let stop = Arc::new(AtomicBool::new(accountants.is_empty()));
        let stopped = Arc::clone(&stop);
        let watch = move || {
            while !stopped.load(Ordering::Acquire) {
                look(&accountants);
                std::thread::park_timeout(WINDOW.into());
            }
        };
        let thread = std::thread::Builder::new().name("lending".into()).spawn(watch);
        Observer {
            stop,
            thread: thread.ok(),
        }
    }
}

fn look(accountants: &[Accountant]) {
    let Ok(times) = busy::read(&KernelTree::default()) else {
        return;
    };
    for accountant in accountants {
        let times = times.iter().find(|times| times.core == accountant.core());
        if let Some(times) = times {
            // Time that other guests of the host took was not used by borrowers either.
            accountant.observe(times.idle + times.steal, LinuxOs.now());
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of the thread has been printed.
            let _ = thread.join();
        }
    }
}
