//! The fresh share never falls under its minimum while sensors are on time and installation keeps up: a small world of
//! sensors, a late installer and a store, run event by event, its fresh share taken from the store's timestamps alone.

use std::collections::BTreeMap;

use super::*;
use proptest::prelude::*;

/// One sensor of the world; times in ticks.
#[derive(Clone, Debug)]
struct Source {
    period: u64,
    phase: u64,
    /// avi = factor * period + margin, so that the object can be kept fresh.
    factor: f64,
}

#[derive(Clone, Debug)]
struct World {
    sources: Vec<Source>,
    /// How late a reading is sampled, and how much later still offered.
    lateness_max: u64,
    /// How long after its admission an update is in the store.
    installation_max: u64,
    minimum: f64,
    shedding: Shedding,
    /// Settings of the knob, each held for some time; 0 among them.
    knob: Vec<f64>,
    /// Where lateness, installation and reads are drawn from, over and over.
    draws: Vec<u64>,
}

fn world() -> impl Strategy<Value = World> {
    let source = (20..100u64, 0..100u64, 1.0..4.0f64).prop_map(|(period, phase, factor)| Source {
        period,
        phase: phase % period,
        factor,
    });
    let knob = prop_oneof![Just(0.0), Just(1.0), 0.0..=1.0f64];
    let minimum = prop_oneof![Just(1.0), 0.0..=1.0f64];
    let shedding = prop_oneof![Just(Shedding::Uniform), Just(Shedding::ColdestFirst)];
    (
        prop::collection::vec(source, 1..25),
        0..8u64,
        0..8u64,
        minimum,
        shedding,
        prop::collection::vec(knob, 1..8),
        prop::collection::vec(any::<u64>(), 1..50),
    )
        .prop_map(
            |(sources, lateness_max, installation_max, minimum, shedding, knob, draws)| World {
                sources,
                lateness_max,
                installation_max,
                minimum,
                shedding,
                knob,
                draws,
            },
        )
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Install,
    Offer { sensor: u32, sampled_at: u64 },
    Control,
}

const LENGTH: u64 = 1500;
const CONTROL_PERIOD: u64 = 70;

impl World {
    /// As much as a reading may be late in the store: both latenesses and the installation.
    fn margin(&self) -> u64 {
        2 * self.lateness_max + self.installation_max
    }

    fn specs(&self) -> Vec<SensorSpec> {
        let avi = |source: &Source| (source.factor * source.period as f64) as u64 + self.margin();
        self.sources
            .iter()
            .map(|source| spec(source.period, avi(source)))
            .collect()
    }

