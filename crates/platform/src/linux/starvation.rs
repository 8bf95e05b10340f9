//! Threads of this process that starve: real-time threads of other programs fill their cores.
//!
//! Nothing else ends that wait. The kernel's throttling and its fair server give time to ordinary threads only
//! (sched(7)), and a process with a starving thread cannot even be killed.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use punctual_custody::core_mask::{affinity_of, set_affinity};
use punctual_custody::stat;
use punctual_units::{CoreId, Nanos};

use super::exclusive::population::{processes, threads_of};
use super::thread::{self, Scheduling, Tid, cpu_time_of, name_of, scheduling, set_scheduling};
use super::{KernelTree, refused};
use crate::Refusal;

/// Interval of looks at a thread: the least time for which it starves before it is relieved. Far above the deadlines of
/// jobs, so that a busy core is no filled one.
pub const STARVES_AFTER: Duration = Duration::from_secs(1);

/// Longest wait for a thread to run on a core that is tried: a span in which real-time work that has pauses takes one.
const TRIED_FOR: Duration = Duration::from_millis(300);

const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Words for a thread that fills a core and that this process may not see, in another container for example.
pub const HIDDEN: &str = "a real-time thread that is not visible here";

/// How a starving thread was given processor time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relief {
    /// The thread may run on every core that this process may use.
    AnyCore,
    /// Real-time threads fill those, too: it has ordinary scheduling.
    Ordinary,
}

/// Looks whether a thread of this process starves.
#[derive(Clone, Debug)]
pub struct StarvationGuard {
    thread: Tid,
    /// CPU time at the last look, if the thread was ready to run then.
    ready: Option<Nanos>,
    relief: Option<Relief>,
}

impl StarvationGuard {
    /// A guard of `thread`, of this process.
    pub fn new(thread: Tid) -> StarvationGuard {
        StarvationGuard {
            thread,
            ready: None,
            relief: None,
        }
    }

    /// The thread that is guarded, of this process.
    pub fn thread(&self) -> Tid {
        self.thread
    }

    /// Whether this process has the thread no more.
    pub fn has_ended(&self) -> bool {
        !thread::is_own(self.thread)
    }

    /// Whether the thread was ready to run at the last call, too, and has not run since. Time between two calls is the
    /// least time for which a thread starves.
    pub fn starves(&mut self) -> bool {
        let used = stat::is_ready(self.thread.0)
            .then(|| cpu_time_of(self.thread))
            .flatten();
        let starves = used.is_some() && used == self.ready;
        self.ready = used;
        starves
    }

    /// Relieves the thread: first it may use every core that the caller may, the second time it gets ordinary
    /// scheduling. Returns what was changed; `None` from the third time on.
    pub fn relieve(&mut self) -> Option<Relief> {
        let relief = match self.relief {
            None if to_any_core(self.thread) => Relief::AnyCore,
            Some(Relief::Ordinary) => return None,
            _ => Relief::Ordinary,
        };
        if relief == Relief::Ordinary {
            make_ordinary(self.thread);
        }
        self.relief = Some(relief);
        self.relief
    }

    /// Relieves the thread if it starves.
    pub fn look(&mut self) -> Option<Relief> {
        self.starves().then(|| self.relieve()).flatten()
    }

    /// Returns a thread that was relieved to `core` and to `SCHED_FIFO` `priority`.
    pub fn restore(&mut self, core: CoreId, priority: u8) {
        let _ = set_scheduling(self.thread, Scheduling::Fifo(priority));
        let _ = thread::pin_thread(self.thread, &[core]);
        (self.ready, self.relief) = (None, None);
    }
}

/// Lets `thread` run on every core that the caller may use; returns whether it may. The kernel refuses that for a
/// thread in a group with cores of its own.
fn to_any_core(thread: Tid) -> bool {
    set_affinity(thread, &thread::allowed_cores().into_iter().collect()).is_ok()
}

/// Gives `thread` ordinary scheduling, on every core that the caller may use.
pub(super) fn make_ordinary(thread: Tid) {
    let _ = set_scheduling(thread, Scheduling::Other { nice: 0 });
    to_any_core(thread);
}

