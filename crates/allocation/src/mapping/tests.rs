//! Mappings against brute force, and what the policies promise.

use proptest::prelude::*;
use punctual_units::{Hertz, Nanos, Time};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

/// How far two powers may be apart by rounding.
const ROUNDING: f64 = 1e-8;

/// A random machine: domains of one or two cores, each with steps of its own or those of the one before.
fn machine(rng: &mut ChaCha8Rng, cores_max: usize, steps_max: usize) -> Cores {
    let mut domains: Vec<Domain> = Vec::new();
    let low = [0.0, 0.01][rng.random_range(0..2)];
    let count = rng.random_range(1..=cores_max);
    while domains.iter().map(|domain| domain.cores).sum::<usize>() < count {
        let left = count - domains.iter().map(|domain| domain.cores).sum::<usize>();
        let cores = rng.random_range(1..=left.min(2));
        let steps = match domains.last() {
            Some(last) if rng.random_bool(0.6) => last.steps.clone(),
            _ => steps(rng, steps_max, low),
        };
        domains.push(Domain { cores, steps });
    }
    Cores {
        domains,
        low_power_watts: low,
    }
}

fn steps(rng: &mut ChaCha8Rng, most: usize, low: f64) -> Vec<ClockStep> {
    let mut mhz: Vec<u64> = (0..rng.random_range(1..=most))
        .map(|_| rng.random_range(1..=10))
        .collect();
    mhz.sort_unstable();
    mhz.dedup();
    let step = |mhz: u64| {
        let busy_watts = low + 0.001 * (mhz as f64).powf(rng.random_range(0.5..3.0));
        ClockStep {
            clock: Hertz::from_mhz(mhz),
            busy_watts,
            idle_watts: low + (busy_watts - low) * rng.random_range(0.0..=1.0),
        }
    };
    mhz.into_iter().map(step).collect()
}

/// A random pipeline; small round loads, so that ties are common.
fn stages(rng: &mut ChaCha8Rng, most: usize) -> Vec<StageModel> {
    let count = rng.random_range(1..=most);
    let stage = |number: usize| {
        let mean = 1000 * rng.random_range(1..=4);
        StageModel {
            name: format!("stage {number}"),
            cycles_mean: mean,
            cycles_worst: mean + 500 * rng.random_range(0..=2),
            state_bytes: 1024 * rng.random_range(1..=8),
        }
    };
    (0..count).map(stage).collect()
}

fn problem(rng: &mut ChaCha8Rng) -> Problem {
    let cores = machine(rng, 4, 3);
    let stages = stages(rng, 5);
    let idle = Idle::ALL[rng.random_range(0..2)];
    Problem::new(stages, cores, idle).expect("a sound problem")
}

