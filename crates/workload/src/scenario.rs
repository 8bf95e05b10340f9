//! Scenarios: what a device has to do, in the user's terms.

use punctual_units::{CoreId, Nanos, Share, Time};
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

use crate::{Active, Goal, ObjectSet, TaskGoal};

/// Complete description of a run. Checked by [`Scenario::problems`]; compiled by [`crate::compile()`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// A name for people.
    pub name: String,
    /// Seeds everything that is drawn: gaps between jobs, objects read, shedding credits.
    pub seed: u64,
    /// How long the run lasts, warm-up included.
    pub duration: Nanos,
    /// Goals of tasks, and freshness of data.
    pub goal: Goal,
    /// Which control law decides, and when.
    pub control: ControlSpec,
    /// How data is kept.
    pub store: StoreNeeds,
    /// Sensors that stream in.
    pub sensors: SensorLoad,
    /// Tasks to run; at least one has a deadline.
    pub tasks: Vec<TaskSpec>,
    /// How `identify` moves the knobs.
    pub excitation: Excitation,
}

impl Scenario {
    /// Goal of each task, in the order of [`Scenario::tasks`]; `None` for best-effort tasks.
    pub fn goals(&self) -> impl Iterator<Item = Option<TaskGoal>> {
        let goal = |task: &TaskSpec| task.deadline().map(|_| task.goal.unwrap_or(self.goal.tasks));
        self.tasks.iter().map(goal)
    }
}

punctual_units::named! {
    /// The controllers of the first paper: see `runtime::controller`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum ControllerKind by name {
        /// No control: every update admitted, the clock as found.
        Open = "open",
        /// Admitted share from tardiness (SISO, QoDxxx in the paper); the clock as found.
        Qod = "qod",
        /// Clock from tardiness (SISO, DVFSonly in the paper); every update admitted.
        Clock = "clock",
        /// Clock and admitted share from tardiness and data response ratio (LQR-PI).
        Mimo = "mimo",
    }
}

impl ControllerKind {
    /// Whether the controller turns the clock.
    pub const fn turns_clock(self) -> bool {
        match self {
            ControllerKind::Open | ControllerKind::Qod => false,
            ControllerKind::Clock | ControllerKind::Mimo => true,
        }
    }
}

/// When the loop steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pace {
    /// At the completion of every real-time job.
    Job,
    /// Once per period; 0.2 s by default, 1 s in the paper.
    Period(Nanos),
}

/// Worth of what goals leave open, in watts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prices {
    /// Worth of a watt less, not negative. At 0 nothing is done to save energy.
    pub energy: f64,
    /// Worth of all data fresh instead of none, not negative. At 0 data are as fresh as asked for.
    pub freshness: f64,
}

/// For people: `by prices: energy 1, freshness 0`.
impl std::fmt::Display for Prices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "by prices: energy {}, freshness {}", self.energy, self.freshness)
    }
}

/// Nothing but the goals, then the least energy.
impl Default for Prices {
    fn default() -> Prices {
        Prices {
            energy: 1.0,
            freshness: 0.0,
        }
    }
}

/// Which control law decides, and when.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ControlSpec {
    pub kind: ControllerKind,
    /// When the controller steps.
    pub pace: Pace,
    /// Whether jobs are paced from within as well: at boundaries between their ops the clock is set so that the rest of
    /// the job ends at its goal. Only with [`Pace::Job`], and only laws that turn the clock do it.
    #[serde(default)]
    pub within: bool,
    /// How long the controllers hold the operating point at the start, so that the first decision sees a running
    /// system.
    pub warm_up: Nanos,
    /// Whether a probe on the real-time core measures, on Linux, when the core itself is taken away.
    pub probe: bool,
    /// The CPU share that all best-effort tasks together may use of their cores, for the whole run; 1 does not bound
    /// them.
    pub best_effort_share: Share,
    /// The least such share: where a task is beyond its goal and the law's knobs have no more to give, the loop lowers
    /// the share down to this. `None`: the loop leaves it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_effort_min: Option<Share>,
    /// Prices of what goals leave open; `None`: the set points of [`Goal`] stand, and nothing is done to save energy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
    /// Whether the scenario's file states `prices`: then a run on Linux obeys them, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prices_stated: bool,
}

punctual_units::named! {
    /// How sensor updates reach the store.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum UpdateMode by name {
        /// Into memory slots, written to the engine in groups.
        #[default]
        MemoryFirst = "memory-first",
        /// Every update is a write transaction of its own, as in the paper.
        Transaction = "transaction",
    }
}

