//! The simulation: from one event to the next.
//!
//! ```text
//! next event ─► updates arrive ─► segments end ─► timers, releases ─► schedule: who runs where ─► pace: how fast
//!     ▲                                                                                             │
//!     └──────────────────────────── each running segment's end at this pace ◄───────────────────────┘
//! ```
//!
//! Between two events every core works at a constant pace, so nothing needs to be stepped. What the cache holds changes
//! all the time: hit ratios are revised, as an event of its own, whenever so many lines were fetched that they may have
//! changed. All instants are whole nanoseconds; what happens at one instant happens in the order of the picture, cores
//! and runners by number.

use std::collections::VecDeque;

use punctual_platform::{Offers, Parts};
use punctual_store::updates::Updates;
use punctual_units::{Share, Time};
use punctual_workload::{JobProgress, Op, Surge, UpdateMode, checkpoint};

use crate::committer::Committer;
use crate::cores::{Core, Occupant};
use crate::feed::Feed;
use crate::governed::Governed;
use crate::job::Stage;
use crate::load::{Happening, Load, SimulationError, runners};
use crate::machine::offers;
use crate::model::{ClockStep, MachineModel};
use crate::power::EnergyMeter;
use crate::runner::Runner;
use crate::scheduler::Lock;
use crate::throttle::Throttle;
use crate::traffic::Shared;

/// A machine at work, in simulated time. The same load gives the same run, to the last bit, however it is sliced by
/// [`Simulation::run_until`] and however often it is read.
///
/// Tasks run where the load's placement says. On each core real-time and exclusive tasks come first, the shorter deadline before the
/// longer; update transactions run in what they leave on the last real-time core. Best-effort tasks run in the order of their
/// release, below all else. An exclusive core is not lent while it is idle.
///
/// ```
/// use punctual_sim::{Happening, Load, MachineModel, Simulation};
/// use punctual_store::updates::AdmissionOptions;
/// use punctual_units::{Clock, Nanos, Time};
/// use punctual_workload::{Op, Program, SensorStream, Trace, UpdateMode};
/// # use punctual_workload::{Active, Arrival, Class, Demand, Table, TaskSpec};
/// # let spec = TaskSpec {
/// #     name: "analysis".into(), goal: None, per_core: 1, cores: None, core: None, active: Active::ALWAYS, profile: None, class: Class::RealTime { deadline: Nanos::from_millis(50) },
/// #     arrival: Arrival::Periodic { period: Nanos::from_millis(100) },
/// #     demand: Demand { compute: Nanos::from_millis(7), data: Nanos::ZERO, rounds: 1, reads: Table::Sensors, writes: 0 },
/// # };
///
/// let trace = Trace::synthetic(4, Nanos::from_secs(1), Nanos::from_secs(2), Nanos::from_secs(4), 1);
/// let load = Load {
///     tasks: vec![(spec, Program { ops: vec![Op::Compute { cycles: 14_000_000 }] })],
///     placement: None,
///     stream: SensorStream::new(&trace, 1.0, 1),
///     admission: AdmissionOptions::default(),
///     update_mode: UpdateMode::Transaction,
///     group_commit: Nanos::from_millis(50),
///     value_bytes: 64,
///     seed: 1,
/// };
/// let mut machine = Simulation::new(MachineModel::exynos5422_a15(), load)?;
/// let end = Time::ZERO + Nanos::from_secs(1);
/// let mut jobs = 0;
/// loop {
///     match machine.run_until(end) {
///         Happening::Completed(outcome) => {
///             assert_eq!(outcome.response(), Nanos::from_millis(7)); // 14 million cycles at 2 GHz
///             jobs += 1;
///         }
///         Happening::Reached => break,
///         Happening::Released { .. } | Happening::Progressed(_) | Happening::Skipped { .. } => {}
///     }
/// }
/// assert_eq!((jobs, machine.now()), (10, end));
/// # Ok::<(), punctual_sim::SimulationError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Simulation<'t> {
    pub(crate) model: MachineModel,
    pub(crate) offers: Offers,
    pub(crate) now: Time,
    pub(crate) step: ClockStep,
    pub(crate) throttle: Throttle,
    pub(crate) meter: EnergyMeter,
    pub(crate) cores: Vec<Core>,
    pub(crate) runners: Vec<Runner>,
    /// Core of the updates that are transactions of their own.
    pub(crate) update_core: usize,
    /// Core of memory-first updates and of group commits.
    pub(crate) house: usize,
    /// Core that the update on its way began on.
    pub(crate) installer_home: usize,
    /// Real-time runners, the shorter deadline first.
    pub(crate) urgency: Vec<usize>,
    pub(crate) feed: Feed<'t>,
    /// Only in memory-first mode.
    pub(crate) committer: Option<Committer>,
    pub(crate) lock: Lock,
    /// Whether who runs where must be decided again before time passes.
    pub(crate) stale: bool,
    /// Whether how fast they run must be worked out again before time passes.
    pub(crate) unpaced: bool,
    /// Cache and memory.
    pub(crate) shared: Shared,
    /// Who sets the clock while no controller does.
    pub(crate) governed: Option<Governed>,
    /// Jobs released per task.
    released: Vec<u64>,
    /// The earliest next release of all runners.
    next_release: Time,
    /// When real-time jobs have more to do.
    pub(crate) surge: Option<Surge>,
    /// Whether checkpoints are told.
    tells_progress: bool,
    /// What happened at this instant and was not told yet; at most one release and one completion, or checkpoint, per
    /// runner.
    untold: VecDeque<Happening>,
}

