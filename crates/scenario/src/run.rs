//! From a request to a report: what the command line and an embedding program call.

use std::path::PathBuf;
use std::sync::Arc;

use punctual_control::ControlError;
use punctual_cores::{Limits, PlaceError, Placement, PlacementRequest};
use punctual_loop::{
    AdmissionSetup, BestEffortRange, ControllerDocument, Exciter, MadeFor, Mismatch, ModeName, ModelDocument,
    RegulatorOptions, SILENT_RELEASES, SILENT_WINDOWS, Unfit, knobs_of,
};
use punctual_platform::linux::KernelTree;
use punctual_platform::{KnobId, KnobOffer, Neighbours, Offers, Provenance, Range, Refusal};
use punctual_runtime::RuntimeError;
use punctual_runtime::collector::SETTLING;
use punctual_runtime::figures::TaskInfo;
use punctual_runtime::frames::StageFrames;
use punctual_runtime::report::{
    FinishedRun, KnobReport, LoadReport, PlatformChoice, Protection, RunHeader, RunReport, Watch,
};
use punctual_sim::{MachineModel, ModelError as MachineModelError, SimulationError};
use punctual_store::StoreError;
use punctual_store::engine::EngineError;
use punctual_store::updates::{AdmissionOptions, SensorSpec, Shedding, Updates};
use punctual_units::{CoreId, Nanos, Share, Time};
use punctual_workload::{
    CompiledScenario, ControllerKind, Costs, Excitation, ImpossibleDemand, Pace, Prices, Problem, Scenario,
    SensorStream, Surge, TaskGoal, TaskSpec, Trace,
};

use crate::allocation::{AllocationError, AllocationRequest};
use crate::environment::{Environment, MachineAlone};
use crate::stages::StagesSpec;
use crate::without_effect::without_effect;

/// The period at which a model is learnt for jobs that are paced from within.
const LEARNING_PERIOD: Nanos = Nanos::from_millis(200);

/// Releases of the rarest real-time task within which a loop at every job expects one to end: one may be late by a
/// whole period before something is wrong.
const PATIENT_RELEASES: u64 = 2;

/// Where a controller's gains come from.
#[expect(clippy::large_enum_variant, reason = "there is one per run")]
#[derive(Clone, Debug, PartialEq)]
pub enum ControllerSource {
    /// A model: gains are designed from it.
    Model(ModelDocument),
    /// Gains that were designed before.
    Controller(ControllerDocument),
}

/// Request for a run.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// Scenario to run. Must have no [`Scenario::problems`].
    pub scenario: Scenario,
    /// The readings that the scenario's sensors give.
    pub trace: Arc<Trace>,
    /// Linux or the simulated machine.
    pub platform: PlatformChoice,
    /// Gains, for every controller but `open`.
    pub controller: Option<ControllerSource>,
    /// Where the store is kept; `None`: a temporary folder that is removed afterwards. Linux only.
    pub store_path: Option<PathBuf>,
    /// File that the temporal objects are mapped to, see
    /// [`StoreOptions::mapped`](punctual_store::StoreOptions::mapped). Linux only.
    pub mapped: Option<PathBuf>,
    /// Use of exclusive cores by other programs. Linux only.
    pub neighbours: Neighbours,
    /// Whether to keep a log that replays to the same decisions.
    pub record: bool,
    /// The machine to simulate; `None`: the shipped Exynos 5422. Ignored on Linux.
    pub machine: Option<MachineModel>,
    /// Surroundings of the simulated machine. Ignored on Linux.
    pub environment: Box<dyn Environment>,
    /// Which policy splits cache ways and bandwidth; on Linux its first split stays.
    pub allocation: Option<AllocationRequest>,
    /// When real-time jobs have more to do than the scenario says.
    pub surge: Option<Surge>,
    /// Whether to run with a loop that is unstable or whose knobs have the wrong sign; the report then says so.
    pub force: bool,
    /// Stages beside the tasks whose goals the loop serves, too. Linux only.
    pub stages: Vec<StageFrames>,
    /// Stages that the simulated machine carries out. Ignored on Linux, where the caller starts them.
    pub pipeline: StagesSpec,
}