punctual_units::named! {
    /// Failures that a commit survives; it always survives the death of the process.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Durability by name {
        /// A power cut: a commit that has returned is there afterwards.
        Durable = "durable",
        /// A power cut, but for the newest commit: one that has returned is there afterwards if another has returned
        /// since, or a sync. The store is never damaged.
        NoMetaSync = "no-meta-sync",
        /// No power cut: a store that was open at that moment is refused afterwards. A sync is refused, too, because
        /// later commits would undo it.
        Volatile = "volatile",
    }
}

/// How data is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreNeeds {
    /// How sensor updates reach the store.
    pub update_mode: UpdateMode,
    /// Failures that a commit survives.
    pub durability: Durability,
    /// Which updates are shed first: `true` sheds the objects that are read least against their updates,
    /// `false` all alike.
    pub coldest_first: bool,
    /// How long a memory-first update may wait for its group commit.
    pub group_commit: Nanos,
    /// Ordinary objects that tasks read and write, at least 1.
    pub objects: u32,
    /// Bytes of an ordinary object's value, 1 to 65,536.
    pub object_bytes: u32,
    /// The most that the store can hold, in bytes: address space, not memory. At least [`StoreNeeds::MAP_BYTES_MIN`].
    pub map_bytes: u64,
    /// How old a snapshot may be before it is ended; `None`: only firm deadlines and a full store end one.
    #[serde(default = "StoreNeeds::reader_life_max")]
    pub reader_life_max: Option<Nanos>,
    /// How much of a store that is there is read before it is opened.
    #[serde(default)]
    pub verify: StoreCheck,
}

punctual_units::named! {
    /// How much of a store is read before it is opened.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum StoreCheck by name {
        /// Reads every page in use, and compares every checksum: the opened data is exactly the written data.
        #[default]
        Full = "full",
        /// Reads every page in use and checks all that the engine relies on without checking it. Damage in values is
        /// found when they are read, by their checksums.
        Structure = "structure",
        /// Reads the two meta pages, the tables, and the lists of free pages. Other pages are checked when they are
        /// first met, with the records in them, so that damage is an error of that call; docs/guide/store.md lists the
        /// damage that stays unnoticed. Reads take about twice as long, and pages are not brought into memory, so first
        /// reads wait for the medium.
        None = "none",
    }
}

impl StoreNeeds {
    /// The time between two group commits where nothing else is said.
    pub const GROUP_COMMIT: Nanos = Nanos::from_millis(50);
    /// The size of a map where nothing else is said: 1 GiB.
    pub const MAP_BYTES: u64 = 1 << 30;
    /// How old a snapshot may be where nothing else is said.
    pub const READER_LIFE_MAX: Nanos = Nanos::from_secs(10);
    /// The smallest map: 1 MiB.
    pub const MAP_BYTES_MIN: u64 = 1 << 20;

    fn reader_life_max() -> Option<Nanos> {
        Some(StoreNeeds::READER_LIFE_MAX)
    }

    /// The most bytes that the ordinary objects and the `sensors` temporal ones of `value_bytes` take in a store: a B+
    /// tree whose pages are half full, the least that splitting leaves (Comer, "The Ubiquitous B-Tree", 1979), and as
    /// much again, because a commit writes new pages before old ones are free.
    pub fn bytes_max(&self, sensors: u64, value_bytes: u32) -> u64 {
        const PAGE: u64 = 4096;
        /// Key, header and rounding of a record in a page.
        const RECORD: u64 = 32;
        let record = |bytes: u32| match u64::from(bytes) {
            // A longer value has pages of its own.
            long if long > PAGE / 2 => (long + RECORD).next_multiple_of(PAGE) + 2 * RECORD,
            short => 2 * (short + RECORD),
        };
        let objects = u64::from(self.objects).saturating_mul(record(self.object_bytes));
        let sensors = sensors.saturating_mul(record(value_bytes));
        objects
            .saturating_add(sensors)
            .saturating_mul(2)
            .saturating_add(16 * PAGE)
    }
}

/// Where readings come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SensorSource {
    /// A recorded trace: `sensors.csv` and `readings.csv.zst` in a folder that the caller loads.
    Trace {
        /// Path of the folder.
        dir: String,
    },
    /// Drawn from the seed: `count` sensors with periods uniform between the two bounds, avi twice the period.
    Synthetic {
        /// How many sensors, 1 to 1,000,000.
        count: u32,
        /// Least period of a sensor.
        period_min: Nanos,
        /// Largest period of a sensor.
        period_max: Nanos,
    },
}

