//! Simulated pipelines: frames add up, energy is what the table says, and the policies keep their promises.

use proptest::prelude::*;
use punctual_allocation::mapping::{
    ClockStep, Configuration, Cores, Domain, Idle, Keeper, Mapping, MappingTable, Move, MoveCost, Problem, Search,
    alone, thermal,
};
use punctual_pipelines::{EdgeSpec, Graph, StageSpec, WhenFull};
use punctual_units::{Hertz, Nanos, Time};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

const THERMAL: Thermal = Thermal {
    ambient_celsius: 30.0,
    kelvin_per_watt: 60.0,
    tau_seconds: 1.0,
};

/// As cheap as a state of a few kilobytes on a machine with caches.
const MECHANISM: MigrationModel = MigrationModel {
    cost: MoveCost {
        constant_cycles: 100_000.0,
        cycles_per_byte: 2.0,
        bytes_min: 0,
    },
    transfer: Nanos(10_000),
    boost: true,
};

/// Frames that every queue holds.
const SLOTS: u32 = 14;

/// A machine that no policy has seen: 2 to 6 cores, 3 to 9 steps, power that rises about cubically.
fn machine(rng: &mut ChaCha8Rng) -> Cores {
    let count = rng.random_range(3..=9);
    let mut mhz: Vec<u64> = Vec::new();
    while mhz.len() < count {
        let next: u64 = rng.random_range(100..1000);
        if mhz.iter().all(|other| next.abs_diff(*other) > 10) {
            mhz.push(next);
        }
    }
    mhz.sort_unstable();
    let (power, leak) = (rng.random_range(2.0..3.5), rng.random_range(0.0..0.05));
    let step = |mhz: &u64| {
        let busy_watts = leak + (*mhz as f64 / 1000.0).powf(power);
        ClockStep {
            clock: Hertz::from_mhz(*mhz),
            busy_watts,
            idle_watts: leak + (busy_watts - leak) * 0.3,
        }
    };
    let steps: Vec<ClockStep> = mhz.iter().map(step).collect();
    Cores {
        domains: vec![Domain { cores: 1, steps }; rng.random_range(2..=6)],
        low_power_watts: leak * 0.1,
    }
}

/// Two stages and a queue between them.
fn two(takes: u32, makes: u32) -> Graph {
    let edge = EdgeSpec {
        slots: 8,
        frame_bytes: 64,
        full: WhenFull::Wait,
    };
    let stages = Graph::builder("two")
        .stage(StageSpec::new("a").makes(&[makes]).pinned())
        .stage(StageSpec::new("b").takes(&[takes]).pinned());
    stages.edge(("a", 0), ("b", 0), edge).build().unwrap()
}

const COST: StepCost = StepCost {
    cycles: 1000.0,
    spread: 0.0,
};

fn problem(pipeline: &PipelineModel, cores: &Cores, idle: Idle) -> Problem {
    Problem::new(pipeline.to_map(), cores.clone(), idle).unwrap()
}

struct Ground {
    problem: Problem,
    table: MappingTable,
    start: Configuration,
    simulated: PipelineSim,
}

/// At the best configuration for `share` of the highest rate.
fn ground(rng: &mut ChaCha8Rng, idle: Idle, share: f64, seed: u64) -> Ground {
    let cores = machine(rng);
    let pipeline = PipelineModel::random(rng, SLOTS).unwrap();
    let problem = problem(&pipeline, &cores, idle);
    let table = MappingTable::new(&Search::new(problem.clone()).unwrap(), None);
    let fps = table.fps_max() * share;
    let start = table.row(fps).unwrap().configuration.clone();
    let simulated = PipelineSim::new(pipeline, (cores, idle, THERMAL), MECHANISM, &start, fps, seed);
    Ground {
        problem,
        table,
        start,
        simulated,
    }
}

fn seconds(seconds: f64) -> Time {
    Time::ZERO + Nanos::from_secs_f64(seconds)
}

