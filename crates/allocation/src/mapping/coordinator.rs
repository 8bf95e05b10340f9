//! Decides where stages run, period by period: a policy gets the measurements and answers moves.
//!
//! **Problem.** Policies take loads and a rate as known. Measurements of a running pipeline wander, mean nothing while
//! a stage is moving, and users move stages, too.
//!
//! **Method.** A [`Coordinator`] remembers the measurements of the last [`WINDOWS`] periods. It asks its policy only
//! once it has as many since the last move, so that a stage stays for them at least. It answers nothing while a stage
//! moves, and nothing while a user's move holds ([`PeriodMeasurements::held`]). Loads are the mean and the most of
//! these periods; a core is assumed to have [`CAPACITY`] of its time for them.
//!
//! A coordinator decides from a [`Ground`] and its [`PeriodMeasurements`] alone: the same ones give the same answers.

use std::collections::VecDeque;

use punctual_units::{Nanos, Time};
use serde::{Deserialize, Serialize};

use super::alone::push;
use super::balance::balance;
use super::cost::MoveCost;
use super::hysteresis::Keeper;
use super::model::{Cores, Idle, Mapping, MappingError, Move, Problem, STAGES_MAX, StageModel};
use super::search::Search;
use super::table::MappingTable;
use super::thermal::thermal;

/// Periods that are remembered, and that must pass after a move before the next one.
pub const WINDOWS: usize = 10;
/// Share of a core that stages may count on. Chosen by hand: the kernel leaves real-time threads 0.95 (sched(7)), and
/// wake-ups take some.
pub const CAPACITY: f64 = 0.9;
/// Expected stay of a mapping before any has been measured. Chosen by hand.
pub const STAY: Nanos = Nanos::from_secs(10);
/// Levelling must gain this share of a core's mean load. Chosen by hand: measured loads wander by less.
const MARGIN: f64 = 0.1;
/// Levelling must gain this share of a core in addition: less is not worth a move.
const MARGIN_LEAST: f64 = 0.002;
/// A table is made anew once a stage's load has changed by this share.
const DRIFT: f64 = 0.15;
/// Frame rates are rounded up to grades of this share, because measured ones wander.
const GRADE: f64 = 0.05;
/// A core that is hotter than the mean by more degrees Celsius is cooled. Chosen by hand, as in MiGra's experiments.
const HOTTER: f64 = 3.0;
/// Most power that cooling may add, as a share of the power before.
const DEARER: f64 = 0.05;
/// Most mappings that a table for a running pipeline is made from: a worker has no time for more.
pub const RUNNING_MAX: usize = 4096;

punctual_units::named! {
    /// Policy that a coordinator asks.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum MappingPolicy by name {
        /// Stages stay, but for a user's moves.
        #[default]
        None = "none",
        /// [`balance`]: levels the loads of cores.
        Balance = "balance",
        /// [`MappingTable`] for cores that are always on, followed as far as it pays ([`Keeper`]).
        Table = "table",
        /// As `Table`, for cores that are shut down when idle.
        TableOff = "table-off",
        /// [`thermal`]: cools the hottest core. [`balance`] where cores report no temperatures.
        Thermal = "thermal",
        /// [`push`]: levels loads, each core for itself.
        Alone = "alone",
    }
}

impl MappingPolicy {
    fn idle(self) -> Idle {
        match self {
            MappingPolicy::TableOff => Idle::ShutdownWhenIdle,
            _ => Idle::AlwaysOn,
        }
    }
}

/// A stage as it is known before it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageInfo {
    /// Name for people to read.
    pub name: String,
    /// State in bytes, which a move copies.
    pub state_bytes: u64,
}

/// Knowledge of a coordinator before its first period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ground {
    /// The stages that may move.
    pub stages: Vec<StageInfo>,
    /// The cores, and what they draw.
    pub cores: Cores,
    /// Cost of moving a stage.
    pub cost: MoveCost,
}

