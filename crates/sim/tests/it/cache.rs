//! The shared cache at work: warm alone, polluted by neighbours, protected by ways of its own.

use crate::common;

use common::*;
use proptest::prelude::*;
use punctual_sim::{MachineModel, costs};
use punctual_units::Nanos;
use punctual_workload::{Op, UpdateMode};

const GETS: u32 = 6000;

/// Nanoseconds of data of a job that came after ten others, on this machine beside these neighbours.
fn data_beside(model: MachineModel, neighbour: Option<&[Op]>) -> f64 {
    let trace = silence();
    let tasks = [
        Some(real_time(&[get(GETS), compute(2_000_000)])),
        neighbour.map(interferer),
    ];
    let mut machine = machine(model, load(&trace, tasks.into_iter().flatten().collect()));
    jobs(&mut machine, PERIOD * 11)[10].split.data.0 as f64
}

fn quad(change: impl Fn(&mut MachineModel)) -> MachineModel {
    let mut model = MachineModel::exynos5422_a15();
    change(&mut model);
    model
}

#[test]
fn alone_a_job_finds_its_data_where_it_left_them_and_takes_its_demand() {
    let model = MachineModel::exynos5422_a15();
    let costs = costs(&model, UpdateMode::Transaction).unwrap();
    let expected = costs.read_txn_ns + f64::from(GETS) * costs.get_ns;
    assert!(alike(data_beside(model, None), expected));
}

#[test]
fn the_first_job_fetches_its_working_set() {
    let trace = silence();
    let model = MachineModel::exynos5422_a15();
    let mut machine = machine(model.clone(), load(&trace, vec![real_time(&[get(40_000)])]));
    let jobs = jobs(&mut machine, PERIOD * 3);
    let more = (jobs[0].split.data.0 - jobs[2].split.data.0) as f64;
    // Each line of the working set once, 110 ns each; accesses that miss by luck meet lines that were fetched again.
    let lines = model.store.working_set_kib * 1024.0 / model.cache.line_bytes;
    assert!(
        (more / (lines * 110.0) - 1.0).abs() < 0.1,
        "{more} ns for {lines} lines"
    );
    assert!(machine.held_lines()[3] >= lines);
}

#[test]
fn a_neighbour_pollutes_and_ways_of_its_own_protect() {
    let data = |masks: &[u32], neighbour: Option<&[Op]>| {
        let model = quad(|model| {
            model.cache.masks = masks.to_vec();
            model.cache.locality = 1.0;
            // The queue is no part of this.
            model.memory.latency_ns = 109.0;
            (model.memory.service_ns, model.memory.service_cycles) = (1.0, 0.0);
        });
        data_beside(model, neighbour)
    };
    let reading: &[Op] = &[get(100)];
    let (alone, polluted) = (data(&[], None), data(&[], Some(reading)));
    assert!(polluted > 1.3 * alone, "{alone} then {polluted} ns");
    let apart = [0x00ff, 0x00ff, 0x00ff, 0xff00];
    assert!(alike(data(&apart, Some(reading)), alone), "{alone} ns");
}

#[test]
fn a_neighbour_that_only_computes_takes_nothing() {
    let model = MachineModel::exynos5422_a15;
    let alone = data_beside(model(), None);
    assert!(alike(data_beside(model(), Some(&[compute(1_000_000)])), alone));
}

/// The checker: whether what is left open makes itself felt in the direction that it says.
fn rises(change: impl Fn(&mut MachineModel, f64), from: f64, to: f64) -> Result<(), String> {
    let data = |value| data_beside(quad(|model| change(model, value)), Some(&[get(50), compute(100_000)]));
    let (less, more) = (data(from), data(to));
    match more > less * 1.01 {
        true => Ok(()),
        false => Err(format!("{less} ns at {from}, {more} ns at {to}")),
    }
}

#[test]
fn each_open_parameter_works_in_its_direction() {
    let larger_sets = |m: &mut MachineModel, kib| m.store.others_working_set_kib = kib;
    assert_eq!(rises(larger_sets, 256.0, 4096.0), Ok(()));
    let unshared = |m: &mut MachineModel, ns| m.memory.latency_ns = ns;
    assert_eq!(rises(unshared, 10.0, 80.0), Ok(()));
    let shared = |m: &mut MachineModel, ns| m.memory.service_ns = ns;
    assert_eq!(rises(shared, 10.0, 80.0), Ok(()));
    let skewed = |m: &mut MachineModel, locality| m.cache.locality = locality;
    assert_eq!(rises(skewed, 0.3, 1.5), Ok(()));
    // The planted fault: a parameter turned the wrong way.
    assert!(rises(shared, 80.0, 10.0).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_core_is_faster_beside_a_neighbour(
        gets in 1u32..200,
        cycles in 0u64..300_000,
        kib in 128.0f64..4096.0,
        lines in 0.25f64..4.0,
        locality in 0.2f64..2.0,
    ) {
        let model = || quad(|model| {
            model.store.others_working_set_kib = kib;
            model.cache.lines_per_miss = lines;
            model.cache.locality = locality;
        });
        let (alone, beside) =
            (data_beside(model(), None), data_beside(model(), Some(&[get(gets), compute(cycles + 1)])));
        prop_assert!(beside >= alone - 1.0, "{} alone, {} beside", alone, beside);
    }

    #[test]
    fn cores_hold_no_more_than_there_is(gets in 1u32..200, lines in 0.25f64..4.0, end_ms in 1u64..400) {
        let trace = silence();
        let model = quad(|model| model.cache.lines_per_miss = lines);
        let cache = model.cache.size_kib * 1024.0 / model.cache.line_bytes;
        let tasks = vec![real_time(&[get(GETS), put(10)]), interferer(&[get(gets), put(3)])];
        let mut machine = machine(model, load(&trace, tasks));
        run(&mut machine, Nanos::from_millis(end_ms));
        let held: f64 = machine.held_lines().iter().sum();
        prop_assert!(held <= cache * (1.0 + 1e-9), "{} of {}", held, cache);
    }
}
