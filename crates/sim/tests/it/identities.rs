//! Identities of the simulated machine: what must hold exactly, or to the nanosecond.

use crate::common;

use common::*;
use proptest::prelude::*;
use punctual_allocation::{CoreJobs, Grid, Objective, Phase, Profile, Programs, RateTable, Share as SplitShare};
use punctual_platform::{KnobId, Machine, Plan, Value};
use punctual_sim::split::{RunnableProfile, SplitModel};
use punctual_sim::{MachineModel, Parts, Simulation, SimulationEvent, SimulationLoad, SplitLoad, Step, costs};
use punctual_testing::conformance::machine as conformance;
use punctual_units::{Clock, CoreId, Hertz, Nanos, Share, Time};
use punctual_workload::{
    Arrival, Class, ControlSpec, ControllerKind, Demand, Durability, Excitation, Goal, ObjectSet, Pace, Scenario,
    SensorLoad, SensorSource, StoreNeeds, TaskGoal, TaskSpec, Trace, UpdateMode, Volume, compile,
};

fn set_clock(machine: &mut Simulation, mhz: u64) {
    machine.apply(&Plan::of(KnobId::CLOCK, Value::Clock(Hertz::from_mhz(mhz))));
}

#[test]
fn the_machine_conforms() {
    let trace = Trace::synthetic(
        32,
        Nanos::from_millis(20),
        Nanos::from_millis(90),
        Nanos::from_secs(1),
        3,
    );
    let tasks = vec![
        real_time(&[get(100), compute(1_000_000), put(3)]),
        interferer(&[get(50)]),
    ];
    for model in [MachineModel::exynos5422_a15(), MachineModel::duo()] {
        let mut machine = machine(model, load(&trace, tasks.clone()));
        let end = |machine: &Simulation| machine.now() + Nanos::from_millis(10);
        let pass_time = |machine: &mut Simulation| {
            let end = end(machine);
            while machine.run_until(end) != SimulationEvent::Reached {}
        };
        assert_eq!(conformance::check(&mut machine, pass_time), Vec::<String>::new());
    }
}

/// What one task of two phases computes, of 30 ms with everything there is and slower with less.
fn split() -> SplitLoad {
    let phase = |ends| Phase {
        ends,
        rates: RateTable::new(Grid::PAPER, |share| 1e6 * f32::from(share.ways)),
    };
    let profile = Profile {
        name: "hungry".into(),
        grid: Grid::PAPER,
        instructions: 6e5,
        phases: vec![phase(0.3), phase(1.0)],
    };
    SplitLoad {
        model: SplitModel::PAPER,
        programs: vec![RunnableProfile::new(profile).unwrap()],
        program_of: vec![Some(0)],
    }
}

#[test]
fn a_machine_that_splits_its_cache_conforms() {
    let trace = silence();
    let load = SimulationLoad {
        split: Some(split()),
        ..load(&trace, vec![real_time(&[get(100), compute(1), put(3)])])
    };
    let mut machine = machine(MachineModel::exynos5422_a15(), load);
    let ways = |core| machine.offers().range(KnobId::Ways(CoreId(core))).is_some();
    assert_eq!([0, 3, 4].map(ways), [true, true, false]);
    let pass_time = |machine: &mut Simulation| {
        let end = machine.now() + Nanos::from_millis(10);
        while machine.run_until(end) != SimulationEvent::Reached {}
    };
    assert_eq!(conformance::check(&mut machine, pass_time), Vec::<String>::new());
}

#[test]
fn ways_change_hands_together_or_not_at_all() {
    let trace = silence();
    let load = SimulationLoad {
        split: Some(split()),
        ..load(&trace, vec![real_time(&[compute(1)])])
    };
    let mut machine = machine(MachineModel::exynos5422_a15(), load);
    let ways = |core, ways| (KnobId::Ways(CoreId(core)), Value::Ways(ways));
    // The even split gives ways 0 to 4 to the first core, 5 to 9 to the second.
    let swapped: Plan = [ways(0, 0x3e0), ways(1, 0x1f)].into_iter().collect();
    assert_eq!(machine.apply(&swapped).refused, []);
    let wrong = [
        vec![ways(0, 0x3f0)],
        vec![ways(0, 0b101)],
        vec![ways(0, 0)],
        vec![ways(0, 0x300), ways(1, 0x3ff)],
    ];
    for plan in wrong {
        let plan: Plan = plan.into_iter().collect();
        let applied = machine.apply(&plan);
        assert_eq!(applied.refused.len(), plan.iter().count(), "{plan:?}: {applied:?}");
    }
}

