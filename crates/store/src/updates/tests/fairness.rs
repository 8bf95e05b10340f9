//! How the admitted share is spread over sensors and over time.

use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn without_a_minimum_each_sensor_gets_the_knob_share(
        sensors in 1..30u32, knob in 0.0..=1.0f64, rounds in 1..300u64
    ) {
        let specs = vec![spec(10, 20); sensors as usize];
        let mut updates = Updates::new(&specs, options(0.0, Shedding::Uniform, 0));
        updates.set_admitted_share(Share::clamped(knob));
        for sensor in 0..sensors {
            let verdicts = (0..rounds).map(|round| offer(&mut updates, sensor, 10 * round));
            let admitted = verdicts.filter(|verdict| *verdict == Receipt::Admitted).count();
            // 1e-9: rounding of the credit, n * 2^-53 at the most.
            prop_assert!((admitted as f64 - knob * rounds as f64).abs() <= 1.0 + 1e-9);
        }
        let counts = updates.counts();
        prop_assert_eq!(counts.for_minimum, 0);
        let share = counts.admitted_share_since(&UpdateCounts::default()).get();
        prop_assert!((share - knob).abs() <= 1.0 / rounds as f64 + 1e-9);
    }

    #[test]
    fn the_knob_share_of_each_round_is_admitted(sensors in 1..3000u32, knob in 0.0..=1.0f64) {
        let specs = vec![spec(10, 20); sensors as usize];
        let mut updates = Updates::new(&specs, options(0.0, Shedding::Uniform, 0));
        updates.set_admitted_share(Share::clamped(knob));
        // The discrepancy of the golden ratio's sequence grows as log N; twice that for an interval within 0..1.
        let tolerance = 2.0 * (1.0 + f64::from(sensors).ln());
        for round in 0..8 {
            let verdicts = (0..sensors).map(|sensor| offer(&mut updates, sensor, 10 * round));
            let admitted = verdicts.filter(|verdict| *verdict == Receipt::Admitted).count();
            prop_assert!((admitted as f64 - knob * f64::from(sensors)).abs() <= tolerance, "{} admitted", admitted);
        }
    }

    #[test]
    fn with_two_periods_of_validity_half_of_the_updates_keep_everything_fresh(
        periods in prop::collection::vec(1..50u64, 1..20),
        knob in 0.5..=1.0f64,
        minimum in 0.0..=1.0f64,
        length in 200..600u64,
    ) {
        let specs: Vec<_> = periods.iter().map(|&period| spec(period, 2 * period)).collect();
        let mut updates = Updates::new(&specs, options(minimum, Shedding::Uniform, 0));
        updates.set_admitted_share(Share::clamped(knob));
        let mut admitted_at = vec![0; periods.len()];
        for now in 0..length {
            for (sensor, period) in (0..).zip(&periods) {
                if now % period == 0 && offer(&mut updates, sensor, now) == Receipt::Admitted {
                    admitted_at[sensor as usize] = now;
                }
            }
            // Within two readings each sensor has had its first turn.
            let fresh = |sensor: usize| is_fresh(Time(now), Time(admitted_at[sensor]), specs[sensor].avi);
            prop_assert!((0..periods.len()).all(fresh), "{:?} at {}", admitted_at, now);
        }
    }

    #[test]
    fn no_hotter_object_is_shed_while_a_colder_one_is_admitted_but_for_the_minimum(
        objects in prop::collection::vec((1..50u64, 0..5u64), 1..20), knob in 0.0..=1.0f64, minimum in 0.0..=1.0f64
    ) {
        let specs: Vec<_> = objects.iter().map(|(period, _)| spec(*period, 3 * period)).collect();
        let mut updates = Updates::new(&specs, options(minimum, Shedding::ColdestFirst, 0));
        updates.set_admitted_share(Share::clamped(knob));
        updates.rebalance(|sensor| objects[sensor.index()].1);

        let mut shed = vec![0; objects.len()];
        let mut admitted_by_knob = vec![0; objects.len()];
        for now in 0..500 {
            for sensor in (0..objects.len()).filter(|&sensor| now % objects[sensor].0 == 0) {
                let before = updates.counts().for_minimum;
                match offer(&mut updates, sensor as u32, now) {
                    Receipt::Shed => shed[sensor] += 1,
                    Receipt::Admitted if updates.counts().for_minimum == before => admitted_by_knob[sensor] += 1,
                    Receipt::Admitted => {}
                }
            }
        }
        let heat = |sensor: usize| objects[sensor].0 * objects[sensor].1;
        let hottest_shed = (0..objects.len()).filter(|&sensor| shed[sensor] > 0).map(heat).max();
        let admitted = (0..objects.len()).filter(|&sensor| admitted_by_knob[sensor] > 0);
        let coldest_admitted = admitted.map(heat).min();
        // Equal heat is the marginal group, of which some are shed and some admitted.
        prop_assert!(hottest_shed.is_none_or(|shed| coldest_admitted.is_none_or(|admitted| shed <= admitted)));
    }

    #[test]
    fn with_nothing_read_coldest_first_is_uniform_above_the_least_share(
        periods in prop::collection::vec(0..6u32, 1..20), knob in 0..=16u32, minimum in 0.0..=1.0f64
    ) {
        // Powers of two, so that no rounding tells the two apart.
        let specs: Vec<_> = periods.iter().map(|power| spec(1 << power, 5 << power)).collect();
        // Below the least share that keeps the minimum, uniform shedding admits that share, coldest-first by and by.
        let least = least::least_share(&specs, Nanos(1), Share::clamped(minimum));
        let knob = (f64::from(knob) / 16.0).max((least * 16.0).ceil() / 16.0);
        let run = |shedding| {
            let mut updates = Updates::new(&specs, options(minimum, shedding, 1));
            updates.set_admitted_share(Share::clamped(knob));
            let mut verdicts = Vec::new();
            for now in 0..200 {
                updates.rebalance(|_| 0);
                let due = (0..).zip(&periods).filter(|(_, power)| now % (1 << **power) == 0);
                verdicts.extend(due.map(|(sensor, _)| offer(&mut updates, sensor, now)));
            }
            verdicts
        };
        prop_assert_eq!(run(Shedding::Uniform), run(Shedding::ColdestFirst));
    }
}

