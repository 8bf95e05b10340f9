//! The runtime on Linux: tasks on real threads, one real-time core, one control thread.
//!
//! | thread       | core         | scheduling     | does                                             |
//! |--------------|--------------|----------------|--------------------------------------------------|
//! | probe        | real-time    | FIFO 95        | measures what no task can be blamed for          |
//! | control      | housekeeping | FIFO 90        | the loop: reads, decides, turns knobs            |
//! | feeder       | housekeeping | FIFO 85        | offers sensor updates to admission               |
//! | real-time    | real-time    | FIFO 80, 79, … | jobs; the shorter the deadline the higher        |
//! | exclusive    | the last ones | FIFO 80, 79, … | likewise, on cores that everybody else is off   |
//! | updater      | real-time    | FIFO 50        | installs admitted updates in the slack           |
//! | best-effort  | the others   | ordinary       | jobs without deadlines                           |
//! | group commit | housekeeping | ordinary       | writes memory-first updates to the engine        |
//!
//! Which core is which is decided by `punctual_cores::place`: exclusive tasks have the last cores, real-time ones the last of the others.
//! Sensor updates are installed on the last real-time core. The probe is on the last exclusive core, without such on the last real-time one;
//! best-effort threads run on all other cores and, while they are lent, on exclusive ones. Whatever is refused (no permission, no such core)
//! is worked around and reported.

mod control;
mod exclusive;
mod feeder;
mod job;
mod mailbox;
mod releases;
mod shared;
mod tasks;
pub mod tenancy;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread::ScopedJoinHandle;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use punctual_cores::{Placement, Request, Seat};
use punctual_loop::{AdmissionSetup, EventLog, Regulator, RegulatorOptions};
use punctual_platform::linux::clock::MonotonicClock;
use punctual_platform::linux::exclusive::ExclusiveCore;
use punctual_platform::linux::probe::GapProbe;
use punctual_platform::linux::{BestEffort, CoreClaim, KernelTree, LinuxMachine, busy, thread};
use punctual_platform::{Machine, Meter, Refusal, Setting};
use punctual_store::engine::Engine;
use punctual_store::{Store, StoreError};
use punctual_units::{Clock, CoreId, Nanos, Share, TaskId, Time};
use punctual_workload::{Active, Arrival, Class, ControllerKind, Goal, JobOutcome, Pace, SensorUpdate};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

pub use job::Job;
pub use tasks::Body;

use self::control::{Control, Controlled};
pub use self::exclusive::limits;
use self::exclusive::{Exclusive, Placed, priority};
use self::feeder::{Fed, Feed, install};
use self::shared::{Crew, Shared, Starter, Tenure, ThreadPlace, join, protection};
use self::tasks::{Failed, Running, sleep_until};
use crate::collector::{Collector, Ending};
use crate::error::RuntimeError;
use crate::report::{Finished, LoadReport, Progress, Protection, RunHeader, Sample, Watch};

/// Of the thread that watches for gaps.
pub const PROBE_PRIORITY: u8 = 95;
/// How often the probe wakes: often enough for gaps of a few milliseconds, rarely enough to leave the core to its jobs.
pub const PROBE_PERIOD: Nanos = Nanos::from_millis(1);
const CONTROL_PRIORITY: u8 = 90;
const FEEDER_PRIORITY: u8 = 85;
/// Of the real-time task with the shortest deadline; the next ones follow below.
pub const TASK_PRIORITY: u8 = 80;
const UPDATER_PRIORITY: u8 = 50;

/// Between "go" and the first release, so that every thread is asleep by then.
const LEAD: Nanos = Nanos::from_millis(20);

/// Without a scenario that says how often jobs come.
const SILENCE: Nanos = Nanos::from_secs(10);

/// How long whoever watches is left alone without a sample.
const PATIENCE: Nanos = Nanos::from_millis(100);

/// Samples that may wait for whoever watches: a minute at ten per second.
const SAMPLES_MAX: usize = 600;

