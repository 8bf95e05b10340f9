//! The simulation: advances from one event to the next.
//!
//! ```text
//! next event ─► updates arrive ─► segments end ─► timers, releases ─► schedule: what runs where ─► pace: how fast
//!     ▲                                                                                             │
//!     └──────────────────────────── each running segment's end at this pace ◄───────────────────────┘
//! ```
//!
//! Between two events every core works at a constant pace, so no fixed steps are needed. The contents of the cache
//! change all the time: hit ratios are revised, as an event of its own, once enough lines were fetched to change them.
//! All instants are whole nanoseconds; at one instant the order is that of the picture, cores and runners by number.

use std::any::Any;
use std::collections::VecDeque;

use punctual_cores::Completion;
use punctual_platform::{KnobId, KnobOffer, Offers, Parts, Provenance, Range};
use punctual_store::updates::Updates;
use punctual_units::{CoreId, Nanos, Share, TaskId, Time};
use punctual_workload::{JobOutcome, JobProgress, Op, Surge, UpdateMode, checkpoint};

use crate::committer::Committer;
use crate::cores::{Core, CoreActivity, CoreTimes, Occupant};
use crate::device::Device;
use crate::feed::UpdateFeed;
use crate::governed::GovernedClock;
use crate::job::{JobStage, ReleasedJob};
use crate::load::{SimulationError, SimulationEvent, SimulationLoad, runners};
use crate::machine::offers;
use crate::model::{ClockStep, MachineModel};
use crate::power::EnergyMeter;
use crate::runner::Runner;
use crate::scheduler::Lock;
use crate::shared::SharedJobs;
use crate::split::{Holding, SplitModel, SplitResources};
use crate::task::{Dispatch, Jobs, Step, Task, TaskWorkload};
use crate::throttle::Throttle;
use crate::traffic::SharedCache;
use crate::waits::Waits;

/// A running machine, in simulated time. The same load gives the same run, to the last bit, however it is sliced by
/// [`Simulation::run_until`] and however often it is read.
///
/// Tasks run where the load's placement puts them. On each core real-time and exclusive tasks come first, the shorter
/// deadline before the longer; update transactions run in the time left on the last real-time core. Best-effort tasks
/// run in the order of their release, below all else; on an exclusive core, too, while it is lent ([`KnobId::Lease`]).
///
/// ```
/// use punctual_sim::{MachineModel, Simulation, SimulationEvent, SimulationLoad};
/// use punctual_store::updates::AdmissionOptions;
/// use punctual_units::{Clock, Nanos, Time};
/// use punctual_workload::{Op, Program, SensorStream, Trace, UpdateMode};
/// # use punctual_workload::{Active, Arrival, Class, Demand, ObjectSet, TaskSpec};
/// # let spec = TaskSpec {
/// #     name: "analysis".into(), goal: None, per_core: 1, cores: None, core: None, active: Active::ALWAYS,
/// #     profile: None, class: Class::RealTime { deadline: Nanos::from_millis(50) },
/// #     arrival: Arrival::Periodic { period: Nanos::from_millis(100) },
/// #     demand: Demand {
/// #         compute: Nanos::from_millis(7), data: Nanos::ZERO, rounds: 1, reads: ObjectSet::Sensors, writes: 0,
/// #         fit: false,
/// #     },
/// # };
///
/// let trace = Trace::synthetic(4, Nanos::from_secs(1), Nanos::from_secs(2), Nanos::from_secs(4), 1);
/// let load = SimulationLoad {
///     tasks: vec![(spec, Program { ops: vec![Op::Compute { cycles: 14_000_000 }] })],
///     placement: None,
///     stream: SensorStream::new(trace, 1.0, 1),
///     admission: AdmissionOptions::default(),
///     update_mode: UpdateMode::Transaction,
///     group_commit: Nanos::from_millis(50),
///     value_bytes: 64,
///     split: None,
///     seed: 1,
/// };
/// let mut machine = Simulation::new(MachineModel::exynos5422_a15(), load)?;
/// let end = Time::ZERO + Nanos::from_secs(1);
/// let mut jobs = 0;
/// loop {
///     match machine.run_until(end) {
///         SimulationEvent::Completed(outcome) => {
///             assert_eq!(outcome.response(), Nanos::from_millis(7)); // 14 million cycles at 2 GHz
///             jobs += 1;
///         }
///         SimulationEvent::Reached => break,
///         SimulationEvent::Released { .. } | SimulationEvent::Progressed(_) | SimulationEvent::Skipped { .. } => {}
///     }
/// }
/// assert_eq!((jobs, machine.now()), (10, end));
/// # Ok::<(), punctual_sim::SimulationError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Simulation {
    pub(crate) model: MachineModel,
    pub(crate) offers: Offers,
    pub(crate) now: Time,
    pub(crate) clock: ClockState,
    pub(crate) throttle: Throttle,
    pub(crate) meter: EnergyMeter,
    pub(crate) cores: Vec<Core>,
    pub(crate) runners: Vec<Runner>,
    /// Real-time runners by index, the shorter deadline first.
    pub(crate) urgency: Vec<usize>,
    /// Rule by which cores choose among their jobs.
    pub(crate) scheduling: Dispatch,
    /// Split of cache and memory between cores, if any.
    pub(crate) split: Option<SplitResources>,
    pub(crate) store: StoreWork,
    pub(crate) lock: Lock,
    /// Per core the real-time runner whose job progresses there: the job itself runs, or the work that blocks it.
    pub(crate) urged: Vec<Option<usize>>,
    /// Whether the machine must decide again which job runs where before time passes.
    pub(crate) stale: bool,
    /// Whether the pace of each core must be computed again before time passes.
    pub(crate) unpaced: bool,
    /// State of the shared cache and memory.
    pub(crate) shared: SharedCache,
    /// Number of jobs released per task.
    pub(crate) released: Vec<u64>,
    /// Steps that have ended, jobs that were released, and cores given to the store's work or back: while the number is
    /// the same, so is the running work.
    pub(crate) work_changes: u64,
    /// Next instant at which a runner needs a decision: a release, or the end of a request or of a wait.
    pub(crate) next_wake: Time,
    pub(crate) sharing: SharedJobs,
    pub(crate) io: Io,
    /// Period in which real-time jobs have more work.
    pub(crate) surge: Option<Surge>,
    events: EventQueue,
}

