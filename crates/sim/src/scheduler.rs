//! Scheduling on each core: fixed priorities, preemption, and the one write lock.
//!
//! Each task is on the core where the placement put it. On a core real-time jobs come first, the shorter deadline
//! before the longer (deadline-monotonic priorities; Leung and Whitehead 1982). Update transactions run in the time
//! left on the last real-time core; memory-first updates and their group commits on the runtime's own core. Best-effort
//! work is last.
//!
//! **Updates and jobs.** A store transaction sees every update that was admitted before it began. So in transaction
//! mode a real-time job that begins a transaction first installs the waiting updates, on its own time: that is part of
//! its data time.
//!
//! **The lock.** One write transaction at a time. A job that finds the lock taken by work of its own core runs that
//! work first (priority inheritance). If a job or an update of another real-time core has the lock, the job waits, and
//! the holder runs there as urgently as the job that waits; a group commit on another core gets no boost. Both waits
//! are the job's lock time.

use punctual_cores::Completion;
use punctual_units::Time;
use punctual_workload::Op;

use crate::cores::{CoreActivity, Occupant, Segment};
use crate::device::PageRequest;
use crate::engine::Simulation;
use crate::job::{JobStage, ReleasedJob, effort_of};
use crate::model::Effort;
use crate::runner::Runner;
use crate::task::{Dispatch, Step};
use crate::waits::{Blocker, Other};

/// The store's one write lock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lock {
    holder: Option<Occupant>,
}

impl Lock {
    fn take(&mut self, holder: Occupant) {
        debug_assert!(
            self.holder.is_none_or(|other| other == holder),
            "{:?} for {holder:?}",
            self.holder
        );
        self.holder = Some(holder);
    }

    /// Releases the lock, if `holder` has it.
    pub fn release(&mut self, holder: Occupant) {
        if self.holder == Some(holder) {
            self.holder = None;
        }
    }
}

impl Simulation {
    /// Whether updates are transactions of their own, and take the lock.
    fn transaction_mode(&self) -> bool {
        self.store.committer.is_none()
    }

    fn installer_core(&self) -> usize {
        if self.transaction_mode() {
            self.store.update_core
        } else {
            self.store.house
        }
    }

    /// Whether the installer's core has no work that comes before an update: then an update that arrives starts at
    /// once.
    pub(crate) fn installer_waits(&self) -> bool {
        match self.cores[self.installer_core()].occupant() {
            Some(Occupant::Installer) => false,
            Some(Occupant::Runner(runner)) => self.runners[runner].deadline.is_none(),
            Some(Occupant::Committer | Occupant::TakeBack) | None => true,
        }
    }

    /// Puts on every core the job that should run there now.
    pub(crate) fn schedule(&mut self) {
        if self.by_rule(|rule, cores| rule.schedule(cores)).is_none() {
            self.schedule_cores();
            self.hand_over();
        }
        self.serve();
    }

    fn schedule_cores(&mut self) {
        (0..self.cores.len()).for_each(|core| self.schedule_core(core));
        // A job may have begun to wait for the lock after the holder's core was scheduled. Each such wait may lead to
        // another.
        for _ in 0..self.urgency.len() {
            if !self.inherits_late() {
                return;
            }
            (0..self.cores.len()).for_each(|core| self.schedule_core(core));
        }
    }

    /// Whether a core does not run the holder of the lock although a more urgent job of another core waits for it.
    fn inherits_late(&mut self) -> bool {
        (0..self.cores.len()).any(|core| {
            let boosted = self.boosted(core, self.urgency.len());
            boosted.is_some_and(|(rank, _)| match self.cores[core].occupant() {
                Some(Occupant::Runner(runner)) => {
                    self.urgency.iter().position(|r| *r == runner).is_none_or(|r| r > rank)
                }
                Some(Occupant::Installer | Occupant::Committer | Occupant::TakeBack) | None => true,
            }) && self.cores[core].occupant() != boosted.map(|(_, holder)| holder)
        })
    }

    /// The holder of the lock, if it is on this core and one of the `most` most urgent jobs waits for it on another
    /// core; and the rank of that job in `urgency`.
    fn boosted(&self, core: usize, most: usize) -> Option<(usize, Occupant)> {
        let waits = |(rank, r): (usize, &usize)| {
            let holder = self.in_the_way(*r).filter(|holder| self.home(*holder) == core)?;
            let elsewhere = self.runners[*r].core != core && holder != Occupant::Committer;
            elsewhere.then_some((rank, holder))
        };
        self.lock.holder?;
        self.urgency[..most].iter().enumerate().find_map(waits)
    }