/// A store with tasks around it, ready to run on this machine.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use punctual_platform::linux::{LinuxMachine, LinuxOptions};
/// # use punctual_runtime::linux::Runtime;
/// # use punctual_units::Nanos;
/// # use punctual_workload::{Arrival, Class};
/// # fn example<E: punctual_store::engine::Engine>(store: Arc<punctual_store::Store<E, punctual_platform::linux::clock::MonotonicClock>>) -> Result<(), Box<dyn std::error::Error>> {
/// let machine = LinuxMachine::open(LinuxOptions::default())?;
/// let mut runtime = Runtime::new(machine, store);
/// let every_20_ms = Arrival::Periodic { period: Nanos::from_millis(20) };
/// let within_5_ms = Class::RealTime { deadline: Nanos::from_millis(5) };
/// runtime.task("steer", within_5_ms, every_20_ms, |job| {
///     job.read(|store| store.get(b"heading").map(|_| ()))
/// });
/// # Ok(()) }
/// ```
pub struct Runtime<'env, E: Engine> {
    machine: LinuxMachine,
    store: Arc<Store<E, MonotonicClock>>,
    tasks: Vec<TaskSetup<'env, E>>,
    feed: Option<Feed<'env>>,
    group_commit: Option<Nanos>,
    spare: Vec<String>,
}

/// A task with everything that can be said about it.
pub struct TaskSetup<'env, E: Engine> {
    /// For people.
    pub name: String,
    /// Whether it has a deadline, and whether it has a core to itself.
    pub class: Class,
    /// When its jobs are released.
    pub arrival: Arrival,
    /// During which part of the run.
    pub active: Active,
    /// The core that it is to run on; `None`: one where it is placed well.
    pub core: Option<CoreId>,
    /// How long a job keeps its core at most, where that was told.
    pub execution: Option<Nanos>,
    /// What its jobs work on.
    pub store: Arc<Store<E, MonotonicClock>>,
    /// What a job does.
    pub body: Body<'env, E>,
}

/// How a run is controlled and for how long it lasts.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// What is known of the run before it begins; protections are added to it.
    pub header: RunHeader,
    /// The loop. `start` is filled in.
    pub regulator: RegulatorOptions,
    /// When the loop steps.
    pub pace: Pace,
    /// How long a loop at every job waits for the end of one before it is asked all the same; for ever if none is given.
    pub patience: Option<Nanos>,
    /// How long the run lasts.
    pub duration: Nanos,
    /// Seeds pauses and gaps.
    pub seed: u64,
    /// The CPU share of their cores that best-effort tasks together may use; 1 does not bound them.
    pub best_effort_share: Share,
    /// Whether to keep a log that replays; holds all sensors' setup.
    pub record: Option<AdmissionSetup>,
}

