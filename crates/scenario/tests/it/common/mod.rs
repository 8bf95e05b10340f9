//! A small scenario that both machines can run: 200 synthetic sensors, one analysis, one best-effort task.

use std::ops::ControlFlow;
use std::sync::Arc;

use punctual_runtime::report::Progress;
use punctual_scenario::{PlatformChoice, RunRequest};
use punctual_sim::MachineModel;
use punctual_units::{Nanos, Share};
use punctual_workload::{
    Active, Arrival, Class, ControlSpec, ControllerKind, Demand, Durability, Excitation, Goal, ObjectSet, Pace,
    Scenario, SensorLoad, SensorSource, StoreNeeds, TaskGoal, TaskSpec, Trace, UpdateMode, Volume,
};

/// A request for `seconds` of the scenario under `kind`.
pub fn request(platform: PlatformChoice, kind: ControllerKind, seconds: u64) -> RunRequest {
    let (count, period_min, period_max) = (200, Nanos::from_millis(1000), Nanos::from_millis(4000));
    let scenario = Scenario {
        name: "test".into(),
        seed: 7,
        duration: Nanos::from_secs(seconds),
        goal: Goal {
            tasks: TaskGoal::Tardiness(0.85),
            drr: 0.66,
            min_fresh: Share::clamped(0.5),
        },
        control: ControlSpec {
            kind,
            pace: Pace::Period(Nanos::from_millis(200)),
            within: false,
            warm_up: Nanos::from_millis(400),
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
            objects: 500,
            object_bytes: 100,
            map_bytes: StoreNeeds::MAP_BYTES,
            reader_life_max: Some(StoreNeeds::READER_LIFE_MAX),
            verify: punctual_workload::StoreCheck::Full,
        },
        sensors: SensorLoad {
            source: SensorSource::Synthetic {
                count,
                period_min,
                period_max,
            },
            speedup: 10.0,
            volume: Volume::Utilisation(0.6),
            value_bytes: 64,
        },
        tasks: vec![
            task(
                "analysis",
                Class::RealTime {
                    deadline: Nanos::from_millis(50),
                },
                12,
            ),
            task("browse", Class::BestEffort, 2),
        ],
        excitation: Excitation {
            clock: vec![1.0, 0.95, 0.9, 0.85],
            admitted: vec![0.5, 0.6, 0.7, 0.8],
            hold: 1,
        },
    };
    let trace = Trace::synthetic(count, period_min, period_max, Nanos::from_secs(30), scenario.seed);
    let mut request = RunRequest::new(scenario, Arc::new(trace), platform);
    request.machine = (platform == PlatformChoice::Sim).then(|| machine(8.0));
    request
}

/// The shipped machine with transactions so many times as long: a share of a core is fewer updates, which take as much
/// less to simulate.
pub fn machine(times: f64) -> MachineModel {
    let mut machine = MachineModel::exynos5422_a15();
    machine.name = "Exynos 5422 with long transactions".into();
    for effort in [
        &mut machine.store.write_begin,
        &mut machine.store.put,
        &mut machine.store.commit,
    ] {
        *effort = *effort * times;
    }
    machine
}

fn task(name: &str, class: Class, part_ms: u64) -> TaskSpec {
    let part = Nanos::from_millis(part_ms);
    let arrival = match class {
        Class::RealTime { .. } | Class::Exclusive { .. } => Arrival::Periodic {
            period: Nanos::from_millis(100),
        },
        Class::BestEffort => Arrival::AfterCompletion {
            pause_min: Nanos::from_millis(50),
            pause_max: Nanos::from_millis(150),
        },
    };
    let reads = if name == "analysis" {
        ObjectSet::Sensors
    } else {
        ObjectSet::Objects
    };
    let demand = Demand {
        compute: part,
        data: part,
        rounds: 8,
        reads,
        writes: 8,
        fit: false,
    };
    TaskSpec {
        name: name.into(),
        class,
        arrival,
        demand,
        goal: None,
        per_core: 1,
        cores: None,
        core: None,
        active: Active::ALWAYS,
        profile: None,
    }
}

/// Watches nothing.
pub fn unwatched(_: Progress<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}