    /// The core on which this occupant runs, or will continue.
    fn home(&self, occupant: Occupant) -> usize {
        match occupant {
            Occupant::Runner(runner) => self.runners[runner].core,
            Occupant::Installer => self.store.installer_home,
            Occupant::Committer | Occupant::TakeBack => self.store.house,
        }
    }

    /// Puts on this core the job that should run there now.
    pub(crate) fn schedule_core(&mut self, core: usize) {
        if self.cores[core].occupant() == Some(Occupant::TakeBack) {
            return;
        }
        let chosen = self.choose(core);
        if chosen == self.cores[core].occupant() {
            return;
        }
        self.put_off(core);
        if let Some(occupant) = chosen {
            self.start(core, occupant);
        }
    }

    /// Starts the next work of this occupant on an empty core.
    pub(crate) fn start(&mut self, core: usize, occupant: Occupant) {
        if let Some((doing, segment)) = self.segment(core, occupant) {
            self.work_changes += u64::from(occupant.is_store());
            self.cores[core].start(occupant, doing, segment, self.now);
            self.begin_slice(core, occupant);
        }
    }

    /// Takes the occupant off this core, and stores the rest of its work.
    pub(crate) fn put_off(&mut self, core: usize) {
        let doing = self.cores[core].doing();
        if let Some((occupant, left)) = self.clear(core) {
            match doing {
                CoreActivity::Work => self.keep(occupant, left),
                CoreActivity::Fill => self.cores[core].holding.keep_cold(left.left),
                CoreActivity::Switch | CoreActivity::Poll => {}
            }
        }
    }

    /// Updates for every job whether it is served or preempted from now on, and which other work keeps it waiting.
    fn serve(&mut self) {
        for r in 0..self.runners.len() {
            let runner = &self.runners[r];
            let core = &self.cores[runner.core];
            let runs = core.occupant() == Some(Occupant::Runner(r)) && core.doing() != CoreActivity::Switch;
            let holder = self.in_the_way(r);
            let waits_elsewhere = holder.is_some_and(|holder| self.home(holder) != runner.core);
            let served = runs || self.urged[runner.core] == Some(r) || waits_elsewhere;
            let kept = match (runner.deadline, &runner.job) {
                (Some(_), Some(job)) if !matches!(job.stage, JobStage::Blocked { .. }) => match served {
                    true => holder.map(|holder| (self.other(holder), self.keeps_lock(holder))),
                    // While the core switches to its own thread, no other work keeps the job waiting.
                    false => core
                        .occupant()
                        .filter(|occupant| *occupant != Occupant::Runner(r))
                        .map(|occupant| (self.other(occupant), Blocker::Core)),
                },
                _ => None,
            };
            let runner = &mut self.runners[r];
            runner.waits.kept(kept, self.now);
            if let Some(job) = &mut runner.job {
                job.serve(served, self.now);
            }
        }
    }

    fn other(&self, occupant: Occupant) -> Other {
        match occupant {
            Occupant::Runner(r) => Other::Task(self.runners[r].task),
            Occupant::Installer => Other::Update,
            Occupant::Committer => Other::GroupCommit,
            Occupant::TakeBack => Other::TakeBack,
        }
    }

    fn keeps_lock(&self, holder: Occupant) -> Blocker {
        let commits = match holder {
            Occupant::Runner(r) => self.runners[r]
                .job
                .as_ref()
                .is_some_and(|job| job.stage == JobStage::Commit),
            Occupant::Committer => true,
            Occupant::Installer | Occupant::TakeBack => false,
        };
        if commits { Blocker::Commit } else { Blocker::Lock }
    }

    /// Takes the occupant off this core, and books the time that it worked.
    pub(crate) fn clear(&mut self, core: usize) -> Option<(Occupant, Segment)> {
        let occupant = self.cores[core].occupant();
        self.work_changes += u64::from(occupant.is_some_and(Occupant::is_store));
        if let Some(Occupant::Runner(r)) = occupant {
            let worked = self.works_since(r);
            self.runners[r].worked += worked;
        }
        self.cores[core].stop(self.now)
    }