impl<'env, E: Engine + 'env> Runtime<'env, E> {
    /// A runtime without tasks. The machine's knobs are put back when the run ends or the runtime is dropped.
    pub fn new(machine: LinuxMachine, store: Arc<Store<E, MonotonicClock>>) -> Self {
        Runtime {
            machine,
            store,
            tasks: Vec::new(),
            feed: None,
            group_commit: None,
            spare: Vec::new(),
        }
    }

    /// The machine.
    pub fn machine(&self) -> &LinuxMachine {
        &self.machine
    }

    /// The tasks by name, as placement sees them.
    fn requests(&self) -> Vec<(String, Request)> {
        let request = |task: &TaskSetup<'env, E>| {
            let request = Request {
                class: task.class,
                arrival: task.arrival,
                execution: task.execution,
                core: task.core,
                cores: Some(1),
            };
            (task.name.clone(), request)
        };
        self.tasks.iter().map(request).collect()
    }

    /// Adds a task whose jobs run `body`.
    pub fn task(
        &mut self,
        name: impl Into<String>,
        class: Class,
        arrival: Arrival,
        body: impl FnMut(&mut Job<'_, E>) -> Result<(), StoreError> + Send + 'env,
    ) -> &mut Self {
        let store = Arc::clone(&self.store);
        self.add(TaskSetup {
            name: name.into(),
            class,
            arrival,
            active: Active::ALWAYS,
            core: None,
            execution: None,
            store,
            body: Box::new(body),
        })
    }

    /// Tells how long a job of the task that was added last keeps its core at most, on an otherwise idle machine. Exclusive tasks are admitted
    /// to a common core by it; one of which it is not told gets a core for itself, or none.
    pub fn takes_at_most(&mut self, execution: Nanos) -> &mut Self {
        if let Some(task) = self.tasks.last_mut() {
            task.execution = Some(execution);
        }
        self
    }

    /// Puts the task that was added last on `core`. Where that contradicts another task or the machine, the run is refused.
    pub fn on_core(&mut self, core: CoreId) -> &mut Self {
        if let Some(task) = self.tasks.last_mut() {
            task.core = Some(core);
        }
        self
    }

    /// Leaves programs of these names (as `ps -o comm` shows them) on the exclusive cores, beside those that the environment names.
    pub fn spare(&mut self, programs: impl IntoIterator<Item = String>) -> &mut Self {
        self.spare.extend(programs);
        self
    }

    /// Adds a task.
    pub fn add(&mut self, task: TaskSetup<'env, E>) -> &mut Self {
        self.tasks.push(task);
        self
    }

    /// Feeds sensor updates into the store as they fall due; `value_bytes` (8 to the objects' capacity) is the size of
    /// a value, which begins with the reading as a little-endian `f64`.
    pub fn sensors(
        &mut self,
        stream: impl Iterator<Item = SensorUpdate> + Send + 'env,
        value_bytes: usize,
    ) -> &mut Self {
        self.feed = Some(Feed {
            stream: Box::new(stream),
            value_bytes,
            record: false,
        });
        self
    }

    /// Writes memory-first updates to the engine at this interval.
    pub fn group_commit_every(&mut self, interval: Nanos) -> &mut Self {
        self.group_commit = Some(interval);
        self
    }

    /// Options of a run that measures and reports but turns nothing (controller `open`), stepping at every job.
    /// Set `regulator.kind` and `regulator.design` to control.
    pub fn options(&self, name: impl Into<String>, goal: Goal, duration: Nanos) -> RunOptions {
        let offers = self.machine.offers().clone();
        let header = RunHeader {
            scenario: name.into(),
            platform: "linux".into(),
            machine: offers.machine.clone(),
            seed: 0,
            controller: ControllerKind::Open,
            goal,
            knobs: Vec::new(),
            protection: Vec::new(),
            load: LoadReport::default(),
            settle_s: 0.0,
        };
        let regulator = RegulatorOptions {
            kind: ControllerKind::Open,
            goal,
            goals: Vec::new(),
            offers,
            start: Time::ZERO,
            warm_up: Nanos::ZERO,
            silence: SILENCE,
            impatient: false,
            within: false,
            design: None,
            excite: None,
        };
        let (pace, best_effort_share) = (Pace::Job, Share::ONE);
        RunOptions {
            header,
            regulator,
            pace,
            patience: None,
            duration,
            seed: 0,
            best_effort_share,
            record: None,
        }
    }

    /// Runs until the duration is over or `watch` breaks off.
    ///
    /// # Errors
    /// [`RuntimeError`] where the controller does not fit the machine, or the store failed. The machine is put back.
    pub fn run(mut self, options: RunOptions, watch: Watch) -> Result<Finished, RuntimeError> {
        let result = self.run_inner(options, watch);
        let left_over = self.machine.restore();
        let mut finished = match (result, left_over.first()) {
            (Err(error), Some(left)) => {
                return Err(RuntimeError::NotPutBack {
                    error: Box::new(error),
                    left: left.clone(),
                });
            }
            (result, _) => result?,
        };
        finished
            .report
            .summary
            .notes
            .extend(left_over.iter().map(|refusal| format!("not put back: {refusal}")));
        Ok(finished)
    }

    fn run_inner(&mut self, mut options: RunOptions, watch: Watch) -> Result<Finished, RuntimeError> {
        let obtained = &mut options.header.protection;
        let requests = self.requests();
        let placed = Placed::take(&self.machine, &requests, &self.spare, obtained).map_err(|error| {
            let name = error.task().map_or("placement", |task| &requests[task].0).to_owned();
            RuntimeError::Place { name, error }
        })?;
        let Placed { placement, exclusive } = &placed;
        let taken = exclusive.iter().flat_map(Exclusive::cores).next();
        let probed = taken.map_or(placement.update_core(), |core| core.obtained().core);
        let probe = match taken {
            Some(core) => GapProbe::start_within(core, PROBE_PRIORITY, PROBE_PERIOD),
            None => GapProbe::start(probed, PROBE_PRIORITY, PROBE_PERIOD),
        };
        // Jobs on another core than the probe's cannot be excused by it.
        let elsewhere = (0..self.tasks.len()).filter(|task| !placement.seats[*task].cores().contains(&probed));
        let elsewhere: Vec<TaskId> = elsewhere.map(|task| TaskId(task as u32)).collect();
        obtained.push(protection("memory locked".into(), thread::lock_memory()));
        obtained.push(protection(
            "guardian puts the machine back after a kill".into(),
            self.guarded(),
        ));
        obtained.push(protection(
            "probe on the real-time core".into(),
            probe.as_ref().map(drop).map_err(Clone::clone),
        ));
        obtained.extend(self.bound_best_effort(options.best_effort_share, placement.rest.len()));
        let energy = self.machine.read().energy_j;
        let steal = stolen();
        let cores = self.machine.offers().cores.len();
        let ran = self.run_threads(options, placed, watch);
        thread::unlock_memory();
        let Ran {
            controlled,
            regulator,
            fed,
            record,
        } = ran?;

        let collector = &controlled.collector;
        let elapsed = MonotonicClock.now().since(regulator.start);
        let ending = Ending {
            counts: self.store.counts(),
            reconciliation: self.store.reconcile(),
            excused: probe.as_ref().map_or(0, |probe| excused(collector, probe, &elsewhere)),
            energy_j: energy_since(&energy, &self.machine.read().energy_j),
            energy_parts_j: None,
            controller_core_share: Some(controlled.cpu.ratio(elapsed)),
            probe_us: probe.as_ref().ok().map(oversleep_us),
            steal_share: steal
                .zip(stolen())
                .map(|(before, after)| after.saturating_sub(before).ratio(elapsed * cores as u64)),
        };
        let log = record.zip(controlled.log).map(|(admission, steps)| EventLog {
            regulator,
            steps,
            admission,
            updates: fed.log,
        });
        Ok(Finished {
            report: controlled.collector.finish(ending),
            log,
        })
    }

    fn guarded(&self) -> Result<(), Refusal> {
        if self.machine.guarded() {
            return Ok(());
        }
        Err(Refusal {
            what: "guardian".into(),
            why: "the process could not be forked, or the guardian has ended".into(),
            remedy: "a kill would leave the clock and CPU shares as they are: run `punctual doctor` afterwards".into(),
        })
    }

    /// Bounds best-effort work for the run, where it is to be bounded.
    fn bound_best_effort(&mut self, share: Share, cores: usize) -> Option<Protection> {
        if share == Share::ONE {
            return None;
        }
        let bound = self.machine.best_effort().runs_on(cores);
        let bound = bound.and_then(|()| self.machine.apply(Setting::BestEffortShare(share)).map(drop));
        Some(protection(
            format!("best-effort work bounded to {share} of {cores} cores"),
            bound,
        ))
    }

    /// Starts every thread, lets them run, and collects what they return.
    fn run_threads(&mut self, options: RunOptions, placed: Placed, watch: Watch) -> Result<Ran, RuntimeError> {
        let RunOptions {
            mut header,
            mut regulator,
            pace,
            patience,
            duration,
            seed,
            record,
            best_effort_share,
        } = options;
        let bounded_group = (best_effort_share < Share::ONE).then(|| self.machine.best_effort());
        let plan = Regulator::new(regulator.clone())?.plan();
        let shared = Shared::new(plan.admitted, regulator.within);
        let (samples, sampled) = bounded(SAMPLES_MAX);
        let Placed { placement, exclusive } = placed;
        // Held to the end of the run: with the last of them the sweep for threads started meanwhile would end.
        let _kept: Vec<ExclusiveCore> = exclusive.iter().flat_map(Exclusive::cores).cloned().collect();
        let accountants = exclusive.as_ref().map(Exclusive::accountants).unwrap_or_default();
        let (house, update_core) = (placement.house(), placement.update_core());
        let claim = CoreClaim::of(update_core);
        if let Err(refusal) = &claim {
            header
                .protection
                .push(protection(refusal.what.clone(), Err(refusal.clone())));
        }
        let tasks = std::mem::take(&mut self.tasks);
        let tasks = place_tasks(tasks, &placement, exclusive.as_ref(), bounded_group);
        let feed = self.feed.take().map(|feed| Feed {
            record: record.is_some(),
            ..feed
        });
        let group_commit = self.group_commit;
        let (machine, store, shared) = (&mut self.machine, &*self.store, &shared);

        std::thread::scope(|scope| {
            let mut crew = Crew::new(scope);
            let tasks = spawn_tasks(&mut crew, tasks, exclusive, seed, shared)?;
            let mut feeding = None;
            if let Some(feed) = feed {
                // The feeder first: whoever installs waits for it to be over.
                let feeder = at("feeder", house, Some(FEEDER_PRIORITY));
                let fed = crew.spawn(feeder, move |starter| feed.run(store, shared, starter))?;
                let updater = at("updater", update_core, Some(UPDATER_PRIORITY));
                let installed = crew.spawn(updater, move |starter| install(store, shared, starter))?;
                feeding = Some((fed, installed));
            }
            let mut flushing = None;
            if let Some(interval) = group_commit {
                let committer = at("group commit", house, None);
                flushing = Some(crew.spawn(committer, move |starter| flush(store, shared, starter, interval))?);
            }

            // The control thread comes last: it reports under a header that says what everybody obtained.
            header.protection.extend(crew.ready());
            let start = MonotonicClock.now() + LEAD;
            regulator.start = start;
            let mut collector = Collector::new(header.clone(), start, plan);
            if !accountants.is_empty() {
                collector.lends();
            }
            let control = Control {
                machine,
                store,
                shared,
                regulator: Regulator::new(regulator.clone())?,
                collector,
                pace,
                patience,
                until: start + duration,
                samples,
                log: record.is_some().then(Vec::new),
                rehearsal: None,
            };
            let control = crew.spawn(at("control", house, Some(CONTROL_PRIORITY)), |starter| {
                control.run(starter)
            })?;
            let control_obtained = crew.ready();
            header.protection.extend(control_obtained.iter().cloned());
            crew.go(start);
            watch_samples(&header, &sampled, shared, watch);

            let controlled = join(control);
            shared.stop();
            let failed: Vec<_> = tasks.into_iter().filter_map(join).collect();
            let (mut fed, installed) = feeding
                .map(|(fed, installed)| (join(fed), join(installed)))
                .unwrap_or_default();
            let flushed = flushing.and_then(join);
            // What the updater installed after the last group.
            let flushed = flushed.or_else(|| group_commit.and_then(|_| store.commit_group().err()));
            let mut controlled = controlled.ok_or(RuntimeError::Stopped)?;
            if let Some(error) = fed.error.take().or(installed).or(flushed) {
                return Err(error.into());
            }
            controlled.close(control_obtained, &failed, shared);
            let lent = accountants
                .iter()
                .flat_map(|accountant| [accountant.trouble(), accountant.told()]);
            lent.flatten().for_each(|note| controlled.collector.note(note));
            Ok(Ran {
                controlled,
                regulator,
                fed,
                record,
            })
        })
    }
}