/// The clock of all cores.
#[derive(Clone, Debug)]
pub(crate) struct ClockState {
    pub(crate) step: ClockStep,
    /// When the clock that was set last takes effect; `None` once it has.
    change: Option<(Time, ClockStep)>,
    /// Kernel governor that sets the clock while no controller does.
    pub(crate) governed: Option<GovernedClock>,
}

/// The store's own work, and the cores that it runs on.
#[derive(Clone, Debug)]
pub(crate) struct StoreWork {
    pub(crate) feed: UpdateFeed,
    /// Group commits; only in memory-first mode.
    pub(crate) committer: Option<Committer>,
    /// Core of updates that are transactions of their own.
    pub(crate) update_core: usize,
    /// Core of memory-first updates and of group commits.
    pub(crate) house: usize,
    /// Core on which the update in progress began.
    pub(crate) installer_home: usize,
}

/// The jobs' requests to devices.
#[derive(Clone, Debug, Default)]
pub(crate) struct Io {
    pub(crate) devices: Vec<Box<dyn Device>>,
    /// Wait of a pinned job for each device.
    pub(crate) waits: Vec<Completion>,
    /// Requests submitted since the start.
    pub(crate) begun: u64,
    /// Requests after which their job went on.
    pub(crate) ended: u64,
}

/// Events of one instant, until the caller takes them.
#[derive(Clone, Debug)]
struct EventQueue {
    /// Events not reported yet; per runner at most one release and one completion or checkpoint.
    pending: VecDeque<SimulationEvent>,
    /// Waits of the unreported completions of jobs with a deadline, in the same order.
    pending_waits: VecDeque<Waits>,
    /// Waits of the completion of such a job that was reported last.
    last_waits: Waits,
    /// Whether checkpoints are reported.
    reports_progress: bool,
}

impl EventQueue {
    /// A queue that holds the events of this many runners without growing.
    fn new(runners: usize) -> EventQueue {
        EventQueue {
            pending: VecDeque::with_capacity(2 * runners),
            pending_waits: VecDeque::with_capacity(runners),
            last_waits: Waits::default(),
            reports_progress: false,
        }
    }

