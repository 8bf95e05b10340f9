//! The true optimum of rates weighted by urgency.
//!
//! **Weight.** A job that needs the share u of the time until its virtual deadline even with the whole machine has
//! *density* u = TimeLeft(everything) / slack. Its rate counts u times, in [`WEIGHTS`] steps: a job with no time to
//! lose counts 16 times as much as one with time in plenty. A job that cannot make it at all (u > 1, or its deadline
//! has passed) counts least: what it got would be taken from those that still can.
//!
//! **Method.** Weights change with every decision, so no table of pairs can be kept as for [`super::exact`]; the
//! surfaces are joined anew each time, which takes some microseconds for four jobs.

use punctual_units::Time;

use crate::grid::Share;
use crate::policy::Busy;
use crate::policy::rescue::slack_seconds;
use crate::policy::surface::{View, best_parts};
use crate::pool::Pool;
use crate::programs::Programs;
use crate::running::Running;

/// Steps of a weight: the heaviest job counts so many times the lightest.
pub const WEIGHTS: i32 = 16;

/// The split of the largest weighted sum of rates among the jobs that run on `cores` at `now`.
pub fn weighted(programs: &Programs, pool: Pool, cores: &[Option<Running<'_>>], now: Time) -> Vec<Share> {
    let busy = Busy::of(programs, pool, cores);
    let spare = busy.spare();
    let surfaces: Vec<Vec<i32>> = busy
        .jobs
        .iter()
        .zip(&busy.levels)
        .map(|((_, job), levels)| {
            let weight = weight(programs, job, now);
            levels.all().iter().map(|level| level * weight).collect()
        })
        .collect();
    let players: Vec<View<'_>> = surfaces
        .iter()
        .map(|cells| View::beyond(cells, pool.grid, pool.least))
        .collect();
    let shares: Vec<Share> = best_parts(&players, spare)
        .into_iter()
        .zip(&busy.levels)
        .map(|(part, levels)| {
            let share = spare.share(spare.cell(part.ways, part.partitions), pool.least);
            levels.trimmed(share, pool.least)
        })
        .collect();
    busy.spread(&shares)
}

/// How often a job's rate counts, 1..=[`WEIGHTS`].
pub fn weight(programs: &Programs, job: &Running<'_>, now: Time) -> i32 {
    let fastest = programs.time_left(job.program, job.progress, programs.grid().all());
    let slack = slack_seconds(programs, job, now, programs.grid().all());
    if slack < fastest {
        return 1;
    }
    let density = fastest / slack;
    // 0 / 0, a job that is done at its deadline, is NaN and becomes 0.
    ((density * f64::from(WEIGHTS)).ceil() as i32).clamp(1, WEIGHTS)
}