impl Ground {
    /// Whether `policy` can handle this number of stages and cores.
    ///
    /// # Errors
    /// [`MappingError`] where it cannot: too many stages, or a table of more than [`RUNNING_MAX`] mappings.
    ///
    /// ```
    /// use punctual_allocation::mapping::{ClockStep, Cores, Domain, Ground, StageInfo, MoveCost, MappingPolicy};
    /// use punctual_units::Hertz;
    /// let step = ClockStep { clock: Hertz::from_mhz(1000), busy_watts: 1.0, idle_watts: 0.3 };
    /// let ground = Ground {
    ///     stages: vec![StageInfo { name: "filter".into(), state_bytes: 4096 }; 16],
    ///     cores: Cores { domains: vec![Domain { cores: 2, steps: vec![step] }], low_power_watts: 0.0 },
    ///     cost: MoveCost { constant_cycles: 1000.0, cycles_per_byte: 0.1, bytes_min: 0 },
    /// };
    /// assert!(ground.check(MappingPolicy::Balance).is_ok());
    /// let error = ground.check(MappingPolicy::Table).unwrap_err();
    /// assert!(error.to_string().contains("have 32768 mappings, at most 4096"), "{error}");
    /// ```
    pub fn check(&self, policy: MappingPolicy) -> Result<(), MappingError> {
        if policy == MappingPolicy::None {
            return Ok(());
        }
        let problem = self.problem(&vec![(1, 1); self.stages.len()], policy)?;
        if matches!(policy, MappingPolicy::Table | MappingPolicy::TableOff) {
            let mappings = Search::new(problem)?.mappings();
            if mappings > RUNNING_MAX {
                let (stages, cores) = (self.stages.len(), self.cores.count());
                return Err(MappingError {
                    key: "policy".into(),
                    what: format!(
                        "{stages} stages on {cores} cores have {mappings} mappings, at most {RUNNING_MAX} while they \
                         run: take balance, or fewer stages or cores"
                    ),
                });
            }
        }
        Ok(())
    }

    /// The problem with these `cycles` of each stage, on average and at worst.
    fn problem(&self, cycles: &[(u64, u64)], policy: MappingPolicy) -> Result<Problem, MappingError> {
        let stages = { self.stages.iter().zip(cycles) }.map(|(stage, (mean, worst))| StageModel {
            name: stage.name.clone(),
            cycles_mean: *mean,
            cycles_worst: *worst,
            state_bytes: stage.state_bytes,
        });
        Problem::new(stages.collect(), self.cores.clone(), policy.idle())
    }
}

/// Measurements of one period, the input of a coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeriodMeasurements {
    /// The core that asks, by number; of interest to [`MappingPolicy::Alone`] only.
    pub core: usize,
    /// Frames per second; 0 if no frame came.
    pub fps: f64,
    /// Cycles of each stage for each frame, measured.
    pub cycles: Vec<u64>,
    /// Core of each stage now.
    pub mapping: Mapping,
    /// Temperature of each core in degrees Celsius; empty where cores have no meters.
    pub celsius: Vec<f64>,
    /// Whether a stage is moving.
    pub moving: bool,
    /// Whether a user has moved a stage a short while ago.
    pub held: bool,
}

/// Answer of a policy: moves and clocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reconfiguration {
    /// Stages to move, in this order.
    pub moves: Vec<Move>,
    /// The clock step of each domain; `None` where clocks stay.
    pub steps: Option<Vec<u8>>,
}

/// Asks its policy at the end of each period.
#[derive(Clone, Debug)]
pub struct Coordinator {
    ground: Ground,
    policy: MappingPolicy,
    /// Cycles of each stage in the last periods.
    seen: VecDeque<Vec<u64>>,
    keeper: Option<Following>,
    /// The last round in which this core has pushed a stage.
    pushed: Option<u64>,
}

/// A followed table, and the loads that it was made from.
#[derive(Clone, Debug)]
struct Following {
    keeper: Keeper,
    cycles: Vec<(u64, u64)>,
}

/// Length of a round of [`MappingPolicy::Alone`]: a move ends within it.
const ROUND: Nanos = Nanos::from_secs(1);

impl Coordinator {
    /// Creates a coordinator without measurements.
    pub fn new(ground: Ground, policy: MappingPolicy) -> Coordinator {
        Coordinator {
            ground,
            policy,
            seen: VecDeque::with_capacity(WINDOWS),
            keeper: None,
            pushed: None,
        }
    }

    /// Policy that the coordinator asks.
    pub fn policy(&self) -> MappingPolicy {
        self.policy
    }

