//! Times and rates at clocks below the top one.

use proptest::prelude::*;

use super::*;
use crate::Phase;

const GRID: Grid = Grid { ways: 3, partitions: 2 };

/// A program of one to four phases.
fn programs() -> impl Strategy<Value = Programs> {
    let phase = (1_u8..10, prop::collection::vec(1e6_f32..1e9, GRID.len()));
    prop::collection::vec(phase, 1..5).prop_map(|phases| {
        let whole: f64 = phases.iter().map(|(length, _)| f64::from(*length)).sum();
        let mut until = 0.0;
        let phase = |(length, rates): &(u8, Vec<f32>)| {
            until += f64::from(*length);
            Phase {
                ends: until / whole,
                rates: RateTable::new(GRID, |share| rates[GRID.index(share)]),
            }
        };
        let profile = Profile {
            name: "any".into(),
            grid: GRID,
            instructions: 1e8,
            phases: phases.iter().map(phase).collect(),
        };
        Programs::new(&[profile], Objective::Speed).expect("a fine profile")
    })
}

fn share() -> impl Strategy<Value = Share> {
    (1..=GRID.ways, 1..=GRID.partitions).prop_map(|(ways, partitions)| Share { ways, partitions })
}

/// Equal up to rounding.
fn near(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs().max(other.abs()).max(1e-9)
}

proptest! {
    /// A clock k times lower makes computing k times as long, and leaves waiting as it is.
    #[test]
    fn computing_scales_with_the_clock_and_waiting_does_not(
        programs in programs(),
        share in share(),
        progress in 0.0f64..1.0,
        slowdown in 1.0f64..10.0,
    ) {
        let all = GRID.all();
        let mut slow = programs.clone();
        slow.slow_down(slowdown);
        for (slow, top) in [
            (slow.duration(0, all), programs.duration(0, all)),
            (slow.phase_left(0, progress, all), programs.phase_left(0, progress, all)),
            (slow.time_left(0, progress, all), programs.time_left(0, progress, all)),
        ] {
            prop_assert!(near(slow, slowdown * top), "{slow} {top}");
        }
        let waits =
            |of: &Programs, left: fn(&Programs, f64, Share) -> f64| left(of, progress, share) - left(of, progress, all);
        let duration: fn(&Programs, f64, Share) -> f64 = |of, _, share| of.duration(0, share);
        let phase: fn(&Programs, f64, Share) -> f64 = |of, progress, share| of.phase_left(0, progress, share);
        let run: fn(&Programs, f64, Share) -> f64 = |of, progress, share| of.time_left(0, progress, share);
        for left in [duration, phase, run] {
            let (slow, top) = (waits(&slow, left), waits(&programs, left));
            prop_assert!((slow - top).abs() <= 1e-9 * slow.abs().max(1.0), "{slow} {top}");
        }
    }

    /// What many questions about one place are answered by says the same as one question does.
    #[test]
    fn a_place_knows_the_same_times(
        mut programs in programs(),
        share in share(),
        progress in 0.0f64..1.0,
        slowdown in 1.0f64..10.0,
    ) {
        programs.slow_down(slowdown);
        let here = programs.here(0, progress);
        prop_assert!(near(here.phase_left(share), programs.phase_left(0, progress, share)));
        prop_assert!(near(here.time_left(share), programs.time_left(0, progress, share)));
        prop_assert!(near(here.speed(share), programs.speed(0, progress, share)));
    }

    /// The work that is left is the same at whatever clock its time is given.
    #[test]
    fn a_clock_that_changes_changes_no_work(
        mut programs in programs(),
        share in share(),
        progress in 0.0f64..1.0,
        clocks in (1.0f64..10.0, 1.0f64..10.0),
    ) {
        programs.slow_down(clocks.0);
        let then = programs.time_left(0, progress, share);
        programs.slow_down(clocks.1);
        let (retimed, now) = (programs.retimed(0, share, then, clocks.0), programs.time_left(0, progress, share));
        prop_assert!(near(retimed, now), "{retimed} {now}");
    }
}

#[test]
fn no_clock_is_above_the_top_one() {
    let rates = RateTable::new(GRID, |_| 1e9);
    let profile = Profile {
        name: "any".into(),
        grid: GRID,
        instructions: 1e9,
        phases: vec![Phase { ends: 1.0, rates }],
    };
    let mut programs = Programs::new(&[profile], Objective::Speed).unwrap();
    for slowdown in [0.5, -1.0, f64::NAN, f64::INFINITY] {
        programs.slow_down(slowdown);
        assert_eq!(programs.slowdown(), 1.0, "{slowdown}");
    }
}