impl<'t> Simulation<'t> {
    /// A machine at instant zero, at its highest clock, with nothing installed and nothing running.
    ///
    /// # Errors
    /// [`SimulationError`] names what cannot be simulated.
    pub fn new(model: MachineModel, mut load: Load<'t>) -> Result<Simulation<'t>, SimulationError> {
        model.check()?;
        if let Some((task, _)) = load.tasks.iter().find(|(_, program)| program.ops.is_empty()) {
            let task = task.name.clone();
            return Err(SimulationError::EmptyProgram { task });
        }
        let placement = load.place(model.cores)?;
        let cores = model.cores as usize;
        let runners = runners(&load, &placement);
        let [update_core, house] = [placement.update_core(), placement.house()].map(|core| core.0 as usize);
        let mut urgency: Vec<usize> = (0..runners.len()).filter(|r| runners[*r].deadline.is_some()).collect();
        // On one core by rank; jobs of several cores compare where one waits for another's lock.
        let rank = |r: usize| placement.seats[runners[r].task.index()].chair().map(|chair| chair.rank);
        urgency.sort_by_key(|r| (runners[*r].deadline, rank(*r)));
        let feed = Feed::new(
            load.stream,
            load.admission,
            load.value_bytes,
            load.update_mode,
            &model.store,
        );
        let step = model.top();
        Ok(Simulation {
            offers: offers(&model),
            now: Time::ZERO,
            step,
            throttle: Throttle { share: Share::ONE },
            meter: EnergyMeter::default(),
            cores: vec![Core::new(); cores],
            update_core,
            house,
            installer_home: update_core,
            urgency,
            committer: match load.update_mode {
                UpdateMode::MemoryFirst => Some(Committer::new(load.group_commit, feed.objects())),
                UpdateMode::Transaction => None,
            },
            feed,
            lock: Lock::default(),
            stale: true,
            unpaced: true,
            shared: Shared::new(&model),
            governed: None,
            released: vec![0; load.tasks.len()],
            next_release: Time::ZERO,
            surge: None,
            tells_progress: false,
            untold: VecDeque::with_capacity(2 * runners.len()),
            runners,
            model,
        })
    }

    /// Runs to the first release or completion at or before `until`, or to `until`; the clock then stands there.
    ///
    /// What happens at one instant is told one by one, completions first. An `until` in the past is reached at once.
    pub fn run_until(&mut self, until: Time) -> Happening {
        loop {
            if let Some(happening) = self.untold.pop_front() {
                return happening;
            }
            self.settle();
            let next = self.next_event();
            if next > until {
                self.now = self.now.max(until);
                self.feed.arrive(self.now);
                return Happening::Reached;
            }
            let was_open = self.throttle.open(self.now);
            self.now = next;
            self.stale |= was_open != self.throttle.open(next);
            self.feed.arrive(self.now);
            self.end_segments();
            self.end_intervals();
            self.release();
        }
    }

    /// Lets real-time jobs have more to do for a while.
    pub fn surge(&mut self, surge: Surge) {
        self.surge = Some(surge);
    }

    /// Tells the checkpoints of real-time jobs from now on. The run is the same.
    pub fn tell_progress(&mut self) {
        self.tells_progress = true;
    }

    /// The admission, the queue and the accounts of sensor updates: to turn the admitted share, and to reconcile.
    ///
    /// The simulation offers and installs the updates of its stream; a caller should do neither.
    pub fn updates(&mut self) -> &mut Updates {
        &mut self.feed.updates
    }

    /// Ranks the objects by how often they were read since the last call, for coldest-first shedding; to be called once
    /// per control period.
    pub fn rebalance(&mut self) {
        self.feed.rebalance();
    }

    /// Share of temporal objects whose installed version is fresh now (QoD in the paper).
    pub fn fresh_share(&self) -> Share {
        self.feed.fresh_share(self.now)
    }

    /// Energy drawn by each part of the machine since the start, in joules.
    pub fn energy(&self) -> Parts {
        self.meter.joules(self.now)
    }

    /// Lines that each core holds in the shared cache, as of the latest revision.
    pub fn held_lines(&self) -> Vec<f64> {
        self.shared.held_lines()
    }

    /// Decides who runs where and how fast, if that may have changed.
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

    fn next_event(&self) -> Time {
        let segment = self.cores.iter().map(Core::finish).min().unwrap_or(Time::MAX);
        let commit = self.committer.as_ref().map_or(Time::MAX, Committer::next);
        let mut next = segment.min(commit).min(self.next_release).min(self.shared.revision());
        next = next.min(self.next_sample());
        // While the installer is busy, or cannot run, an arrival changes nothing that the next event does not look up.
        if self.installer_waits() {
            next = next.min(self.feed.next_arrival());
        }
        next.min(self.throttle.next_change(self.now)).max(self.now)
    }

    /// Segments that end now.
    fn end_segments(&mut self) {
        for core in 0..self.cores.len() {
            if self.cores[core].finish() > self.now {
                continue;
            }
            self.stale = true;
            match self.cores[core].stop(self.now) {
                Some((Occupant::Runner(runner), _)) => self.end_of_runner_segment(runner),
                Some((Occupant::Installer, _)) => self.end_of_update(),
                Some((Occupant::Committer, _)) => self.end_of_group_commit(),
                None => {}
            }
        }
    }

    /// A job's segment has ended: its commit follows, its next op, or its completion.
    fn end_of_runner_segment(&mut self, r: usize) {
        let (now, store) = (self.now, self.model.store);
        let runner = &mut self.runners[r];
        let Some(job) = &mut runner.job else { return };
        let op = runner.program[job.op];
        if let (Stage::Access, Op::Put { .. }) = (job.stage, op) {
            job.work(Stage::Commit, store.commit, now);
            return;
        }
        job.enter(Stage::Between, now);
        job.op += 1;
        let complete = job.op == runner.program.len();
        if let (true, Some(deadline)) = (self.tells_progress, runner.deadline)
            && let Some((done, of)) = checkpoint(job.op, runner.program.len())
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
            self.untold.push_back(Happening::Progressed(progress));
        }
        self.lock.release(Occupant::Runner(r));
        if complete && let Some(job) = runner.retire(now) {
            let outcome = job.outcome(runner.task, runner.deadline);
            self.untold.push_back(Happening::Completed(outcome));
            self.next_release = self.next_release.min(runner.next_release);
        }
    }

