//! Jobs with I/O on a few cores: under a fair scheduler that does not preempt, under stock Linux, and with exclusive cores.
//!
//! **Problem.** Whether a real-time job is late is decided by what happens after each of its I/Os: how long the medium takes, and how long the job waits
//! until it has a core again (E. Lee, Y. Kim and H. Bahn, "Dual Management of Real-Time and Interactive Jobs in Smartphones", 2014). Here the waits emerge from
//! a schedule that is simulated event by event.
//!
//! **Terms.** A [`Task`] is released again and again; a *job* is one release, a list of [`Step`]s. *Real-time* tasks have a period and a deadline,
//! *interactive* ones follow one job with the next. A *quantum* is how long an interactive job keeps its core while others wait; every change of the job on
//! a core costs a *switch*. Which jobs are due when is told by the tasks; who runs where, and how I/O is waited for, by [`Management`].
//!
//! **Method.** [`simulate`] goes from event to event (end of a step, a slice, a switch or an I/O; a release; end of a lease) and never skips one. All cores
//! take from one queue, so no core idles while a job waits that may run there (the report counts the time for which that is not so).
//! Decisions about exclusive cores are those of `punctual_cores`, which real machines use as well. There is no randomness but that of the
//! devices: the same arguments give the same report.
//!
//! **Left out.** Caches and their warm-up after a switch, clock steps, interrupts' own time, groups and weights of the fair class.

mod cores;
mod engine;
mod machine;
mod queue;
mod report;
mod state;
mod steps;

use punctual_cores::{Completion, LendingCosts};
use punctual_units::{CoreId, Nanos, Time};

pub use engine::{DualError, simulate};
pub use machine::DualMachine;
pub use report::{CoreTimes, JobRecord, Report};

use crate::media::Request;

/// A part of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// So much time on a core.
    Compute(Nanos),
    /// A request to one of the devices, which must be complete before the next step.
    Io {
        /// Which device, by its place in the list.
        device: usize,
        /// What is asked of it.
        request: Request,
    },
}

/// What is released again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// For people.
    pub name: String,
    /// When its jobs begin.
    pub release: Release,
    /// Its jobs in order. Those of interactive tasks are repeated for ever.
    pub jobs: Vec<Vec<Step>>,
}

/// When jobs begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Real-time: the first at `first`, each other a `period` after the one before began, or when that one ends if that is later. A late
    /// player goes on at once and does not catch up, so every job is judged from its own begin.
    Periodic {
        /// The first release.
        first: Time,
        /// Between two begins, above 0.
        period: Nanos,
        /// From its begin, above 0.
        deadline: Nanos,
    },
    /// Interactive: as soon as the one before has ended.
    Forever,
}

/// Who decides where jobs run and how they wait for their I/O.
#[derive(Clone, Debug, PartialEq)]
pub enum Management {
    /// All cores are everybody's; all I/O blocks.
    Shared(Scheduling),
    /// Real-time tasks have the machine's exclusive cores, where they run by earliest deadline; interactive ones have the others, and what is lent.
    Dual(Exclusive),
}

/// How cores are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// The paper's: nobody is preempted. When a quantum ends, real-time jobs come first, then the interactive one that ran least.
    Quantum,
    /// The paper's Fig. 3(b): where no core is idle, a real-time job waits for this long, and then takes the core on which it ran last.
    QuantumAfter(Nanos),
    /// Stock Linux, real-time jobs in the fair class: whoever wakes preempts a job that ran longer by more than the wake-up granularity.
    Fair,
    /// Stock Linux, real-time jobs in `SCHED_FIFO`: they preempt at once. Interactive ones are as under [`Fair`](Scheduling::Fair).
    Fifo,
}

/// What dual management decided before the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Exclusive {
    /// The exclusive core of each real-time task, in the order of the tasks.
    pub places: Vec<CoreId>,
    /// How a real-time job waits for each device.
    pub waits: Vec<Completion>,
    /// What lending costs. A lease that ends before a known release is followed by `take_back`, in which the core is switched; a job that takes its core
    /// back itself is switched to as everywhere.
    pub costs: LendingCosts,
    /// The least slack of the real-time tasks.
    pub slack: Nanos,
    /// What a real-time job waits that becomes ready while its core is lent: for Fig. 3(b), as [`Scheduling::QuantumAfter`]. Zero: it takes its
    /// core at once.
    pub wait: Nanos,
}

impl Scheduling {
    /// Whether interactive jobs are preempted by others that wake.
    const fn preempts(self) -> bool {
        matches!(self, Scheduling::Fair | Scheduling::Fifo)
    }
}