impl RunRequest {
    /// `scenario` with the readings of `trace` on `platform`, and defaults for all else.
    pub fn new(scenario: Scenario, trace: Arc<Trace>, platform: PlatformChoice) -> RunRequest {
        RunRequest {
            scenario,
            trace,
            platform,
            controller: None,
            store_path: None,
            mapped: None,
            neighbours: Neighbours::default(),
            record: false,
            machine: None,
            environment: Box::new(MachineAlone),
            allocation: None,
            surge: None,
            force: false,
            stages: Vec::new(),
            pipeline: StagesSpec::default(),
        }
    }

    /// Prices that the run obeys. On Linux only those that the scenario states: most machines there have no meter of
    /// energy, and the least updates would buy nothing.
    pub fn prices(&self) -> Option<Prices> {
        let control = &self.scenario.control;
        let obeys = self.platform == PlatformChoice::Sim || control.prices_stated;
        control.prices.filter(|_| obeys)
    }

    /// Conditions that a model or a controller for this run must have been made for.
    pub fn made_for(&self) -> MadeFor {
        let shipped = MachineModel::exynos5422_a15;
        let simulated =
            |machine: Option<&MachineModel>| machine.map_or_else(|| shipped().name, |model| model.name.clone());
        let machine = match self.platform {
            PlatformChoice::Linux => punctual_platform::linux::identity(&KernelTree::default()),
            PlatformChoice::Sim => simulated(self.machine.as_ref()),
        };
        MadeFor::of(&self.scenario, self.platform.name(), Some(&machine))
    }
}