/// How many readings arrive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Volume {
    /// This number of copies of the source, each shifted in time and with sensors of its own.
    Replicas(u32),
    /// As many copies as make update transactions use this share of one core at full clock, worked out with the
    /// costs of the machine: the same load on a fast and on a slow one.
    Utilisation(f64),
}

/// Sensors that stream in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SensorLoad {
    /// Where readings come from.
    pub source: SensorSource,
    /// Trace seconds per second of the run, above 0, at most 20. Periods and validity intervals shrink alike.
    pub speedup: f64,
    /// Number of copies of the source.
    pub volume: Volume,
    /// Bytes of a temporal object's value, 8 to 1024; the reading comes first as a little-endian `f64`.
    pub value_bytes: u32,
}

/// Whether a task has a deadline, and a core of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Has a relative deadline; its tardiness is controlled.
    RealTime {
        /// From release to the instant by which the job should be complete.
        deadline: Nanos,
    },
    /// As real-time, and has a core that all other threads are moved off; it is lent to them while no such job is due.
    Exclusive {
        /// From release to the instant by which the job should be complete.
        deadline: Nanos,
    },
    /// Gets what is left.
    BestEffort,
}

impl Class {
    /// The relative deadline; best-effort work has none.
    pub const fn deadline(self) -> Option<Nanos> {
        match self {
            Class::RealTime { deadline } | Class::Exclusive { deadline } => Some(deadline),
            Class::BestEffort => None,
        }
    }
}

/// When a task releases jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrival {
    /// Once in every `period`.
    Periodic {
        /// Time between two releases.
        period: Nanos,
    },
    /// At gaps drawn uniformly between two bounds, release to release.
    Sporadic {
        /// Least time between two releases.
        gap_min: Nanos,
        /// Largest time between two releases.
        gap_max: Nanos,
    },
    /// A new job a while after the one before has ended, drawn uniformly: the paper's best-effort transactions.
    AfterCompletion {
        /// Least pause after a job.
        pause_min: Nanos,
        /// Largest pause after a job.
        pause_max: Nanos,
    },
}

impl Arrival {
    /// Least time between two releases, where a job takes `execution`.
    pub fn gap_min(self, execution: Nanos) -> Nanos {
        match self {
            Arrival::Periodic { period } => period,
            Arrival::Sporadic { gap_min, .. } => gap_min,
            Arrival::AfterCompletion { pause_min, .. } => pause_min + execution,
        }
    }

    /// Longest time between the releases of two jobs of `execution`.
    pub fn gap_max(self, execution: Nanos) -> Nanos {
        match self {
            Arrival::Periodic { period } => period,
            Arrival::Sporadic { gap_max, .. } => gap_max,
            Arrival::AfterCompletion { pause_max, .. } => pause_max + execution,
        }
    }

    /// When the first job is released, after the start of the run.
    pub fn first(&self, rng: &mut impl Rng) -> Nanos {
        match *self {
            Arrival::Periodic { .. } => Nanos::ZERO,
            Arrival::Sporadic { gap_min, gap_max } => uniform(gap_min, gap_max, rng),
            Arrival::AfterCompletion { pause_min, pause_max } => uniform(pause_min, pause_max, rng),
        }
    }

    /// When the next job is released, after one that was released at `released` and complete at `finished`. Lies
    /// before `finished` where the job outlived its period.
    pub fn next(&self, released: Time, finished: Time, rng: &mut impl Rng) -> Time {
        match *self {
            Arrival::Periodic { period } => released + period,
            Arrival::Sporadic { gap_min, gap_max } => released + uniform(gap_min, gap_max, rng),
            Arrival::AfterCompletion { pause_min, pause_max } => finished + uniform(pause_min, pause_max, rng),
        }
    }
}

fn uniform(low: Nanos, high: Nanos, rng: &mut impl Rng) -> Nanos {
    Nanos(rng.random_range(low.0..=high.0.max(low.0)))
}

/// Demand of one job, in time on an otherwise idle machine at full clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// Computation (c in the paper).
    pub compute: Nanos,
    /// Data accesses (d in the paper).
    pub data: Nanos,
    /// How often the job alternates between the two, at least 1.
    pub rounds: u32,
    /// Which objects it reads.
    pub reads: ObjectSet,
    /// Objects that it writes at its end in one transaction; their cost is part of `data`.
    pub writes: u32,
    /// Whether fewer rounds and writes are done on a machine where `data` does not cover these; otherwise the scenario
    /// is refused there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fit: bool,
}