fn all_of(choices: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for count in choices {
        let longer = |one: &Vec<usize>| {
            (0..*count)
                .map(|next| [one.clone(), vec![next]].concat())
                .collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// Every core for every stage.
fn every_mapping(problem: &Problem) -> Vec<Mapping> {
    let all = all_of(&vec![problem.cores().count(); problem.stages().len()]);
    all.into_iter().map(Mapping::of).collect()
}

/// Power, number of cores and moves of the best mapping with the best steps: all of them, one by one. Power is computed
/// core by core, without the search's sums.
fn brute_force(problem: &Problem, fps: f64, from: &Mapping) -> Option<(f64, usize, usize)> {
    let cores = problem.cores();
    let every_step = all_of(
        &cores
            .domains
            .iter()
            .map(|domain| domain.steps.len())
            .collect::<Vec<_>>(),
    );
    let mut found: Vec<(f64, usize, usize)> = Vec::new();
    for mapping in every_mapping(problem) {
        for steps in &every_step {
            if let Some(watts) = core_by_core(problem, &mapping, steps, fps) {
                found.push((watts, mapping.used(), from.moves(&mapping).count()));
            }
        }
    }
    let least = found.iter().map(|one| one.0).reduce(f64::min)?;
    let tied = found.iter().filter(|one| one.0 <= least * (1.0 + ROUNDING));
    tied.map(|one| (one.1, one.2))
        .min()
        .map(|(used, moves)| (least, used, moves))
}

fn core_by_core(problem: &Problem, mapping: &Mapping, steps: &[usize], fps: f64) -> Option<f64> {
    let cores = problem.cores();
    let mut watts = 0.0;
    for (core, (mean, worst)) in problem.loads(mapping).iter().enumerate() {
        let domain = cores.domain(core);
        let step = &cores.domains[domain].steps[steps[domain]];
        if *worst == 0 {
            watts += cores.low_power_watts;
            continue;
        }
        let clock = step.clock.0 as f64;
        if fps > clock / *worst as f64 {
            return None;
        }
        let busy = *mean as f64 * fps / clock;
        let rest = match problem.idle() {
            Idle::AlwaysOn => step.idle_watts,
            Idle::ShutdownWhenIdle => cores.low_power_watts,
        };
        watts += busy * step.busy_watts + (1.0 - busy) * rest;
    }
    Some(watts)
}

fn near(one: f64, other: f64) -> bool {
    (one - other).abs() <= ROUNDING * one.abs().max(other.abs())
}

/// All stages on the first core.
fn start(problem: &Problem) -> Mapping {
    Mapping::of(vec![0; problem.stages().len()])
}

proptest! {
    #[test]
    fn the_best_mapping_is_that_of_brute_force(seed in any::<u64>()) {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let problem = problem(rng);
        let search = Search::new(problem.clone()).unwrap();
        let from = every_mapping(&problem)[0].clone();
        for fps in [0.0, 100.0, rng.random_range(0.0..3000.0), 1000.0, 2000.0] {
            let ours = search.best(fps, Some(&from));
            let best = brute_force(&problem, fps, &from);
            prop_assert_eq!(ours.is_some(), best.is_some(), "seed {}, {} fps", seed, fps);
            let (Some(ours), Some((watts, used, moves))) = (ours, best) else { continue };
            prop_assert!(near(problem.watts(&ours, fps).unwrap(), watts), "seed {seed}, {fps} fps: {ours:?}");
            prop_assert_eq!(ours.mapping.used(), used, "seed {}, {} fps", seed, fps);
            prop_assert_eq!(from.moves(&ours.mapping).count(), moves, "seed {}, {} fps", seed, fps);
        }
    }

    #[test]
    fn the_table_is_the_best_at_every_rate(seed in any::<u64>()) {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let problem = problem(rng);
        let search = Search::new(problem.clone()).unwrap();
        let from = start(&problem);
        let table = MappingTable::new(&search, Some(&from));
        let ends = table.rows().windows(2).all(|pair| pair[0].up_to == pair[1].above);
        prop_assert!(ends && table.rows()[0].above == 0.0, "seed {seed}: a gap");
        let inside = |row: &MappingRow| [row.up_to, (row.above + row.up_to) / 2.0, row.above + (row.up_to - row.above) * 1e-3];
        let mut rates: Vec<f64> = table.rows().iter().flat_map(inside).collect();
        rates.extend((0..20).map(|_| rng.random_range(1.0..table.fps_max())));
        for fps in rates {
            let row = table.row(fps).unwrap();
            let (least, _, _) = brute_force(&problem, fps, &from).unwrap();
            let ours = problem.watts(&row.configuration, fps);
            prop_assert!(ours.is_some_and(|ours| near(ours, least)), "seed {seed}, {fps} fps: {ours:?}, {least}");
        }
        prop_assert!(brute_force(&problem, table.fps_max() * 1.001, &from).is_none(), "seed {seed}");
        prop_assert!(table.row(table.fps_max() * 1.001).is_none(), "seed {seed}");
    }

    #[test]
    fn every_mapping_is_listed_up_to_the_names_of_cores(seed in any::<u64>()) {
        let problem = problem(&mut ChaCha8Rng::seed_from_u64(seed));
        let listed = Search::new(problem.clone()).unwrap();
        // Two mappings are one up to names if no rate tells what they draw and serve apart: their demands, as a set.
        let alike = |mapping: &Mapping| {
            let mut demands: Vec<String> = problem
                .demands(mapping)
                .iter()
                .zip(&problem.cores().domains)
                .map(|(demand, domain)| format!("{demand:?} {domain:?}"))
                .collect();
            demands.sort();
            demands
        };
        let ours: std::collections::BTreeSet<_> = listed.entries().iter().map(|entry| alike(&entry.mapping)).collect();
        let all: std::collections::BTreeSet<_> = every_mapping(&problem).iter().map(alike).collect();
        prop_assert!(ours == all, "seed {seed}");
    }

    /// A change of the mapping has paid when the rate has stayed as long as expected.
    #[test]
    fn the_keeper_moves_only_where_it_must_or_where_it_pays(seed in any::<u64>()) {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let problem = problem(rng);
        let search = Search::new(problem.clone()).unwrap();
        let from = start(&problem);
        let table = MappingTable::new(&search, Some(&from));
        let cost = MoveCost { constant_cycles: 1e5, cycles_per_byte: 5.0, bytes_min: 0 };
        let stay = Nanos::from_secs_f64(rng.random_range(0.001..10.0));
        let fps = rng.random_range(1.0..table.fps_max());
        let mut keeper = Keeper::new(problem.clone(), table.clone(), cost, from.clone(), stay);
        let decision = keeper.decide(fps, Time::ZERO).unwrap();
        let watts = problem.watts(&decision.configuration, fps);
        prop_assert!(watts.is_some(), "seed {seed}: the rate is not served");
        let here = problem.clocked(&from, fps).and_then(|here| problem.watts(&here, fps));
        let best = &table.row(fps).unwrap().configuration;
        let dear = cost.joules(&problem, best, from.moves(&best.mapping));
        let saved = here.map_or(f64::INFINITY, |here| (here - problem.watts(best, fps).unwrap()) * stay.as_secs_f64());
        prop_assert_eq!(!decision.moves.is_empty(), saved > dear && best.mapping != from, "seed {}", seed);
        prop_assert_eq!(from.after(&decision.moves), decision.configuration.mapping, "seed {}", seed);
        prop_assert!(keeper.decide(fps, Time(1)).unwrap().moves.is_empty(), "seed {seed}: moves again");
        prop_assert!(keeper.decide(table.fps_max() * 1.01, Time(2)).is_none(), "seed {seed}");
    }

    #[test]
    fn balancing_ends_and_never_raises_the_largest_load(seed in any::<u64>()) {
        let problem = problem(&mut ChaCha8Rng::seed_from_u64(seed));
        let largest = |mapping: &Mapping| problem.loads(mapping).iter().map(|load| load.1).max();
        let mut mapping = start(&problem);
        let mut moves = 0;
        while let Some(one) = balance(&problem, &mapping, 0) {
            let next = mapping.after(&[one]);
            prop_assert!(largest(&next) <= largest(&mapping), "seed {seed}");
            mapping = next;
            moves += 1;
            prop_assert!(moves <= 100, "seed {seed}: does not end");
        }
    }

    /// All cores decide at once from what was published before the round.
    #[test]
    fn without_coordinator_no_mapping_comes_back_and_it_ends(seed in any::<u64>(), margin in 0u64..1500) {
        let problem = problem(&mut ChaCha8Rng::seed_from_u64(seed));
        let rule = |mapping: &Mapping, round| alone_round(&problem, mapping, round, margin);
        prop_assert_eq!(comes_back(start(&problem), problem.cores().count(), rule), None, "seed {}", seed);
    }

    #[test]
    fn thermal_exchanges_cool_the_hottest_core_and_serve_the_rate(seed in any::<u64>()) {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let problem = problem(rng);
        let mapping = start(&problem);
        let celsius: Vec<f64> = (0..problem.cores().count()).map(|_| rng.random_range(30.0..80.0)).collect();
        let fps = rng.random_range(1.0..1000.0);
        let Some(exchange) = thermal(&problem, &mapping, fps, &celsius, 3.0, 0.1) else { return Ok(()) };
        let after = mapping.after(&exchange.moves);
        let hottest = celsius.iter().copied().fold(f64::MIN, f64::max);
        let mean = celsius.iter().sum::<f64>() / celsius.len() as f64;
        let from = exchange.moves[0].from;
        prop_assert!(celsius[from] == hottest && hottest > mean + 3.0, "seed {seed}");
        prop_assert!(problem.loads(&after)[from].0 < problem.loads(&mapping)[from].0, "seed {seed}");
        let watts = |mapping: &Mapping| problem.watts(&problem.clocked(mapping, fps).unwrap(), fps).unwrap();
        prop_assert!(watts(&after) <= watts(&mapping) * 1.1 + ROUNDING, "seed {seed}");
    }
}

fn alone_round(problem: &Problem, mapping: &Mapping, round: u64, margin: u64) -> Vec<Move> {
    let published: Vec<u64> = problem.loads(mapping).iter().map(|load| load.1).collect();
    let push = |core: usize| {
        let own = problem
            .stages()
            .iter()
            .enumerate()
            .filter(|(stage, _)| mapping.core(*stage) == core);
        alone::push(core, round, &published, own, margin)
    };
    (0..published.len()).filter_map(push).collect()
}

/// The mapping that comes back under a rule, if one does before a whole cycle of rounds is quiet.
fn comes_back(start: Mapping, cores: usize, rule: impl Fn(&Mapping, u64) -> Vec<Move>) -> Option<Mapping> {
    let mut seen = vec![start];
    let mut quiet = 0;
    for round in 0..10_000 {
        let mapping = &seen[seen.len() - 1];
        let moves = rule(mapping, round);
        quiet = if moves.is_empty() { quiet + 1 } else { 0 };
        if quiet > cores {
            return None;
        }
        let after = mapping.after(&moves);
        if !moves.is_empty() && seen.contains(&after) {
            return Some(after);
        }
        seen.push(after);
    }
    panic!("does not end");
}

/// The planted fault: every core that has more than the lightest one pushes a stage there, all at once.
#[test]
fn the_check_for_ping_pong_finds_it() {
    let rule = |mapping: &Mapping, _| {
        let load = |core: usize| mapping.cores().filter(|on| *on == core).count();
        let lightest = (0..3).min_by_key(|core| load(*core)).unwrap();
        let heavier = (0..3).filter(|core| load(*core) > load(lightest));
        let push = |from| Move {
            stage: mapping.cores().position(|on| on == from).unwrap(),
            from,
            to: lightest,
        };
        heavier.map(push).collect()
    };
    assert!(comes_back(Mapping::of([0, 0, 1, 1]), 3, rule).is_some());
}

/// The size that is asked for; how long it took is printed, not judged.
#[test]
fn eight_stages_on_four_cores_are_a_table_quickly() {
    let rng = &mut ChaCha8Rng::seed_from_u64(1);
    let steps: Vec<ClockStep> = (1..=9)
        .map(|number| ClockStep {
            clock: Hertz::from_mhz(100 * number),
            busy_watts: 1e-3 * (number as f64).powi(3) + 0.1,
            idle_watts: 0.02,
        })
        .collect();
    let cores = Cores {
        domains: vec![Domain { cores: 1, steps }; 4],
        low_power_watts: 0.01,
    };
    let stage = |number| {
        let cycles = rng.random_range(10_000..90_000);
        StageModel {
            name: format!("{number}"),
            cycles_mean: cycles,
            cycles_worst: cycles,
            state_bytes: 65_536,
        }
    };
    let problem = Problem::new((0..8).map(stage).collect(), cores, Idle::ShutdownWhenIdle).unwrap();
    let search = Search::new(problem).unwrap();
    assert_eq!(search.mappings(), 2795);
    let table = MappingTable::new(&search, None);
    println!("{} rows up to {:.0} frames/s", table.rows().len(), table.fps_max());
    assert!(table.rows().len() > 10);
}

#[test]
fn too_many_mappings_are_refused() {
    let step = ClockStep {
        clock: Hertz::from_mhz(100),
        busy_watts: 0.1,
        idle_watts: 0.1,
    };
    let stage = StageModel {
        name: "one".into(),
        cycles_mean: 1,
        cycles_worst: 1,
        state_bytes: 0,
    };
    let cores = Cores {
        domains: vec![
            Domain {
                cores: 8,
                steps: vec![step]
            };
            1
        ],
        low_power_watts: 0.0,
    };
    let problem = Problem::new(vec![stage; 16], cores, Idle::AlwaysOn).unwrap();
    let error = Search::new(problem).unwrap_err().to_string();
    assert!(
        error.starts_with("stage: ") && error.contains("16 stages on 8 cores"),
        "{error}"
    );
}
