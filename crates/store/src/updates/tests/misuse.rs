//! Bad input is answered, not obeyed; planted faults are found.

use super::*;
use proptest::prelude::*;

fn two() -> Updates {
    Updates::new(&[spec(10, 20); 2], AdmissionOptions::default())
}

#[test]
fn a_refused_update_changes_nothing_and_says_why() {
    let mut updates = two();
    offer(&mut updates, 0, 5);
    let before = updates.counts();
    let mut refused = |sensor, seq, value: &[u8]| {
        let now = Time(6);
        updates.offer(SensorId(sensor), Seq(seq), now, value, now).unwrap_err()
    };
    let unknown = OfferError::UnknownSensor {
        sensor: SensorId(2),
        sensors: 2,
    };
    assert_eq!(refused(2, 1, &[]), unknown);
    let repeated = |sensor, seq, last| OfferError::SeqNotIncreasing {
        sensor: SensorId(sensor),
        seq: Seq(seq),
        last: Seq(last),
    };
    assert_eq!(refused(0, 1, &[]), repeated(0, 1, 1));
    assert_eq!(refused(1, 0, &[]), repeated(1, 0, 0));
    let long = OfferError::ValueTooLong {
        sensor: SensorId(1),
        seq: Seq(1),
        len: 9,
        max: 8,
    };
    assert_eq!(refused(1, 1, &[0; 9]), long);
    assert_eq!(updates.counts(), before);
    assert!(updates.reconcile().balances());
}

#[test]
fn an_update_that_the_queue_drops_is_reported_lost() {
    let mut updates = two();
    offer(&mut updates, 0, 0);
    offer(&mut updates, 1, 0);
    assert!(updates.reconcile().balances());
    let dropped = updates.queue.take(&mut Vec::new()).expect("both wait");
    let result = updates.reconcile();
    assert_eq!((result.lost, result.unbalanced[0].sensor), (1, dropped.sensor));
    assert_eq!(result.unbalanced.len(), 1);
}

#[test]
fn an_update_installed_twice_is_reported() {
    let mut updates = two();
    offer(&mut updates, 1, 0);
    let update = updates.next(&mut Vec::new()).expect("it waits");
    updates.installed(&update, Time(0));
    updates.installed(&update, Time(0));
    let result = updates.reconcile();
    assert_eq!((result.lost, result.unbalanced[0].installed), (0, 2));
}

#[test]
fn a_timestamp_of_the_future_is_taken_for_now() {
    let mut updates = two();
    let verdict = updates.offer(SensorId(0), Seq(1), Time::MAX, &[], Time(3));
    assert_eq!(verdict, Ok(Receipt::Admitted));
    let update = updates.next(&mut Vec::new()).expect("it waits");
    assert_eq!((update.sampled_at, update.expires), (Time(3), Time(23)));
}

#[test]
fn objects_that_expire_too_soon_bound_what_can_be_promised() {
    let sensors = [spec(10, 15), spec(10, 14), spec(10, 100), spec(10, 5)];
    let updates = Updates::new(&sensors, options(1.0, Shedding::Uniform, 5));
    assert_eq!(updates.best_fresh_share(), Share::of(2, 4));
}

#[test]
fn a_minimum_out_of_reach_admits_everything() {
    let mut updates = Updates::new(&[spec(10, 10); 4], options(0.5, Shedding::ColdestFirst, 5));
    updates.set_admitted_share(Share::ZERO);
    for round in 0..20 {
        updates.rebalance(|sensor| u64::from(sensor.0));
        assert!((0..4).all(|sensor| offer(&mut updates, sensor, 10 * round) == Receipt::Admitted));
    }
    assert_eq!(updates.counts().for_minimum, 80);
}

proptest! {
    #[test]
    fn senseless_times_and_numbers_neither_panic_nor_unbalance(
        sensors in prop::collection::vec((any::<u64>(), any::<u64>()), 0..4),
        offers in prop::collection::vec((0..5u32, any::<u64>(), any::<u64>(), any::<u64>(), 0..12usize), 0..50),
        knob in -1.0..2.0f64, margin in any::<u64>(), coldest in any::<bool>(),
    ) {
        let sensors: Vec<_> = sensors.into_iter().map(|(period, avi)| spec(period, avi)).collect();
        let shedding = if coldest { Shedding::ColdestFirst } else { Shedding::Uniform };
        let mut updates = Updates::new(&sensors, options(0.5, shedding, margin));
        updates.set_admitted_share(Share::clamped(knob));
        for (sensor, seq, sampled_at, now, len) in offers {
            updates.rebalance(|_| seq);
            let _ = updates.offer(SensorId(sensor), Seq(seq), Time(sampled_at), &[0; 12][..len], Time(now));
            prop_assert!(updates.reconcile().balances());
        }
        install_all(&mut updates);
        prop_assert_eq!(updates.counts().installed + updates.counts().superseded, updates.counts().admitted);
    }
}
