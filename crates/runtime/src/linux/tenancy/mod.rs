//! The occupants of an exclusive core: lending it between their jobs, and what came of that.
//!
//! **When the kernel refuses.** A core that was not lent, or not given back, is not lent again: what this machine does
//! with it is not known any more. One that was not given back is asked for again, a few times at once and then before
//! every job; until it comes the jobs run beside other threads. The report has both, with the kernel's answer and the
//! number of such jobs.

mod measured;
mod observer;

use std::sync::Arc;

use punctual_cores::{LearntCosts, LendingDecision, LendingLog, TenantEvent, Tenants, Usage};
use punctual_os::LinuxOs;
use punctual_os::linux::sync::PiMutex;
use punctual_platform::Refusal;
use punctual_platform::linux::exclusive::ExclusiveCore;
use punctual_platform::linux::thread::{self, Tid};
use punctual_units::{Clock, CoreId, Nanos, Share, Time};

use crate::report::{LendingReport, Quantiles};

pub use self::measured::{LendingMeasured, measure_lending, quantile};
pub use self::observer::Observer;

/// How often taking back is tried at once: a write that is refused for a passing reason (`EBUSY`) is not so twice.
const TRIES: u32 = 3;
/// The latest leases of which the report has the cost of taking back; a movie has fewer.
const TOLD: usize = 4096;

/// Decisions about a core that a log holds: 10 minutes of 50 jobs a second.
const LOGGED_MAX: usize = 1 << 16;

/// A place on an exclusive core that is lent while none of its occupants has a job.
#[derive(Debug)]
pub struct Tenancy {
    home: Arc<Home>,
    me: usize,
    alone: bool,
}

/// What became of lending one core.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// For how long it was lent.
    pub lent: Nanos,
    /// For how much of it the core was looked at...
    pub watched: Nanos,
    /// ...and ran something in at least so much of that.
    pub used: Nanos,
    /// How often.
    pub leases: u64,
    /// What taking it back took, from the instant asked for; of the first 4096 leases.
    pub take_back: Vec<Nanos>,
    /// Leases that ended after the release for which the core was called back.
    pub late: u64,
    /// What the kernel refused first.
    pub refused: Option<Refusal>,
    /// Releases before which the core was asked for and not given back: their jobs run beside other threads.
    pub beside: u64,
}

impl Account {
    /// The part of the leases in which the core ran something, at least; none where it was not looked at.
    pub fn used_share(&self) -> Option<Share> {
        (self.watched > Nanos::ZERO).then(|| Share::clamped(self.used.ratio(self.watched)))
    }
}

/// What the occupants of a core share. An occupant that is about to work passes the lock first, so none works while
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
    /// What the core was lent and idle in all, at the last look.
    looked: Option<(Nanos, Nanos)>,
    lease: Option<Lent>,
    /// The kernel has not given the core back.
    astray: bool,
    account: Account,
    /// The decisions so far, as many as there is room for: none where no log is kept.
    log: LendingLog,
}

/// The lease that is on.
#[derive(Clone, Copy, Debug)]
struct Lent {
    since: Time,
    /// What handing over took.
    hand_over: Nanos,
}

impl Tenancy {
    /// Lends `core` at these costs, for its only occupant.
    pub fn new(core: ExclusiveCore, costs: LearntCosts) -> Tenancy {
        Tenancy {
            me: 0,
            alone: true,
            home: Arc::new(Home::new(core, costs, 1)),
        }
    }

    /// Likewise for so many occupants; each of them is to wait by its own.
    pub fn shared(core: ExclusiveCore, costs: LearntCosts, occupants: usize) -> Vec<Tenancy> {
        let home = Arc::new(Home::new(core, costs, occupants));
        let place = |me| Tenancy {
            me,
            alone: occupants == 1,
            home: Arc::clone(&home),
        };
        (0..occupants).map(place).collect()
    }

