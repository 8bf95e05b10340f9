//! Two cores that split cache ways and bandwidth.

use punctual_allocation::{
    AllocatorSettings, Base, CoreJobs, Grid, Phase, Policy, Pool, Profile, RateTable, Refill, WaitingJob,
};
use punctual_loop::{Event, SplitOptions};
use punctual_units::{Hertz, Nanos, Time};

/// Two programs, one of which wants ways in its second half.
pub fn split(policy: Policy, refill: Option<Refill>) -> SplitOptions {
    let profile = |name: &str, gains: [f32; 2]| Profile {
        name: name.into(),
        grid: Grid::PAPER,
        instructions: 1e8,
        phases: gains
            .iter()
            .zip([0.5, 1.0])
            .map(|(gain, ends)| Phase {
                ends,
                rates: RateTable::new(Grid::PAPER, |share| 1e9 + gain * f32::from(share.ways)),
            })
            .collect(),
    };
    SplitOptions {
        profiles: vec![profile("turns", [0.0, 2e8]), profile("steady", [1e8, 1e8])],
        tasks: Vec::new(),
        settings: AllocatorSettings {
            pool: Pool::PAPER,
            cores: 2,
            policy,
            base: Base::Even,
            refill,
            gap: Nanos::ZERO,
        },
        first: None,
        of: Vec::new(),
    }
}

/// Jobs of 100 ms at most are due at the ends of such periods.
const PERIOD: u64 = 200_000_000;

/// What runs at `now`: on the first core another half of a job each time.
pub fn jobs(number: u64, now: Time) -> Event {
    let job = |program, progress| CoreJobs {
        runs: Some(WaitingJob {
            program,
            progress,
            deadline: Time((now.0 / PERIOD + 1) * PERIOD),
        }),
        waits: Vec::new(),
    };
    Event::Jobs {
        clock: Hertz::from_mhz(2000),
        cores: vec![job(0, if number.is_multiple_of(2) { 0.1 } else { 0.6 }), job(1, 0.5)],
        foreseen: false,
    }
}