/// What must hold of every run: frames that were made were taken or wait, and no queue holds more than it has room for.
fn frames_add_up(simulated: &mut PipelineSim, pipeline: &PipelineModel) -> bool {
    let steps = simulated.report().steps;
    let edges = pipeline.edges().iter().zip(simulated.levels());
    edges.into_iter().all(|(edge, level)| {
        let made = steps[edge.from] * u64::from(edge.makes);
        let taken = steps[edge.to] * u64::from(edge.takes);
        made == taken + u64::from(*level) && *level <= edge.slots
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever is ordered, and however often.
    #[test]
    fn no_frame_is_lost_by_moves(seed in any::<u64>()) {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let mut ground = ground(rng, Idle::ShutdownWhenIdle, 0.5, seed);
        let cores = ground.problem.cores().count();
        let pipeline = pipeline_of(&ground);
        let mut ordered = 0;
        for tick in 1..200 {
            ground.simulated.run_until(seconds(f64::from(tick) * 1e-3));
            let stage = rng.random_range(0..pipeline.stages().len());
            let (from, to) = (ground.simulated.observe().mapping.core(stage), rng.random_range(0..cores));
            ground.simulated.order(&[Move { stage, from, to }], &ground.start.steps);
            ordered += 1;
        }
        prop_assert!(frames_add_up(&mut ground.simulated, &pipeline), "seed {seed}");
        let report = ground.simulated.report();
        prop_assert!(report.moves > 10 && report.moves <= ordered, "seed {seed}: {} moves", report.moves);
        prop_assert!(report.delivered <= report.due - report.late, "seed {seed}");
        prop_assert!(report.freezes.iter().all(|freeze| freeze.until > freeze.from), "seed {seed}");
    }

    #[test]
    fn the_same_seed_gives_the_same_run_however_it_is_sliced(seed in any::<u64>()) {
        let run = |slices: u32| {
            let mut ground = ground(&mut ChaCha8Rng::seed_from_u64(seed), Idle::AlwaysOn, 0.4, seed);
            for slice in 1..=slices {
                ground.simulated.run_until(seconds(0.1 * f64::from(slice) / f64::from(slices)));
            }
            let report = ground.simulated.report();
            (report.steps, report.due, report.late, report.cores.iter().map(|core| core.times).collect::<Vec<_>>())
        };
        prop_assert_eq!(run(1), run(7), "seed {}", seed);
    }

    /// Where cores keep up, the simulation draws what the table says, and no frame is late.
    #[test]
    fn energy_is_what_the_table_says(seed in any::<u64>(), share in 0.05f64..0.9) {
        for idle in Idle::ALL {
            let mut ground = ground(&mut ChaCha8Rng::seed_from_u64(seed), idle, share, seed);
            let fps = ground.simulated.observe().fps;
            // Until queues are full.
            let full = 200.0 / fps;
            ground.simulated.run_until(seconds(full));
            ground.simulated.forget();
            let span = 2000.0 / fps;
            ground.simulated.run_until(seconds(full + span));
            let report = ground.simulated.report();
            let watts = ground.problem.watts(&ground.start, fps).unwrap();
            let off = report.joules() / span / watts - 1.0;
            prop_assert!(off.abs() < 0.02, "seed {seed}, {share} of the highest rate, {idle:?}: {off}");
            prop_assert_eq!(report.late, 0, "seed {}", seed);
        }
    }

    /// Rates that come and go: what the keeper draws, moves included, against the best mapping of each without moves.
    #[test]
    fn the_keeper_draws_within_2_percent_of_the_best(seed in any::<u64>()) {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let idle = Idle::ALL[rng.random_range(0..2)];
        let mut ground = ground(rng, idle, 0.3, seed);
        let (first, stay) = (ground.start.mapping.clone(), Nanos::from_secs(2));
        let mut keeper = Keeper::new(ground.problem.clone(), ground.table.clone(), MECHANISM.cost, first, stay);
        let simulated = &mut ground.simulated;
        simulated.run_until(seconds(1.0));
        simulated.forget();
        let mut best = 0.0;
        for _ in 0..12 {
            let fps = ground.table.fps_max() * rng.random_range(0.05..0.9);
            let stay = Nanos::from_secs_f64(rng.random_range(1.0..4.0));
            simulated.set_fps(fps);
            let decision = keeper.decide(fps, simulated.now()).unwrap();
            simulated.order(&decision.moves, &decision.configuration.steps);
            let row = ground.table.row(fps).unwrap();
            best += ground.problem.watts(&row.configuration, fps).unwrap() * stay.as_secs_f64();
            simulated.run_until(simulated.now() + stay);
        }
        let joules = simulated.report().joules();
        prop_assert!(joules <= best * 1.02, "seed {seed}, {idle:?}: {joules} J, at best {best} J");
    }
}

/// Every core for itself, from all stages on one core: loads are levelled while frames are due. No stage comes back to
/// a core that it has left, no frame is late, and then it is quiet.
#[test]
fn cores_without_a_coordinator_level_their_loads_without_ping_pong() {
    for seed in 0..12 {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let (cores, pipeline) = (machine(rng), PipelineModel::random(rng, SLOTS).unwrap());
        let problem = problem(&pipeline, &cores, Idle::AlwaysOn);
        let count = cores.count();
        let top = cores
            .domains
            .iter()
            .map(|domain| domain.steps.len() as u8 - 1)
            .collect();
        let start = Configuration {
            mapping: Mapping::of(vec![0; pipeline.stages().len()]),
            steps: top,
        };
        let fps = problem.fps_max(&start) * 0.8;
        let ground = (cores, Idle::AlwaysOn, THERMAL);
        let mut simulated = PipelineSim::new(pipeline, ground, MECHANISM, &start, fps, seed);
        let mut left: Vec<(usize, usize)> = Vec::new();
        for round in 0..20 * count as u64 {
            simulated.run_until(simulated.now() + Nanos::from_millis(50));
            let moves = pushes(&problem, &simulated.observe().mapping, round);
            let returns = moves.iter().find(|one| left.contains(&(one.stage, one.to)));
            assert_eq!(returns, None, "seed {seed}, round {round}");
            assert!(moves.is_empty() || round < 18 * count as u64, "seed {seed}: not quiet");
            left.extend(moves.iter().map(|one| (one.stage, one.from)));
            simulated.order(&moves, &start.steps);
        }
        let report = simulated.report();
        assert_eq!((report.late, report.moves), (0, left.len() as u64), "seed {seed}");
        let largest = |mapping: &Mapping| problem.loads(mapping).iter().map(|load| load.1).max();
        let mapping = simulated.observe().mapping;
        assert!(largest(&mapping) < largest(&start.mapping), "seed {seed}");
    }
}

/// What all cores push in a round, each from what all have published.
fn pushes(problem: &Problem, mapping: &Mapping, round: u64) -> Vec<Move> {
    let published: Vec<u64> = problem.loads(mapping).iter().map(|load| load.1).collect();
    let push = |core: usize| {
        let stages = problem.stages().iter().enumerate();
        let own = stages.filter(|(stage, _)| mapping.core(*stage) == core);
        alone::push(core, round, &published, own, 0)
    };
    (0..published.len()).filter_map(push).collect()
}

fn pipeline_of(ground: &Ground) -> PipelineModel {
    ground.simulated.pipeline().clone()
}

/// Cores of which some must run hot for the frame rate, beside cool ones: with the exchanges the peak is lower, and
/// no frame is late.
#[test]
fn exchanges_lower_the_peak_without_a_late_frame() {
    let outcomes: Vec<(u64, f64, f64, u64)> = (0..12)
        .map(|seed| {
            let ((still, _), (cooled, moves)) = (peak(seed, false), peak(seed, true));
            (seed, still, cooled, moves)
        })
        .collect();
    for (seed, still, cooled, moves) in &outcomes {
        let falls = if *moves == 0 { cooled == still } else { cooled < still };
        assert!(falls, "seed {seed}: {cooled} C after {moves} moves, {still} C without");
    }
    let falls: Vec<f64> = outcomes
        .iter()
        .filter(|one| one.3 > 0)
        .map(|one| one.1 - one.2)
        .collect();
    println!(
        "{} of {} machines exchange, the peaks fall by {falls:.1?} K",
        falls.len(),
        outcomes.len()
    );
    assert!(
        falls.len() >= 4 && falls.iter().sum::<f64>() > falls.len() as f64,
        "by {falls:?} K: {outcomes:?}"
    );
}

/// The highest temperature in twenty seconds, and how many moves were made.
fn peak(seed: u64, exchanges: bool) -> (f64, u64) {
    let mut ground = ground(&mut ChaCha8Rng::seed_from_u64(seed), Idle::ShutdownWhenIdle, 0.45, seed);
    let simulated = &mut ground.simulated;
    for tick in 1..=200 {
        simulated.run_until(seconds(f64::from(tick) * 0.1));
        let seen = simulated.observe();
        if !exchanges || seen.moving {
            continue;
        }
        let Some(exchange) = thermal(&ground.problem, &seen.mapping, seen.fps, &seen.celsius, 2.0, 0.05) else {
            continue;
        };
        let after = seen.mapping.after(&exchange.moves);
        let clocked = ground.problem.clocked(&after, seen.fps).unwrap();
        simulated.order(&exchange.moves, &clocked.steps);
    }
    let report = simulated.report();
    assert_eq!(
        report.late, 0,
        "seed {seed}, exchanges: {exchanges}, {} moves",
        report.moves
    );
    (report.peak_celsius(), report.moves)
}

#[test]
fn a_core_warms_up_as_a_resistor_and_a_capacitor_do() {
    let cores = Cores {
        domains: vec![Domain {
            cores: 1,
            steps: vec![ClockStep {
                clock: Hertz::from_mhz(100),
                busy_watts: 1.0,
                idle_watts: 1.0,
            }],
        }],
        low_power_watts: 0.0,
    };
    let pipeline = PipelineModel::new(&two(1, 1), vec![COST; 2]).unwrap();
    let start = Configuration {
        mapping: Mapping::of([0, 0]),
        steps: [0].into_iter().collect(),
    };
    let mut simulated = PipelineSim::new(pipeline, (cores, Idle::AlwaysOn, THERMAL), MECHANISM, &start, 100.0, 1);
    simulated.run_until(seconds(1.0));
    let celsius = simulated.observe().celsius[0];
    assert!((celsius - (90.0 - 60.0 * (-1f64).exp())).abs() < 1e-9, "{celsius}");
    assert!((simulated.report().joules() - 1.0).abs() < 1e-9);
}

/// The planted fault: a queue that loses a frame.
#[test]
fn the_check_of_frames_finds_a_lost_one() {
    let mut ground = ground(&mut ChaCha8Rng::seed_from_u64(1), Idle::AlwaysOn, 0.5, 1);
    let pipeline = pipeline_of(&ground);
    ground.simulated.run_until(seconds(0.1));
    assert!(frames_add_up(&mut ground.simulated, &pipeline));
    ground.simulated.lose_a_frame();
    assert!(!frames_add_up(&mut ground.simulated, &pipeline));
}

#[test]
fn what_cannot_be_simulated_says_why() {
    let refused = |graph: &Graph, costs: Vec<StepCost>| PipelineModel::new(graph, costs).unwrap_err().to_string();
    assert!(refused(&two(1, 1), vec![COST]).starts_with("stage: "));
    let spread = StepCost { spread: 1.0, ..COST };
    assert!(refused(&two(1, 1), vec![COST, spread]).starts_with("stage[1].spread: "));
    let edge = |full| EdgeSpec {
        slots: 4,
        frame_bytes: 1,
        full,
    };
    let split = Graph::builder("two sinks")
        .stage(StageSpec::new("a").makes(&[1]))
        .stage(StageSpec::new("b").takes(&[1]))
        .stage(StageSpec::new("c").takes(&[1]))
        .edge(("a", 0), ("b", 0), edge(WhenFull::Wait))
        .edge(("a", 0), ("c", 0), edge(WhenFull::Wait));
    assert!(refused(&split.build().unwrap(), vec![COST; 3]).starts_with("stage: 2 stages"));
    let drops = Graph::builder("drops")
        .stage(StageSpec::new("a").makes(&[1]))
        .stage(StageSpec::new("b").takes(&[1]))
        .edge(("a", 0), ("b", 0), edge(WhenFull::DropOldest));
    assert!(refused(&drops.build().unwrap(), vec![COST; 2]).starts_with("edge[0].full: "));
}

#[test]
fn a_stage_that_makes_two_frames_a_step_steps_half_as_often() {
    let pipeline = PipelineModel::new(&two(1, 2), vec![COST; 2]).unwrap();
    let cycles: Vec<u64> = pipeline.to_map().iter().map(|stage| stage.cycles_mean).collect();
    assert_eq!(cycles, [500, 1000]);
}
