//! Our policies, which the paper does not have, on random machines: 2 to 6 cores with 3 to 9 clock steps each, whose
//! power rises about cubically.
//!
//! A sample is a machine. Labels: `policy`, `stays` (`steady` where the rate stays).
//!
//! - Frame rates that change every half to four seconds (`long`) or every 20 to 200 ms (`short`): `keeper` moves stages
//!   where it pays, `follow` uses the table's mapping for each rate, `stay` keeps one mapping that serves all rates;
//!   clocks follow in all three.
//! - A steady rate: `still` keeps the best mapping, `exchange` lets the hottest core exchange stages.

use punctual_allocation::mapping::{
    ClockStep, Configuration, Cores, Domain, Idle, Keeper, Mapping, MappingTable, MoveCost, Problem, Search, thermal,
};
use punctual_mpsoc::{MigrationModel, Mpsoc, PipelineModel, PipelineSim};
use punctual_units::{Hertz, Nanos, Time};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::samples::{Labels, Run, labels as labelled};

/// Number of random machines in each replication.
const MACHINES: u64 = 10;
/// Number of successive frame rates.
const RATES: usize = 8;
/// Range of the time for which a rate stays, in seconds, by label.
const STAYS: [(&str, [f64; 2]); 2] = [("long", [0.5, 4.0]), ("short", [0.02, 0.2])];
/// Time for which the temperature is observed, and interval of observations, in seconds.
const WATCHED: u32 = 10;
const EVERY: f64 = 0.1;
/// Degrees above the mean temperature at which an exchange begins, and the share of additional power that it may draw.
const THRESHOLD: f64 = 2.0;
const DEARER: f64 = 0.05;
/// Number of frames that a queue holds.
const SLOTS: u32 = 14;
/// Cost of moving a small state between cores with caches: by hand.
const COST: MoveCost = MoveCost {
    constant_cycles: 100_000.0,
    cycles_per_byte: 2.0,
    bytes_min: 0,
};

/// `ratio`: energy divided by that of the best mapping for each rate, whose moves are free. `peak`: degrees above
/// ambient. `late`: number of late frames. `moves`: number of moves.
pub const SERIES: [&str; 4] = ["ratio", "peak", "late", "moves"];

const FOLLOWING: [&str; 3] = ["keeper", "follow", "stay"];
const COOLING: [&str; 2] = ["still", "exchange"];

pub fn labels_of(policy: &str, stays: &str) -> Labels {
    labelled([("policy", policy), ("stays", stays)])
}

fn following() -> impl Iterator<Item = (&'static str, &'static str, [f64; 2])> {
    let of = |(stays, span)| FOLLOWING.map(|policy| (policy, stays, span));
    STAYS.into_iter().flat_map(of)
}

pub fn labels() -> Vec<Labels> {
    let following = following().map(|(policy, stays, _)| labels_of(policy, stays));
    following
        .chain(COOLING.map(|policy| labels_of(policy, "steady")))
        .collect()
}

pub fn runs(machine: &Mpsoc, seed: u64) -> Vec<Result<Run, String>> {
    let grounds: Result<Vec<Ground>, String> = (0..MACHINES)
        .map(|number| Ground::draw(machine, seed.wrapping_mul(MACHINES).wrapping_add(number)))
        .collect();
    let grounds = match grounds {
        Ok(grounds) => grounds,
        Err(failure) => return vec![Err(failure)],
    };
    let following = following().map(|(policy, stays, span)| {
        let samples = grounds.iter().map(|ground| ground.followed(policy, span));
        gathered(labels_of(policy, stays), samples)
    });
    let cooling = COOLING.into_iter().map(|policy| {
        let samples = grounds.iter().map(|ground| ground.watched(policy));
        gathered(labels_of(policy, "steady"), samples)
    });
    following.chain(cooling).collect()
}

/// A run with one sample for each machine.
fn gathered(labels: Labels, machines: impl Iterator<Item = Result<Samples, String>>) -> Result<Run, String> {
    let mut run = Run {
        labels,
        ..Run::default()
    };
    for samples in machines {
        for (name, value) in samples? {
            run.series.entry(name.into()).or_default().push(Some(value));
        }
    }
    Ok(run)
}

