//! The paper's microbenchmark on a simulated machine: one periodic job, sensors, and cores that interfere.
//!
//! ```text
//! real-time core     get, compute, get, compute ...      released every period; updates are installed beside it
//! interfering cores  get, compute, get, compute ...      one transaction after the other, on data of their own
//! other cores        idle
//! ```
//!
//! The job and the interferers are given as what they take alone at the highest clock, and compiled for the machine as a
//! scenario is: so the same words ask for the same time of every machine, however it comes about.

use punctual_platform::{Machine, Setting};
use punctual_sim::{Happening, Load, MachineModel, ModelError, Simulation, SimulationError, costs};
use punctual_store::updates::AdmissionOptions;
use punctual_units::{Hertz, Nanos, Share, Time};
use punctual_workload::{
    Arrival, Class, Costs, JobOutcome, Op, Program, SensorStream, Split, Table, TaskSpec, Trace, UpdateMode,
};
use serde::{Deserialize, Serialize};

use super::targets::Targets;

/// How often the job alternates between data and computation, by hand: the paper does not say. At each data access it
/// first installs the updates that have come in, so the more often, the more of them it meets.
pub const JOB_ROUNDS: u32 = 16;
/// How often an interfering transaction alternates, by hand: often enough that it matters little which part of it meets
/// which part of the job.
pub const INTERFERER_ROUNDS: u32 = 4;
/// Jobs that run before any is measured: at ten a second, time for the caches to fill even where a miss brings little, and
/// for many sensors to report.
const WARM_UP_JOBS: u64 = 20;
/// A run is given up when it has taken this many times its nominal length: the job does not fit into its period.
const OVERRUN_MAX: u64 = 2;

/// What one transaction needs, alone at the highest clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Work {
    /// Computation, in milliseconds.
    pub compute_ms: f64,
    /// Data accesses, in milliseconds; sensor updates come on top.
    pub data_ms: f64,
}

/// What runs on an interfering core: a transaction, a pause, the next transaction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interferer {
    /// One transaction.
    pub work: Work,
    /// The shortest pause between two.
    pub pause_min: Nanos,
    /// The longest pause between two.
    pub pause_max: Nanos,
}

/// Under which circumstances the job runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Condition {
    /// The clock of all cores; a step of the machine.
    pub clock: Hertz,
    /// How many cores interfere.
    pub interferers: u32,
    /// The sensors' rate as a share of their own, 0 to 1.
    pub qod: f64,
}

/// Where a job's time went, on average, as shares of its deadline. Infinite where jobs do not fit into their period.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Response {
    /// The paper's c: what is not inside store calls.
    pub computation: f64,
    /// The paper's d: inside store calls, updates that had to be installed first included.
    pub data: f64,
}

/// What cannot be measured.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MeasureError {
    /// The machine has no such clock.
    #[error("{machine}: has no clock step at {clock}; add it to the machine, or change the figure's clock-mhz")]
    NoStep {
        /// The machine's name.
        machine: String,
        /// What was asked for.
        clock: Hertz,
    },
    /// The machine has too few cores.
    #[error("{machine}: {interferers} interfering cores and the real-time core do not fit on {cores} cores")]
    TooFewCores {
        /// The machine's name.
        machine: String,
        /// What was asked for.
        interferers: u32,
        /// What there is.
        cores: u32,
    },
    /// The machine's model is not sound.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The load cannot be simulated.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
}

impl Response {
    /// Nothing gets done in time.
    pub const NEVER: Response = Response {
        computation: f64::INFINITY,
        data: f64::INFINITY,
    };

    /// The paper's r.
    pub fn response(&self) -> f64 {
        self.computation + self.data
    }

    /// The data response ratio d / r; 0 for jobs that took no time or never ended.
    pub fn drr(&self) -> f64 {
        let ratio = self.data / self.response();
        if ratio.is_finite() { ratio } else { 0.0 }
    }
}

impl Work {
    /// The whole transaction's time, alone at the highest clock.
    pub fn nominal_ms(&self) -> f64 {
        self.compute_ms + self.data_ms
    }

    /// A transaction of this nominal length, the given share of it data.
    pub fn of(nominal_ms: f64, data_share: f64) -> Work {
        Work {
            compute_ms: nominal_ms * (1.0 - data_share),
            data_ms: nominal_ms * data_share,
        }
    }

    /// As much of both, times `factor`.
    pub fn scaled(&self, factor: f64) -> Work {
        Work {
            compute_ms: self.compute_ms * factor,
            data_ms: self.data_ms * factor,
        }
    }

    /// The steps of one transaction in so many rounds, on a machine with these costs.
    fn program(&self, reads: Table, rounds: u32, costs: &Costs) -> Program {
        let n = f64::from(rounds);
        let gets = (self.data_ms * 1e6 - n * costs.read_txn_ns) / costs.get_ns;
        let gets = gets.round().clamp(n, f64::from(u32::MAX)) as u32;
        let cycles = (self.compute_ms * 1e-3 / n * costs.top.0 as f64).round() as u64;
        let round = |k: u32| {
            // What does not divide evenly goes to the first rounds.
            let count = gets / rounds + u32::from(k < gets % rounds);
            [Op::Get { table: reads, count }, Op::Compute { cycles }]
        };
        let nothing = |op: &Op| matches!(op, Op::Compute { cycles: 0 });
        Program {
            ops: (0..rounds).flat_map(round).filter(|op| !nothing(op)).collect(),
        }
    }
}

