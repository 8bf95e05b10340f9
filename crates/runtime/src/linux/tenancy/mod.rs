//! The occupants of an exclusive core: lending it between their jobs, and statistics of lending.
//!
//! **When the kernel refuses.** A core that could not be lent, or taken back, is not lent again: its state on this
//! machine is no longer known. Taking back is tried again, a few times at once and then before every job; until it
//! succeeds the jobs run beside other threads. The report has both, with the kernel's answer and the number of such
//! jobs.

mod measured;
mod observer;

use std::sync::Arc;

use punctual_cores::{LearntCosts, TenantEvent, Tenants, Usage};
use punctual_loop::{DeciderEvent, DeciderSetup, EventLog};
use punctual_os::LinuxOs;
use punctual_os::linux::sync::PiMutex;
use punctual_platform::Refusal;
use punctual_platform::linux::exclusive::ExclusiveCore;
use punctual_platform::linux::thread::{self, Tid};
use punctual_units::{Clock, CoreId, Nanos, Share, Time};

use crate::report::{LendingReport, Quantiles};

pub use self::measured::{LendingMeasured, measure_lending, quantile};
pub use self::observer::Observer;

/// Attempts to take a core back at once: a write that is refused for a passing reason (`EBUSY`) is not refused twice.
const TRIES: u32 = 3;
/// Number of leases, from the first, whose time for taking back is kept; a movie has fewer.
const TOLD: usize = 4096;

/// Greatest number of logged decisions about a core: 10 minutes of 50 jobs a second, each lent and taken back.
const LOGGED_MAX: usize = 1 << 16;

/// An occupant's lease of an exclusive core, which is lent while no occupant has a job.
#[derive(Debug)]
pub struct Tenancy {
    home: Arc<Home>,
    me: usize,
    alone: bool,
}

/// Statistics of lending one core.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Total time for which the core was lent.
    pub lent: Nanos,
    /// Part of the lent time in which the use of the core was observed.
    pub watched: Nanos,
    /// Least part of the observed time in which the core ran something.
    pub used: Nanos,
    /// Number of times that the core was lent.
    pub leases: u64,
    /// Times for taking the core back, from the instant asked for; of the first 4096 leases.
    pub take_back: Vec<Nanos>,
    /// Number of leases that ended after the release for which the core was called back.
    pub late: u64,
    /// First refusal of the kernel, if any.
    pub refused: Option<Refusal>,
    /// Number of releases at which the core was not given back in time: their jobs run beside other threads.
    pub beside: u64,
}

impl Account {
    /// Least share of the lent time in which the core ran something; `None` if it was not observed.
    pub fn used_share(&self) -> Option<Share> {
        (self.watched > Nanos::ZERO).then(|| Share::clamped(self.used.ratio(self.watched)))
    }
}

/// State shared by the occupants of a core. An occupant that is about to work takes the lock first, so none works while
/// another lends.
#[derive(Debug)]
struct Home {
    core: ExclusiveCore,
    ledger: PiMutex<Ledger>,
}

#[derive(Debug)]
struct Ledger {
    tenants: Tenants,
    costs: LearntCosts,
    usage: Usage,
    useful: bool,
    /// Total time lent and total time idle, at the last observation.
    looked: Option<(Nanos, Nanos)>,
    lease: Option<CurrentLease>,
    /// Whether the kernel has failed to give the core back.
    astray: bool,
    account: Account,
    /// When the latest decision was taken.
    asked: Time,
    /// Decisions so far, as many as there is room for: none if no log is kept.
    log: EventLog,
}

/// The current lease of the core.
#[derive(Clone, Copy, Debug)]
struct CurrentLease {
    since: Time,
    /// Time that lending took.
    hand_over: Nanos,
}

impl Tenancy {
    /// Lease for the only occupant of `core`, at these costs.
    pub fn new(core: ExclusiveCore, costs: LearntCosts) -> Tenancy {
        Tenancy {
            me: 0,
            alone: true,
            home: Arc::new(Home::new(core, costs, 1)),
        }
    }