    /// Sleeps until `release` with `sleep`, which says whether to go on; the core is lent meanwhile where the policy
    /// says so.
    pub fn wait(&mut self, release: Time, mut sleep: impl FnMut(Time) -> bool) -> bool {
        let Home { core, ledger } = &*self.home;
        let call = {
            let mut ledger = ledger.lock();
            ledger.leave(core, self.me, release);
            // Another one's job may end, and lend, before this one's release.
            let call = ledger.tenants.is_lent() || ledger.astray || !self.alone;
            call.then(|| ledger.tenants.call_at(release))
        };
        let going_on = call.is_none_or(&mut sleep);
        ledger.lock().call(core, self.me, call, release);
        going_on && sleep(release)
    }

    /// Reads what becomes of lending the core, also once all its occupants are gone.
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

/// Reads what becomes of lending a core.
#[derive(Clone, Debug)]
pub struct Accountant(Arc<Home>);

impl Accountant {
    /// Which core.
    pub fn core(&self) -> CoreId {
        self.0.core.obtained().core
    }

    /// Takes a look at the core: it has been idle for `idle` since any instant that stays the same.
    pub fn observe(&self, idle: Nanos, now: Time) {
        self.0.ledger.lock().observe(idle, now);
    }

    /// So far.
    pub fn account(&self) -> Account {
        self.0.ledger.lock().account.clone()
    }

    /// Keeps a log from now on. The room is taken at once: no job is to wait for memory.
    pub fn record(&self) {
        self.0.ledger.lock().log.decisions.reserve_exact(LOGGED_MAX);
    }

    /// The decisions since [`record`](Self::record).
    pub fn log(&self) -> LendingLog {
        self.0.ledger.lock().log.clone()
    }

    /// What came of it, in figures.
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

    /// What lending cost, in words; nothing where nothing was lent.
    pub fn told(&self) -> Option<String> {
        let account = self.account();
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|q| quantile(&account.take_back, q));
        let core = self.0.core.obtained().core;
        let used = account
            .used_share()
            .map(|used| format!(", {used} of it used"))
            .unwrap_or_default();
        (account.leases > 0).then(|| {
            format!(
                "core {core} lent {} times, {} together{used}; taking it back took {p50}, p99 {p99}, max {max}; {} leases ended after the release",
                account.leases, account.lent, account.late
            )
        })
    }

    /// What is to be said of it; nothing where nothing went wrong.
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
            log: LendingLog {
                core: core.obtained().core,
                tenants: occupants,
                costs: at_first,
                decisions: Vec::new(),
                lost: 0,
            },
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
    /// Once lending was refused no occupant leaves any more: the core stays with its occupants.
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

    /// The core has been idle for `idle` in all. Whether it was used while it was lent decides on the next leases.
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

    /// Decides, and logs the decision where there is room.
    fn step(&mut self, tenant: usize, event: TenantEvent, now: Time) -> bool {
        let answer = self.tenants.step(tenant, event, now);
        let LendingLog { decisions, lost, .. } = &mut self.log;
        if decisions.len() < decisions.capacity() {
            decisions.push(LendingDecision {
                now,
                tenant,
                event,
                answer,
            });
        } else {
            *lost += 1;
        }
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
                self.lease = Some(Lent {
                    since,
                    hand_over: since.since(now),
                });
            }
            // Half of it may have been done: it is taken back like one that was lent.
            Err(refusal) => {
                self.account.refused.get_or_insert(refusal);
                self.astray = true;
            }
        }
    }

    /// `tenant` is about to work at `release` and asked to be woken at `asked`.
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

/// Enters `core` with the calling thread, which is pinned there, at the real-time `priority`.
///
/// # Errors
/// [`Refusal`] where one of the three is not granted.
pub fn occupy(core: &ExclusiveCore, priority: u8) -> Result<(), Refusal> {
    core.enter(Tid::current())?;
    thread::pin(core.obtained().core)?;
    thread::real_time(priority)
}

#[cfg(test)]
mod tests;