/// The microbenchmark's setting: everything but the machine, the work and the condition.
#[derive(Clone, Debug)]
pub struct Bench {
    period: Nanos,
    deadline: Nanos,
    trace: Trace,
    jobs: u64,
    seed: u64,
}

impl Bench {
    /// The setting of `targets`, measured over this many jobs (at least 1); sensors and pauses are drawn from `seed`.
    pub fn new(targets: &Targets, jobs: u64, seed: u64) -> Bench {
        let seconds = Nanos::from_secs_f64;
        let (least, most) = (seconds(targets.report_min_s), seconds(targets.report_max_s));
        let length = targets.period() * (jobs.max(1) + WARM_UP_JOBS);
        Bench {
            period: targets.period(),
            deadline: targets.deadline(),
            trace: Trace::synthetic(targets.sensors, least, most, length, seed),
            jobs: jobs.max(1),
            seed,
        }
    }

    /// The deadline by which times are divided.
    pub fn deadline(&self) -> Nanos {
        self.deadline
    }

    /// The mean response of the job under this condition.
    ///
    /// # Errors
    /// [`MeasureError`] where the machine is not sound, or the condition does not fit it.
    pub fn measure(
        &self,
        machine: &MachineModel,
        job: Work,
        interferer: Interferer,
        condition: Condition,
    ) -> Result<Response, MeasureError> {
        self.check(machine, condition)?;
        let costs = costs(machine, UpdateMode::Transaction)?;
        let mut tasks = vec![(self.job_spec(), job.program(Table::Sensors, JOB_ROUNDS, &costs))];
        if condition.interferers > 0 {
            let program = interferer.work.program(Table::Objects, INTERFERER_ROUNDS, &costs);
            tasks.push((interferer_spec(interferer), program));
        }
        // As in the paper, a lower QoD is longer intervals between reports; none at all is no copy of the trace.
        let (speedup, copies) = if condition.qod > 0.0 {
            (condition.qod, 1)
        } else {
            (1.0, 0)
        };
        let load = Load {
            tasks,
            placement: None,
            stream: SensorStream::new(&self.trace, speedup, copies),
            admission: AdmissionOptions {
                minimum_fresh: Share::ZERO,
                ..AdmissionOptions::default()
            },
            update_mode: UpdateMode::Transaction,
            group_commit: Nanos::from_millis(50),
            value_bytes: 64,
            seed: self.seed,
        };
        let machine = MachineModel {
            cores: condition.interferers + 1,
            ..machine.clone()
        };
        let mut simulation = Simulation::new(machine, load)?;
        // A simulated machine takes every step that it offers.
        let _ = simulation.apply(Setting::Clock(condition.clock));
        Ok(self.mean(&mut simulation))
    }

    fn check(&self, machine: &MachineModel, condition: Condition) -> Result<(), MeasureError> {
        machine.check()?;
        let name = || machine.name.clone();
        if !machine.steps.iter().any(|step| step.clock == condition.clock) {
            let clock = condition.clock;
            return Err(MeasureError::NoStep { machine: name(), clock });
        }
        if condition.interferers >= machine.cores {
            return Err(MeasureError::TooFewCores {
                machine: name(),
                interferers: condition.interferers,
                cores: machine.cores,
            });
        }
        Ok(())
    }

    /// Runs until all jobs that count are complete, or will not be in time.
    fn mean(&self, simulation: &mut Simulation) -> Response {
        let end = Time::ZERO + self.period * ((self.jobs + WARM_UP_JOBS) * OVERRUN_MAX);
        let (mut sum, mut counted) = (Split::default(), 0);
        while counted < self.jobs {
            match simulation.run_until(end) {
                Happening::Completed(outcome) if self.counts(&outcome) => {
                    sum += outcome.split;
                    counted += 1;
                }
                Happening::Completed(_) | Happening::Progressed(_) | Happening::Released { .. } => {}
                Happening::Skipped { .. } | Happening::Reached => return Response::NEVER,
            }
        }
        let share = |sum: Nanos| sum.ratio(self.deadline) / self.jobs as f64;
        Response {
            computation: share(sum.response().saturating_sub(sum.data_response())),
            data: share(sum.data_response()),
        }
    }

    fn counts(&self, outcome: &JobOutcome) -> bool {
        outcome.deadline.is_some() && outcome.job >= WARM_UP_JOBS
    }

    fn job_spec(&self) -> TaskSpec {
        let class = Class::RealTime {
            deadline: self.deadline,
        };
        TaskSpec::by_hand("job", class, Arrival::Periodic { period: self.period })
    }
}

fn interferer_spec(interferer: Interferer) -> TaskSpec {
    let pauses = Arrival::AfterCompletion {
        pause_min: interferer.pause_min,
        pause_max: interferer.pause_max,
    };
    TaskSpec::by_hand("interferer", Class::BestEffort, pauses)
}