    /// Leases for several occupants; each occupant must wait through its own.
    pub fn shared(core: ExclusiveCore, costs: LearntCosts, occupants: usize) -> Vec<Tenancy> {
        let home = Arc::new(Home::new(core, costs, occupants));
        let place = |me| Tenancy {
            me,
            alone: occupants == 1,
            home: Arc::clone(&home),
        };
        (0..occupants).map(place).collect()
    }

    /// Calls `sleep` until `release`; meanwhile the core is lent if the policy says so. `sleep` returns whether to
    /// continue.
    pub fn wait(&mut self, release: Time, mut sleep: impl FnMut(Time) -> bool) -> bool {
        let Home { core, ledger } = &*self.home;
        let call = {
            let mut ledger = ledger.lock();
            ledger.leave(core, self.me, release);
            // Another occupant's job may end, and lend the core, before this release.
            let call = ledger.tenants.is_lent() || ledger.astray || !self.alone;
            call.then(|| ledger.tenants.call_at(release))
        };
        let going_on = call.is_none_or(&mut sleep);
        ledger.lock().call(core, self.me, call, release);
        going_on && sleep(release)
    }

    /// Reader of the core's lending statistics, valid also after its occupants have ended.
    pub fn accountant(&self) -> Accountant {
        Accountant(Arc::clone(&self.home))
    }
}

impl Drop for Tenancy {
    fn drop(&mut self) {
        let Home { core, ledger } = &*self.home;
        ledger.lock().end(core, self.me);
    }
}

/// Reads the lending statistics of a core.
#[derive(Clone, Debug)]
pub struct Accountant(Arc<Home>);

impl Accountant {
    /// Number of the core that is lent.
    pub fn core(&self) -> CoreId {
        self.0.core.obtained().core
    }

    /// Records an observation of the core: its idle time is `idle`, measured from a fixed instant.
    pub fn observe(&self, idle: Nanos, now: Time) {
        self.0.ledger.lock().observe(idle, now);
    }

    /// Copy of the statistics so far.
    pub fn account(&self) -> Account {
        self.0.ledger.lock().account.clone()
    }

    /// Begins a log. Its memory is allocated at once, because no job may wait for memory.
    pub fn record(&self) {
        self.0.ledger.lock().log.reserve(LOGGED_MAX);
    }

    /// The decisions since [`record`](Self::record).
    pub fn log(&self) -> EventLog {
        self.0.ledger.lock().log.clone()
    }

    /// Statistics of lending, for the report.
    pub fn report(&self) -> LendingReport {
        let account = self.account();
        let us = |q| quantile(&account.take_back, q).as_micros_f64();
        LendingReport {
            core: self.core(),
            leases: account.leases,
            lent_s: account.lent.as_secs_f64(),
            used_share: account.used_share().map(Share::get),
            take_back_us: (!account.take_back.is_empty()).then(|| Quantiles {
                p50: us(0.5),
                p99: us(0.99),
                max: us(1.0),
            }),
            late: account.late,
        }
    }

    /// Problems with lending as text; `None` if there were none.
    pub fn trouble(&self) -> Option<String> {
        let Account { refused, beside, .. } = self.account();
        let core = self.0.core.obtained().core;
        let beside = match beside {
            0 => String::new(),
            releases => format!("; at {releases} releases it had not come back, and jobs ran beside other threads"),
        };
        refused.map(|refusal| format!("core {core} was not lent to the end: {refusal}{beside}"))
    }
}

impl Home {
    fn new(core: ExclusiveCore, costs: LearntCosts, occupants: usize) -> Home {
        let at_first = costs.costs();
        let ledger = Ledger {
            tenants: Tenants::new(occupants, at_first),
            log: EventLog::of(
                DeciderSetup::Lending {
                    core: core.obtained().core,
                    tenants: occupants,
                    costs: at_first,
                },
                0,
            ),
            asked: Time::ZERO,
            costs,
            usage: Usage::default(),
            useful: true,
            looked: None,
            lease: None,
            astray: false,
            account: Account {
                take_back: Vec::with_capacity(TOLD),
                ..Account::default()
            },
        };
        Home {
            core,
            ledger: PiMutex::new(ledger),
        }
    }
}