/// What is left when all threads have ended.
struct Ran {
    controlled: Controlled,
    regulator: RegulatorOptions,
    fed: Fed,
    record: Option<AdmissionSetup>,
}

fn spawn_tasks<'scope, 'env: 'scope, E: Engine + 'env>(
    crew: &mut Crew<'scope, '_>,
    tasks: Vec<(ThreadPlace, TaskSetup<'env, E>)>,
    mut exclusive: Option<Exclusive>,
    seed: u64,
    shared: &'scope Shared,
) -> Result<Vec<ScopedJoinHandle<'scope, Option<Failed>>>, RuntimeError> {
    let spawn = |(index, (place, setup)): (usize, (ThreadPlace, TaskSetup<'env, E>))| {
        let running = Running {
            id: TaskId(index as u32),
            deadline: setup.class.deadline(),
            arrival: setup.arrival,
            active: setup.active,
            body: setup.body,
            rng: ChaCha8Rng::seed_from_u64(seed.wrapping_add(index as u64)),
            tenancy: match &place.tenure {
                Some(Tenure::Occupant(_)) => exclusive.as_mut().and_then(|exclusive| exclusive.tenancy(place.core)),
                Some(Tenure::Guest(_)) | None => None,
            },
        };
        crew.spawn(place, move |starter| running.run(&setup.store, shared, starter))
    };
    tasks.into_iter().enumerate().map(spawn).collect()
}

/// Late jobs that a gap of the probe explains: one at least as long as the overrun, between release and completion.
///
/// Not where our own threads filled the core: the kernel then takes it away from all of them for the rest of a second
/// (real-time throttling, 95 % by default), which the probe sees like any other gap.
fn excused(collector: &Collector, probe: &GapProbe, elsewhere: &[TaskId]) -> u64 {
    let explained = |job: &&JobOutcome| {
        if elsewhere.contains(&job.task) {
            return false;
        }
        let gap = probe.longest_gap(job.released, job.finished);
        job.overrun().is_some_and(|overrun| gap >= overrun)
    };
    collector.late_with_slack().filter(explained).count() as u64
}

fn at(role: &str, core: CoreId, priority: Option<u8>) -> ThreadPlace {
    ThreadPlace {
        role: role.into(),
        core,
        priority,
        bounded: None,
        tenure: None,
    }
}

/// Cores and priorities of the tasks' threads, as they were placed.
fn place_tasks<'env, E: Engine>(
    tasks: Vec<TaskSetup<'env, E>>,
    placement: &Placement,
    exclusive: Option<&Exclusive>,
    bounded: Option<BestEffort>,
) -> Vec<(ThreadPlace, TaskSetup<'env, E>)> {
    let core = |seat: &Seat| seat.cores().first().copied().unwrap_or_default();
    let place = |(task, seat): (TaskSetup<'env, E>, &Seat)| {
        let thread = at(&task.name, core(seat), seat.chair().map(priority));
        let thread = match seat {
            Seat::RealTime(_) => thread,
            Seat::Exclusive(chair) => ThreadPlace {
                tenure: exclusive.and_then(|exclusive| exclusive.core(chair.core).cloned().map(Tenure::Occupant)),
                ..thread
            },
            Seat::BestEffort(_) => ThreadPlace {
                bounded: bounded.clone(),
                // A thread that is kept off one of the exclusive cores is kept off all.
                tenure: exclusive.and_then(|exclusive| exclusive.cores().next().cloned().map(Tenure::Guest)),
                ..thread
            },
        };
        (thread, task)
    };
    tasks.into_iter().zip(&placement.seats).map(place).collect()
}

