//! Same seed, same bytes: however a run is sliced and however often it is watched.

use crate::common;
use crate::governors::Following;

use common::*;
use proptest::prelude::*;
use punctual_platform::{KnobId, Machine, Plan, Value};
use punctual_sim::{MachineModel, Simulation, SimulationEvent, SimulationLoad};
use punctual_units::{Clock, Hertz, Nanos, Share, Time};
use punctual_workload::{Arrival, Trace};

const END: Nanos = Nanos::from_millis(900);

fn busy_load(trace: &Trace, seed: u64) -> SimulationLoad {
    let (mut browse, program) = interferer(&[get(400), compute(200_000), put(2)]);
    browse.arrival = Arrival::AfterCompletion {
        pause_min: Nanos::from_millis(1),
        pause_max: Nanos::from_millis(9),
    };
    let rt = real_time(&[get(2000), compute(9_000_000), put(6)]);
    let mut load = load(trace, vec![rt, (browse, program)]);
    load.seed = seed;
    load
}

fn trace(seed: u64) -> Trace {
    Trace::synthetic(
        300,
        Nanos::from_millis(10),
        Nanos::from_millis(60),
        Nanos::from_secs(1),
        seed,
    )
}

/// All that a run shows, as text: floats print so that they read back to the same bits.
fn record(machine: &mut Simulation) -> String {
    let events = run(machine, END);
    let (fresh, counts) = (machine.fresh_share(), machine.updates().counts());
    format!("{events:?} {fresh:?} {counts:?} {:?}", machine.read())
}

/// The checker: whether two runs of one load show the same bytes.
fn same_bytes(first: &mut Simulation, second: &mut Simulation) -> bool {
    record(first) == record(second)
}

fn run_until_end(machine: &mut Simulation, end: Time) -> Vec<SimulationEvent> {
    run(machine, end.since(Time::ZERO))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_same_seed_gives_the_same_bytes(seed in any::<u64>()) {
        let trace = trace(seed);
        let [mut first, mut second] =
            [(); 2].map(|()| machine(MachineModel::exynos5422_a15(), busy_load(&trace, seed)));
        prop_assert!(same_bytes(&mut first, &mut second));
    }

    #[test]
    fn another_seed_gives_other_bytes(seed in 0..u64::MAX) {
        let trace = trace(seed);
        let [mut first, mut second] =
            [seed, seed + 1].map(|seed| machine(MachineModel::duo(), busy_load(&trace, seed)));
        prop_assert!(!same_bytes(&mut first, &mut second));
    }

    #[test]
    fn slicing_and_watching_change_nothing(seed in any::<u64>(), slice_us in 50u64..30_000) {
        let trace = trace(seed);
        let [mut whole, mut sliced] = [(); 2].map(|()| machine(MachineModel::duo(), busy_load(&trace, seed)));
        let mut told = Vec::new();
        while sliced.now() < Time::ZERO + END {
            let next = (sliced.now() + Nanos::from_micros(slice_us)).min(Time::ZERO + END);
            told.extend(run_until_end(&mut sliced, next));
            sliced.read();
            sliced.fresh_share();
        }
        prop_assert_eq!(run(&mut whole, END), told);
        prop_assert_eq!(whole.read(), sliced.read());
        prop_assert_eq!(whole.updates().counts(), sliced.updates().counts());
    }
}

/// A machine with all that it has: a governor, ways of its own for the real-time core, dead lines, interferers.
fn everything(trace: &Trace, seed: u64) -> Simulation {
    let mut model = MachineModel::exynos5422_a15();
    model.cache.masks = vec![0x0fff, 0x0fff, 0x0fff, 0xfff0];
    model.cache.locality = 0.7;
    let mut machine = machine(model, busy_load(trace, seed));
    machine.govern_with(Box::new(Following::default()));
    machine
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_governor_and_the_cache_keep_the_bytes_however_a_run_is_sliced(
        seed in any::<u64>(),
        slice_us in 50u64..30_000,
    ) {
        let trace = trace(seed);
        let [mut whole, mut again, mut sliced] = [(); 3].map(|()| everything(&trace, seed));
        prop_assert!(same_bytes(&mut whole, &mut again));
        let mut told = Vec::new();
        while sliced.now() < Time::ZERO + END {
            let next = (sliced.now() + Nanos::from_micros(slice_us)).min(Time::ZERO + END);
            told.extend(run_until_end(&mut sliced, next));
            sliced.read();
            sliced.energy();
            sliced.held_lines();
        }
        let mut whole = everything(&trace, seed);
        prop_assert_eq!(run(&mut whole, END), told);
        prop_assert_eq!(whole.read(), sliced.read());
        prop_assert_eq!(whole.energy(), sliced.energy());
        prop_assert_eq!(whole.held_lines(), sliced.held_lines());
    }
}

/// The planted faults: the smallest disturbances that a run can suffer.
#[test]
fn the_checker_sees_the_smallest_disturbance() {
    let trace = trace(7);
    let fresh = || machine(MachineModel::duo(), busy_load(&trace, 7));
    let at_half = |disturb: fn(&mut Simulation)| {
        let mut machine = fresh();
        run(&mut machine, Nanos::from_millis(450));
        disturb(&mut machine);
        // The rest only, as in the undisturbed run below.
        machine
    };
    let mut undisturbed = at_half(|_| {});
    let one_step_for_a_microsecond = |machine: &mut Simulation| {
        machine.apply(&Plan::of(KnobId::CLOCK, Value::Clock(Hertz::from_mhz(1900))));
        let end = machine.now() + Nanos::from_micros(1);
        run_until_end(machine, end);
        machine.apply(&Plan::of(KnobId::CLOCK, Value::Clock(Hertz::from_mhz(2000))));
    };
    assert!(same_bytes(&mut undisturbed.clone(), &mut undisturbed.clone()));
    assert!(!same_bytes(
        &mut undisturbed.clone(),
        &mut at_half(one_step_for_a_microsecond)
    ));
    let slightly_fewer_updates = |machine: &mut Simulation| machine.updates().set_admitted_share(Share::clamped(0.99));
    assert!(!same_bytes(&mut undisturbed, &mut at_half(slightly_fewer_updates)));
}