    /// Chooses the work for this core; jobs that can progress may enter new stages on the way.
    fn choose(&mut self, core: usize) -> Option<Occupant> {
        match self.scheduling {
            Dispatch::FixedPriority => self.by_priority(core),
            Dispatch::EarliestDeadline => self.by_deadline(core),
        }
    }

    /// The job of this core with the earliest deadline, if it can progress. Ties: the running job, then the earliest
    /// release.
    fn by_deadline(&mut self, core: usize) -> Option<Occupant> {
        let runs = self.cores[core].occupant();
        let order = |r: &usize| {
            let runner = &self.runners[*r];
            let job = runner.job.as_ref()?;
            Some((self.due(*r), runs != Some(Occupant::Runner(*r)), job.released, *r))
        };
        let here = (0..self.runners.len()).filter(|r| self.runners[*r].core == core);
        let first = here.filter_map(|r| order(&r)).min();
        first.and_then(|(.., r)| self.urge(r))
    }

    /// Real-time jobs first, then updates and group commits, then best-effort jobs.
    fn by_priority(&mut self, core: usize) -> Option<Occupant> {
        self.urged[core] = None;
        for i in 0..self.urgency.len() {
            let runner = self.urgency[i];
            let own = self.runners[runner].core == core;
            let first = match own {
                true => self.urge(runner),
                false => self.boosted(core, i + 1).map(|(_, holder)| holder),
            };
            if first.is_some() {
                self.urged[core] = own.then_some(runner);
                return first;
            }
        }
        if core == self.installer_core() && self.store.feed.has_work() && self.may_install(core) {
            return Some(Occupant::Installer);
        }
        if core == self.store.house && self.may_commit() {
            return Some(Occupant::Committer);
        }
        self.first_come(core)
    }

    /// Whether an update in progress belongs to this core, or a new one may begin.
    fn may_install(&self, core: usize) -> bool {
        match self.store.feed.busy() {
            true => self.store.installer_home == core,
            false => !self.transaction_mode() || self.lock.holder.is_none(),
        }
    }

    /// Whether a group commit is in progress, or may begin.
    fn may_commit(&self) -> bool {
        let Some(committer) = &self.store.committer else {
            return false;
        };
        committer.busy() || (committer.has_work() && self.lock.holder.is_none())
    }

    /// Urgent called work of this core, or else the best-effort job that was released first, or has waited longest for
    /// its turn; other called work, too. While the share of best-effort work is used up, only called work.
    fn first_come(&mut self, core: usize) -> Option<Occupant> {
        let open = self.throttle.open(self.now);
        let here = self
            .runners
            .iter()
            .enumerate()
            .filter(|(_, r)| r.core == core && r.deadline.is_none() && (open || r.is_called()));
        let turn = |runner: &Runner| Some(runner.job.as_ref()?.released.max(runner.turn));
        let waiting = here.filter_map(|(i, runner)| Some((!runner.urgent, turn(runner)?, i)));
        let (.., runner) = waiting.min()?;
        self.begin_step(runner);
        Some(Occupant::Runner(runner))
    }

    /// The occupant that must run for this real-time runner's job to progress; `None` without a job, or if the job
    /// waits for another core.
    pub(crate) fn urge(&mut self, r: usize) -> Option<Occupant> {
        loop {
            self.begin_step(r);
            let now = self.now;
            match self.runners[r].job?.stage {
                JobStage::Blocked { .. } => return None,
                JobStage::Polling { done, .. } if done <= now => self.io_ended(r),
                JobStage::Polling { until, done } if until <= now => {
                    self.runners[r].job.as_mut()?.enter(JobStage::Blocked { done }, now);
                    self.next_wake = self.next_wake.min(done);
                }
                // Without this, an empty step would take a nanosecond.
                JobStage::Compute if self.sharing.has_rule && self.computes_nothing(r) => self.step_ended(r),
                JobStage::Lock { through } => match self.in_the_way(r) {
                    Some(holder) => return (self.home(holder) == self.runners[r].core).then_some(holder),
                    None => self.runners[r]
                        .job
                        .as_mut()?
                        .enter(JobStage::Help { through }, self.now),
                },
                // Between two updates a job of another core may have taken the lock.
                JobStage::Help { through } if self.overtaken(r, through) => {
                    self.runners[r]
                        .job
                        .as_mut()?
                        .enter(JobStage::Lock { through }, self.now);
                }
                JobStage::Help { through } if self.helps(r, through) => return Some(Occupant::Installer),
                JobStage::Help { .. } => self.access(r),
                JobStage::Waiting
                | JobStage::Between
                | JobStage::Compute
                | JobStage::Fill
                | JobStage::Access
                | JobStage::Commit
                | JobStage::Polling { .. } => {
                    return Some(Occupant::Runner(r));
                }
            }
        }
    }