/// Share of the updates of 60 sensors that is admitted in 15 s, of which all but the last `hot` have never been read.
fn admitted(shedding: Shedding, minimum: f64, hot: u32, knob: impl Fn(&Updates) -> Share) -> f64 {
    const MS: u64 = 1_000_000;
    let periods: Vec<u64> = (0..60).map(|k| (50 + 5 * k) * MS).collect();
    let specs: Vec<_> = periods.iter().map(|period| spec(*period, 2 * period)).collect();
    let mut updates = Updates::new(&specs, options(minimum, shedding, 10 * MS));
    updates.set_admitted_share(knob(&updates));
    let mut settled = UpdateCounts::default();
    for now in (1..20_000).map(|ms| ms * MS) {
        if now == 5_000 * MS {
            settled = updates.counts();
        }
        if now % (100 * MS) == 0 {
            updates.rebalance(|sensor| u64::from(sensor.0 >= 60 - hot));
        }
        for (sensor, _) in (0..).zip(&periods).filter(|(_, period)| now.is_multiple_of(**period)) {
            offer(&mut updates, sensor, now);
        }
    }
    updates.counts().admitted_share_since(&settled).get()
}

#[test]
fn no_knob_admits_fewer_updates_than_the_least_one() {
    for (shedding, hot) in [
        (Shedding::Uniform, 0),
        (Shedding::ColdestFirst, 0),
        (Shedding::ColdestFirst, 10),
        (Shedding::ColdestFirst, 60),
    ] {
        for minimum in [0.3, 0.5, 0.8] {
            let least = admitted(shedding, minimum, hot, Updates::least_share);
            for knob in 0..10 {
                let other = admitted(shedding, minimum, hot, |_| Share::of(knob, 10));
                let told = format!("{shedding:?}, {hot} hot, minimum {minimum}: {least:.3}, {other:.3} at {knob}/10");
                assert!(least <= other + 0.005, "{told}");
            }
        }
    }
}

#[test]
fn the_coldest_objects_are_the_ones_given_up() {
    let mut updates = Updates::new(&[spec(10, 30); 8], options(0.5, Shedding::ColdestFirst, 1));
    let mut admitted_at = [0; 8];
    // The heat turns around half-way: what was given up must be brought back.
    for round in 0..40 {
        updates.set_admitted_share(Share::ZERO);
        updates.rebalance(|sensor| u64::from(if round < 20 { sensor.0 } else { 7 - sensor.0 }));
        for sensor in 0..8 {
            if offer(&mut updates, sensor, 10 * round) == Receipt::Admitted {
                admitted_at[sensor as usize] = 10 * round;
            }
        }
        let stale = admitted_at.map(|at| !is_fresh(Time(10 * round), Time(at), Nanos(30)));
        let (low, high) = stale.split_at(4);
        match round {
            10..20 => assert!(low.iter().all(|stale| *stale) && !high.contains(&true), "{stale:?}"),
            30..40 => assert!(high.iter().all(|stale| *stale) && !low.contains(&true), "{stale:?}"),
            _ => {}
        }
    }
}

#[test]
fn an_object_kept_fresh_out_of_turn_is_not_admitted_again_at_its_turn() {
    // Fresh for four periods, so one update in four is needed; the knob asks for one in five.
    let mut updates = Updates::new(&[spec(10, 41); 10], options(1.0, Shedding::Uniform, 1));
    updates.set_admitted_share(Share::clamped(0.2));
    for round in 0..400 {
        for sensor in 0..10 {
            offer(&mut updates, sensor, 10 * round);
        }
    }
    let share = updates.counts().admitted_share_since(&UpdateCounts::default());
    assert!((0.25..0.26).contains(&share.get()), "{share}");
}

#[test]
fn sensors_rescued_together_do_not_take_turns_in_step() {
    let mut updates = Updates::new(&[spec(10, 20); 1000], options(1.0, Shedding::Uniform, 0));
    updates.set_admitted_share(Share::clamped(0.5));
    let outage = 500;
    for now in [0, 10, 20, 30, 30 + outage, 40 + outage, 50 + outage, 60 + outage] {
        let admitted = (0..1000).filter(|&sensor| offer(&mut updates, sensor, now) == Receipt::Admitted);
        match (admitted.count(), now) {
            (admitted, 0 | 530) => assert_eq!(admitted, 1000, "at {now} nothing is fresh"),
            (admitted, _) => assert!((490..=510).contains(&admitted), "{admitted} at {now}"),
        }
    }
}
