//! DNA: one partition at a time goes to the core that gains most (fifth paper, section V, Algorithm 1); and the plain
//! greedy beside it.
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
//! - With dc or db 0 the divisor is 0: [`ZeroDelta`].
//! - The published code compares both averages even when one resource is used up, and can then hand out what is not
//!   there. Here what is used up is not a choice.
//! - It hands out everything, gain or not. Once no task gains by anything that is left, the rest is left spare here, so
//!   that nothing changes hands for nothing.
//!
//! **Cost.** The double sum is four look-ups in a table of running sums ([`crate::programs`]), and since all tasks
//! divide by the same dc db, the largest sum is the largest theta: no division, no rounding, ties are exact (the
//! earliest core).

use crate::grid::Share;
use crate::levels::Levels;
use crate::policy::Busy;
use crate::pool::{Pool, Spare};
use crate::programs::Programs;
use crate::running::Running;

/// What theta is where nothing is left of one resource, so that its formula divides by zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ZeroDelta {
    /// The average over the other resource: the factor that is 0 is left out of the divisor.
    #[default]
    OtherResource,
    /// No gain: 0. Then the choice between ways and bandwidth, which is between two such averages, is no choice:
    /// bandwidth goes first, as in the published code's `else`; and when it is used up, all ways left go to the first
    /// core.
    Nothing,
}

/// Splits `pool` after DNA among the jobs that run on `cores`.
pub fn dna(programs: &Programs, pool: Pool, cores: &[Option<Running<'_>>], zero: ZeroDelta) -> Vec<Share> {
    let busy = Busy::of(programs, pool, cores);
    let mut shares = busy.least();
    hand_out(&busy.levels, &mut shares, busy.spare(), zero);
    busy.spread(&shares)
}

/// Hands out `spare` to the cores that gain most; returns what no core gains from.
pub(crate) fn hand_out(tasks: &[&Levels], shares: &mut [Share], spare: Spare, zero: ZeroDelta) -> Spare {
    hand_out_weighted(tasks, shares, spare, zero, |_| 1)
}

/// The same, each task's gain counted `weight` times.
pub(crate) fn hand_out_weighted(
    tasks: &[&Levels],
    shares: &mut [Share],
    mut spare: Spare,
    zero: ZeroDelta,
    weight: impl Fn(usize) -> i64,
) -> Spare {
    while spare.ways > 0 || spare.partitions > 0 {
        let gains = tasks
            .iter()
            .zip(&*shares)
            .enumerate()
            .map(|(number, (task, share))| weight(number) * theta(task, *share, spare, zero));
        let Some((task, gain)) = first_largest(gains) else {
            break;
        };
        if gain == 0 && zero == ZeroDelta::OtherResource {
            break;
        }
        give(tasks[task], &mut shares[task], &mut spare, zero);
    }
    spare
}

/// Gives one partition of the resource that gains more to a task (Algorithm 1, `GiveResourceTo`).
pub(crate) fn give(task: &Levels, share: &mut Share, spare: &mut Spare, zero: ZeroDelta) {
    let Gains { ways, partitions } = gains(task, *share, *spare, zero);
    if spare.partitions == 0 || (spare.ways > 0 && partitions < ways) {
        share.ways += 1;
        spare.ways -= 1;
    } else {
        share.partitions += 1;
        spare.partitions -= 1;
    }
}

/// theta over each resource alone, both times the same positive factor: comparable with each other, and with 0.
pub(crate) struct Gains {
    pub ways: i64,
    pub partitions: i64,
}

pub(crate) fn gains(task: &Levels, share: Share, spare: Spare, zero: ZeroDelta) -> Gains {
    match zero {
        ZeroDelta::OtherResource => Gains {
            ways: gain(task, share, spare.ways, 0) * spare.partitions.max(1) as i64,
            partitions: gain(task, share, 0, spare.partitions) * spare.ways.max(1) as i64,
        },
        ZeroDelta::Nothing => Gains { ways: 0, partitions: 0 },
    }
}

/// theta times its divisor, which is the same for all tasks.
fn theta(task: &Levels, share: Share, spare: Spare, zero: ZeroDelta) -> i64 {
    if zero == ZeroDelta::Nothing && (spare.ways == 0 || spare.partitions == 0) {
        return 0;
    }
    gain(task, share, spare.ways, spare.partitions)
}

/// The double sum of theta.
fn gain(task: &Levels, share: Share, ways: usize, partitions: usize) -> i64 {
    let terms = ((ways + 1) * (partitions + 1)) as i64;
    i64::from(task.sum(share, ways, partitions)) - terms * i64::from(task.at(share))
}

/// The largest and its place; the first of equals.
fn first_largest(values: impl Iterator<Item = i64>) -> Option<(usize, i64)> {
    values
        .enumerate()
        .reduce(|best, next| if next.1 > best.1 { next } else { best })
}

/// Splits `pool` by the gain of the very next partition, of any core and either resource. Where no next partition gains
/// anything, the core that has least of a resource gets one, ways first.
///
/// A plateau stops it, which is why theta averages; here for comparison.
pub fn greedy(programs: &Programs, pool: Pool, cores: &[Option<Running<'_>>]) -> Vec<Share> {
    let busy = Busy::of(programs, pool, cores);
    let mut shares = busy.least();
    let mut spare = busy.spare();
    let tasks = &busy.levels;
    while !tasks.is_empty() && (spare.ways > 0 || spare.partitions > 0) {
        let next = |(task, share): (&&Levels, &Share)| {
            let ways = (spare.ways > 0).then(|| gain(task, *share, 1, 0));
            let partitions = (spare.partitions > 0).then(|| gain(task, *share, 0, 1));
            [ways.unwrap_or(0), partitions.unwrap_or(0)]
        };
        let each = tasks.iter().zip(&shares).flat_map(next);
        let (place, gain) = first_largest(each).unwrap_or((0, 0));
        let (task, of_ways) = if gain > 0 {
            (place / 2, place % 2 == 0)
        } else {
            (poorest(&shares, spare.ways > 0), spare.ways > 0)
        };
        if of_ways {
            shares[task].ways += 1;
            spare.ways -= 1;
        } else {
            shares[task].partitions += 1;
            spare.partitions -= 1;
        }
    }
    busy.spread(&shares)
}

/// The core with the fewest ways, or partitions; the first of equals.
fn poorest(shares: &[Share], of_ways: bool) -> usize {
    let has = |share: &Share| if of_ways { share.ways } else { share.partitions };
    let least = shares.iter().enumerate().min_by_key(|(_, share)| has(share));
    least.map_or(0, |(place, _)| place)
}