    /// Another holder of the lock that this job needs for its op, or for the updates that it has to see.
    fn in_the_way(&self, r: usize) -> Option<Occupant> {
        let holder = self.lock.holder.filter(|holder| *holder != Occupant::Runner(r))?;
        let job = self.runners[r].job?;
        let JobStage::Lock { through } = job.stage else {
            return None;
        };
        self.needs_lock(r, &job, through).then_some(holder)
    }

    /// Whether a job that installs updates finds the lock held by another core.
    fn overtaken(&self, r: usize, through: u64) -> bool {
        let (Some(holder), Some(job)) = (self.lock.holder, self.runners[r].job) else {
            return false;
        };
        holder != Occupant::Runner(r) && self.home(holder) != self.runners[r].core && self.needs_lock(r, &job, through)
    }

    /// Whether the job's op writes, or may have to install updates first.
    fn needs_lock(&self, r: usize, job: &ReleasedJob, through: u64) -> bool {
        let writes = matches!(self.runners[r].steps()[job.op], Step::Op(Op::Put { .. }));
        writes || self.now <= self.due(r) && !self.store.feed.installed_through(through)
    }

    /// Whether the job installs another update before its op.
    fn helps(&mut self, r: usize, through: u64) -> bool {
        self.store.feed.helps(through, self.due(r), self.now)
    }

    fn computes_nothing(&self, r: usize) -> bool {
        let nothing = |job: &ReleasedJob| job.segment.effort == Effort::default();
        self.runners[r].job.as_ref().is_some_and(nothing)
    }

    /// Factor on the work of this runner's job during a surge; 1 outside of surges.
    fn surge_of(&self, r: usize, job: &ReleasedJob) -> f64 {
        let surge = self.surge.filter(|_| self.runners[r].deadline.is_some());
        surge.map_or(1.0, |surge| surge.factor_at(job.released.since(Time::ZERO)))
    }

    /// The present step of a runner's job, with the surge included.
    fn step_of(&self, r: usize, job: &ReleasedJob) -> Step {
        match self.runners[r].steps()[job.op] {
            Step::Op(op) => Step::Op(op.times(self.surge_of(r, job))),
            step @ (Step::Phase(_) | Step::Io { .. }) => step,
        }
    }

    /// Begins the job's next step, if it is between two; completes the job after its last one.
    fn begin_step(&mut self, r: usize) {
        let Some(job) = self.runners[r].job else { return };
        if !matches!(job.stage, JobStage::Waiting | JobStage::Between) {
            return;
        }
        if job.op == self.runners[r].steps().len() {
            self.complete(r);
            return self.begin_step(r);
        }
        let (stage, effort) = self.beginning(r, &job);
        if let Some(job) = &mut self.runners[r].job {
            job.work(stage, effort, self.now);
        }
    }

    /// First stage of the job's next step, and the work of that stage.
    fn beginning(&mut self, r: usize, job: &ReleasedJob) -> (JobStage, Effort) {
        if let Step::Io { device, request } = self.runners[r].steps()[job.op] {
            return (self.ask(r, device, request), Effort::default());
        }
        let runner = &self.runners[r];
        match self.step_of(r, job) {
            Step::Op(op @ Op::Compute { .. }) => (JobStage::Compute, effort_of(op, &self.model.store)),
            Step::Op(op) if runner.deadline.is_none() => (JobStage::Access, effort_of(op, &self.model.store)),
            Step::Op(_) => {
                let through = if self.transaction_mode() {
                    self.store.feed.tail()
                } else {
                    0
                };
                (JobStage::Lock { through }, Effort::default())
            }
            Step::Phase(phase) => {
                let effort = self.phase_effort(runner.program, phase);
                (JobStage::Compute, effort * self.surge_of(r, job))
            }
            Step::Io { .. } => (JobStage::Between, Effort::default()),
        }
    }

