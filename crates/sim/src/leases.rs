//! Exclusive cores that are lent to best-effort jobs.
//!
//! Whether a core is lent is a knob ([`KnobId::Lease`](punctual_platform::KnobId::Lease)): a caller decides, with
//! [`punctual_cores::Tenants`] for the policy of a real machine, and the machine executes. A lent core takes
//! best-effort jobs that are ready while their own core runs something else, in the order of their release. The first
//! job of a lease starts `hand_over` after the lease; when the core is taken back, that job waits for its own core
//! again, and the core is ready for its own tasks after `take_back`.

use punctual_cores::LendingCosts;
use punctual_units::{CoreId, Nanos, Time};

use crate::cores::{CoreActivity, Occupant, Segment};
use crate::engine::Simulation;

/// Simulated costs of lending: about those that `bench movie` and `bench neighbours` print on a virtual machine with
/// two cores (docs/lab/dual.md; handing over at the median, taking back at the 99th percentile).
pub const LENDING_COSTS: LendingCosts = LendingCosts {
    hand_over: Nanos::from_micros(50),
    take_back: Nanos::from_micros(200),
};

/// Lending state of an exclusive core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lease {
    /// Reserved for the core's own tasks.
    #[default]
    Kept,
    /// Lent, but no job was handed over yet.
    Begun,
    /// Lent, and a job was handed over.
    HandedOver,
}

impl Simulation {
    /// Indices of the runners of real-time tasks that are pinned to this core.
    pub fn tenants(&self, core: CoreId) -> Vec<usize> {
        let here = |r: &usize| self.runners[*r].deadline.is_some() && self.runners[*r].core == core.index();
        (0..self.runners.len()).filter(here).collect()
    }

    /// When this runner's next job is released; `None` while it has a job, [`Time::MAX`] if no further job comes.
    pub fn rests_until(&self, runner: usize) -> Option<Time> {
        let runner = &self.runners[runner];
        runner.job.is_none().then_some(runner.next_release)
    }

    /// Lends a core, or takes it back.
    pub(crate) fn turn_lease(&mut self, core: usize, lend: bool) {
        let lent = self.cores[core].lease != Lease::Kept;
        if lent == lend {
            return;
        }
        self.stale = true;
        if lend {
            self.cores[core].lease = Lease::Begun;
            return;
        }
        let own = match self.cores[core].occupant() {
            Some(Occupant::Runner(r)) => self.runners[r].home == core,
            Some(Occupant::TakeBack) => true,
            Some(Occupant::Installer | Occupant::Committer) | None => false,
        };
        if !own {
            self.put_off(core);
        }
        for r in 0..self.runners.len() {
            if self.runners[r].core == core {
                self.go_home(r);
            }
        }
        self.cores[core].lease = Lease::Kept;
        if !own {
            let switch = Segment::lasting(LENDING_COSTS.take_back);
            self.cores[core].start(Occupant::TakeBack, CoreActivity::Switch, switch, self.now);
        }
    }

    /// Moves jobs that wait for their own cores to cores that are lent and idle.
    pub(crate) fn hand_over(&mut self) {
        for core in 0..self.cores.len() {
            if self.cores[core].lease == Lease::Kept || self.cores[core].occupant().is_some() {
                continue;
            }
            let Some(r) = self.first_guest() else { return };
            self.runners[r].core = core;
            match std::mem::replace(&mut self.cores[core].lease, Lease::HandedOver) {
                Lease::Begun => {
                    let switch = Segment::lasting(LENDING_COSTS.hand_over);
                    self.cores[core].start(Occupant::Runner(r), CoreActivity::Switch, switch, self.now);
                }
                Lease::HandedOver | Lease::Kept => self.schedule_core(core),
            }
        }
    }

    /// Of the best-effort jobs that wait on their home core, the one released first.
    fn first_guest(&self) -> Option<usize> {
        let open = self.throttle.open(self.now);
        let waits = |(r, runner): (usize, &crate::runner::Runner)| {
            let job = runner.job.as_ref();
            let job = job.filter(|_| open && runner.deadline.is_none() && !runner.is_called())?;
            let runs = self.cores[runner.core].occupant() == Some(Occupant::Runner(r));
            (runner.core == runner.home && !runs).then_some((job.released, r))
        };
        let first = self.runners.iter().enumerate().filter_map(waits).min();
        first.map(|(_, r)| r)
    }

    /// Returns a job from a lent core to its home core.
    pub(crate) fn go_home(&mut self, r: usize) {
        if !self.sharing.has_rule {
            self.runners[r].core = self.runners[r].home;
        }
    }
}