/// What cores run is asked about only where the count has moved: an update that takes a core from a job moves it, too.
#[test]
fn what_runs_is_the_same_while_the_count_of_changes_is() {
    let (sensors, [least, most]) = (64, [10, 40].map(Nanos::from_millis));
    let trace = Trace::synthetic(sensors, least, most, Nanos::from_secs(1), 5);
    let ops: Vec<_> = (0..20).map(|_| get(1)).chain([compute(1), put(3)]).collect();
    let (mut own, program) = real_time(&[compute(1_000_000)]);
    own.class = Class::Exclusive {
        deadline: Nanos::from_millis(40),
    };
    let mut background = interferer(&ops);
    background.0.per_core = 2;
    let tasks = vec![real_time(&ops), urgent(&[get(5)]), background, (own, program)];
    let load = SimulationLoad {
        split: Some(SplitLoad {
            program_of: vec![Some(0), None, Some(0), Some(0)],
            ..split()
        }),
        ..load(&trace, tasks)
    };
    let mut machine = machine(MachineModel::exynos5422_a15(), load);
    let steps = vec![Step::Op(compute(20_000_000))];
    let called = [false, true].map(|urgent| machine.add_called("stage", CoreId(0), urgent, steps.clone()));
    let (mut seen, mut changes) = (None, 0);
    for micros in (0..1_000_000).step_by(10) {
        if micros % 7_000 == 0 {
            called.iter().for_each(|task| machine.call(*task));
        }
        if micros % 5_000 == 2_510 {
            let lent = Value::Lent(micros % 10_000 == 2_510);
            machine.apply(&Plan::of(KnobId::Lease(CoreId(3)), lent));
        }
        run(&mut machine, Nanos::from_micros(micros));
        let runs = |jobs: &CoreJobs| jobs.runs.map(|job| (job.program, job.deadline));
        let now: Vec<_> = machine.instant().jobs.iter().map(runs).collect();
        let count = machine.work_changes();
        if let Some((before, counted)) = seen.replace((now.clone(), count))
            && before != now
        {
            changes += 1;
            assert!(count > counted, "after {micros} us: {before:?} became {now:?}");
        }
    }
    assert!(changes > 100, "{changes}");
}

proptest! {
    /// What the machine makes of cycles and of waiting is what an allocator reckons with, at every clock and with every
    /// split.
    #[test]
    fn a_phase_takes_as_long_as_an_allocator_thinks(step in 0usize..13, ways in 1u8..=5, partitions in 1u8..=5) {
        let (trace, split) = (silence(), split());
        let mut programs = Programs::new(&[split.programs[0].profile().clone()], Objective::Speed).unwrap();
        let load = SimulationLoad { split: Some(split), ..load(&trace, vec![real_time(&[compute(1)])]) };
        let mut machine = machine(MachineModel::exynos5422_a15(), load);
        let clock = machine.offers().clock().unwrap().clone();
        let set = clock.steps[step % clock.steps.len()];
        let mut plan = Plan::of(KnobId::CLOCK, Value::Clock(set));
        for core in 0..4 {
            plan.set(KnobId::Ways(CoreId(core)), Value::Ways(((1 << ways) - 1) << (core * u32::from(ways))));
            plan.set(KnobId::Bandwidth(CoreId(core)), Value::Parts(partitions));
        }
        prop_assert_eq!(machine.apply(&plan).refused, []);
        let jobs = jobs(&mut machine, Nanos::from_secs(3));
        let job = jobs[0];
        programs.slow_down(clock.top().ratio(set));
        let thinks = programs.duration(0, SplitShare { ways, partitions });
        let takes = job.split.computation.as_secs_f64();
        // Cycles are whole, and so are nanoseconds.
        prop_assert!((takes - thinks).abs() < 1e-6 * thinks, "{takes} {thinks}");
    }
}

#[test]
fn halving_the_clock_doubles_computation_exactly() {
    let trace = silence();
    let response = |mhz| {
        let tasks = vec![real_time(&[compute(14_000_000)])];
        let mut machine = machine(MachineModel::duo(), load(&trace, tasks));
        set_clock(&mut machine, mhz);
        jobs(&mut machine, PERIOD * 3)[0].response()
    };
    assert_eq!(response(2000), Nanos::from_millis(7));
    assert_eq!(response(1000), Nanos::from_millis(14));
    assert_eq!(response(500), Nanos::from_millis(28));
}

#[test]
fn a_clock_that_changes_midway_splits_the_cycles() {
    let trace = silence();
    let mut machine = machine(
        MachineModel::duo(),
        load(&trace, vec![real_time(&[compute(14_000_000)])]),
    );
    assert!(matches!(machine.run_until(Time(1)), SimulationEvent::Released { .. }));
    machine.run_until(Time(3_500_000));
    set_clock(&mut machine, 1000);
    // 7 million cycles at 2 GHz, 7 million at 1 GHz.
    assert_eq!(jobs(&mut machine, PERIOD)[0].response(), Nanos(3_500_000 + 7_000_000));
}