    /// Submits a request to a device and returns the stage of the wait: as the load says
    /// ([`waits`](crate::TaskWorkload::waits)) for a job that is pinned to its core, blocked for others.
    fn ask(&mut self, r: usize, device: usize, request: PageRequest) -> JobStage {
        let done = self.io.devices[device].submit(request, self.now);
        self.io.begun += 1;
        let decided = self.io.waits.get(device).filter(|_| self.runners[r].pinned);
        let until = match decided.copied().unwrap_or(Completion::Block) {
            Completion::Poll => done,
            Completion::SpinThenBlock(spin) => done.min(self.now + spin),
            Completion::Block => {
                self.next_wake = self.next_wake.min(done);
                return JobStage::Blocked { done };
            }
        };
        JobStage::Polling { until, done }
    }

    /// Ends the request of this runner's job.
    pub(crate) fn io_ended(&mut self, r: usize) {
        self.io.ended += 1;
        if let Some(job) = &mut self.runners[r].job {
            job.io_ended(self.now);
        }
    }

    /// Begins the store access of a real-time job that has installed the updates.
    fn access(&mut self, r: usize) {
        let Some(Step::Op(op)) = self.runners[r].job.as_ref().map(|job| self.step_of(r, job)) else {
            return;
        };
        let runner = &mut self.runners[r];
        let Some(job) = &mut runner.job else { return };
        match op {
            Op::Get {
                table: punctual_workload::ObjectSet::Sensors,
                count,
            } => self.store.feed.read(count, &mut runner.reads),
            Op::Put { .. } => self.lock.take(Occupant::Runner(r)),
            Op::Get { .. } | Op::Compute { .. } => {}
        }
        job.work(JobStage::Access, effort_of(op, &self.model.store), self.now);
    }

    /// Next activity of this core for this occupant, and its segment.
    fn segment(&mut self, core: usize, occupant: Occupant) -> Option<(CoreActivity, Segment)> {
        let segment = match occupant {
            Occupant::Runner(r) => return self.job_segment(core, r),
            Occupant::Installer => {
                self.store.installer_home = core;
                if self.transaction_mode() {
                    self.lock.take(Occupant::Installer);
                }
                self.store.feed.segment()
            }
            Occupant::Committer => {
                self.lock.take(Occupant::Committer);
                let store = &self.model.store;
                self.store.committer.as_mut().map(|committer| committer.segment(store))
            }
            Occupant::TakeBack => None,
        };
        segment.map(|segment| (CoreActivity::Work, segment))
    }

    /// Next activity of this core for a runner's job: its step, once the ways that the step runs on are filled.
    fn job_segment(&mut self, core: usize, r: usize) -> Option<(CoreActivity, Segment)> {
        let (holding, now) = (self.cores[core].holding, self.now);
        let surge = self.runners[r].job.map_or(1.0, |job| self.surge_of(r, &job));
        let runner = &mut self.runners[r];
        let step = runner.job.as_ref().and_then(|job| runner.steps().get(job.op).copied());
        let job = runner.job.as_mut()?;
        if let JobStage::Polling { until, .. } = job.stage {
            return Some((CoreActivity::Poll, Segment::lasting(until.since(now))));
        }
        let (Some(program), Some(Step::Phase(phase)), Some(split)) = (runner.program, step, &self.split) else {
            return Some((CoreActivity::Work, job.segment));
        };
        if let Some(fill) = split.fill(holding) {
            job.enter(JobStage::Fill, now);
            return Some((CoreActivity::Fill, fill));
        }
        job.enter(JobStage::Compute, now);
        job.segment.fixed_ns = split.waits_ns(program, phase, holding) * surge;
        Some((CoreActivity::Work, job.segment))
    }

    /// Stores the rest of a preempted segment.
    fn keep(&mut self, occupant: Occupant, left: Segment) {
        match (occupant, &mut self.store.committer) {
            (Occupant::Runner(r), _) => {
                if let Some(job) = &mut self.runners[r].job {
                    job.segment = left;
                }
            }
            (Occupant::Installer, _) => self.store.feed.keep(left),
            (Occupant::Committer, Some(committer)) => committer.keep(left),
            (Occupant::Committer, None) | (Occupant::TakeBack, _) => {}
        }
    }
}
