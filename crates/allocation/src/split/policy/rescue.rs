//! Which jobs to help, and at the cost of which: what DADNA adds to a split that knows no deadlines.
//!
//! **Terms.** A job is *late* with a split if it would take longer than until its virtual deadline. It is *lost* if its
//! deadline has passed: late with every split. *Donors* are the lost jobs; where there is none, the jobs that are in
//! time and that no job waits behind, so that their delay delays no other.
//!
//! **Method.** The gains of all but the donors count 2, 4, 8, 16 times ([`WEIGHTS`]), until no job is late but the lost
//! ones. Another split than the plain one is taken only if every job that is in time with the plain one stays so, and
//! fewer are late.
//!
//! **Why these donors.** Where all cores have more to do than they can, jobs that are in time for the moment must not
//! pay for those that are not: the queues would grow alike, and all jobs be late instead of some. A lost job has
//! nothing left to lose, and where none is lost, one that no other waits behind has time until its own deadline.

use punctual_units::Time;

use crate::grid::Share;
use crate::pool::CORES_MAX;
use crate::programs::Programs;
use crate::running::{RunningJob, virtual_deadline_with};

/// Weights of the gains of all jobs but the donors, tried in this order.
pub const WEIGHTS: [i64; 4] = [2, 4, 8, 16];

const _: () = assert!(CORES_MAX <= Jobs::BITS as usize, "a bit for each job");

/// A set of jobs that run: bit n is job n.
type Jobs = u64;

/// Prospects of a job before anything is handed out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlook {
    /// Seconds until its virtual deadline; negative if that has passed.
    slack: f64,
    /// Whether the job would be late even with all that it can get, so that no split is worth looking for.
    hopeless: bool,
    /// Whether its own deadline has passed.
    lost: bool,
    /// Whether no job waits behind it.
    alone: bool,
}

impl Outlook {
    /// A core without a job: never late, and without anything to give.
    pub const AT_REST: Outlook = Outlook {
        slack: f64::INFINITY,
        hopeless: false,
        lost: false,
        alone: false,
    };

    /// The outlook of `job` at `now`, if it can get up to `most`, and those that wait behind it then have `share`.
    pub fn of(programs: &Programs, job: &RunningJob<'_>, now: Time, most: Share, share: Share) -> Outlook {
        let slack = slack_seconds(programs, job, now, share);
        Outlook {
            slack,
            hopeless: programs.time_left(job.program, job.progress, most) > slack,
            lost: job.deadline < now,
            alone: job.waiting.is_empty(),
        }
    }
}

/// Returns the split with all weights 1, or another one that helps late jobs. `time_left` gives the seconds that a job
/// takes with a split, `split` makes the split for given weights.
pub(crate) fn rescued<S>(
    outlooks: &[Outlook],
    time_left: impl Fn(usize, &S) -> f64,
    split: impl Fn(&dyn Fn(usize) -> i64) -> S,
) -> S {
    let all = || outlooks.iter().enumerate();
    let lost = jobs(all().map(|(_, outlook)| outlook.lost));
    let late = |split: &S| {
        jobs(all().map(|(job, outlook)| !outlook.lost && !outlook.hopeless && time_left(job, split) > outlook.slack))
    };
    let plain = split(&|_| 1);
    let at_first = late(&plain);
    let donors = if lost != 0 {
        lost
    } else {
        jobs(all().map(|(_, outlook)| outlook.alone && !outlook.hopeless)) & !at_first
    };
    if at_first == 0 || donors == 0 {
        return plain;
    }
    let mut best = (at_first, plain);
    for weight in WEIGHTS {
        let other = split(&|job| if donors >> job & 1 == 1 { 1 } else { weight });
        let still = late(&other);
        if still & !at_first == 0 && still.count_ones() < best.0.count_ones() {
            best = (still, other);
        }
        if best.0 == 0 {
            break;
        }
    }
    best.1
}

/// The jobs of which `is` is true.
fn jobs(is: impl Iterator<Item = bool>) -> Jobs {
    is.enumerate().map(|(job, is)| Jobs::from(is) << job).sum()
}

/// From `now` until the virtual deadline of `job`, if those that wait then have `share`; negative if that has passed.
fn slack_seconds(programs: &Programs, job: &RunningJob<'_>, now: Time, share: Share) -> f64 {
    let then = virtual_deadline_with(job, programs, share);
    if then >= now {
        then.since(now).as_secs_f64()
    } else {
        -now.since(then).as_secs_f64()
    }
}
