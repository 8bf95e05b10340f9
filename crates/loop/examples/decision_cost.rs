//! What decisions of the loop cost: eight tasks with goals of their own and seven knobs, of which a period's decision
//! turns three (clock, admitted share, best-effort share) and a split's decision four (ways and bandwidth of two
//! cores).
//!
//! ```sh
//! cargo run --release -p punctual-loop --features allocation --example decision_cost
//! ```
//!
//! *Cold*: between two decisions 64 MiB are written, more than the caches of a core hold, so that neither what the loop
//! knows nor its code is in them: as after a period in which other programs ran. Nothing is rehearsed. *Warm*: one
//! decision right after the other.

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::time::Instant;

use punctual_allocation::{Base, CoreJobs, Grid, Phase, Policy, Pool, Profile, RateTable, Refill, Settings, Waiting};
use punctual_loop::{Event, Regulator, SplitOptions};
use punctual_units::{Hertz, Nanos, Time};

const DECISIONS: u64 = 400;
const SWEPT_BYTES: usize = 64 << 20;

/// Two programs, one of which wants ways in its second half.
fn split() -> SplitOptions {
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
        settings: Settings {
            pool: Pool::PAPER,
            cores: 2,
            policy: Policy::Exact,
            base: Base::Even,
            refill: Some(Refill::PAPER),
            gap: Nanos::ZERO,
        },
    }
}

/// What runs at `now`: on the first core another half of a job each time.
fn jobs(number: u64, now: Time) -> Event {
    let job = |program, progress| CoreJobs {
        runs: Some(Waiting {
            program,
            progress,
            deadline: now + Nanos::from_millis(100),
        }),
        waits: Vec::new(),
    };
    Event::Jobs {
        clock: Hertz::from_mhz(2000),
        cores: vec![job(0, if number.is_multiple_of(2) { 0.1 } else { 0.6 }), job(1, 0.5)],
    }
}

fn timed(regulator: &mut Regulator, event: &Event, now: Time) -> Nanos {
    let begun = Instant::now();
    black_box(regulator.step(event, now));
    Nanos(begun.elapsed().as_nanos() as u64)
}

fn told(what: &str, mut times: Vec<Nanos>) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_micros_f64();
    println!("{what:<24} median {:6.2} us, p99 {:6.2} us", at(0.5), at(0.99));
}

fn main() {
    let mut swept = vec![0_u8; SWEPT_BYTES];
    for cold in [false, true] {
        let mut regulator = Regulator::new(punctual_loop::RegulatorOptions {
            split: Some(split()),
            ..common::options()
        })
        .expect("options of this program");
        let (mut periods, mut splits) = (Vec::new(), Vec::new());
        let mut sweep = || {
            if cold {
                swept
                    .iter_mut()
                    .step_by(64)
                    .for_each(|byte| *byte = byte.wrapping_add(1));
                black_box(&swept);
            }
        };
        for number in 0..DECISIONS {
            let mut now = Time::ZERO;
            (0..common::TASKS).for_each(|task| now = common::job(&mut regulator, number, task));
            sweep();
            periods.push(timed(&mut regulator, &Event::Period(common::vitals(now)), now));
            common::decide(&mut regulator, now);
            sweep();
            splits.push(timed(&mut regulator, &jobs(number, now), now));
        }
        let heat = if cold { "cold" } else { "warm" };
        told(&format!("decision per period, {heat}"), periods);
        told(&format!("decision of a split, {heat}"), splits);
    }
}
