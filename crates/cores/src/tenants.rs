//! The tasks of one exclusive core, and when that core is lent between their jobs.
//!
//! The core is free while no task has a job: it is lent until the earliest of their next releases, less the time to
//! take it back ([`LendingCosts::lease_end`]). A task that is released takes the core back before it works, whichever
//! task lent it.

use punctual_units::Time;
use serde::{Deserialize, Serialize};

use super::LendingCosts;

/// State of one task of the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tenant {
    /// The task has a job, or has not reported yet.
    Working,
    /// The next job is released at this instant.
    Away(Time),
    /// The task has no more jobs.
    Gone,
}

/// Report of a task of the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TenantEvent {
    /// The task has nothing to do until its next release.
    Leaves {
        release: Time,
        /// Costs of lending as learned lately.
        costs: LendingCosts,
    },
    /// The task is about to work.
    Called,
    /// The task has no more jobs.
    Ended,
    /// Whether further leases are of use: borrowers used the last ones, or lending is tried again.
    Useful(bool),
}

/// The tasks of one core.
#[derive(Clone, Debug)]
pub struct Tenants {
    tenants: Vec<Tenant>,
    costs: LendingCosts,
    useful: bool,
    lent: bool,
}

impl Tenants {
    /// Starts with `tenants` tasks that have not reported a release yet; lending costs `costs`.
    pub fn new(tenants: usize, costs: LendingCosts) -> Tenants {
        Tenants {
            tenants: vec![Tenant::Working; tenants],
            costs,
            useful: true,
            lent: false,
        }
    }

    /// Handles the report of task `tenant` at `now`. Returns whether the core changes hands: whether to lend it now or,
    /// where the task is called, whether to take it back first.
    ///
    /// ```
    /// use punctual_cores::{LendingCosts, TenantEvent, Tenants};
    /// use punctual_units::{Nanos, Time};
    /// let costs = LendingCosts { hand_over: Nanos(10), take_back: Nanos(20) };
    /// let away = |release| TenantEvent::Leaves { release: Time(release), costs };
    /// let mut tenants = Tenants::new(2, costs);
    /// assert!(!tenants.step(0, away(900), Time(100)), "the other one may be at work");
    /// assert!(tenants.step(1, away(500), Time(200)));
    /// assert_eq!(tenants.call_at(Time(500)), Time(480));
    /// assert!(tenants.step(1, TenantEvent::Called, Time(480)), "it is to be taken back");
    /// assert!(!tenants.step(0, TenantEvent::Called, Time(880)), "it has been");
    /// ```
    pub fn step(&mut self, tenant: usize, event: TenantEvent, now: Time) -> bool {
        match event {
            TenantEvent::Leaves { release, costs } => {
                self.costs = costs;
                self.leave(tenant, release, now)
            }
            TenantEvent::Called => self.call(tenant),
            TenantEvent::Ended => self.end(tenant, now),
            TenantEvent::Useful(useful) => {
                self.useful = useful;
                false
            }
        }
    }

    /// Notes that task `tenant` has nothing to do from `now` to `release`. Returns whether to lend the core now.
    fn leave(&mut self, tenant: usize, release: Time, now: Time) -> bool {
        self.set(tenant, Tenant::Away(release));
        self.lend_if_free(now)
    }

    /// When a task that is released at `release` has to begin to take the core back, to have it by then.
    pub fn call_at(&self, release: Time) -> Time {
        release - self.costs.take_back
    }

    /// Notes that task `tenant` is about to work. Returns whether to take the core back first.
    fn call(&mut self, tenant: usize) -> bool {
        self.set(tenant, Tenant::Working);
        std::mem::take(&mut self.lent)
    }

    /// Notes that task `tenant` has no more jobs. Returns whether to lend the core now, because others have jobs to
    /// come.
    fn end(&mut self, tenant: usize, now: Time) -> bool {
        self.set(tenant, Tenant::Gone);
        self.lend_if_free(now)
    }

    /// Whether the core is lent.
    pub fn is_lent(&self) -> bool {
        self.lent
    }

    /// Whether no task has a job and the core is still not lent: the time was too short, or leases are of no use.
    pub fn is_kept_idle(&self) -> bool {
        !self.lent && !self.tenants.contains(&Tenant::Working)
    }

    fn lend_if_free(&mut self, now: Time) -> bool {
        let free = self.useful && self.is_kept_idle();
        let pays = |release| self.costs.lease_end(now, release).is_some();
        self.lent |= free && self.next_release().is_some_and(pays);
        free && self.lent
    }