/// Shows samples to whoever watches until the loop is over.
fn watch_samples(header: &RunHeader, samples: &Receiver<Sample>, shared: &Shared, watch: Watch) {
    if watch(Progress::Started(header)) == ControlFlow::Break(()) {
        shared.stop();
    }
    loop {
        let answer = match samples.recv_timeout(PATIENCE.into()) {
            Ok(sample) => watch(Progress::Sample(&sample)),
            Err(RecvTimeoutError::Timeout) => watch(Progress::Waiting),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if answer == ControlFlow::Break(()) {
            shared.stop();
        }
    }
}

/// Commits memory-first updates in groups until the run ends, and once more then. Returns the first error.
fn flush<E: Engine>(
    store: &Store<E, MonotonicClock>,
    shared: &Shared,
    starter: Starter,
    interval: Nanos,
) -> Option<StoreError> {
    let mut wake = starter.start()?;
    loop {
        wake = wake + interval;
        let going_on = sleep_until(wake, shared);
        match store.commit_group() {
            // What was not written is written with the next group.
            Ok(_) | Err(StoreError::LockTimeout { .. } | StoreError::TooManyWaiters) => {}
            Err(error) => {
                shared.stop();
                return Some(error);
            }
        }
        if !going_on {
            return None;
        }
    }
}

/// Host time for which the hypervisor ran something else, over all cores; none where it is not told.
fn stolen() -> Option<Nanos> {
    let times = busy::read(&KernelTree::default()).ok()?;
    Some(times.iter().map(|core| core.steal).sum())
}

/// How late the probe woke, in microseconds: median, p99, maximum.
fn oversleep_us(probe: &GapProbe) -> [f64; 3] {
    let seen = probe.summary();
    [seen.p50, seen.p99, seen.max].map(Nanos::as_micros_f64)
}

fn energy_since(before: &Meter<f64>, after: &Meter<f64>) -> Option<f64> {
    Some(after.value()? - before.value()?)
}
