//! DADNA: jobs first that would otherwise be late (fifth paper, section VI), at the cost of jobs that can afford it.
//!
//! **Terms.** *TimeLeft* is how long a job still takes with a share, over the current and the coming phases
//! ([`Programs::time_left`]; the paper's prototype looked at the current phase only). *Slack* is the time until the
//! job's virtual deadline ([`virtual_deadline_with`]), which leaves the jobs that wait behind it enough. A job is
//! *late* with a share if its TimeLeft is more than its slack.
//!
//! **Method.** [`rescued`] helps jobs that would be late with DNA's split: the gains of others count less, as little as
//! it takes. DNA's split stays where no job is late with it, or where help for one would make another late.
//!
//! **What departs from Algorithm 2**, and why. The paper first hands out
//! to jobs that would be late with the least, until they are in time; only then the others get anything. That is dear:
//! a share that is given whatever its gain costs the others many times what it brings, and most jobs that are late with
//! the least would be in time with DNA's split. In overload the speed that is lost makes queues grow, and more jobs
//! late than were saved. Here
//! - DNA's split is looked at first, not the least;
//! - late jobs are helped through theta, in which their gain counts more, so that partitions still go where they bring
//!   something;
//! - the payers are chosen: jobs whose deadline has passed, which are late whatever they get, and only where there is
//!   none of those, jobs in time with no job waiting behind them;
//! - jobs that wait are taken to run with an even split, not with everything, which they will not have.

use punctual_units::Time;

use crate::grid::Share;
use crate::policy::Busy;
use crate::policy::dna::hand_out;
use crate::policy::rescue::{Outlook, rescued};
use crate::pool::{PerCore, Pool};
use crate::programs::Programs;
use crate::running::RunningJob;

/// Splits `pool` after DADNA among the jobs that run on `cores` at `now`.
pub fn dadna(programs: &Programs, pool: Pool, cores: &[Option<RunningJob<'_>>], now: Time) -> PerCore<Share> {
    let busy = Busy::of(programs, pool, cores);
    let (even, spare) = (even(pool, cores.len()), busy.spare());
    let most = spare.beyond(pool.least);
    let outlooks: PerCore<Outlook> = busy
        .jobs
        .iter()
        .map(|(_, job)| Outlook::of(programs, job, now, most, even))
        .collect();
    let time_left = |job: usize, shares: &PerCore<Share>| {
        let running = busy.jobs[job].1;
        programs.time_left(running.program, running.progress, shares[job])
    };
    let split = |weight: &dyn Fn(usize) -> i64| {
        let mut shares = busy.least();
        hand_out(&busy.levels, &mut shares, spare, weight);
        shares
    };
    busy.spread(&rescued(&outlooks, time_left, split))
}

/// Share of each of `cores` cores under an even split of `pool`, rounded down.
fn even(pool: Pool, cores: usize) -> Share {
    let part = |all: u8| (usize::from(all) / cores.max(1)).max(1) as u8;
    Share {
        ways: part(pool.grid.ways),
        partitions: part(pool.grid.partitions),
    }
}