/// Why a run did not take place, or was broken off.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The scenario is not sound.
    #[error(transparent)]
    Problem(#[from] Problem),
    /// The sensors are too slow for the minimum that is asked for.
    #[error(
        "goal.min_fresh: a goal out of reach: even if every update is admitted, only {best} of the objects can be kept fresh, because the others are valid for less than their period and {margin} for installing; ask for at most that"
    )]
    Freshness {
        /// Largest fresh share that can be promised.
        best: Share,
        /// Time that an installation may take.
        margin: Nanos,
    },
    /// A task demands more than any program can do here.
    #[error(transparent)]
    Demand(#[from] ImpossibleDemand),
    /// The controller does not fit.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// The model was not accepted.
    #[error(transparent)]
    Model(#[from] ControlError),
    /// The model cannot be true.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// The record is shorter than one round of the excitation.
    #[error(
        "{got} samples do not cover the {needed} that all combinations of levels take: raise --duration to at least {at_least}"
    )]
    TooShort {
        /// Number of recorded samples.
        got: u64,
        /// Samples that one round takes.
        needed: u64,
        /// How long a run must last.
        at_least: Nanos,
    },
    /// The store failed; what it acknowledged is kept.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The storage engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The machine could not be opened.
    #[error(transparent)]
    Machine(#[from] Refusal),
    /// The simulated machine refused its load.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// The simulated machine's model is not sound.
    #[error(transparent)]
    MachineModel(#[from] MachineModelError),
    /// Ways and bandwidth cannot be split as asked.
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    /// The watcher broke off before the run began.
    #[error("stopped before the run began: nothing was measured")]
    Interrupted,
    /// The run was started on this machine and failed there.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

impl RunError {
    /// Whether the device that holds the store has no room left.
    pub fn is_disk_full(&self) -> bool {
        let full = |error: &EngineError| matches!(error, EngineError::DiskFull { .. });
        match self {
            RunError::Engine(error) | RunError::Store(StoreError::Engine(error)) => full(error),
            RunError::Runtime(RuntimeError::Store(StoreError::Engine(error))) => full(error),
            _ => false,
        }
    }
}

/// Runs a scenario, and returns its report and log.
///
/// # Errors
/// [`RunError`]. Whatever was changed on the machine has been restored.
pub fn run(request: &RunRequest, watch: Watch) -> Result<FinishedRun, RunError> {
    check(&request.scenario)?;
    perform(request, false, watch)
}

/// Moves both knobs on the running system, records it, and identifies a model.
///
/// The model is returned whatever its fit; [`ModelDocument::check_fit`] refuses one that is too poor for a controller.
///
/// # Errors
/// [`RunError`], among others where the record is shorter than one round of the excitation.
pub fn identify(request: &RunRequest, watch: Watch) -> Result<(ModelDocument, RunReport), RunError> {
    check(&request.scenario)?;
    let request = &at_a_period(request);
    let levels = &request.scenario.excitation;
    let levels = held(levels, &request.scenario);
    let needed = Exciter::new(&levels)?.period();
    let Scenario { duration, control, .. } = &request.scenario;
    let covers = |got: u64| {
        let at_least = duration.scaled((needed + 10) as f64 / got.max(1) as f64);
        (got >= needed)
            .then_some(())
            .ok_or(RunError::TooShort { got, needed, at_least })
    };
    if let Pace::Period(period) = control.pace {
        covers(duration.saturating_sub(control.warm_up).0 / period.0.max(1))?;
    }
    let finished = perform(request, true, watch)?;
    let (y, u) = recording(&finished.report);
    covers(y.len() as u64)?;
    let made_for = request.made_for();
    Ok((ModelDocument::identify(made_for, &y, &u)?, finished.report))
}

/// At the pace of jobs, a level is held for as many jobs as end in this time, for each sample that it is held
/// otherwise: a shorter one ends before updates at the share that it asks for are in the store, and teaches nothing
/// about them.
const HELD: Nanos = Nanos::from_millis(200);

/// The levels that move the knobs at the scenario's pace.
fn held(levels: &Excitation, scenario: &Scenario) -> Excitation {
    let jobs = jobs_per_period(Pace::Period(HELD), scenario).unwrap_or(1.0);
    Excitation {
        hold: levels.hold.saturating_mul(jobs as u32),
        ..levels.clone()
    }
}

/// Jobs paced from within have no setting of the clock that could be learnt from, and single jobs scatter: their model
/// is learnt at a period, and converted when it is used ([`ModelDocument::for_every_job`]).
fn at_a_period(request: &RunRequest) -> RunRequest {
    let mut request = request.clone();
    // A model is of tasks: no stage is learnt beside them.
    request.pipeline = StagesSpec::default();
    if request.scenario.control.within {
        let control = &mut request.scenario.control;
        (control.pace, control.within) = (Pace::Period(LEARNING_PERIOD), false);
    }
    request
}

/// The knobs that an excitation moves.
const EXCITED: &[KnobId] = knobs_of(ControllerKind::Mimo);

/// Note in the report of a controller that was given no model.
const WITHOUT_MODEL: &str =
    "without a model, the controller moves its knobs in steps, towards fewer late jobs; --identify may learn one";

/// Rows for identification: the means of a window, and the knobs decided at its end (in force in the next one). Of the
/// updates, the share that was really admitted: the freshness minimum may have added to the knob.
///
/// A window without a finished job repeats the one before: its jobs are under way, nothing new is known.
fn recording(report: &RunReport) -> (Vec<[f64; 2]>, Vec<[f64; 2]>) {
    let top = report.header.load.top_clock.0 as f64;
    let running: Vec<_> = report
        .samples
        .iter()
        .filter(|sample| sample.mode == ModeName::Running)
        .collect();
    let mut last = None;
    let mut y = Vec::new();
    let mut u = Vec::new();
    for pair in running.windows(2) {
        last = pair[0].tardiness.zip(pair[0].drr).or(last);
        let Some((tardiness, drr)) = last else { continue };
        y.push([tardiness, drr]);
        u.push([
            pair[1].clock_hz.map_or(1.0, |hz| hz as f64 / top),
            pair[1].admitted_share,
        ]);
    }
    (y, u)
}

fn check(scenario: &Scenario) -> Result<(), RunError> {
    match scenario.problems().into_iter().next() {
        Some(problem) => Err(problem.into()),
        None => Ok(()),
    }
}

/// Setup of a run beside a server, which has no end.
pub(crate) fn setup(request: &RunRequest) -> Result<RunSetup<'_>, RunError> {
    check(&request.scenario)?;
    Ok(RunSetup {
        design: design_for(request)?.0,
        request,
        excite: false,
    })
}

/// Runs the scenario; `excite`: moves the knobs instead of controlling.
fn perform(request: &RunRequest, excite: bool, watch: Watch) -> Result<FinishedRun, RunError> {
    let (design, notes) = match excite {
        true => (None, Vec::new()),
        false => design_for(request)?,
    };
    let setup = RunSetup {
        request,
        design,
        excite,
    };
    let mut finished = match request.platform {
        PlatformChoice::Linux => crate::linux::run_scenario(&setup, watch),
        PlatformChoice::Sim => crate::simulated::run_scenario(&setup, watch),
    }?;
    let ineffective = without_effect(request).into_iter().map(|found| found.to_string());
    finished
        .report
        .summary
        .notes
        .splice(0..0, notes.into_iter().chain(ineffective));
    Ok(finished)
}

/// Commands by which a run on Linux would set cache ways and bandwidth, with none carried out; empty: it asks for none.
///
/// # Errors
/// [`RunError`] as of [`run`].
pub fn rehearse(request: &RunRequest) -> Result<Vec<String>, RunError> {
    match request.allocation {
        Some(_) => crate::linux::split::rehearse(&setup(request)?),
        None if request.scenario.tasks.iter().any(|task| task.profile.is_some()) => {
            let tree = punctual_platform::linux::KernelTree::default();
            punctual_platform::linux::resctrl::Partitions::seen(&tree)?;
            Ok(Vec::new())
        }
        None => Ok(Vec::new()),
    }
}

/// Refuses what [`run`] would refuse about the controller, without running.
///
/// # Errors
/// [`RunError::Mismatch`], [`RunError::Model`], [`RunError::Unfit`].
pub fn check_controller(request: &RunRequest) -> Result<(), RunError> {
    design_for(request).map(|_| ())
}

/// The gains that the scenario's controller runs with, and notes on them for the run's report.
fn design_for(request: &RunRequest) -> Result<(Option<ControllerDocument>, Vec<String>), RunError> {
    let kind = request.scenario.control.kind;
    let document = match &request.controller {
        _ if kind == ControllerKind::Open => return Ok((None, Vec::new())),
        None => return Ok((None, vec![WITHOUT_MODEL.into()])),
        Some(ControllerSource::Controller(document)) => document.clone(),
        Some(ControllerSource::Model(model)) => match jobs_per_period(model.made_for.pace, &request.scenario) {
            Some(jobs) => model.for_every_job(jobs)?.design()?,
            None => model.design()?,
        },
    };
    let mut notes = Vec::new();
    let law = document.law_of(kind, request.prices())?;
    match document.check_loop(law) {
        Err(error) if request.force => notes.push(format!("forced to run: {error}")),
        checked => checked?,
    }
    let run = request.made_for();
    document.check(&run)?;
    notes.extend(document.origin_note(&run));
    Ok((Some(document), notes))
}

/// Where the loop steps at every job and the model is for a period: how many jobs of the most frequent real-time task
/// end in a period.
fn jobs_per_period(made_for: Pace, scenario: &Scenario) -> Option<f64> {
    let (Pace::Period(period), Pace::Job) = (made_for, scenario.control.pace) else {
        return None;
    };
    let real_time = scenario.tasks.iter().filter(|task| task.deadline().is_some());
    let gap = |task: &TaskSpec| task.arrival.gap_min(task.demand.compute + task.demand.data);
    let shortest = real_time.map(gap).min().filter(|gap| *gap > Nanos::ZERO)?;
    Some(period.ratio(shortest).max(1.0))
}

fn overloaded(core: CoreId, load: f64, placement: &Placement) -> Problem {
    let most = match placement.real_time.as_slice() {
        [_] => "the only one that they can have".into(),
        cores => format!("one of the {} that they can have", cores.len()),
    };
    let what = format!(
        "a goal out of reach: the real-time tasks on core {core}, {most}, together need {:.0} % of it; give them longer periods or \
             less to do, or run on a machine with more cores",
        load * 100.0
    );
    Problem::new("task", what)
}

/// Inputs that both machines need before they start.
pub(crate) struct RunSetup<'r> {
    pub(crate) request: &'r RunRequest,
    design: Option<ControllerDocument>,
    excite: bool,
}

