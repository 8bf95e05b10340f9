//! vC2M's idea: as much as each core needs for its deadlines, no more, once.
//!
//! After M. Xu et al., "Holistic resource allocation for multicore real-time systems" (CaM, RTAS 2019) and "Holistic
//! multi-resource allocation for multicore real-time virtualization" (vC2M, DAC 2019): every core begins with the
//! least. While a core is not schedulable, the next partition of either resource goes to the unschedulable core whose
//! utilisation it lowers most. Tasks stay on their cores here, where vC2M also migrates them: the fifth paper packs
//! them beforehand.
//!
//! Two departures. Where no single partition lowers any unschedulable core's load, the average over the partitions that
//! are left decides, because a load may fall only after several. Where the result is worse than the even split, the
//! even split is taken, so that this baseline is never a straw man.

use punctual_allocation::policy::equal;
use punctual_allocation::{Loads, PerCore, Pool, Share};

/// Where partitions go that no core needs for its deadlines. The fifth paper does not say how its baseline did it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftovers {
    /// Leftovers stay unused by any core.
    Kept,
    /// Leftovers go, as before, to the core whose utilisation falls most.
    HandedOut,
}

/// The split after vC2M. If the even split is schedulable this is, too; and if leftovers are handed out, or some core
/// is late anyway, its largest load is at most that of the even split.
pub fn vc2m(loads: &Loads, pool: Pool, leftovers: Leftovers) -> PerCore<Share> {
    let mut shares = PerCore::from_elem(pool.least, loads.cores());
    while let Some(next) = best_step(loads, pool, &shares, |load| load > 1.0) {
        shares[next.core] = next.share;
    }
    if leftovers == Leftovers::HandedOut {
        while let Some(next) = best_step(loads, pool, &shares, |_| true) {
            shares[next.core] = next.share;
        }
    }
    let even = equal(pool, loads.cores());
    let frugal = leftovers == Leftovers::Kept && loads.largest(&shares) <= 1.0;
    if !frugal && loads.largest(&even) < loads.largest(&shares) {
        return even;
    }
    shares
}

/// A further partition for a core, and its gain.
struct Step {
    core: usize,
    share: Share,
    /// Fall of the core's load; where no single partition lowers any load, the average over all shares that could
    /// follow.
    gain: f64,
}

/// The step that lowers the load of a core that `wants` more by most; `None` if nothing does.
fn best_step(loads: &Loads, pool: Pool, shares: &[Share], wants: impl Fn(f64) -> bool) -> Option<Step> {
    let taken = |of: fn(&Share) -> u8| shares.iter().map(|share| usize::from(of(share))).sum::<usize>();
    let ways = pool.grid.ways - taken(|share| share.ways) as u8;
    let partitions = pool.grid.partitions - taken(|share| share.partitions) as u8;
    let mut best: Option<Step> = None;
    let mut far: Option<Step> = None;
    for (core, &share) in shares.iter().enumerate() {
        let load = loads.at(core, share);
        if !wants(load) {
            continue;
        }
        for more in steps(share, ways, partitions) {
            let fall = load - loads.at(core, more.next);
            keep_larger(&mut best, core, more.next, fall);
            let falls = more.reach.iter().map(|reach| load - loads.at(core, *reach));
            keep_larger(&mut far, core, more.next, falls.sum::<f64>() / more.reach.len() as f64);
        }
    }
    best.or(far)
}

/// A further partition of one resource, and all shares that could follow.
struct More {
    next: Share,
    reach: Vec<Share>,
}

fn steps(share: Share, ways: u8, partitions: u8) -> impl Iterator<Item = More> {
    let of_ways = (1..=ways).map(|more| Share {
        ways: share.ways + more,
        ..share
    });
    let of_partitions = (1..=partitions).map(|more| Share {
        partitions: share.partitions + more,
        ..share
    });
    [of_ways.collect::<Vec<_>>(), of_partitions.collect()]
        .into_iter()
        .filter_map(|reach| {
            Some(More {
                next: *reach.first()?,
                reach,
            })
        })
}

fn keep_larger(best: &mut Option<Step>, core: usize, share: Share, gain: f64) {
    if gain > best.as_ref().map_or(0.0, |best| best.gain) {
        *best = Some(Step { core, share, gain });
    }
}

#[cfg(test)]
mod tests {
    use punctual_allocation::{Objective, Programs};
    use punctual_sim::split::RunnableProfile;

    use super::super::decide::POOL;
    use super::super::tasksets::draw;
    use super::super::tests::SHIPPED;
    use super::*;

    #[test]
    fn it_is_never_below_equal() {
        let even = equal(POOL, 4);
        for set in SHIPPED.iter() {
            let programs = Programs::new(&set.profiles, Objective::Speed).unwrap();
            let runnable: Vec<RunnableProfile> = set
                .profiles
                .iter()
                .map(|profile| RunnableProfile::new(profile.clone()).unwrap())
                .collect();
            for (utilisation, number) in [1.2, 2.0, 2.6, 3.4].into_iter().flat_map(|u| [(u, 0), (u, 1)]) {
                let tasks = draw(&runnable, 4, utilisation, 1, number).unwrap().tasks;
                let loads = Loads::new(&programs, &tasks, 4);
                for leftovers in [Leftovers::Kept, Leftovers::HandedOut] {
                    let shares = vc2m(&loads, POOL, leftovers);
                    let sum = |of: fn(&Share) -> u8| shares.iter().map(|share| u32::from(of(share))).sum::<u32>();
                    assert!(sum(|share| share.ways) <= 20 && sum(|share| share.partitions) <= 20);
                    assert!(shares.iter().all(|share| share.ways >= 3 && share.partitions >= 1));
                    assert!(loads.largest(&shares) <= 1.0 || loads.largest(&shares) <= loads.largest(&even));
                    if leftovers == Leftovers::HandedOut {
                        assert!(loads.largest(&shares) <= loads.largest(&even));
                    }
                }
            }
        }
    }
}