    /// Decides after a period with the measurements `seen`; answers nothing where `seen` is of other stages or cores.
    pub fn step(&mut self, seen: &PeriodMeasurements, now: Time) -> Reconfiguration {
        let stages = self.ground.stages.len();
        let cores = self.ground.cores.count();
        let counted = seen.cycles.len() == stages && seen.mapping.cores().count() == stages && stages <= STAGES_MAX;
        let known = counted && seen.core < cores && seen.mapping.cores().all(|core| core < cores);
        let idle = seen.fps.is_nan() || seen.fps <= 0.0;
        if self.policy == MappingPolicy::None || !known || idle || seen.moving {
            self.seen.clear();
            return Reconfiguration::default();
        }
        if self.seen.len() == WINDOWS {
            self.seen.pop_front();
        }
        self.seen.push_back(seen.cycles.clone());
        if self.seen.len() < WINDOWS || seen.held {
            return Reconfiguration::default();
        }
        let cycles = self.cycles();
        // Loads that are out of range were measured wrong: stages stay.
        let Ok(problem) = self.ground.problem(&cycles, self.policy) else {
            return Reconfiguration::default();
        };
        let answer = self.ask(problem, cycles, seen, now);
        if !answer.moves.is_empty() {
            self.seen.clear();
        }
        answer
    }

    fn ask(
        &mut self,
        problem: Problem,
        cycles: Vec<(u64, u64)>,
        seen: &PeriodMeasurements,
        now: Time,
    ) -> Reconfiguration {
        match self.policy {
            MappingPolicy::None => Reconfiguration::default(),
            MappingPolicy::Balance => self.levelled(&problem, seen),
            MappingPolicy::Thermal if seen.celsius.len() == problem.cores().count() => {
                let exchange = thermal(&problem, &seen.mapping, seen.fps, &seen.celsius, HOTTER, DEARER);
                Reconfiguration::of(exchange.into_iter().flat_map(|exchange| exchange.moves))
            }
            MappingPolicy::Thermal => self.levelled(&problem, seen),
            MappingPolicy::Table | MappingPolicy::TableOff => self.followed(problem, cycles, seen, now),
            MappingPolicy::Alone => self.pushed(&problem, seen, now),
        }
    }

    /// Mean and most cycles of each stage over the remembered periods, at least 1; the most is divided by `CAPACITY`.
    /// Where loads are only levelled, the mean stands for both, because the most wanders.
    fn cycles(&self) -> Vec<(u64, u64)> {
        let levels = !matches!(self.policy, MappingPolicy::Table | MappingPolicy::TableOff);
        let of = |stage: usize| {
            let each = || self.seen.iter().map(|cycles| cycles[stage]);
            let mean = each().map(|cycles| cycles as f64).sum::<f64>() / self.seen.len().max(1) as f64;
            let mean = (mean as u64).max(1);
            let most = if levels { mean } else { each().max().unwrap_or(mean) };
            (mean, ((most as f64 / CAPACITY) as u64).max(mean))
        };
        (0..self.ground.stages.len()).map(of).collect()
    }

    fn levelled(&self, problem: &Problem, seen: &PeriodMeasurements) -> Reconfiguration {
        Reconfiguration::of(balance(problem, &seen.mapping, self.margin(problem, seen.fps)))
    }

    /// Cycles for each frame that a move must gain: a share of the load and of a core, and its cost spread over the
    /// frames for which a mapping is expected to stay.
    fn margin(&self, problem: &Problem, fps: f64) -> u64 {
        let loads = problem.loads(&Mapping::of(problem.stages().iter().map(|_| 0)));
        let share = MARGIN * loads[0].1 as f64 / problem.cores().count() as f64;
        let bytes = self
            .ground
            .stages
            .iter()
            .map(|stage| stage.state_bytes)
            .max()
            .unwrap_or(0);
        let cost = self.ground.cost.cycles(bytes) / (fps * STAY.as_secs_f64());
        let clock = self.ground.cores.domains[0].steps.last().map_or(0, |step| step.clock.0);
        let least = MARGIN_LEAST * clock as f64 / fps;
        (share + least + cost) as u64
    }