impl RunSetup<'_> {
    pub(crate) fn scenario(&self) -> &Scenario {
        &self.request.scenario
    }

    /// The scenario's programs for a machine with these costs, and these `least` ones.
    pub(crate) fn compile(&self, costs: &Costs, least: &Costs) -> Result<CompiledScenario, RunError> {
        Ok(punctual_workload::compile(
            self.scenario(),
            costs,
            least,
            self.request.trace.rate(),
        )?)
    }

    /// Places the scenario's tasks on a machine with these cores, for the whole run.
    ///
    /// # Errors
    /// [`RunError::Problem`], with the key of the task, where what tasks name contradicts each other or the machine;
    /// without one where real-time tasks overload their cores.
    pub(crate) fn place(&self, cores: &[CoreId], limits: &Limits) -> Result<Placement, RunError> {
        let requests: Vec<PlacementRequest> = self.requests().into_iter().map(|(_, request)| request).collect();
        self.checked(punctual_cores::place(&requests, cores, limits))
    }

    /// Name of each task, with its request for placement.
    pub(crate) fn requests(&self) -> Vec<(String, PlacementRequest)> {
        let tasks = self.scenario().tasks.iter();
        tasks
            .map(|task| (task.name.clone(), PlacementRequest::from(task)))
            .collect()
    }

    /// The placement, if no core of it is overloaded.
    pub(crate) fn checked(&self, placement: Result<Placement, PlaceError>) -> Result<Placement, RunError> {
        let misplaced = |error: PlaceError| Problem {
            key: error.task().map_or("task".into(), |task| format!("task[{task}].core")),
            what: error.to_string(),
        };
        let placement = placement.map_err(misplaced)?;
        match placement.overloaded.first() {
            None => Ok(placement),
            Some((core, load)) => Err(overloaded(*core, *load, &placement).into()),
        }
    }

    /// Refuses a freshness minimum that these sensors cannot keep.
    pub(crate) fn check_freshness(&self, stream: &SensorStream) -> Result<(), RunError> {
        let options = self.admission();
        let best = Updates::new(&self.sensor_specs(stream), options).best_fresh_share();
        if best < options.minimum_fresh {
            return Err(RunError::Freshness {
                best,
                margin: options.margin,
            });
        }
        Ok(())
    }

    /// Refuses objects that may not fit into the store, before any is written.
    pub(crate) fn check_room(&self, sensors: u64) -> Result<(), RunError> {
        self.scenario()
            .room(sensors)
            .map_or(Ok(()), |problem| Err(problem.into()))
    }

    pub(crate) fn stream(&self, replicas: u32) -> SensorStream {
        SensorStream::new(
            Arc::clone(&self.request.trace),
            self.scenario().sensors.speedup,
            replicas,
        )
    }

    /// How updates are admitted.
    pub(crate) fn admission(&self) -> AdmissionOptions {
        let shedding = if self.scenario().store.coldest_first {
            Shedding::ColdestFirst
        } else {
            Shedding::Uniform
        };
        AdmissionOptions {
            minimum_fresh: self.scenario().goal.min_fresh,
            shedding,
            ..AdmissionOptions::default()
        }
    }

    /// The sensors of a stream as admission knows them.
    pub(crate) fn sensor_specs(&self, stream: &SensorStream) -> Vec<SensorSpec> {
        let value_bytes_max = self.scenario().sensors.value_bytes;
        let spec = |sensor: punctual_workload::Sensor| SensorSpec {
            period: sensor.period,
            avi: sensor.avi,
            value_bytes_max,
        };
        stream.sensors().into_iter().map(spec).collect()
    }

    /// The setup of a log, where one is to be kept.
    pub(crate) fn log_setup(&self, stream: &SensorStream) -> Option<AdmissionSetup> {
        let setup = || AdmissionSetup {
            sensors: self.sensor_specs(stream),
            options: self.admission(),
        };
        self.request.record.then(setup)
    }

    pub(crate) fn regulator(&self, offers: &Offers, start: Time) -> RegulatorOptions {
        let scenario = self.scenario();
        RegulatorOptions {
            kind: scenario.control.kind,
            goal: scenario.goal,
            goals: scenario.goals().collect(),
            stages: self.request.stages.iter().map(|stage| stage.goal).collect(),
            offers: offers.clone(),
            start,
            warm_up: scenario.control.warm_up,
            silence: self.patience().unwrap_or_else(|| self.silence()),
            impatient: self.patience().is_some(),
            within: scenario.control.within,
            design: self.design.clone(),
            best_effort: self.best_effort(),
            split: None,
            prices: self.request.prices(),
            idle_clock: true,
            excite: self.excite.then(|| held(&scenario.excitation, scenario)),
        }
    }

    /// Where a law steps at every job: the watchdog. The loop decides anyway if no job has ended for this long. A law
    /// that only looks on, or moves the knobs to learn a model, has nothing to say without a job.
    pub(crate) fn patience(&self) -> Option<Nanos> {
        let control = &self.scenario().control;
        let steps = control.pace == Pace::Job && control.kind != ControllerKind::Open && !self.excite;
        steps.then(|| self.rarest_release() * PATIENT_RELEASES)
    }

    /// Longest time without the end of a job: several windows, and several releases of the rarest real-time task.
    fn silence(&self) -> Nanos {
        let window = match self.scenario().control.pace {
            Pace::Period(period) => period,
            Pace::Job => Nanos::ZERO,
        };
        (window * SILENT_WINDOWS).max(self.rarest_release() * SILENT_RELEASES)
    }

    /// The longest time between two releases of a real-time task.
    fn rarest_release(&self) -> Nanos {
        let scenario = self.scenario();
        let gap = |task: &TaskSpec| task.arrival.gap_max(task.demand.compute + task.demand.data);
        let rarest = scenario
            .tasks
            .iter()
            .filter(|task| task.deadline().is_some())
            .map(gap)
            .max();
        rarest.unwrap_or_default()
    }

    /// Time from which means count: the loop has had time to settle, and every sensor has reported. At most half of the
    /// run.
    pub(crate) fn settle(&self) -> Nanos {
        let scenario = self.scenario();
        let slowest = self.request.trace.sensors.iter().map(|sensor| sensor.period).max();
        let spoken = slowest.unwrap_or_default().scaled(1.0 / scenario.sensors.speedup) + self.admission().margin;
        let settled = scenario.control.warm_up + SETTLING.max(spoken);
        settled.min(scenario.duration.scaled(0.5))
    }

    /// Notice that the profiles of tasks are not used, where no policy splits cache and bandwidth by them.
    fn unsplit(&self) -> Option<Protection> {
        let profiled = self.scenario().tasks.iter().filter(|task| task.profile.is_some());
        let tasks: Vec<&str> = profiled.map(|task| task.name.as_str()).collect();
        if tasks.is_empty() || self.request.allocation.is_some() {
            return None;
        }
        let what = format!("cache ways and bandwidth by the profiles of {}", tasks.join(", "));
        Some(Protection {
            refused: Some(Refusal {
                what: what.clone(),
                why: "nothing splits them here, so these tasks compute what `compute` says".into(),
                remedy: "add --platform sim to see what a split would do".into(),
            }),
            what,
            stays: Vec::new(),
        })
    }

    /// Knobs and meters of the run: the machine's, and the admitted share, which is the store's where the machine does
    /// not simulate one.
    pub(crate) fn offers(&self, machine: &Offers) -> Offers {
        let mut offers = machine.clone();
        if offers.range(KnobId::AdmittedShare).is_none() {
            let (knob, range) = (KnobId::AdmittedShare, Range::Share(Provenance::Real));
            offers.knobs.push(KnobOffer { knob, range });
        }
        offers
    }

    /// Whether the run turns `knob`.
    fn turns(&self, knob: KnobId) -> bool {
        let control = &self.scenario().control;
        let once = knob == KnobId::BestEffortShare && control.best_effort_share < Share::ONE;
        let cascade = knob == KnobId::BestEffortShare && self.best_effort().is_some();
        let by_law = self.excite && EXCITED.contains(&knob) || knobs_of(control.kind).contains(&knob);
        let split = matches!(knob, KnobId::Ways(_) | KnobId::Bandwidth(_)) && self.request.allocation.is_some();
        let lent = matches!(knob, KnobId::Lease(_)) && self.request.neighbours.lend;
        once || cascade || by_law || split || lent
    }

    /// Range of the share of best-effort work, where the scenario lets the loop turn it.
    fn best_effort(&self) -> Option<BestEffortRange> {
        let control = &self.scenario().control;
        let range = |least| BestEffortRange {
            most: control.best_effort_share,
            least,
        };
        control.best_effort_min.filter(|_| !self.excite).map(range)
    }

    /// Name, deadline and goal of each task, which the report watches.
    pub(crate) fn watched(&self) -> Vec<TaskInfo> {
        let scenario = self.scenario();
        let watched = |(task, goal): (&TaskSpec, Option<TaskGoal>)| TaskInfo {
            name: task.name.clone(),
            deadline: task.deadline(),
            goal: goal.unwrap_or(scenario.goal.tasks),
        };
        scenario.tasks.iter().zip(scenario.goals()).map(watched).collect()
    }

    pub(crate) fn header(&self, offers: &Offers, costs: &Costs, replicas: u32) -> RunHeader {
        let scenario = self.scenario();
        let knob = |knob: KnobId| KnobReport {
            knob,
            offered: offers.range(knob).map(Range::provenance),
            used: self.turns(knob),
            range: offers.range(knob).map_or("none".into(), Range::to_string),
        };
        let others = offers.knobs.iter().map(|offer| offer.knob);
        let others = others.filter(|knob| !KnobId::COMMON.contains(knob));
        let sensors = self.request.trace.sensors.len() as u32 * replicas;
        RunHeader {
            scenario: scenario.name.clone(),
            platform: self.request.platform,
            machine: offers.machine.clone(),
            seed: scenario.seed,
            controller: scenario.control.kind,
            goal: scenario.goal,
            prices: self.request.prices(),
            knobs: KnobId::COMMON.into_iter().chain(others).map(knob).collect(),
            protection: self.unsplit().into_iter().collect(),
            load: LoadReport {
                sensors,
                replicas,
                updates_per_s: self.request.trace.rate() * scenario.sensors.speedup * f64::from(replicas),
                update_mode: scenario.store.update_mode,
                update_us: costs.update_ns * 1e-3,
                get_ns: costs.get_ns,
                top_clock: offers.clock().map_or(costs.top, |clock| clock.top()),
            },
            settle_s: self.settle().as_secs_f64(),
        }
    }
}
