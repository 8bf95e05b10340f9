//! Parts of a mapping: stages, cores, clocks and their power.

use punctual_units::Hertz;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// Most cores of a machine: a choice among exchangeable cores takes a table of 2^cores entries.
pub const CORES_MAX: usize = 8;
/// Most stages of a pipeline.
pub const STAGES_MAX: usize = 16;

/// Cycles and state of a stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageModel {
    /// Name for people to read.
    pub name: String,
    /// Cycles for each frame that leaves the pipeline, on average; at least 1. A stage that makes two steps for such a
    /// frame needs the cycles of both.
    pub cycles_mean: u64,
    /// The most cycles that the stage needs for such a frame; at least the mean. Its core must have as many.
    pub cycles_worst: u64,
    /// State in bytes, which a move copies.
    pub state_bytes: u64,
}

punctual_units::named! {
    /// Power of a used core while it has nothing to do.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Idle by name {
        /// The idle power of its clock step.
        AlwaysOn = "always-on",
        /// The power of the low-power state, which it enters and leaves at once.
        ShutdownWhenIdle = "shutdown-when-idle",
    }
}

/// A clock setting and what one core draws at it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockStep {
    /// Clock frequency at this step.
    pub clock: Hertz,
    /// Power of a core that works, in watts.
    pub busy_watts: f64,
    /// Power of a core that is on and does nothing, in watts, at most that of one that works.
    pub idle_watts: f64,
}

/// Cores that share a clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Domain {
    /// Number of cores, at least 1.
    pub cores: usize,
    /// Clocks that the domain can have, ascending; 1 to 255.
    pub steps: Vec<ClockStep>,
}

/// The cores of a machine, numbered domain by domain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cores {
    /// Domains, at least one.
    pub domains: Vec<Domain>,
    /// Power of a core in the low-power state, in watts; a core without a stage is always in it.
    pub low_power_watts: f64,
}

impl Cores {
    /// Number of cores in all domains.
    pub fn count(&self) -> usize {
        self.domains.iter().map(|domain| domain.cores).sum()
    }

    /// Domain of `core`, which must exist.
    pub fn domain(&self, core: usize) -> usize {
        let mut end = 0;
        let beyond = |domain: &Domain| {
            end += domain.cores;
            core >= end
        };
        self.domains.iter().map(beyond).take_while(|beyond| *beyond).count()
    }

    /// The first core of a domain.
    pub fn first(&self, domain: usize) -> usize {
        self.domains[..domain].iter().map(|domain| domain.cores).sum()
    }
}

/// The core of each stage.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<u8>", into = "Vec<u8>")]
pub struct Mapping(SmallVec<[u8; STAGES_MAX]>);

impl From<Vec<u8>> for Mapping {
    fn from(cores: Vec<u8>) -> Mapping {
        Mapping::of(cores.into_iter().map(usize::from))
    }
}

impl From<Mapping> for Vec<u8> {
    fn from(mapping: Mapping) -> Vec<u8> {
        mapping.0.to_vec()
    }
}

impl Mapping {
    /// Maps each stage to its core in `cores`; cores from [`CORES_MAX`] on count as the last one.
    pub fn of(cores: impl IntoIterator<Item = usize>) -> Mapping {
        Mapping(cores.into_iter().map(|core| core.min(CORES_MAX - 1) as u8).collect())
    }

    /// The core of a stage.
    pub fn core(&self, stage: usize) -> usize {
        usize::from(self.0[stage])
    }

    /// The cores of all stages, in order.
    pub fn cores(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().map(|core| usize::from(*core))
    }

    /// Number of cores that have a stage.
    pub fn used(&self) -> usize {
        self.cores().fold(0u32, |seen, core| seen | 1 << core).count_ones() as usize
    }

    /// Moves that turn this mapping into `to`, of the same stages.
    pub fn moves<'m>(&'m self, to: &'m Mapping) -> impl Iterator<Item = Move> + 'm {
        let pairs = self.cores().zip(to.cores()).enumerate();
        let moved = pairs.filter(|(_, (from, to))| from != to);
        moved.map(|(stage, (from, to))| Move { stage, from, to })
    }

    /// The mapping after these moves.
    pub fn after(&self, moves: &[Move]) -> Mapping {
        let mut after = self.clone();
        for one in moves {
            after.0[one.stage] = one.to as u8;
        }
        after
    }
}

/// Move of one stage from one core to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The stage, by number.
    pub stage: usize,
    /// The core that it leaves.
    pub from: usize,
    /// The core that it goes to.
    pub to: usize,
}

/// A mapping, and the clock of each domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The core of each stage.
    pub mapping: Mapping,
    /// The step of each domain, by number; the lowest of a domain without a stage.
    pub steps: SmallVec<[u8; CORES_MAX]>,
}