    /// Takes the oldest event, and notes the waits of its job.
    fn take(&mut self) -> Option<SimulationEvent> {
        let event = self.pending.pop_front()?;
        if let SimulationEvent::Completed(JobOutcome { deadline: Some(_), .. }) = event {
            self.last_waits = self.pending_waits.pop_front().unwrap_or_default();
        }
        Some(event)
    }
}

impl Simulation {
    /// Starts a machine at instant zero, at its highest clock, with nothing installed and nothing running.
    ///
    /// # Errors
    /// [`SimulationError`] names the part of the load or model that cannot be simulated.
    pub fn new(model: MachineModel, mut load: SimulationLoad) -> Result<Simulation, SimulationError> {
        model.check()?;
        if let Some((task, _)) = load.tasks.iter().find(|(_, program)| program.ops.is_empty()) {
            let task = task.name.clone();
            return Err(SimulationError::EmptyProgram { task });
        }
        let placement = load.place(model.cores)?;
        let runners = runners(&load, &placement);
        let even = load.split.as_ref().map(|split| split.model.even()).transpose()?;
        let [update_core, house] = [placement.update_core(), placement.house()].map(|core| core.0 as usize);
        // Tasks of one core are ordered by rank; jobs of several cores compare where one waits for another's lock.
        let rank = |task: TaskId| placement.seats[task.index()].chair().map(|chair| chair.rank);
        let mut urgency = urgency(&runners);
        urgency.sort_by_key(|r| (runners[*r].deadline, rank(runners[*r].task)));
        let feed = UpdateFeed::new(
            load.stream,
            load.admission,
            load.value_bytes,
            load.update_mode,
            &model.store,
        );
        let committer = match load.update_mode {
            UpdateMode::MemoryFirst => Some(Committer::new(load.group_commit, feed.objects())),
            UpdateMode::Transaction => None,
        };
        let store = StoreWork {
            feed,
            committer,
            update_core,
            house,
            installer_home: update_core,
        };
        let mut machine = Simulation {
            urgency,
            split: load.split.map(|split| SplitResources::new(split.model, split.programs)),
            ..Simulation::assembled(model, runners, load.tasks.len(), store)
        };
        for (core, slice) in machine.cores.iter_mut().zip(even.into_iter().flatten()) {
            core.holding = Holding::new(slice);
        }
        let split = machine.split.as_ref().map(|split| split.model);
        machine.offers.knobs.extend(split.iter().flat_map(SplitModel::offers));
        let lease = |core: &CoreId| KnobOffer {
            knob: KnobId::Lease(*core),
            range: Range::Lent(Provenance::Simulated),
        };
        machine.offers.knobs.extend(placement.exclusive.iter().map(lease));
        Ok(machine)
    }

    /// Starts a machine at instant zero for tasks without a store.
    ///
    /// # Errors
    /// As for [`Simulation::new`].
    pub fn of(model: MachineModel, work: TaskWorkload) -> Result<Simulation, SimulationError> {
        model.check()?;
        let is_empty = |task: &&Task| matches!(&task.jobs, Jobs::Alike(steps) if steps.is_empty());
        if let Some(task) = work.tasks.iter().find(is_empty) {
            let task = task.name.clone();
            return Err(SimulationError::EmptyProgram { task });
        }
        let runner = |(id, task): (u32, &Task)| Runner::new(TaskId(id), task, work.seed, id as usize);
        let runners = (0..).zip(&work.tasks).map(runner).collect();
        let store = StoreWork {
            feed: UpdateFeed::silent(&model.store),
            committer: None,
            update_core: 0,
            house: 0,
            installer_home: 0,
        };
        let io = Io {
            devices: work.devices,
            waits: work.waits,
            ..Io::default()
        };
        Ok(Simulation {
            scheduling: work.scheduling,
            split: work.split.map(|(model, programs)| SplitResources::new(model, programs)),
            sharing: SharedJobs::by(work.rule),
            io,
            ..Simulation::assembled(model, runners, work.tasks.len(), store)
        })
    }

