//! Who runs where: fixed priorities, preemption, and the one write lock.
//!
//! Each task is on the core where the placement put it. On a core real-time jobs come first, the shorter deadline before the
//! longer (deadline-monotonic priorities; Leung and Whitehead 1982); on the last real-time core update transactions run in what
//! they leave, on the runtime's own core memory-first updates and their group commits; best-effort work is last.
//!
//! **Updates and jobs.** A store transaction sees every update that was admitted before it began. So in transaction mode a
//! real-time job that begins one first installs what waits, on its own time: that is part of its data time.
//!
//! **The lock.** One write transaction at a time. A job that finds the lock taken by work of its own core runs that work first
//! (priority inheritance). Where a job or an update of another real-time core has it, the job waits, and the holder runs there
//! as urgently as the job that waits; a group commit on another core is waited for as it is. Both are the job's lock time.

use punctual_units::Time;
use punctual_workload::Op;

use crate::cores::{Occupant, Segment};
use crate::engine::Simulation;
use crate::job::{Job, Stage, effort_of};

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

    /// Gives the lock back, if it is this one's.
    pub fn release(&mut self, holder: Occupant) {
        if self.holder == Some(holder) {
            self.holder = None;
        }
    }
}

impl Simulation<'_> {
    /// Whether updates are transactions of their own, and take the lock.
    fn transaction_mode(&self) -> bool {
        self.committer.is_none()
    }

    fn installer_core(&self) -> usize {
        if self.transaction_mode() {
            self.update_core
        } else {
            self.house
        }
    }

    /// Whether the installer's core has nothing to do that comes before an update: then one that arrives starts at once.
    pub(crate) fn installer_waits(&self) -> bool {
        match self.cores[self.installer_core()].occupant() {
            Some(Occupant::Installer) => false,
            Some(Occupant::Runner(runner)) => self.runners[runner].deadline.is_none(),
            Some(Occupant::Committer) | None => true,
        }
    }

    /// Puts on every core who is to run there now.
    pub(crate) fn schedule(&mut self) {
        self.schedule_once();
        // A job may have begun to wait for the lock after the holder's core was looked at. Each such wait may lead to one more.
        for _ in 0..self.urgency.len() {
            if !self.inherits_late() {
                return;
            }
            self.schedule_once();
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
                Some(Occupant::Installer | Occupant::Committer) | None => true,
            }) && self.cores[core].occupant() != boosted.map(|(_, holder)| holder)
        })
    }

    /// The holder of the lock, if it is on this core and one of the `most` most urgent jobs waits for it on another core; and
    /// how many jobs are more urgent than that one.
    fn boosted(&self, core: usize, most: usize) -> Option<(usize, Occupant)> {
        let waits = |(rank, r): (usize, &usize)| {
            let holder = self.in_the_way(*r).filter(|holder| self.home(*holder) == core)?;
            let elsewhere = self.runners[*r].core != core && holder != Occupant::Committer;
            elsewhere.then_some((rank, holder))
        };
        self.lock.holder?;
        self.urgency[..most].iter().enumerate().find_map(waits)
    }

    /// The core on which this occupant runs, or goes on.
    fn home(&self, occupant: Occupant) -> usize {
        match occupant {
            Occupant::Runner(runner) => self.runners[runner].core,
            Occupant::Installer => self.installer_home,
            Occupant::Committer => self.house,
        }
    }

    fn schedule_once(&mut self) {
        for core in 0..self.cores.len() {
            let chosen = self.choose(core);
            if chosen == self.cores[core].occupant() {
                continue;
            }
            if let Some((occupant, left)) = self.cores[core].stop(self.now) {
                self.keep(occupant, left);
            }
            if let Some(occupant) = chosen
                && let Some(segment) = self.segment(core, occupant)
            {
                self.cores[core].start(occupant, segment, self.now);
            }
        }
    }

    /// Who is to run on this core; the stages of jobs that get ahead by it move on.
    fn choose(&mut self, core: usize) -> Option<Occupant> {
        for i in 0..self.urgency.len() {
            let runner = self.urgency[i];
            let first = match self.runners[runner].core == core {
                true => self.urge(runner),
                false => self.boosted(core, i + 1).map(|(_, holder)| holder),
            };
            if first.is_some() {
                return first;
            }
        }
        if core == self.installer_core() && self.feed.has_work() && self.may_install(core) {
            return Some(Occupant::Installer);
        }
        if core == self.house && self.may_commit() {
            return Some(Occupant::Committer);
        }
        self.throttle.open(self.now).then(|| self.first_come(core)).flatten()
    }

    /// An update goes on, or may begin, on this core.
    fn may_install(&self, core: usize) -> bool {
        match self.feed.busy() {
            true => self.installer_home == core,
            false => !self.transaction_mode() || self.lock.holder.is_none(),
        }
    }

    /// A group commit goes on, or may begin.
    fn may_commit(&self) -> bool {
        let Some(committer) = &self.committer else { return false };
        committer.busy() || (committer.has_work() && self.lock.holder.is_none())
    }

    /// The best-effort job of this core that was released first.
    fn first_come(&mut self, core: usize) -> Option<Occupant> {
        let here = self
            .runners
            .iter()
            .enumerate()
            .filter(|(_, r)| r.core == core && r.deadline.is_none());
        let waiting = here.filter_map(|(i, runner)| Some((runner.job.as_ref()?.released, i)));
        let (_, runner) = waiting.min()?;
        self.begin_op(runner);
        Some(Occupant::Runner(runner))
    }

    /// Who must run for this real-time runner's job to get ahead; none without a job, or if it waits for another core.
    fn urge(&mut self, r: usize) -> Option<Occupant> {
        self.runners[r].job?;
        self.begin_op(r);
        loop {
            match self.runners[r].job?.stage {
                Stage::Lock { through } => match self.in_the_way(r) {
                    Some(holder) => return (self.home(holder) == self.runners[r].core).then_some(holder),
                    None => self.runners[r].job.as_mut()?.enter(Stage::Help { through }, self.now),
                },
                // Between two updates a job of another core may have taken the lock.
                Stage::Help { through } if self.overtaken(r, through) => {
                    self.runners[r].job.as_mut()?.enter(Stage::Lock { through }, self.now);
                }
                Stage::Help { through } if !self.feed.installed_through(through) => return Some(Occupant::Installer),
                Stage::Help { .. } => self.access(r),
                Stage::Waiting | Stage::Between | Stage::Compute | Stage::Access | Stage::Commit => {
                    return Some(Occupant::Runner(r));
                }
            }
        }
    }

    /// Who holds the lock that this job needs for its op, or for the updates that it has to see.
    fn in_the_way(&self, r: usize) -> Option<Occupant> {
        let holder = self.lock.holder.filter(|holder| *holder != Occupant::Runner(r))?;
        let job = self.runners[r].job?;
        let Stage::Lock { through } = job.stage else {
            return None;
        };
        self.needs_lock(r, &job, through).then_some(holder)
    }

    /// Whether a job that helps finds the lock in the hands of another core.
    fn overtaken(&self, r: usize, through: u64) -> bool {
        let (Some(holder), Some(job)) = (self.lock.holder, self.runners[r].job) else {
            return false;
        };
        holder != Occupant::Runner(r) && self.home(holder) != self.runners[r].core && self.needs_lock(r, &job, through)
    }

    /// Whether the job's op writes, or has to install updates first.
    fn needs_lock(&self, r: usize, job: &Job, through: u64) -> bool {
        let writes = matches!(self.runners[r].program[job.op], Op::Put { .. });
        writes || !self.feed.installed_through(through)
    }

    /// The op that the job of a runner is at, with all that it has to do.
    fn op_of(&self, r: usize, job: &Job) -> Op {
        let runner = &self.runners[r];
        let surge = self.surge.filter(|_| runner.deadline.is_some());
        let factor = surge.map_or(1.0, |surge| surge.factor_at(job.released.since(Time::ZERO)));
        runner.program[job.op].times(factor)
    }

    /// Begins the job's next op, if it is between two.
    fn begin_op(&mut self, r: usize) {
        let Some(op) = self.runners[r].job.as_ref().map(|job| self.op_of(r, job)) else {
            return;
        };
        let runner = &mut self.runners[r];
        let Some(job) = &mut runner.job else { return };
        if !matches!(job.stage, Stage::Waiting | Stage::Between) {
            return;
        }
        let effort = effort_of(op, &self.model.store);
        match op {
            Op::Compute { .. } => job.work(Stage::Compute, effort, self.now),
            Op::Get { .. } | Op::Put { .. } if runner.deadline.is_none() => job.work(Stage::Access, effort, self.now),
            Op::Get { .. } | Op::Put { .. } => {
                let through = if self.committer.is_none() { self.feed.tail() } else { 0 };
                job.enter(Stage::Lock { through }, self.now);
            }
        }
    }

    /// Lets a real-time job, which has seen to the updates, into the store.
    fn access(&mut self, r: usize) {
        let Some(op) = self.runners[r].job.as_ref().map(|job| self.op_of(r, job)) else {
            return;
        };
        let runner = &mut self.runners[r];
        let Some(job) = &mut runner.job else { return };
        match op {
            Op::Get {
                table: punctual_workload::Table::Sensors,
                count,
            } => self.feed.read(count, &mut runner.reads),
            Op::Put { .. } => self.lock.take(Occupant::Runner(r)),
            Op::Get { .. } | Op::Compute { .. } => {}
        }
        job.work(Stage::Access, effort_of(op, &self.model.store), self.now);
    }

    /// What this occupant has to do next.
    fn segment(&mut self, core: usize, occupant: Occupant) -> Option<Segment> {
        match occupant {
            Occupant::Runner(r) => self.runners[r].job.as_ref().map(|job| job.segment),
            Occupant::Installer => {
                self.installer_home = core;
                if self.transaction_mode() {
                    self.lock.take(Occupant::Installer);
                }
                self.feed.segment()
            }
            Occupant::Committer => {
                self.lock.take(Occupant::Committer);
                let store = &self.model.store;
                self.committer.as_mut().map(|committer| committer.segment(store))
            }
        }
    }

    /// Keeps what is left of a preempted segment.
    fn keep(&mut self, occupant: Occupant, left: Segment) {
        match (occupant, &mut self.committer) {
            (Occupant::Runner(r), _) => {
                if let Some(job) = &mut self.runners[r].job {
                    job.segment = left;
                }
            }
            (Occupant::Installer, _) => self.feed.keep(left),
            (Occupant::Committer, Some(committer)) => committer.keep(left),
            (Occupant::Committer, None) => {}
        }
    }
}