#[test]
fn a_clock_that_takes_time_to_change_is_the_old_one_until_then() {
    let trace = silence();
    let mut model = MachineModel::duo();
    model.clock_change_us = 140.0;
    let mut machine = machine(model, load(&trace, vec![real_time(&[compute(14_000_000)])]));
    assert!(matches!(machine.run_until(Time(1)), SimulationEvent::Released { .. }));
    machine.run_until(Time(3_400_000));
    // The second setting takes the place of the first, which is not in force yet.
    set_clock(&mut machine, 500);
    machine.run_until(Time(3_500_000));
    set_clock(&mut machine, 1000);
    assert_eq!(machine.clock(), Hertz::from_mhz(2000));
    // 7.28 million cycles at 2 GHz, 6.72 million at 1 GHz.
    assert_eq!(jobs(&mut machine, PERIOD)[0].response(), Nanos(3_640_000 + 6_720_000));
    assert_eq!(machine.clock(), Hertz::from_mhz(1000));
}

#[test]
fn energy_is_the_integral_worked_out_by_hand() {
    let trace = silence();
    let mut model = bare_duo();
    model.cores = 1;
    let tasks = vec![real_time(&[compute(20_000_000), get(1000)])];
    let mut machine = machine(model.clone(), load(&trace, tasks));
    set_clock(&mut machine, 1000);
    run(&mut machine, Nanos::from_secs(2));

    let v2 = 1.0 * 1.0;
    let accesses = model.store.read_txn.accesses + 1000.0 * model.store.get.accesses;
    let cycles = 20e6 + model.store.read_txn.cycles + 1000.0 * model.store.get.cycles;
    // An access at 1 GHz: 21 cycles of its own and 40 ns of latency, 40 ns + 60 cycles of service.
    let busy_s = 20.0 * (cycles + accesses * (21.0 + 40.0 + 40.0 + 60.0)) * 1e-9;
    let by_hand = Parts {
        cores: 2.0 * 10.8e-3 * v2 + busy_s * 310e-6 * 1000.0 * v2,
        uncore: 2.0 * 14.4e-3 * v2 + busy_s * 30e-6 * 1000.0 * v2 + 20.0 * accesses * 0.5e-9,
        memory: 2.0 * 60e-3 + 20.0 * accesses * 20e-9,
    };
    let metered = machine.energy();
    for (metered, by_hand) in [
        (metered.cores, by_hand.cores),
        (metered.uncore, by_hand.uncore),
        (metered.memory, by_hand.memory),
        (energy(&mut machine), by_hand.total()),
    ] {
        assert!(alike(metered, by_hand), "{metered} J metered, {by_hand} J by hand");
    }
    let busy_metered = busy(&mut machine)[0].as_secs_f64();
    assert!(
        alike(busy_metered, busy_s),
        "{busy_metered} s metered, {busy_s} s by hand"
    );
}

