//! An updater that takes longer than was agreed: the least share makes up for it, up to where nothing can be fresh.

use super::*;

const MINIMUM: f64 = 0.5;

/// Fresh share on average of 60 sensors with periods of 50 to 345 ms, values valid for twice as long, and installations
/// that take `delay` ms; the knob asks for nothing. `adapts`: the share is adapted to the delay.
fn mean_fresh(delay: u64, adapts: bool) -> f64 {
    const MS: u64 = 1_000_000;
    let specs: Vec<SensorSpec> = (0..60)
        .map(|k| (50 + 5 * k) * MS)
        .map(|period| spec(period, 2 * period))
        .collect();
    let mut updates = Updates::new(&specs, options(MINIMUM, Shedding::Uniform, 10 * MS));
    updates.set_admitted_share(Share::ZERO);
    let mut store = vec![Time::ZERO; specs.len()];
    let (mut waiting, mut value) = (std::collections::VecDeque::new(), Vec::new());
    let (mut fresh, mut looks) = (0, 0);
    for ms in 1..20_000 {
        let now = ms * MS;
        while waiting.front().is_some_and(|at| *at <= now) {
            waiting.pop_front();
            if let Some(update) = updates.next(&mut value) {
                store[update.sensor.index()] = update.sampled_at;
                updates.installed(&update, Time(now));
            }
        }
        for (sensor, _) in specs
            .iter()
            .enumerate()
            .filter(|(_, spec)| now.is_multiple_of(spec.period.0))
        {
            if offer(&mut updates, sensor as u32, now) == Receipt::Admitted {
                waiting.push_back(now + delay * MS);
            }
        }
        if adapts && ms % 100 == 0 {
            updates.adapt(Time(now));
        }
        if ms > 5_000 {
            let pairs = store.iter().zip(&specs);
            fresh += pairs.filter(|(at, spec)| is_fresh(Time(now), **at, spec.avi)).count();
            looks += specs.len();
        }
    }
    fresh as f64 / looks as f64
}

#[test]
fn a_slow_updater_keeps_the_minimum_where_the_least_share_counts_on_it() {
    let [fixed, adapted] = [false, true].map(|adapts| mean_fresh(60, adapts));
    assert!(
        fixed < MINIMUM && adapted >= MINIMUM,
        "{fixed:.3} without, {adapted:.3} with"
    );
    let [fixed, adapted] = [false, true].map(|adapts| mean_fresh(5, adapts));
    assert_eq!(fixed, adapted, "within the margin nothing changes");
}

const MS: u64 = 1_000_000;

/// Offers readings of 60 sensors, valid for 200 ms, that arrive `late` ms late and are installed `wait` ms later, for
/// 20 s in which `updates` adapts; returns the admitted share of the last second.
fn share_admitted(updates: &mut Updates, late: u64, wait: u64, from: u64) -> Share {
    let mut waiting: Vec<(u64, Pending)> = Vec::new();
    let mut before = updates.counts();
    for round in 0..200 {
        let now = (from + (round + 1) * 100 + late) * MS;
        if round == 190 {
            before = updates.counts();
        }
        let due = waiting.iter().take_while(|(at, _)| *at <= now).count();
        for (at, update) in waiting.drain(..due) {
            updates.installed(&update, Time(at));
        }
        for sensor in 0..60 {
            let seq = Seq(updates.ledger.last(SensorId(sensor)).0 + 1);
            let at = Time(now - late * MS);
            updates
                .offer(SensorId(sensor), seq, at, b"", Time(now))
                .expect("a sound update");
        }
        waiting.extend(std::iter::from_fn(|| updates.next(&mut Vec::new())).map(|update| (now + wait * MS, update)));
        updates.adapt(Time(now));
    }
    updates.counts().admitted_share_since(&before)
}

#[test]
fn where_nothing_can_be_fresh_updates_are_shed_by_the_knob_and_admitted_again_once_something_can() {
    for shedding in [Shedding::Uniform, Shedding::ColdestFirst] {
        let mut updates = Updates::new(&[spec(100 * MS, 200 * MS); 60], options(MINIMUM, shedding, 10 * MS));
        for (round, (late, wait)) in [(250, 5), (0, 5), (0, 250), (0, 5)].into_iter().enumerate() {
            updates.set_admitted_share(Share::ZERO);
            let admitted = share_admitted(&mut updates, late, wait, round as u64 * 30_000).get();
            let least = if late + wait < 200 || shedding == Shedding::Uniform {
                0.2
            } else {
                0.0
            };
            assert!(
                (least..=0.5).contains(&admitted),
                "{shedding:?} {late} ms late: {admitted}"
            );
        }
        assert!(updates.reconcile().balances());
    }
}
