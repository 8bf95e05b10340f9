//! Readings that were installed while the knob admitted everything, and entered all at once later.

use super::*;
use proptest::prelude::*;

const MARGIN: u64 = 10;

proptest! {
    /// Once the margin has passed, decisions are those of updates offered one by one; accounts are at once.
    #[test]
    fn entering_the_last_reading_of_each_sensor_is_as_offering_all(
        periods in prop::collection::vec((10u64..50, 1u64..5), 1..8),
        before in prop::collection::vec((0usize..8, 0u64..30), 0..60),
        after in prop::collection::vec((0usize..8, 1u64..20), 0..80),
        minimum in 0.0..=1.0f64, share in 0.0..1.0f64, coldest: bool,
    ) {
        let specs: Vec<SensorSpec> = periods.iter().map(|(period, valid)| spec(*period, period * valid)).collect();
        let shedding = if coldest { Shedding::ColdestFirst } else { Shedding::Uniform };
        let new = || Updates::new(&specs, options(minimum, shedding, MARGIN));
        let (mut offered, mut entered) = (new(), new());
        let mut accounts = vec![(SensorAccount::default(), None); specs.len()];
        let (mut counts, mut now) = (UpdateCounts::default(), 1000);
        for (sensor, wait) in before {
            now += wait;
            let sensor = sensor % specs.len();
            prop_assert_eq!(offer(&mut offered, sensor as u32, now), Receipt::Admitted);
            install_all(&mut offered);
            let (account, reading) = &mut accounts[sensor];
            let seq = Seq(account.last.0 + 1);
            account.offered(seq, &mut counts);
            account.landed(seq, true, &mut counts);
            *reading = Some((Time(now), Time(now)));
        }
        for (sensor, (account, reading)) in accounts.iter_mut().enumerate() {
            let sensor = SensorId(sensor as u32);
            entered.enter(sensor, account);
            if let Some((sampled_at, then)) = *reading {
                entered.enter_reading(sensor, sampled_at, then);
            }
        }
        entered.enter_sums(&counts, None);
        prop_assert_eq!(offered.counts(), entered.counts());
        prop_assert!(entered.reconcile().balances());
        now += MARGIN;
        for updates in [&mut offered, &mut entered] {
            updates.set_admitted_share(Share::clamped(share));
        }
        for (sensor, wait) in after {
            now += wait;
            let sensor = (sensor % specs.len()) as u32;
            let verdicts = [&mut offered, &mut entered].map(|updates| offer(updates, sensor, now));
            prop_assert_eq!(verdicts[0], verdicts[1]);
            prop_assert_eq!(offered.admission.stale_at_worst(Time(now)), entered.admission.stale_at_worst(Time(now)));
        }
    }
}

#[test]
fn planted_fault_a_reading_that_is_not_entered_changes_decisions() {
    let [known, unknown] = [true, false].map(|enters| {
        let mut updates = Updates::new(&[spec(10, 40)], options(1.0, Shedding::Uniform, 1));
        if enters {
            updates.enter_reading(SensorId(0), Time(100), Time(100));
        }
        updates.set_admitted_share(Share::ZERO);
        offer(&mut updates, 0, 110)
    });
    assert_eq!((known, unknown), (Receipt::Shed, Receipt::Admitted));
}

#[test]
fn planted_fault_a_reading_that_never_landed_is_lost() {
    let mut updates = Updates::new(&[spec(10, 40)], options(1.0, Shedding::Uniform, 1));
    let (mut account, mut counts) = (SensorAccount::default(), UpdateCounts::default());
    account.offered(Seq(1), &mut counts);
    account.landed(Seq(1), true, &mut counts);
    account.offered(Seq(3), &mut counts);
    updates.enter(SensorId(0), &mut account);
    updates.enter_sums(&counts, None);
    assert_eq!((updates.reconcile().lost, updates.counts().missing_at_source), (1, 1));
    assert_eq!(updates.last(SensorId(0)), Ok(Seq(3)));
}