proptest! {
    #[test]
    fn cycles_executed_are_busy_time_times_clock(
        cycles in prop::collection::vec(1u64..30_000_000, 1..6),
        step in 0usize..19,
    ) {
        let trace = silence();
        let model = MachineModel::duo();
        let clock = model.steps[step].clock;
        let ops: Vec<_> = cycles.iter().map(|c| compute(*c)).collect();
        let mut machine = machine(model, load(&trace, vec![real_time(&ops)]));
        machine.apply(&Plan::of(KnobId::CLOCK, Value::Clock(clock)));
        // All of the first job, whatever its length.
        let done = loop {
            if let SimulationEvent::Completed(outcome) = machine.run_until(Time(u64::MAX / 2)) {
                break outcome;
            }
        };
        let executed = cycles.iter().sum::<u64>() as f64;
        let rounding = ops.len() as f64 * clock.0 as f64 * 1e-9;
        for busy in [busy(&mut machine)[1], done.response()] {
            prop_assert!((busy.as_secs_f64() * clock.0 as f64 - executed).abs() <= rounding);
        }
    }

    #[test]
    fn a_program_alone_at_full_clock_takes_its_demand(
        compute_us in 100u64..20_000, data_us in 500u64..20_000, rounds in 1u32..20, writes in 0u32..10
    ) {
        let demand = Demand {
            compute: Nanos::from_micros(compute_us), data: Nanos::from_micros(data_us), rounds, reads: ObjectSet::Sensors, writes,
            fit: false,
        };
        let scenario = scenario(demand);
        for mode in [UpdateMode::Transaction, UpdateMode::MemoryFirst] {
            let model = bare(MachineModel::exynos5422_a15());
            let costs = costs(&model, mode).unwrap();
            let Ok(compiled) = compile(&scenario, &costs, &costs, 1.0) else { continue };
            let trace = silence();
            let tasks = scenario.tasks.iter().cloned().zip(compiled.programs).collect();
            let mut load = load(&trace, tasks);
            load.update_mode = mode;
            let outcome = jobs(&mut machine(model, load), PERIOD)[0];
            // Half a nanosecond for each segment; the compiler rounds gets down, cycles to the nearest.
            let segments = u64::from(2 * rounds + 2);
            prop_assert!(outcome.split.computation.0.abs_diff(demand.compute.0) <= segments);
            let short = demand.data.0 as f64 - outcome.split.data_response().0 as f64;
            let one_get_a_round = f64::from(rounds) * costs.get_ns;
            prop_assert!(
                (-(segments as f64)..=one_get_a_round + segments as f64).contains(&short),
                "short by {} ns",
                short
            );
        }
    }

    #[test]
    fn the_split_adds_up_to_the_response(
        seed in any::<u64>(),
        sensors in 1u32..40,
        rounds in 1usize..4,
        mode in 0..2,
        cores in 1u32..5,
    ) {
        let trace =
            Trace::synthetic(sensors, Nanos::from_millis(1), Nanos::from_millis(20), Nanos::from_millis(700), seed);
        let rt = [get(200), compute(3_000_000), put(5)].repeat(rounds);
        let urgent = urgent(&[compute(400_000), put(1)]);
        let tasks = vec![real_time(&rt), interferer(&[get(100), compute(100_000)]), urgent];
        let mut load = load(&trace, tasks);
        load.seed = seed;
        load.update_mode = if mode == 0 { UpdateMode::Transaction } else { UpdateMode::MemoryFirst };
        let model = MachineModel { cores, ..MachineModel::exynos5422_a15() };
        let mut machine = machine(model, load);
        let mut completed = [0; 3];
        for event in run(&mut machine, Nanos::from_millis(700)) {
            if let SimulationEvent::Completed(outcome) = event {
                prop_assert_eq!(outcome.split.response(), outcome.response(), "{:?}", outcome);
                if outcome.deadline.is_some() {
                    prop_assert_eq!(outcome.job, completed[outcome.task.index()], "in order: {:?}", outcome);
                }
                completed[outcome.task.index()] += 1;
            }
        }
        prop_assert!(completed[0] > 0 && completed[2] > 0);
        prop_assert!(machine.updates().reconcile().balances());
    }
}

/// A second real-time task, more urgent than [`real_time`], at odd times.
fn urgent(ops: &[punctual_workload::Op]) -> (TaskSpec, punctual_workload::Program) {
    let (mut spec, program) = real_time(ops);
    spec.name = "urgent".into();
    spec.class = Class::RealTime {
        deadline: Nanos::from_millis(3),
    };
    spec.arrival = Arrival::Sporadic {
        gap_min: Nanos::from_millis(5),
        gap_max: Nanos::from_millis(9),
    };
    (spec, program)
}

fn scenario(demand: Demand) -> Scenario {
    let (mut task, _) = real_time(&[]);
    task.demand = demand;
    Scenario {
        name: "alone".into(),
        seed: 1,
        duration: Nanos::from_secs(1),
        goal: Goal {
            tasks: TaskGoal::Tardiness(0.85),
            drr: 0.5,
            min_fresh: Share::ZERO,
        },
        control: ControlSpec {
            kind: ControllerKind::Open,
            pace: Pace::Job,
            within: false,
            warm_up: Nanos::ZERO,
            probe: true,
            best_effort_share: Share::ONE,
            best_effort_min: None,
            prices: None,
            prices_stated: false,
        },
        store: StoreNeeds {
            update_mode: UpdateMode::Transaction,
            durability: Durability::Volatile,
            coldest_first: false,
            group_commit: Nanos::from_millis(50),
            objects: 1000,
            object_bytes: 100,
            map_bytes: StoreNeeds::MAP_BYTES,
            reader_life_max: Some(StoreNeeds::READER_LIFE_MAX),
            verify: punctual_workload::StoreCheck::Full,
        },
        sensors: SensorLoad {
            source: SensorSource::Synthetic {
                count: 1,
                period_min: Nanos::from_secs(1),
                period_max: Nanos::from_secs(1),
            },
            speedup: 1.0,
            volume: Volume::Replicas(1),
            value_bytes: 64,
        },
        tasks: vec![task],
        excitation: Excitation {
            clock: vec![],
            admitted: vec![],
            hold: 1,
        },
    }
}