/// Tries `cores`, and returns those on which a thread at `SCHED_FIFO` `priority` does not run within 300 ms, each with
/// a refusal that names the thread there. Empty where this process may have no such thread.
pub fn filled_cores(cores: &[CoreId], priority: u8) -> Vec<(CoreId, Refusal)> {
    let over = Arc::new(AtomicBool::new(false));
    let (tell, told) = mpsc::channel();
    let start = |core: &CoreId| {
        let (core, tell, over) = (*core, tell.clone(), Arc::clone(&over));
        // The priority first: an ordinary thread would wait on the core for the fair server.
        std::thread::Builder::new().spawn(move || {
            let _ = tell.send((core, Tid::current()));
            let tried = thread::real_time(priority);
            if tried.is_ok() && !over.load(Ordering::Relaxed) {
                let _ = thread::pin(core);
            }
            // The end of a thread is no real-time work.
            let _ = set_scheduling(Tid::current(), Scheduling::Other { nice: 0 });
        })
    };
    let trials: Vec<_> = cores.iter().filter_map(|core| start(core).ok()).collect();
    let running = || !trials.iter().all(|trial| trial.is_finished());
    let began = Instant::now();
    while began.elapsed() < TRIED_FOR && running() {
        std::thread::sleep(LOOK_EVERY);
    }
    let starves = |(core, thread): &(CoreId, Tid)| {
        let is_there = affinity_of(*thread).is_ok_and(|mask| mask.cores() == [*core]);
        is_there && stat::is_ready(thread.0) && matches!(scheduling(*thread), Ok(Scheduling::Fifo(_)))
    };
    let mut threads: Vec<(CoreId, Tid)> = told.try_iter().collect();
    let filled = threads.iter().filter(|trial| starves(trial)).map(|(core, _)| *core);
    let refusals = filled.map(|core| (core, refusal(core, priority))).collect();
    over.store(true, Ordering::Relaxed);
    // A late trial may go to its core only now.
    while running() {
        threads.extend(told.try_iter());
        let own = threads.iter().filter(|(_, thread)| thread::is_own(*thread));
        own.for_each(|(_, thread)| make_ordinary(*thread));
        std::thread::sleep(LOOK_EVERY);
    }
    refusals
}

/// Waits for the end of a thread that has been asked to end, and makes it an ordinary one if it starves.
pub fn join<T>(handle: std::thread::JoinHandle<T>, thread: Tid) -> std::thread::Result<T> {
    let (mut guard, mut looked) = (StarvationGuard::new(thread), Instant::now());
    while !handle.is_finished() {
        std::thread::sleep(LOOK_EVERY);
        if looked.elapsed() >= STARVES_AFTER {
            looked = Instant::now();
            if guard.starves() {
                make_ordinary(thread);
            }
        }
    }
    handle.join()
}

/// The refusal of real-time work at `priority` on a core that another thread fills.
pub(super) fn refusal(core: CoreId, priority: u8) -> Refusal {
    refused(
        format!("real-time work on core {core}"),
        format!("{} fills it", filler(core, priority).as_deref().unwrap_or(HIDDEN)),
        "let that thread sleep between its jobs, move it to another core (taskset -cp CORE THREAD), or end it",
    )
}

/// The thread of another process that is ready on `core` in real time, in words; of several, the one of the highest
/// priority, at least `priority`. `None` if none is visible. Reads all of `/proc`: some milliseconds.
pub fn filler(core: CoreId, priority: u8) -> Option<String> {
    let tree = KernelTree::default();
    let own = i32::try_from(std::process::id());
    let others = processes(&tree).filter(|process| Ok(*process) != own);
    let threads = others.flat_map(|process| threads_of(&tree, process).map(move |thread| (process, thread)));
    let there = threads.filter_map(|(process, thread)| {
        let stat = fs::read(tree.path(format!("/proc/{process}/task/{thread}/stat"))).ok()?;
        let (on, rank) = stat::ready_in_real_time(&stat)?;
        (on == core.0 && rank >= u32::from(priority)).then_some((rank, process, thread))
    });
    let (_, process, thread) = there.max_by_key(|(rank, ..)| *rank)?;
    let name = name_of(thread).unwrap_or_else(|| "a thread".into());
    let how = scheduling(thread).map_or_else(|_| "SCHED_DEADLINE".into(), |scheduling| scheduling.to_string());
    Some(format!("{name} (process {process}, {how})"))
}