    fn set(&mut self, tenant: usize, does: Tenant) {
        if let Some(tenant) = self.tenants.get_mut(tenant) {
            *tenant = does;
        }
    }

    fn next_release(&self) -> Option<Time> {
        let releases = self.tenants.iter().filter_map(|tenant| match tenant {
            Tenant::Away(release) => Some(*release),
            Tenant::Working | Tenant::Gone => None,
        });
        releases.min()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_units::Nanos;

    use super::*;

    /// A task: when its jobs are released, and what each takes.
    type Jobs = Vec<(u64, u64)>;

    /// Plays `tasks` on one core, the first of the list first, unit by unit. Returns, for each unit, whether a job was
    /// at work or due, and whether the core was lent.
    fn played(tasks: &[Jobs], costs: LendingCosts, until: u64) -> Vec<(bool, bool)> {
        let mut tenants = Tenants::new(tasks.len(), costs);
        let mut next = vec![0; tasks.len()]; // the job that is next or at work
        let mut left: Vec<Option<u64>> = vec![None; tasks.len()]; // of the job at work
        let mut called = vec![false; tasks.len()];
        let away = |tenants: &mut Tenants, task: usize, job: usize, now: u64| match tasks[task].get(job) {
            Some((release, _)) => drop(tenants.leave(task, Time(*release), Time(now))),
            None => drop(tenants.end(task, Time(now))),
        };
        (0..tasks.len()).for_each(|task| away(&mut tenants, task, 0, 0));
        (0..until)
            .map(|now| {
                for (task, jobs) in tasks.iter().enumerate() {
                    let Some((release, work)) = jobs.get(next[task]) else {
                        continue;
                    };
                    if left[task].is_none() && !called[task] && tenants.call_at(Time(*release)) <= Time(now) {
                        tenants.call(task);
                        called[task] = true;
                    }
                    if left[task].is_none() && *release <= now {
                        left[task] = Some(*work);
                    }
                }
                let working = left.iter().position(Option::is_some);
                let seen = (working.is_some(), tenants.is_lent());
                if let Some(task) = working {
                    left[task] = left[task].map(|work| work - 1).filter(|work| *work > 0);
                    if left[task].is_none() {
                        next[task] += 1;
                        called[task] = false;
                        away(&mut tenants, task, next[task], now + 1);
                    }
                }
                seen
            })
            .collect()
    }

    fn jobs() -> impl Strategy<Value = Jobs> {
        prop::collection::vec((1u64..40, 1u64..8), 0..6).prop_map(|gaps| {
            let mut at = 0;
            let release = |(gap, work): (u64, u64)| {
                at += gap;
                (at, work)
            };
            gaps.into_iter().map(release).collect()
        })
    }

    proptest! {
        #[test]
        fn a_lent_core_has_no_job_and_is_back_in_time(
            tasks in prop::collection::vec(jobs(), 1..4),
            hand_over in 0u64..5,
            take_back in 0u64..5,
        ) {
            let costs = LendingCosts { hand_over: Nanos(hand_over), take_back: Nanos(take_back) };
            let played = played(&tasks, costs, 400);
            for (now, (working, lent)) in played.iter().enumerate() {
                prop_assert!(!(*working && *lent), "lent beside a job at {}", now);
                let soon =
                    tasks.iter().flatten().any(|(release, _)| (now as u64..now as u64 + take_back).contains(release));
                prop_assert!(!(*lent && soon), "lent at {}, within what taking back costs before a release", now);
            }
        }

        /// Of tasks with work to come, the core is lent whenever it is idle for long enough.
        #[test]
        fn an_idle_core_is_lent(
            tasks in prop::collection::vec(jobs(), 1..4),
            hand_over in 0u64..5,
            take_back in 0u64..5,
        ) {
            let costs = LendingCosts { hand_over: Nanos(hand_over), take_back: Nanos(take_back) };
            let played = played(&tasks, costs, 400);
            let last = tasks.iter().flatten().map(|(release, _)| *release).max().unwrap_or(0);
            let mut began = 0;
            for (now, (working, lent)) in played.iter().enumerate() {
                let now = now as u64;
                if *working {
                    began = now + 1;
                    continue;
                }
                let next = tasks.iter().flatten().map(|(release, _)| *release).filter(|release| *release > now).min();
                if let Some(next) = next.filter(|_| now < last) {
                    let worth_it = next > began + hand_over + take_back && next > now + take_back;
                    prop_assert_eq!(*lent, worth_it, "at {}, idle since {}, next release {}", now, began, next);
                }
            }
        }
    }
}
