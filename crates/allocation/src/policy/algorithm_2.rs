//! DADNA to the letter (fifth paper, section VI, Algorithm 2); what is used in its place is [`super::dadna()`].
//!
//! **Method.** Jobs that would be late with the least, but not with all that is spare besides each core's least, come
//! first: while one of them would still be late, the one that lacks most time gets a partition. What is left is handed
//! out as by DNA.
//!
//! **Two departures.** A job whose rate gains nothing now, but which gains in a later phase, is given the resource that
//! shortens its TimeLeft (theta alone, which sees the current phase, would hand it bandwidth for nothing). One that
//! nothing helps any more is let go, so that it does not take everything and be late nonetheless.

use punctual_units::Time;

use crate::grid::Share;
use crate::policy::Busy;
use crate::policy::dna::{ZeroDelta, gains, give, hand_out};
use crate::policy::rescue::slack_seconds;
use crate::pool::{Pool, Spare};
use crate::programs::Programs;
use crate::running::Running;

/// A job that comes first.
struct Urgent {
    /// Its place among the jobs that run.
    job: usize,
    /// Seconds until its virtual deadline; negative if that has passed.
    slack: f64,
    /// Seconds by which it would be late.
    lacks: f64,
}

/// Splits `pool` after Algorithm 2 among the jobs that run on `cores` at `now`.
pub fn algorithm_2(
    programs: &Programs,
    pool: Pool,
    cores: &[Option<Running<'_>>],
    now: Time,
    zero: ZeroDelta,
) -> Vec<Share> {
    let busy = Busy::of(programs, pool, cores);
    let mut shares = busy.least();
    let spare = rescue(&busy, &mut shares, now, zero);
    hand_out(&busy.levels, &mut shares, spare, zero);
    busy.spread(&shares)
}

/// Gives to jobs that would be late until they are not; says what is left.
fn rescue(busy: &Busy<'_>, shares: &mut [Share], now: Time, zero: ZeroDelta) -> Spare {
    let mut spare = busy.spare();
    let time_left = |job: usize, share| {
        let running = busy.jobs[job].1;
        busy.programs.time_left(running.program, running.progress, share)
    };
    let mut urgent: Vec<Urgent> = (0..busy.jobs.len())
        .filter_map(|job| {
            let slack = slack_seconds(busy.programs, busy.jobs[job].1, now, busy.programs.grid().all());
            let lacks = time_left(job, shares[job]) - slack;
            let in_time = time_left(job, with_all(shares[job], spare)) <= slack;
            (lacks > 0.0 && in_time).then_some(Urgent { job, slack, lacks })
        })
        .collect();
    while spare.ways > 0 || spare.partitions > 0 {
        let most = urgent.iter().enumerate().max_by(|a, b| a.1.lacks.total_cmp(&b.1.lacks));
        let Some((place, &Urgent { job, slack, .. })) = most else {
            break;
        };
        let share = &mut shares[job];
        let gains = gains(busy.levels[job], *share, spare, zero);
        if gains.ways > 0 || gains.partitions > 0 {
            give(busy.levels[job], share, &mut spare, zero);
        } else if !give_for_later(share, &mut spare, |share| time_left(job, share)) {
            urgent.swap_remove(place);
            continue;
        }
        urgent[place].lacks = time_left(job, *share) - slack;
        if urgent[place].lacks <= 0.0 {
            urgent.swap_remove(place);
        }
    }
    spare
}

/// Gives one partition of the resource that shortens TimeLeft most for each partition of it; says whether any does.
fn give_for_later(share: &mut Share, spare: &mut Spare, time_left: impl Fn(Share) -> f64) -> bool {
    let now = time_left(*share);
    let saved = |ways: usize, partitions: usize| {
        let all = with_all(*share, Spare { ways, partitions });
        (now - time_left(all)) / (ways + partitions).max(1) as f64
    };
    let (of_ways, of_partitions) = (saved(spare.ways, 0), saved(0, spare.partitions));
    let of_both = saved(spare.ways, spare.partitions);
    if of_both <= 0.0 {
        return false;
    }
    if spare.partitions == 0 || (spare.ways > 0 && of_partitions < of_ways) {
        share.ways += 1;
        spare.ways -= 1;
    } else {
        share.partitions += 1;
        spare.partitions -= 1;
    }
    true
}

/// `share` and everything spare.
fn with_all(share: Share, spare: Spare) -> Share {
    Share {
        ways: share.ways + spare.ways as u8,
        partitions: share.partitions + spare.partitions as u8,
    }
}
