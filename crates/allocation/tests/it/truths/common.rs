//! Random programs, what runs, and brute force.

use proptest::prelude::*;
use punctual_allocation::{Grid, Objective, Phase, Pool, Profile, Programs, RateTable, RunningJob, Share};
use punctual_units::Time;

/// Small enough for brute force.
pub const GRID: Grid = Grid {
    ways: 13,
    partitions: 8,
};

/// Of [`GRID`].
pub const POOL: Pool = Pool {
    grid: GRID,
    least: Share { ways: 2, partitions: 1 },
    idle: Share { ways: 1, partitions: 1 },
};

/// A program of up to four phases; its rates jump up and down, as measured ones do.
pub fn profile(name: String) -> impl Strategy<Value = Profile> {
    let rates = proptest::collection::vec(1_u16..30, GRID.len());
    let phases = proptest::collection::vec((1_u8..10, rates), 1..4);
    (phases, 1_u32..1000).prop_map(move |(phases, instructions)| {
        let whole: u32 = phases.iter().map(|(length, _)| u32::from(*length)).sum();
        let mut until = 0;
        let phases = phases
            .into_iter()
            .map(|(length, rates)| {
                until += u32::from(length);
                Phase {
                    ends: f64::from(until) / f64::from(whole),
                    rates: RateTable::new(GRID, |share| 1e6 * f32::from(rates[GRID.index(share)])),
                }
            })
            .collect();
        Profile {
            name: name.clone(),
            grid: GRID,
            instructions: 1e6 * f64::from(instructions),
            phases,
        }
    })
}

/// Three programs.
pub fn programs() -> impl Strategy<Value = Programs> {
    let objective = prop_oneof![Just(Objective::Instructions), Just(Objective::Speed)];
    let profiles = [profile("a".into()), profile("b".into()), profile("c".into())];
    (profiles, objective).prop_map(|(profiles, objective)| Programs::new(&profiles, objective).expect("fine profiles"))
}

/// What runs on up to four cores, of [`programs`].
pub fn cores() -> impl Strategy<Value = Vec<Option<RunningJob<'static>>>> {
    let job = (0_usize..3, 0.0..1.0, 0_u64..2_000_000_000).prop_map(|(program, progress, deadline)| RunningJob {
        program,
        progress,
        deadline: Time(deadline),
        waiting: &[],
    });
    proptest::collection::vec(proptest::option::weighted(0.8, job), 1..=4)
}

/// Calls `visit` with each split of [`POOL`] among these cores; all is handed out.
pub fn every_split(busy: &[bool], visit: &mut impl FnMut(&[Share])) {
    fn rest(busy: &[bool], ways: u8, partitions: u8, shares: &mut Vec<Share>, visit: &mut impl FnMut(&[Share])) {
        let core = shares.len();
        let least = |core: usize| if busy[core] { POOL.least } else { POOL.idle };
        if core == busy.len() {
            return visit(shares);
        }
        let (mut ways_left, mut partitions_left) = (ways, partitions);
        for core in core + 1..busy.len() {
            ways_left -= least(core).ways;
            partitions_left -= least(core).partitions;
        }
        let first = least(core);
        let only_all = core + 1 == busy.len();
        for w in if only_all { ways_left } else { first.ways }..=ways_left {
            for p in if only_all { partitions_left } else { first.partitions }..=partitions_left {
                shares.push(Share { ways: w, partitions: p });
                rest(busy, ways - w, partitions - p, shares, visit);
                shares.pop();
            }
        }
    }
    rest(busy, GRID.ways, GRID.partitions, &mut Vec::new(), visit);
}

/// No core under its least, nothing handed out that is not there.
pub fn keeps_to_the_pool(pool: Pool, busy: &[bool], shares: &[Share]) -> Result<(), TestCaseError> {
    prop_assert_eq!(shares.len(), busy.len());
    for (busy, share) in busy.iter().zip(shares) {
        let least = if *busy { pool.least } else { pool.idle };
        prop_assert!(
            share.ways >= least.ways && share.partitions >= least.partitions,
            "{:?}",
            shares
        );
    }
    let sum = |of: fn(&Share) -> u8| shares.iter().map(|share| u32::from(of(share))).sum::<u32>();
    prop_assert!(sum(|share| share.ways) <= pool.grid.ways.into(), "{:?}", shares);
    prop_assert!(
        sum(|share| share.partitions) <= pool.grid.partitions.into(),
        "{:?}",
        shares
    );
    Ok(())
}