impl Configuration {
    /// The clock of a core.
    pub fn step<'c>(&self, cores: &'c Cores, core: usize) -> &'c ClockStep {
        let domain = cores.domain(core);
        &cores.domains[domain].steps[usize::from(self.steps[domain])]
    }
}

/// A pipeline on a machine, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    stages: Vec<StageModel>,
    cores: Cores,
    idle: Idle,
}

/// Why a problem has no mapping to look for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct MappingError {
    /// Key of the value that is wrong, e.g. `stage[2].cycles_worst`.
    pub key: String,
    /// Why, and what to write instead.
    pub what: String,
}

fn require(sound: bool, key: impl Into<String>, what: impl Into<String>) -> Result<(), MappingError> {
    let error = || MappingError {
        key: key.into(),
        what: what.into(),
    };
    if sound { Ok(()) } else { Err(error()) }
}

impl Problem {
    /// Takes stages and cores that fit together.
    ///
    /// # Errors
    /// [`MappingError`] names the first thing that is out of range.
    ///
    /// ```
    /// use punctual_allocation::mapping::{ClockStep, Cores, Domain, Idle, Problem, StageModel};
    /// use punctual_units::Hertz;
    /// let step = ClockStep { clock: Hertz::from_mhz(100), busy_watts: 0.1, idle_watts: 0.1 };
    /// let cores = Cores { domains: vec![Domain { cores: 2, steps: vec![step] }], low_power_watts: 0.0 };
    /// let stage = StageModel {
    ///     name: "filter".into(), cycles_mean: 900, cycles_worst: 800, state_bytes: 4096,
    /// };
    /// let error = Problem::new(vec![stage], cores, Idle::AlwaysOn).unwrap_err();
    /// assert_eq!(error.to_string(), "stage[0].cycles_worst: must lie between the mean and 2^44");
    /// ```
    pub fn new(stages: Vec<StageModel>, cores: Cores, idle: Idle) -> Result<Problem, MappingError> {
        check_cores(&cores)?;
        let some = (1..=STAGES_MAX).contains(&stages.len());
        require(
            some,
            "stage",
            format!("a pipeline that is mapped has 1 to {STAGES_MAX} stages"),
        )?;
        for (number, stage) in stages.iter().enumerate() {
            check_stage(number, stage)?;
        }
        Ok(Problem { stages, cores, idle })
    }

    pub fn stages(&self) -> &[StageModel] {
        &self.stages
    }

    pub fn cores(&self) -> &Cores {
        &self.cores
    }

    /// Power of idle cores: always on, or shut down.
    pub fn idle(&self) -> Idle {
        self.idle
    }
}

fn check_stage(number: usize, stage: &StageModel) -> Result<(), MappingError> {
    let key = |field: &str| format!("stage[{number}].{field}");
    // Sums of all stages stay far below 2^53, so that a double holds each of them.
    let cycles = 1..=1 << 44;
    require(
        cycles.contains(&stage.cycles_mean),
        key("cycles_mean"),
        "must lie between 1 and 2^44",
    )?;
    require(
        cycles.contains(&stage.cycles_worst) && stage.cycles_worst >= stage.cycles_mean,
        key("cycles_worst"),
        "must lie between the mean and 2^44",
    )
}

fn check_cores(cores: &Cores) -> Result<(), MappingError> {
    let count = cores.count();
    require(
        (1..=CORES_MAX).contains(&count),
        "cores",
        format!("{count} cores: a machine that is mapped to has 1 to {CORES_MAX}"),
    )?;
    let low = cores.low_power_watts;
    require(
        low.is_finite() && low >= 0.0,
        "low_power_watts",
        "must be a number of at least 0",
    )?;
    for (number, domain) in cores.domains.iter().enumerate() {
        let key = |field: &str| format!("domain[{number}].{field}");
        require(domain.cores > 0, key("cores"), "a clock domain has at least one core")?;
        require(
            (1..=usize::from(u8::MAX)).contains(&domain.steps.len()),
            key("steps"),
            "a clock has 1 to 255 steps",
        )?;
        let ascending = domain.steps.windows(2).all(|pair| pair[0].clock < pair[1].clock);
        require(
            ascending && domain.steps[0].clock.0 > 0,
            key("steps"),
            "clocks are above 0 and ascending, none twice",
        )?;
        let sound = |step: &ClockStep| {
            let ordered = low <= step.idle_watts && step.idle_watts <= step.busy_watts;
            ordered && step.busy_watts.is_finite() && step.busy_watts > 0.0
        };
        require(
            domain.steps.iter().all(sound),
            key("steps"),
            "power rises from the low-power state over idle to busy, which is above 0 watts",
        )?;
    }
    Ok(())
}