    /// Builds a machine before its first event.
    fn assembled(model: MachineModel, runners: Vec<Runner>, tasks: usize, store: StoreWork) -> Simulation {
        let mut urgency = urgency(&runners);
        urgency.sort_by_key(|r| runners[*r].deadline);
        let clock = ClockState {
            step: model.top(),
            change: None,
            governed: None,
        };
        Simulation {
            offers: offers(&model),
            now: Time::ZERO,
            clock,
            throttle: Throttle { share: Share::ONE },
            meter: EnergyMeter::default(),
            cores: vec![Core::new(); model.cores as usize],
            urgency,
            scheduling: Dispatch::FixedPriority,
            split: None,
            store,
            lock: Lock::default(),
            urged: vec![None; model.cores as usize],
            stale: true,
            unpaced: true,
            shared: SharedCache::new(&model),
            released: vec![0; tasks],
            work_changes: 0,
            next_wake: Time::ZERO,
            sharing: SharedJobs::default(),
            io: Io::default(),
            surge: None,
            events: EventQueue::new(runners.len()),
            runners,
            model,
        }
    }

    /// Runs to the first event at or before `until`, or to `until`; the simulated clock then stands there.
    ///
    /// Events of one instant are reported one by one, completions first. An `until` in the past is reached at once.
    pub fn run_until(&mut self, until: Time) -> SimulationEvent {
        loop {
            if let Some(event) = self.events.take() {
                return event;
            }
            self.settle();
            // A job whose last step is a request, or empty, ends as soon as it gets a core.
            if !self.events.pending.is_empty() {
                continue;
            }
            let next = self.next_event();
            if next > until {
                self.now = self.now.max(until);
                self.store.feed.arrive(self.now);
                return SimulationEvent::Reached;
            }
            let was_open = self.throttle.open(self.now);
            if self.by_rule(|rule, cores| rule.idles_beside_work(cores)) == Some(true) {
                self.sharing.idle_beside_work += next.since(self.now);
            }
            self.now = next;
            self.stale |= was_open != self.throttle.open(next);
            self.turn();
            self.store.feed.arrive(self.now);
            self.end_segments();
            self.end_intervals();
            self.wake();
        }
    }

    /// Gives real-time jobs more work for the surge's time.
    pub fn surge(&mut self, surge: Surge) {
        self.surge = Some(surge);
    }

    /// Reports the checkpoints of real-time jobs from now on. The run itself does not change.
    pub fn tell_progress(&mut self) {
        self.events.reports_progress = true;
    }

    /// Admission, queue and statistics of sensor updates: to set the admitted share, and to reconcile.
    ///
    /// The simulation offers and installs the updates of its stream; callers must not.
    pub fn updates(&mut self) -> &mut Updates {
        &mut self.store.feed.updates
    }

    /// Adapts admission to the time that installations take, and ranks the objects by their reads since the last call,
    /// for coldest-first shedding. Call once per control period.
    pub fn rebalance(&mut self) {
        self.store.feed.rebalance(self.now);
    }

    /// Share of temporal objects whose installed version is fresh now (QoD in the paper).
    pub fn fresh_share(&self) -> Share {
        self.store.feed.fresh_share(self.now)
    }

    /// Energy used by each part of the machine since the start, in joules.
    pub fn energy(&self) -> Parts {
        self.meter.joules(self.now)
    }

    /// Waits of the job in the last reported [`SimulationEvent::Completed`] of a task with a deadline.
    pub fn last_waits(&self) -> &Waits {
        &self.events.last_waits
    }

    /// Times of each core by activity, since the start.
    pub fn core_times(&self) -> Vec<CoreTimes> {
        self.cores.iter().map(|core| core.times(self.now)).collect()
    }

    /// Devices of one kind among those that serve the jobs' requests, in their order.
    pub fn devices<D: Device>(&self) -> impl Iterator<Item = &D> {
        let devices = self.io.devices.iter();
        devices.filter_map(|device| (&**device as &dyn Any).downcast_ref())
    }

    /// Number of requests submitted since the start.
    pub fn requests_begun(&self) -> u64 {
        self.io.begun
    }

    /// Number of requests after which their job went on.
    pub fn requests_ended(&self) -> u64 {
        self.io.ended
    }

    /// Time that a core idled while a job waited that might have run there.
    pub fn idle_beside_work(&self) -> Nanos {
        self.sharing.idle_beside_work
    }

    /// Work of each runner's jobs since the start.
    pub fn worked(&self) -> Vec<Nanos> {
        let worked = |r: usize| self.runners[r].worked + self.works_since(r);
        (0..self.runners.len()).map(worked).collect()
    }

