//! An updater that takes longer than was agreed: the least share makes up for it.

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
