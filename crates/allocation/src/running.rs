//! What runs on a core, and what waits for it.

use punctual_units::{Nanos, Time};

use crate::grid::Share;
use crate::programs::Programs;

/// The job that a core runs.
#[derive(Clone, Copy, Debug)]
pub struct Running<'a> {
    /// Which program, by its place in [`Programs`].
    pub program: usize,
    /// How much of it is done, 0..=1.
    pub progress: f64,
    /// When it should be done.
    pub deadline: Time,
    /// Jobs that wait for this core, in any order.
    pub waiting: &'a [Waiting],
}

/// A job that waits for a core: released, or pushed aside by one with an earlier deadline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waiting {
    /// Which program, by its place in [`Programs`].
    pub program: usize,
    /// How much of it is done, 0..=1.
    pub progress: f64,
    /// When it should be done.
    pub deadline: Time,
}

/// Most jobs that wait for one core and are looked at for its virtual deadline; those with the latest deadlines beyond
/// it are left out.
pub const WAITING_MAX: usize = 64;

/// The virtual deadline of a running job (fifth paper, section VI-B): the latest instant at which it can end without
/// making a waiting one late, if those then have the whole machine:
///
/// ```text
/// start(n) = D_n - WCET_n
/// start(i) = min(start(i + 1), D_i) - WCET_i
/// virtual deadline = min(start(1), D_0)
/// ```
///
/// with the waiting jobs 1..n in the order of their deadlines. WCET_i is what is left of a job that was pushed aside.
pub fn virtual_deadline(running: &Running<'_>, programs: &Programs) -> Time {
    virtual_deadline_with(running, programs, programs.grid().all())
}

/// The same, if those that wait then have `share`.
pub fn virtual_deadline_with(running: &Running<'_>, programs: &Programs, share: Share) -> Time {
    let mut order = [0_usize; WAITING_MAX];
    let count = running.waiting.len().min(WAITING_MAX);
    let order = &mut order[..count];
    order.iter_mut().enumerate().for_each(|(place, job)| *job = place);
    let mut start = Time(u64::MAX);
    order.sort_unstable_by_key(|&job| running.waiting[job].deadline);
    for &job in order.iter().rev() {
        let job = &running.waiting[job];
        let wcet = Nanos::from_secs_f64(programs.time_left(job.program, job.progress, share));
        let end = start.min(job.deadline);
        start = Time(end.0.saturating_sub(wcet.0));
    }
    start.min(running.deadline)
}