    fn followed(
        &mut self,
        problem: Problem,
        cycles: Vec<(u64, u64)>,
        seen: &PeriodMeasurements,
        now: Time,
    ) -> Reconfiguration {
        if self.keeper.as_ref().is_none_or(|it| it.has_drifted(&cycles)) {
            // `Ground::check` refuses large problems before they run; one that has too many mappings anyway is
            // levelled.
            let searched = Search::new(problem.clone()).ok();
            let Some(search) = searched.filter(|search| search.mappings() <= RUNNING_MAX) else {
                return self.levelled(&problem, seen);
            };
            let table = MappingTable::new(&search, Some(&seen.mapping));
            match &mut self.keeper {
                Some(following) => {
                    following.keeper.relearn(problem.clone(), table);
                    following.cycles = cycles;
                }
                None => {
                    let (cost, mapping) = (self.ground.cost, seen.mapping.clone());
                    let keeper = Keeper::new(problem.clone(), table, cost, mapping, STAY);
                    self.keeper = Some(Following { keeper, cycles });
                }
            }
        }
        let fps = graded(seen.fps);
        let decided = self.keeper.as_mut().and_then(|following| {
            following.keeper.go_on_from(seen.mapping.clone());
            following.keeper.decide(fps, now)
        });
        match decided {
            Some(decision) => Reconfiguration {
                moves: decision.moves.to_vec(),
                steps: Some(decision.configuration.steps.to_vec()),
            },
            // No configuration serves this rate: highest clocks, levelled loads.
            None => Reconfiguration {
                steps: Some(self.highest()),
                ..self.levelled(&problem, seen)
            },
        }
    }

    /// The highest step of each domain.
    fn highest(&self) -> Vec<u8> {
        let domains = self.ground.cores.domains.iter();
        domains
            .map(|domain| domain.steps.len().saturating_sub(1) as u8)
            .collect()
    }

    fn pushed(&mut self, problem: &Problem, seen: &PeriodMeasurements, now: Time) -> Reconfiguration {
        let round = now.0 / ROUND.0;
        let published: Vec<u64> = problem.loads(&seen.mapping).iter().map(|load| load.1).collect();
        if self.pushed == Some(round) || published.len() <= seen.core {
            return Reconfiguration::default();
        }
        let own = { problem.stages().iter().enumerate().zip(seen.mapping.cores()) }
            .filter(|(_, core)| *core == seen.core)
            .map(|(stage, _)| stage);
        let margin = self.margin(problem, seen.fps);
        let pushed = push(seen.core, round, &published, own, margin);
        self.pushed = pushed.map(|_| round).or(self.pushed);
        Reconfiguration::of(pushed)
    }
}

impl Following {
    fn has_drifted(&self, cycles: &[(u64, u64)]) -> bool {
        let off = |(then, now): (&(u64, u64), &(u64, u64))| now.1.abs_diff(then.1) as f64 > DRIFT * then.1 as f64;
        self.cycles.iter().zip(cycles).any(off)
    }
}

impl Reconfiguration {
    fn of(moves: impl IntoIterator<Item = Move>) -> Reconfiguration {
        Reconfiguration {
            moves: moves.into_iter().collect(),
            steps: None,
        }
    }
}

/// The lowest grade that is not below `fps`.
fn graded(fps: f64) -> f64 {
    let grade = 1.0 + GRADE;
    grade.powf((fps.ln() / grade.ln()).ceil())
}