/// A task of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// A name for people, unique in the scenario.
    pub name: String,
    /// Whether it has a deadline, and a core of its own.
    pub class: Class,
    /// When jobs are released.
    pub arrival: Arrival,
    /// Demand of each job.
    pub demand: Demand,
    /// Goal of this task, where it differs from that of all tasks ([`Goal::tasks`]); real-time only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<TaskGoal>,
    /// How many such tasks run on each core that its class is placed on; best-effort only, else 1.
    pub per_core: u32,
    /// Number of cores that it runs on: the first of those for best-effort tasks. `None`, or more than there are: all
    /// of them. Best-effort only.
    pub cores: Option<u32>,
    /// The core that it runs on; `None` leaves the choice to the placement (`punctual-cores`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<CoreId>,
    /// When it releases jobs; best-effort only, else the whole run.
    pub active: Active,
    /// The file with its execution profile, as the scenario names it: on the simulated machine a job computes what that
    /// describes, as fast as the cache ways and the bandwidth that its core has allow, and not [`Demand::compute`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
}

impl TaskSpec {
    /// The relative deadline of a real-time task.
    pub fn deadline(&self) -> Option<Nanos> {
        self.class.deadline()
    }

    /// Least time between two releases; `None` without a deadline, or where a release waits for the job before.
    pub fn window(&self) -> Option<Nanos> {
        let waits = matches!(self.arrival, Arrival::AfterCompletion { .. });
        (self.deadline().is_some() && !waits).then(|| self.arrival.gap_min(Nanos::ZERO))
    }
}

/// How `identify` moves the knobs on the running system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Excitation {
    /// Clock levels, as shares of the top clock.
    pub clock: Vec<f64>,
    /// Levels of the admitted share.
    pub admitted: Vec<f64>,
    /// For how many samples a level is held.
    pub hold: u32,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A small sound scenario for the tests of this crate.
    pub(crate) fn example() -> Scenario {
        Scenario {
            name: "example".into(),
            seed: 1,
            duration: Nanos::from_secs(10),
            goal: Goal {
                tasks: TaskGoal::Tardiness(0.85),
                drr: 0.6,
                min_fresh: Share::clamped(0.5),
            },
            control: ControlSpec {
                kind: ControllerKind::Mimo,
                pace: Pace::Period(Nanos::from_millis(200)),
                within: false,
                warm_up: Nanos::from_secs(1),
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
                group_commit: StoreNeeds::GROUP_COMMIT,
                objects: 1000,
                object_bytes: 100,
                map_bytes: StoreNeeds::MAP_BYTES,
                reader_life_max: Some(StoreNeeds::READER_LIFE_MAX),
                verify: StoreCheck::Full,
            },
            sensors: SensorLoad {
                source: SensorSource::Synthetic {
                    count: 64,
                    period_min: Nanos::from_secs(1),
                    period_max: Nanos::from_secs(10),
                },
                speedup: 1.0,
                volume: Volume::Replicas(1),
                value_bytes: 64,
            },
            tasks: vec![
                TaskSpec {
                    name: "analysis".into(),
                    class: Class::RealTime {
                        deadline: Nanos::from_millis(50),
                    },
                    arrival: Arrival::Periodic {
                        period: Nanos::from_millis(100),
                    },
                    demand: Demand {
                        compute: Nanos::from_millis(10),
                        data: Nanos::from_millis(10),
                        rounds: 4,
                        reads: ObjectSet::Sensors,
                        writes: 8,
                        fit: false,
                    },
                    goal: None,
                    per_core: 1,
                    cores: None,
                    core: None,
                    active: Active::ALWAYS,
                    profile: None,
                },
                TaskSpec {
                    name: "browse".into(),
                    class: Class::BestEffort,
                    arrival: Arrival::AfterCompletion {
                        pause_min: Nanos::from_millis(50),
                        pause_max: Nanos::from_millis(150),
                    },
                    demand: Demand {
                        compute: Nanos::from_millis(5),
                        data: Nanos::from_millis(5),
                        rounds: 1,
                        reads: ObjectSet::Objects,
                        writes: 0,
                        fit: false,
                    },
                    goal: None,
                    per_core: 1,
                    cores: None,
                    core: None,
                    active: Active::ALWAYS,
                    profile: None,
                },
            ],
            excitation: Excitation {
                clock: vec![0.8, 1.0],
                admitted: vec![0.5, 1.0],
                hold: 2,
            },
        }
    }
}