type Samples = Vec<(&'static str, f64)>;

/// A random pipeline on a random machine.
struct Ground {
    seed: u64,
    pipeline: PipelineModel,
    problem: Problem,
    table: MappingTable,
    thermal: punctual_mpsoc::Thermal,
}

impl Ground {
    fn draw(machine: &Mpsoc, seed: u64) -> Result<Ground, String> {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let cores = cores(rng);
        let pipeline = PipelineModel::random(rng, SLOTS)?;
        let idle = Idle::ALL[rng.random_range(0..2)];
        let problem = Problem::new(pipeline.to_map(), cores, idle).map_err(|error| error.to_string())?;
        let search = Search::new(problem.clone()).map_err(|error| error.to_string())?;
        Ok(Ground {
            seed,
            pipeline,
            table: MappingTable::new(&search, None),
            problem,
            thermal: machine.thermal,
        })
    }

    fn best(&self, fps: f64) -> Result<&Configuration, String> {
        let row = self.table.row(fps).ok_or("a rate beyond the table")?;
        Ok(&row.configuration)
    }

    fn begin(&self, start: &Configuration, idle: Idle, fps: f64) -> PipelineSim {
        let mechanism = MigrationModel {
            cost: COST,
            transfer: Nanos::ZERO,
            boost: true,
        };
        let ground = (self.problem.cores().clone(), idle, self.thermal);
        let mut simulated = PipelineSim::new(self.pipeline.clone(), ground, mechanism, start, fps, self.seed);
        // Runs until the queues are full, and discards the statistics of that time.
        simulated.run_until(Time::ZERO + Nanos::from_secs_f64(400.0 / fps));
        simulated.forget();
        simulated
    }

    /// Measures energy under frame rates that change.
    fn followed(&self, policy: &str, [shortest, longest]: [f64; 2]) -> Result<Samples, String> {
        let rng = &mut ChaCha8Rng::seed_from_u64(self.seed ^ 1);
        let draw = |rng: &mut ChaCha8Rng| self.table.fps_max() * rng.random_range(0.05..0.9);
        let rates: Vec<(f64, f64)> = (0..RATES)
            .map(|_| (draw(rng), rng.random_range(shortest..longest)))
            .collect();
        let highest = rates.iter().map(|rate| rate.0).fold(0.0, f64::max);
        let start = match policy {
            "stay" => self.best(highest)?.mapping.clone(),
            _ => self.best(rates[0].0)?.mapping.clone(),
        };
        let first = self.clocked(&start, rates[0].0)?;
        let mut simulated = self.begin(&first, self.problem.idle(), rates[0].0);
        let cost = if policy == "follow" { FREE } else { COST };
        let expected = Nanos::from_secs_f64((shortest + longest) / 2.0);
        let mut keeper = Keeper::new(self.problem.clone(), self.table.clone(), cost, start.clone(), expected);
        let mut least = 0.0;
        for (fps, stay) in rates {
            simulated.set_fps(fps);
            if policy == "stay" {
                simulated.order(&[], &self.clocked(&start, fps)?.steps);
            } else {
                let decision = keeper.decide(fps, simulated.now()).ok_or("a rate beyond the table")?;
                simulated.order(&decision.moves, &decision.configuration.steps);
            }
            least += self.problem.watts(self.best(fps)?, fps).unwrap_or(f64::NAN) * stay;
            simulated.run_until(simulated.now() + Nanos::from_secs_f64(stay));
        }
        let report = simulated.report();
        Ok(vec![
            ("ratio", report.joules() / least),
            ("late", report.late as f64),
            ("moves", report.moves as f64),
        ])
    }

    fn clocked(&self, mapping: &Mapping, fps: f64) -> Result<Configuration, String> {
        let clocked = self.problem.clocked(mapping, fps);
        clocked.ok_or_else(|| format!("a mapping does not serve {fps} frames/s"))
    }

    /// Measures the temperature at a steady rate, with cores that shut down when idle.
    fn watched(&self, policy: &str) -> Result<Samples, String> {
        let fps = self.table.fps_max() * 0.45;
        let mut simulated = self.begin(self.best(fps)?, Idle::ShutdownWhenIdle, fps);
        for _ in 0..(f64::from(WATCHED) / EVERY) as u32 {
            simulated.run_until(simulated.now() + Nanos::from_secs_f64(EVERY));
            let seen = simulated.observe();
            if policy == "still" || seen.moving {
                continue;
            }
            let exchange = thermal(&self.problem, &seen.mapping, fps, &seen.celsius, THRESHOLD, DEARER);
            if let Some(exchange) = exchange {
                let after = seen.mapping.after(&exchange.moves);
                simulated.order(&exchange.moves, &self.clocked(&after, fps)?.steps);
            }
        }
        let report = simulated.report();
        Ok(vec![
            ("peak", report.peak_celsius() - self.thermal.ambient_celsius),
            ("late", report.late as f64),
            ("moves", report.moves as f64),
        ])
    }
}

/// Cost of a move for the policy `follow`: with free moves, a keeper always follows the table.
const FREE: MoveCost = MoveCost {
    constant_cycles: 0.0,
    cycles_per_byte: 0.0,
    bytes_min: 0,
};

fn cores(rng: &mut ChaCha8Rng) -> Cores {
    let mut mhz: Vec<u64> = (0..rng.random_range(3..=9))
        .map(|_| rng.random_range(100..1000))
        .collect();
    mhz.sort_unstable();
    mhz.dedup();
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