impl Ledger {
    /// Once lending was refused, no occupant leaves the core any more.
    fn leave(&mut self, core: &ExclusiveCore, tenant: usize, release: Time) {
        if self.account.refused.is_some() || !core.lendable() {
            return;
        }
        let costs = self.costs.costs();
        let now = LinuxOs.now();
        if self.step(tenant, TenantEvent::Leaves { release, costs }, now) {
            self.lend(core, now);
        } else if self.useful && self.tenants.is_kept_idle() {
            self.costs.kept();
        }
    }

    /// Records that the core has been idle for `idle` in total. Whether it was used while lent decides on the next
    /// leases.
    fn observe(&mut self, idle: Nanos, now: Time) {
        let lent = self.account.lent + self.lease.map_or(Nanos::ZERO, |lease| now.since(lease.since));
        let Some((lent_before, idle_before)) = self.looked.replace((lent, idle)) else {
            return;
        };
        let (lent, idle) = (lent.saturating_sub(lent_before), idle.saturating_sub(idle_before));
        self.account.watched += lent;
        self.account.used += lent.saturating_sub(idle);
        let useful = self.usage.step(lent, idle);
        if useful != self.useful {
            self.useful = useful;
            self.step(0, TenantEvent::Useful(useful), now);
        }
    }

    /// Decides, and logs the decision if there is room.
    fn step(&mut self, tenant: usize, event: TenantEvent, now: Time) -> bool {
        // An observer reads its clock before it waits for the lock.
        self.asked = self.asked.max(now);
        let answer = self.tenants.step(tenant, event, self.asked);
        self.log.note(self.asked, DeciderEvent::Lending(tenant, event), answer);
        answer
    }

    fn end(&mut self, core: &ExclusiveCore, tenant: usize) {
        let now = LinuxOs.now();
        if core.lendable() && self.step(tenant, TenantEvent::Ended, now) && self.account.refused.is_none() {
            self.lend(core, now);
        }
    }

    fn lend(&mut self, core: &ExclusiveCore, now: Time) {
        match core.lend() {
            Ok(()) => {
                let since = LinuxOs.now();
                self.account.leases += 1;
                self.lease = Some(CurrentLease {
                    since,
                    hand_over: since.since(now),
                });
            }
            // Lending may have been half done: the core is taken back as if it were lent.
            Err(refusal) => {
                self.account.refused.get_or_insert(refusal);
                self.astray = true;
            }
        }
    }

    /// `tenant` is about to work at `release`, and had asked to be woken at `asked`.
    fn call(&mut self, core: &ExclusiveCore, tenant: usize, asked: Option<Time>, release: Time) {
        let lease = match self.step(tenant, TenantEvent::Called, LinuxOs.now()) {
            true => self.lease.take(),
            false => None,
        };
        if lease.is_none() && !self.astray {
            return;
        }
        let began = LinuxOs.now();
        self.take_back(core);
        let back = LinuxOs.now();
        let Some(lease) = lease else { return };
        // An interrupted sleep ends before the instant asked for.
        let took = back.since(asked.unwrap_or(began).min(began));
        self.account.lent += began.since(lease.since);
        self.account.late += u64::from(back > release);
        if self.account.take_back.len() < TOLD {
            self.account.take_back.push(took);
        }
        self.costs.lent(lease.hand_over, took);
    }

    fn take_back(&mut self, core: &ExclusiveCore) {
        let mut answer = core.take_back();
        for _ in 1..TRIES {
            if let Err(refusal) = answer {
                self.account.refused.get_or_insert(refusal);
                answer = core.take_back();
            }
        }
        self.astray = answer.is_err();
        self.account.beside += u64::from(self.astray);
        if let Err(refusal) = answer {
            self.account.refused.get_or_insert(refusal);
        }
    }
}

/// Makes the calling thread an occupant of `core`, pins it there, and gives it the real-time `priority`.
///
/// # Errors
/// [`Refusal`] if one of the three is not granted.
pub fn occupy(core: &ExclusiveCore, priority: u8) -> Result<(), Refusal> {
    core.enter(Tid::current())?;
    thread::pin(core.obtained().core)?;
    thread::real_time(priority)
}

#[cfg(test)]
mod tests;