/// A decision: measurements and answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MappingDecision {
    pub now: Time,
    /// Number of the decision since this coordinator began, from 0; at 0 it has no earlier measurements.
    pub number: u64,
    /// The policy that it asked.
    pub policy: MappingPolicy,
    pub seen: PeriodMeasurements,
    pub answer: Reconfiguration,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{ClockStep, Domain};
    use proptest::prelude::*;
    use punctual_units::Hertz;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    const PERIOD: Nanos = Nanos::from_millis(100);

    fn ground(stages: usize, cores: usize) -> Ground {
        let step = ClockStep {
            clock: Hertz(1_000_000_000),
            busy_watts: 1.0,
            idle_watts: 0.3,
        };
        let stage = |number| StageInfo {
            name: format!("stage {number}"),
            state_bytes: 4096,
        };
        Ground {
            stages: (0..stages).map(stage).collect(),
            cores: Cores {
                domains: vec![Domain {
                    cores,
                    steps: vec![step],
                }],
                low_power_watts: 0.0,
            },
            cost: MoveCost {
                constant_cycles: 500_000.0,
                cycles_per_byte: 0.1,
                bytes_min: 0,
            },
        }
    }

    fn seen(cycles: &[u64], mapping: &Mapping, fps: f64) -> PeriodMeasurements {
        PeriodMeasurements {
            core: 0,
            fps,
            cycles: cycles.to_vec(),
            mapping: mapping.clone(),
            celsius: Vec::new(),
            moving: false,
            held: false,
        }
    }

    /// Carries moves out at once. Answers the mapping, the decisions, and in which periods stages moved.
    fn driven(
        policy: MappingPolicy,
        stages: usize,
        seed: u64,
        periods: usize,
    ) -> (Mapping, Vec<MappingDecision>, Vec<usize>) {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let ground = ground(stages, 2);
        let mut coordinator = Coordinator::new(ground, policy);
        let loads: Vec<u64> = (0..stages).map(|_| rng.random_range(10_000..200_000)).collect();
        let (mut mapping, mut moved) = (Mapping::of(vec![0; stages]), Vec::new());
        let mut log = Vec::new();
        for period in 0..periods {
            let now = Time::ZERO + Nanos(PERIOD.0 * period as u64);
            // What is measured wanders by two percent.
            let noisy: Vec<u64> = { loads.iter() }
                .map(|load| (*load as f64 * rng.random_range(0.98..1.02)) as u64)
                .collect();
            let seen = seen(&noisy, &mapping, 1000.0 * rng.random_range(0.995..1.005));
            let answer = coordinator.step(&seen, now);
            if !answer.moves.is_empty() {
                moved.push(period);
            }
            mapping = mapping.after(&answer.moves);
            log.push(MappingDecision {
                now,
                number: period as u64,
                policy,
                seen,
                answer,
            });
        }
        (mapping, log, moved)
    }

    proptest! {
        /// However loads are: a stage stays for a while after each move, and it becomes quiet.
        #[test]
        fn it_settles_and_the_log_gives_the_same_answers(seed in any::<u64>(), stages in 2usize..9) {
            for policy in [MappingPolicy::Balance, MappingPolicy::Table, MappingPolicy::TableOff] {
                let (_, log, moved) = driven(policy, stages, seed, 600);
                prop_assert!(moved.windows(2).all(|two| two[1] - two[0] >= WINDOWS), "{policy:?}, seed {seed}: {moved:?}");
                prop_assert!(moved.len() <= 3 * stages, "{policy:?}, seed {seed}: {moved:?}");
                let mut again = Coordinator::new(ground(stages, 2), policy);
                for logged in &log {
                    let json = serde_json::to_string(&logged.seen).unwrap();
                    let read: PeriodMeasurements = serde_json::from_str(&json).unwrap();
                    prop_assert_eq!(&again.step(&read, logged.now), &logged.answer, "{:?}, seed {}", policy, seed);
                }
            }
        }
    }

    #[test]
    fn balance_levels_and_a_table_leaves_cores_that_are_not_needed() {
        for seed in 0..40 {
            let (mapping, log, _) = driven(MappingPolicy::Balance, 6, seed, 300);
            let cycles = log[0].seen.cycles.clone();
            let load = |core: usize| -> u64 {
                let here = mapping.cores().zip(&cycles).filter(|(at, _)| *at == core);
                here.map(|(_, cycles)| *cycles).sum()
            };
            let largest = *cycles.iter().max().unwrap();
            assert!(
                load(0).abs_diff(load(1)) <= largest + load(0).max(load(1)) / 5,
                "seed {seed}"
            );
            let (mapping, log, _) = driven(MappingPolicy::Table, 6, seed, 300);
            let all: u64 = log[0].seen.cycles.iter().sum();
            // 1000 frames a second have a millisecond of a core each.
            let fits = all < 700_000;
            if fits {
                assert_eq!(mapping.used(), 1, "seed {seed}: {all} cycles a frame");
            }
        }
    }

    #[test]
    fn a_users_hand_holds_and_what_is_measured_during_moves_is_forgotten() {
        let mut coordinator = Coordinator::new(ground(2, 2), MappingPolicy::Balance);
        let mapping = Mapping::of([0, 0]);
        let held = PeriodMeasurements {
            held: true,
            ..seen(&[100_000, 100_000], &mapping, 1000.0)
        };
        let at = |period: u64| Time(PERIOD.0 * period);
        assert!((0..50).all(|period| coordinator.step(&held, at(period)).moves.is_empty()));
        let free = PeriodMeasurements { held: false, ..held };
        let moving = PeriodMeasurements {
            moving: true,
            ..free.clone()
        };
        assert!(coordinator.step(&moving, at(50)).moves.is_empty());
        let quiet = (51..51 + WINDOWS as u64 - 1).all(|period| coordinator.step(&free, at(period)).moves.is_empty());
        assert!(quiet, "it decides from periods before the move");
        assert_eq!(coordinator.step(&free, at(70)).moves.len(), 1);
    }
}