    /// Number of requests that jobs wait for.
    pub fn io_pending(&self) -> u64 {
        let waits = |runner: &&Runner| runner.job.as_ref().is_some_and(ReleasedJob::waits_for_io);
        self.runners.iter().filter(waits).count() as u64
    }

    /// Lines that each core holds in the shared cache, as of the latest revision.
    pub fn held_lines(&self) -> Vec<f64> {
        self.shared.held_lines()
    }

    /// Decides which job runs where and how fast, if that may have changed.
    pub(crate) fn settle(&mut self) {
        if std::mem::take(&mut self.stale) {
            self.schedule();
            self.unpaced = true;
        }
        self.govern();
        if std::mem::take(&mut self.unpaced) {
            self.set_paces();
        }
    }

    /// Count of possible changes of the running work since the start: a step ended, a job was released, or the store
    /// took a core for its own work or gave it back.
    pub fn work_changes(&self) -> u64 {
        self.work_changes
    }

    pub(crate) fn next_event(&self) -> Time {
        let segment = self.cores.iter().map(Core::finish).min().unwrap_or(Time::MAX);
        let commit = self.store.committer.as_ref().map_or(Time::MAX, Committer::next);
        let mut next = segment.min(commit).min(self.next_wake).min(self.shared.revision());
        next = next.min(self.next_sample());
        next = next.min(self.clock.change.map_or(Time::MAX, |(at, _)| at));
        // While the installer is busy, or cannot run, an arrival changes nothing that the next event would not handle.
        if self.installer_waits() {
            next = next.min(self.store.feed.next_arrival());
        }
        next.min(self.throttle.next_change(self.now)).max(self.now)
    }

    /// Handles the segments that end now.
    fn end_segments(&mut self) {
        for core in 0..self.cores.len() {
            if self.cores[core].finish() > self.now {
                continue;
            }
            self.stale = true;
            if !self.cores[core].has_ended(self.now) {
                // The end of a slice is handled once all segments that end now are settled.
                self.end_slice(core);
                continue;
            }
            let (doing, occupant) = (self.cores[core].doing(), self.cores[core].occupant());
            if doing == CoreActivity::Fill {
                self.put_off(core);
            } else {
                self.clear(core);
            }
            match occupant {
                Some(Occupant::Runner(r)) if doing == CoreActivity::Work => self.end_of_job_segment(r),
                Some(Occupant::Runner(_) | Occupant::TakeBack) | None => {}
                Some(Occupant::Installer) => self.end_of_update(),
                Some(Occupant::Committer) => self.end_of_group_commit(),
            }
            if let Some(holder) = self.cores[core].holder {
                self.go_on(core, holder);
            }
        }
    }

    /// Continues after a segment of a job's own work with its commit, its next step, or its completion.
    fn end_of_job_segment(&mut self, r: usize) {
        let (now, store) = (self.now, self.model.store);
        let runner = &mut self.runners[r];
        let Some(op) = runner.job.as_ref().map(|job| job.op) else {
            return;
        };
        let puts = matches!(runner.steps()[op], Step::Op(Op::Put { .. }));
        let Some(job) = &mut runner.job else { return };
        if job.stage == JobStage::Access && puts {
            job.work(JobStage::Commit, store.commit, now);
            return;
        }
        self.step_ended(r);
    }

    /// Ends a step of this runner's job.
    pub(crate) fn step_ended(&mut self, r: usize) {
        let (now, runner) = (self.now, &mut self.runners[r]);
        let steps = runner.steps().len();
        let Some(job) = &mut runner.job else { return };
        job.enter(JobStage::Between, now);
        job.op += 1;
        self.work_changes += 1;
        if let (true, Some(deadline)) = (self.events.reports_progress, runner.deadline)
            && let Some((done, of)) = checkpoint(job.op, steps)
        {
            let progress = JobProgress {
                task: runner.task,
                job: job.number,
                released: job.released,
                deadline,
                at: now,
                done,
                of,
            };
            self.events.pending.push_back(SimulationEvent::Progressed(progress));
        }
        let complete = job.op == steps;
        self.lock.release(Occupant::Runner(r));
        if complete {
            self.complete(r);
        }
    }