    fn end_of_update(&mut self) {
        let sensor = self.feed.install();
        self.lock.release(Occupant::Installer);
        if let (Some(committer), Some(sensor)) = (&mut self.committer, sensor) {
            committer.touch(sensor);
        }
    }

    fn end_of_group_commit(&mut self) {
        if let Some(committer) = &mut self.committer {
            committer.finish();
        }
        self.lock.release(Occupant::Committer);
    }

    /// Timers that are due, and arrivals for an installer that waits for them.
    fn end_intervals(&mut self) {
        if let Some(committer) = &mut self.committer
            && committer.next() <= self.now
        {
            committer.tick();
            self.stale = true;
        }
        self.stale |= self.feed.has_work() && self.installer_waits();
        self.unpaced |= self.shared.revision() <= self.now;
    }

    fn release(&mut self) {
        if self.next_release > self.now {
            return;
        }
        for runner in &mut self.runners {
            if runner.next_release > self.now {
                continue;
            }
            self.stale = true;
            let (task, at) = (runner.task, self.now);
            let job = self.released[task.index()];
            let happening = match runner.release(job, at) {
                true => Happening::Released { task, job, at },
                false => Happening::Skipped { task, at },
            };
            self.released[task.index()] += u64::from(matches!(happening, Happening::Released { .. }));
            self.untold.push_back(happening);
        }
        let next = self.runners.iter().map(|runner| runner.next_release).min();
        self.next_release = next.unwrap_or(Time::MAX);
    }

    /// Sets the clock of all cores.
    pub(crate) fn retune(&mut self, step: ClockStep) {
        self.unpaced |= step != self.step;
        self.step = step;
    }

    /// How fast each core works in the present mix, and what the machine draws.
    fn set_paces(&mut self) {
        self.stretch_stalled();
        let activity = self
            .shared
            .pace(&self.model, self.step, &mut self.cores, &self.runners, self.now);
        let watts = self.model.power.watts(self.step, self.cores.len(), activity);
        self.meter.draw(watts, self.now);
        self.track_utilisation();
    }
}
