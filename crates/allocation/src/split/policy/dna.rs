//! DNA: one partition at a time goes to the core that gains most (fifth paper, section V, Algorithm 1).
//!
//! ```text
//! theta(task, i, c, b, dc, db) = 1 / (dc db) * sum_{j=0..dc} sum_{k=0..db} [rho(i, c+j, b+k) - rho(i, c, b)]
//! ```
//!
//! is the average gain of up to dc ways and db partitions more; the average looks over plateaus, where a single
//! partition more does nothing but several do. While anything is left, the task of the largest theta over all that is
//! left gets one partition: a way if the average over ways alone is the larger one, bandwidth otherwise.
//!
//! **Three departures**, each because the published text leaves no choice or does harm:
//! - With dc or db 0 the divisor is 0. Then the average is over the other resource: the factor 0 is left out. (To take
//!   it for no gain loses much: `dna-zero` at commit 563394a.)
//! - The published code compares both averages even when one resource is used up, and can then hand out what is not
//!   there. Here what is used up is not a choice.
//! - It hands out everything, gain or not. Once no task gains by anything that is left, the rest is left spare here, so
//!   that nothing changes hands for nothing.
//!
//! **Cost.** The double sum is four look-ups in a table of running sums (`levels`), and since all tasks divide by the
//! same dc db, the largest sum is the largest theta: no division, no rounding, ties are exact (the earliest core).

use crate::grid::Share;
use crate::levels::Levels;
use crate::policy::Busy;
use crate::pool::{PerCore, Pool, Spare};
use crate::programs::Programs;
use crate::running::RunningJob;

/// Splits `pool` after DNA among the jobs that run on `cores`.
pub fn dna(programs: &Programs, pool: Pool, cores: &[Option<RunningJob<'_>>]) -> PerCore<Share> {
    let busy = Busy::of(programs, pool, cores);
    let mut shares = busy.least();
    hand_out(&busy.levels, &mut shares, busy.spare(), |_| 1);
    busy.spread(&shares)
}

/// Hands out `spare` to the cores that gain most, each task's gain counted `weight` times. A rest from which no core
/// gains stays spare.
pub(crate) fn hand_out(tasks: &[&Levels], shares: &mut [Share], mut spare: Spare, weight: impl Fn(usize) -> i64) {
    while spare.ways > 0 || spare.partitions > 0 {
        let gains = tasks
            .iter()
            .zip(&*shares)
            .enumerate()
            .map(|(number, (task, share))| weight(number) * gain(task, *share, spare.ways, spare.partitions));
        let Some((task, gain)) = first_largest(gains) else {
            break;
        };
        if gain == 0 {
            break;
        }
        give(tasks[task], &mut shares[task], &mut spare);
    }
}

/// Gives one partition of the resource that gains more to a task (Algorithm 1, `GiveResourceTo`). Both averages are
/// multiplied by the same positive factor, so that they compare without a division.
fn give(task: &Levels, share: &mut Share, spare: &mut Spare) {
    let ways = gain(task, *share, spare.ways, 0) * spare.partitions.max(1) as i64;
    let partitions = gain(task, *share, 0, spare.partitions) * spare.ways.max(1) as i64;
    if spare.partitions == 0 || (spare.ways > 0 && partitions < ways) {
        share.ways += 1;
        spare.ways -= 1;
    } else {
        share.partitions += 1;
        spare.partitions -= 1;
    }
}

/// The double sum of theta: theta times its divisor, which is the same for all tasks.
fn gain(task: &Levels, share: Share, ways: usize, partitions: usize) -> i64 {
    let terms = ((ways + 1) * (partitions + 1)) as i64;
    i64::from(task.sum(share, ways, partitions)) - terms * i64::from(task.at(share))
}

/// The largest value and its index; of equals the first.
fn first_largest(values: impl Iterator<Item = i64>) -> Option<(usize, i64)> {
    values
        .enumerate()
        .reduce(|best, next| if next.1 > best.1 { next } else { best })
}