    /// Completes the job of this runner.
    pub(crate) fn complete(&mut self, r: usize) {
        let (now, runner) = (self.now, &mut self.runners[r]);
        if runner.deadline.is_some() && runner.job.is_some() {
            runner.waits.kept(None, now);
            self.events.pending_waits.push_back(runner.waits.clone());
        }
        if let Some(job) = runner.retire(now) {
            let outcome = job.outcome(runner.task, runner.deadline);
            self.events.pending.push_back(SimulationEvent::Completed(outcome));
            self.next_wake = self.next_wake.min(self.runners[r].next_release);
        }
        self.go_home(r);
        // A job that follows at once keeps the core of its predecessor.
        if self.sharing.has_rule && self.runners[r].next_release <= now {
            self.release(r);
        }
    }

    fn end_of_update(&mut self) {
        let sensor = self.store.feed.install(self.now);
        self.lock.release(Occupant::Installer);
        if let (Some(committer), Some(sensor)) = (&mut self.store.committer, sensor) {
            committer.touch(sensor);
        }
    }

    fn end_of_group_commit(&mut self) {
        if let Some(committer) = &mut self.store.committer {
            committer.finish();
        }
        self.lock.release(Occupant::Committer);
    }

    /// Handles timers that are due, and arrivals for an installer that waits for them.
    fn end_intervals(&mut self) {
        if let Some(committer) = &mut self.store.committer
            && committer.next() <= self.now
        {
            committer.tick();
            self.stale = true;
        }
        self.stale |= self.store.feed.has_work() && self.installer_waits();
        self.unpaced |= self.shared.revision() <= self.now;
    }

    /// Handles releases, requests that are complete and waits that are over.
    fn wake(&mut self) {
        if self.next_wake > self.now {
            return;
        }
        for r in 0..self.runners.len() {
            if self.runners[r].wakes() > self.now {
                continue;
            }
            self.stale = true;
            if self.runners[r].held.is_some_and(|until| until <= self.now) {
                self.runners[r].held = None;
            }
            let blocked = self.runners[r].job.as_ref().and_then(ReleasedJob::blocked_until);
            if blocked.is_some_and(|until| until <= self.now) {
                self.io_ended(r);
                self.by_rule(|rule, cores| rule.ready(r, cores));
            }
            if self.runners[r].next_release <= self.now {
                let rested = self.runners[r].job.is_none();
                self.release(r);
                if rested {
                    self.by_rule(|rule, cores| rule.ready(r, cores));
                }
            }
        }
        let next = self.runners.iter().map(Runner::wakes).min();
        self.next_wake = next.unwrap_or(Time::MAX);
    }

    /// Releases a job of this runner now, or skips it.
    fn release(&mut self, r: usize) {
        let (runner, at) = (&mut self.runners[r], self.now);
        self.work_changes += 1;
        let task = runner.task;
        let job = self.released[task.index()];
        let event = match runner.release(job, at) {
            true => SimulationEvent::Released { task, job, at },
            false => SimulationEvent::Skipped { task, at },
        };
        self.released[task.index()] += u64::from(matches!(event, SimulationEvent::Released { .. }));
        self.events.pending.push_back(event);
    }

    /// Sets the clock of all cores, which takes effect after the machine's delay. A setting during the delay replaces
    /// the one before.
    pub(crate) fn retune(&mut self, step: ClockStep) {
        let takes = Nanos::from_secs_f64(self.model.clock_change_us * 1e-6);
        self.clock.change = (step != self.clock.step).then(|| (self.now + takes, step));
        self.turn();
    }

    /// Changes the clock, if the delay is over.
    fn turn(&mut self) {
        if let Some((_, step)) = self.clock.change.take_if(|(at, _)| *at <= self.now) {
            self.unpaced = true;
            self.clock.step = step;
        }
    }

    /// Computes the pace of each core in the present mix, and the power of the machine.
    fn set_paces(&mut self) {
        let activity = self
            .shared
            .pace(&self.model, self.clock.step, &mut self.cores, &self.runners, self.now);
        let watts = self.model.power.watts(self.clock.step, self.cores.len(), activity);
        self.meter.draw(watts, self.now);
        self.track_utilisation();
    }
}

/// Runners with a deadline, by index.
fn urgency(runners: &[Runner]) -> Vec<usize> {
    (0..runners.len()).filter(|r| runners[*r].deadline.is_some()).collect()
}