    /// Runs the world with this much of the margin and this minimum told to admission; the least fresh share from
    /// when all sensors have reported and their first updates could be installed.
    fn least_fresh_share(&self, minimum_told: f64, margin_told: u64) -> Share {
        let specs = self.specs();
        let mut updates = Updates::new(&specs, options(minimum_told, self.shedding, margin_told));
        let mut draws = self.draws.iter().cycle();
        let mut draw = |max: u64| *draws.next().expect("endless") % (max + 1);

        let mut events: BTreeMap<(u64, Event), u32> = BTreeMap::new();
        let mut started = 0;
        for (sensor, source) in (0..).zip(&self.sources) {
            for reading in 0.. {
                let sampled_at = source.phase + reading * source.period + draw(self.lateness_max);
                let offered = sampled_at + draw(self.lateness_max);
                if offered > LENGTH {
                    break;
                }
                started = started.max(if reading == 0 {
                    offered + self.installation_max
                } else {
                    0
                });
                *events
                    .entry((offered, Event::Offer { sensor, sampled_at }))
                    .or_default() += 1;
            }
        }
        for instant in (0..LENGTH).step_by(CONTROL_PERIOD as usize) {
            events.insert((instant, Event::Control), 1);
        }

        let mut store: Vec<Option<Time>> = vec![None; specs.len()];
        let fresh_share = |store: &[Option<Time>], now: u64| {
            let fresh =
                |(at, spec): &(&Option<Time>, &SensorSpec)| at.is_some_and(|at| is_fresh(Time(now), at, spec.avi));
            Share::of(store.iter().zip(&specs).filter(fresh).count(), specs.len())
        };
        let mut least = Share::ONE;
        let mut value = Vec::new();
        let mut settings = self.knob.iter().cycle();
        while let Some(((now, event), times)) = events.pop_first() {
            for _ in 0..times {
                match event {
                    Event::Offer { sensor, sampled_at } => {
                        let (sensor, seq) = (SensorId(sensor), Seq(updates.ledger.last(SensorId(sensor)).0 + 1));
                        let verdict = updates.offer(sensor, seq, Time(sampled_at), &[], Time(now));
                        if verdict == Ok(Receipt::Admitted) {
                            *events
                                .entry((now + draw(self.installation_max), Event::Install))
                                .or_default() += 1;
                        }
                    }
                    // First in, first out: by then the longest waiting update is at least as old as the one this was
                    // for.
                    Event::Install => {
                        if let Some(update) = updates.next(&mut value) {
                            store[update.sensor.index()] = Some(update.sampled_at);
                            updates.installed(&update, Time(now));
                        }
                    }
                    Event::Control => {
                        updates.set_admitted_share(Share::clamped(*settings.next().expect("endless")));
                        let mixer = draw(u64::MAX - 1);
                        updates.rebalance(|sensor| mixer.wrapping_mul(u64::from(sensor.0) + 1) >> 61);
                    }
                }
            }
            // Freshness is lost by time alone, so it is least just before something happens and after all of it has.
            let next = events.first_key_value().map_or(now, |((at, _), _)| *at);
            if next > now {
                let instants = [now, next - 1].into_iter().filter(|instant| *instant >= started);
                least = instants.fold(least, |least, instant| {
                    let share = fresh_share(&store, instant);
                    if share < least { share } else { least }
                });
            }
        }
        assert!(updates.reconcile().balances());
        least
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_fresh_share_never_falls_under_the_minimum(world in world()) {
        let least = world.least_fresh_share(world.minimum, world.margin());
        prop_assert!(least >= Share::clamped(world.minimum), "fell to {}", least);
    }
}

/// Thirty sensors whose avi is two periods, and a knob at 0.
fn starved() -> World {
    let (lateness_max, installation_max) = (5, 7);
    let margin = (2 * lateness_max + installation_max) as f64;
    let source = |sensor| Source {
        period: 40 + sensor,
        phase: sensor,
        factor: 2.0 - margin / (40 + sensor) as f64,
    };
    World {
        sources: (0..30).map(source).collect(),
        lateness_max,
        installation_max,
        minimum: 0.8,
        shedding: Shedding::Uniform,
        knob: vec![0.0],
        draws: (0..97).map(|draw| draw * 7).collect(),
    }
}

#[test]
fn the_checker_finds_an_admission_that_ignores_the_minimum() {
    let world = starved();
    assert!(world.least_fresh_share(world.minimum, world.margin()) >= Share::clamped(world.minimum));
    assert_eq!(world.least_fresh_share(0.0, world.margin()), Share::ZERO);
}

#[test]
fn the_checker_finds_an_admission_that_ignores_the_margin() {
    let world = starved();
    assert!(world.least_fresh_share(world.minimum, 0) < Share::clamped(world.minimum));
}

#[test]
fn the_checker_finds_an_installation_that_takes_longer_than_the_margin() {
    let mut world = starved();
    let margin = world.margin();
    world.sources.iter_mut().for_each(|source| source.factor = 3.0);
    world.installation_max *= 4;
    assert!(world.least_fresh_share(world.minimum, margin) < Share::clamped(world.minimum));
}

/// Ten sensors of period 10, whose objects are valid for four periods; sensors 3 and 4 fall silent in round 20. How
/// many objects are fresh at the end of each of 60 rounds, with a knob at 0.
fn fresh_in_rounds(updates: &mut Updates) -> Vec<usize> {
    let mut admitted_at = [None; 10];
    let mut round_ends = Vec::new();
    for round in 0..60 {
        for sensor in 0..10 {
            let silent = round >= 20 && (sensor == 3 || sensor == 4);
            if !silent && offer(updates, sensor, 10 * round) == Receipt::Admitted {
                admitted_at[sensor as usize] = Some(10 * round);
            }
        }
        let now = Time(10 * round + 9);
        let fresh = |at: &&u64| is_fresh(now, Time(**at), Nanos(40));
        round_ends.push(admitted_at.iter().flatten().filter(fresh).count());
    }
    round_ends
}

#[test]
fn sensors_that_fall_silent_are_made_up_for_by_the_others() {
    // Of ten objects two may be stale: in the end those of the two silent sensors.
    let mut updates = Updates::new(&[spec(10, 40); 10], options(0.8, Shedding::Uniform, 1));
    updates.set_admitted_share(Share::ZERO);
    let fresh = fresh_in_rounds(&mut updates);
    assert!(fresh.iter().all(|fresh| *fresh >= 8), "{fresh:?}");
    assert!(fresh[26..].iter().all(|fresh| *fresh == 8), "{fresh:?}");
    assert_eq!(updates.admission.stale_at_worst(Time(600)), 2);
}

/// Admitted and least fresh share over `rounds` rounds of sensors with these periods, their objects valid for `factor`
/// periods, after as many rounds to settle.
fn reach(factor: f64, minimum: f64, knob: f64) -> (f64, f64) {
    let periods: Vec<u64> = (0..200).map(|sensor| 1_000 + 7 * sensor).collect();
    let specs: Vec<_> = periods
        .iter()
        .map(|&period| spec(period, (factor * period as f64) as u64))
        .collect();
    let mut updates = Updates::new(&specs, options(minimum, Shedding::Uniform, 10));
    updates.set_admitted_share(Share::clamped(knob));
    let (mut admitted_at, mut least, mut settled) = (vec![None; periods.len()], Share::ONE, UpdateCounts::default());
    const SETTLED: u64 = 30_000;
    for now in 0..2 * SETTLED {
        if now == SETTLED {
            settled = updates.counts();
        }
        for (sensor, period) in (0..).zip(&periods) {
            if now % period == 0 && offer(&mut updates, sensor, now) == Receipt::Admitted {
                admitted_at[sensor as usize] = Some(Time(now));
            }
        }
        if now >= SETTLED && now % 10 == 9 {
            let fresh =
                |(at, spec): &(&Option<Time>, &SensorSpec)| at.is_some_and(|at| is_fresh(Time(now), at, spec.avi));
            let share = Share::of(admitted_at.iter().zip(&specs).filter(fresh).count(), specs.len());
            least = if share < least { share } else { least };
        }
    }
    (updates.counts().admitted_share_since(&settled).get(), least.get())
}

#[test]
fn the_minimum_asks_for_no_more_updates_than_fresh_objects_need() {
    // Valid for two periods, half of the objects: a quarter of the updates at best; for one period and a little: half.
    for (factor, best) in [(2.0, 0.25), (1.02, 0.5), (4.0, 0.125)] {
        let (admitted, fresh) = reach(factor, 0.5, 0.0);
        assert!(fresh >= 0.5, "valid for {factor} periods: {fresh} fresh");
        assert!(
            admitted <= 1.15 * best,
            "valid for {factor} periods: {admitted} admitted"
        );
    }
}

#[test]
fn a_higher_knob_never_admits_less() {
    let admitted: Vec<f64> = [0.0, 0.2, 0.25, 0.3, 0.5, 0.8, 1.0]
        .map(|knob| reach(2.0, 0.5, knob).0)
        .into();
    // One in a hundred: of 200 sensors the last ones have had a turn more, or less.
    assert!(admitted.is_sorted_by(|a, b| *a <= b + 0.01), "{admitted:?}");
}
