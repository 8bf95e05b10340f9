//! The occupants of an exclusive core: what lending it costs here, and lending it between their jobs.

use std::sync::Arc;

use punctual_allocation::exclusive::{LendingCosts, Tenants};
use punctual_platform::Refusal;
use punctual_platform::linux::clock::MonotonicClock;
use punctual_platform::linux::exclusive::ExclusiveCore;
use punctual_platform::linux::sync::PiMutex;
use punctual_platform::linux::thread::{self, Tid};
use punctual_units::{Clock, Nanos, Time};
use serde::Serialize;

/// Leases on which costs are measured: their 99th percentile is the second worst.
const ROUNDS: usize = 200;
/// How long each of them lasts: several times what handing over takes, so that others come to run.
const LEASE: Nanos = Nanos::from_millis(1);
/// Before the control: the core is idle again.
const PAUSE: Nanos = Nanos::from_micros(200);

/// What lending was measured to cost, from the instant asked for to the end of the call, on the occupant's thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LendingMeasured {
    /// Lending, ascending.
    pub hand_over: Vec<Nanos>,
    /// Waking up at a given instant and taking the core back, ascending.
    pub take_back: Vec<Nanos>,
    /// The no-op control: waking up and taking back what was not lent, ascending.
    pub control: Vec<Nanos>,
}

impl LendingMeasured {
    /// Measures on the calling thread, which is to be pinned to `core` and real-time; takes half a second.
    ///
    /// # Errors
    /// [`Refusal`] where the core is not lent or not given back.
    pub fn measure(core: &ExclusiveCore) -> Result<LendingMeasured, Refusal> {
        let mut measured = LendingMeasured::default();
        for _ in 0..ROUNDS {
            let began = MonotonicClock.now();
            core.lend()?;
            let lent = MonotonicClock.now();
            measured.hand_over.push(lent.since(began));
            let from = |asked: Time| -> Result<Nanos, Refusal> {
                MonotonicClock.sleep_until(asked);
                core.take_back()?;
                Ok(MonotonicClock.now().since(asked))
            };
            measured.take_back.push(from(lent + LEASE)?);
            measured.control.push(from(MonotonicClock.now() + PAUSE)?);
        }
        measured.sort();
        Ok(measured)
    }

    /// Puts the figures in order.
    fn sort(&mut self) {
        for figures in [&mut self.hand_over, &mut self.take_back, &mut self.control] {
            figures.sort_unstable();
        }
    }

    /// The figures of several measurements together.
    pub fn merged<'m>(all: impl IntoIterator<Item = &'m LendingMeasured>) -> LendingMeasured {
        let mut merged = LendingMeasured::default();
        for one in all {
            merged.hand_over.extend(&one.hand_over);
            merged.take_back.extend(&one.take_back);
            merged.control.extend(&one.control);
        }
        merged.sort();
        merged
    }

    /// What the policy decides by: 99th percentiles.
    pub fn costs(&self) -> LendingCosts {
        LendingCosts {
            hand_over: quantile(&self.hand_over, 0.99),
            take_back: quantile(&self.take_back, 0.99),
        }
    }

    /// What taking back costs above the control, at the 99th percentile.
    pub fn take_back_above_control(&self) -> Nanos {
        quantile(&self.take_back, 0.99).saturating_sub(quantile(&self.control, 0.99))
    }
}

/// By nearest rank, of figures in ascending order; zero of none.
pub fn quantile(sorted: &[Nanos], q: f64) -> Nanos {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(Nanos::ZERO)
}

/// A place on an exclusive core that is lent while none of its occupants has a job.
#[derive(Debug)]
pub struct Tenancy {
    home: Arc<Home>,
    me: usize,
    alone: bool,
}

/// What the occupants of a core share. Whoever is about to work passes the lock first, so nobody works while another lends.
#[derive(Debug)]
struct Home {
    core: ExclusiveCore,
    ledger: PiMutex<Ledger>,
}

#[derive(Debug)]
struct Ledger {
    tenants: Tenants,
    /// When the lease began.
    since: Time,
    lent: Nanos,
    /// Why nothing is lent any more.
    refused: Option<Refusal>,
}

impl Tenancy {
    /// Lends `core` at these costs, for its only occupant.
    pub fn new(core: ExclusiveCore, costs: LendingCosts) -> Tenancy {
        Tenancy {
            me: 0,
            alone: true,
            home: Arc::new(Home::new(core, costs, 1)),
        }
    }

    /// Likewise for so many occupants; each of them is to wait by its own.
    pub fn shared(core: ExclusiveCore, costs: LendingCosts, occupants: usize) -> Vec<Tenancy> {
        let home = Arc::new(Home::new(core, costs, occupants));
        let place = |me| Tenancy {
            me,
            alone: occupants == 1,
            home: Arc::clone(&home),
        };
        (0..occupants).map(place).collect()
    }

    /// Sleeps until `release` with `sleep`, which says whether to go on; the core is lent meanwhile where the policy says so.
    pub fn wait(&mut self, release: Time, mut sleep: impl FnMut(Time) -> bool) -> bool {
        let Home { core, ledger } = &*self.home;
        let call = {
            let mut ledger = ledger.lock();
            ledger.leave(core, self.me, release);
            // Another one's job may end, and lend, before this one's release.
            let call = ledger.tenants.is_lent() || !self.alone;
            call.then(|| ledger.tenants.call_at(release))
        };
        let going_on = call.is_none_or(&mut sleep);
        ledger.lock().call(core, self.me);
        going_on && sleep(release)
    }

    /// For how long the core was lent so far.
    pub fn lent(&self) -> Nanos {
        self.home.ledger.lock().lent
    }
}

impl Drop for Tenancy {
    fn drop(&mut self) {
        let Home { core, ledger } = &*self.home;
        ledger.lock().end(core, self.me);
    }
}

impl Home {
    fn new(core: ExclusiveCore, costs: LendingCosts, occupants: usize) -> Home {
        let ledger = Ledger {
            tenants: Tenants::new(occupants, costs),
            since: Time::ZERO,
            lent: Nanos::ZERO,
            refused: None,
        };
        Home {
            core,
            ledger: PiMutex::new(ledger),
        }
    }
}

impl Ledger {
    fn leave(&mut self, core: &ExclusiveCore, who: usize, release: Time) {
        if self.refused.is_some() {
            return;
        }
        let now = MonotonicClock.now();
        if self.tenants.leave(who, release, now) {
            self.lend(core, now);
        }
    }

    fn end(&mut self, core: &ExclusiveCore, who: usize) {
        let now = MonotonicClock.now();
        if self.tenants.end(who, now) && self.refused.is_none() {
            self.lend(core, now);
        }
    }

    fn lend(&mut self, core: &ExclusiveCore, now: Time) {
        self.since = now;
        self.refused = core.lend().err();
    }

    fn call(&mut self, core: &ExclusiveCore, who: usize) {
        if self.tenants.call(who) {
            self.lent += MonotonicClock.now().since(self.since);
            let taken = core.take_back();
            self.refused = self.refused.take().or(taken.err());
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

/// Measures what lending `core` costs, on a thread of its own that occupies it at `priority`.
///
/// # Errors
/// [`Refusal`] where that thread cannot be had or placed, or the core cannot be lent.
pub fn measure_lending(core: &ExclusiveCore, priority: u8) -> Result<LendingMeasured, Refusal> {
    let measuring = || occupy(core, priority).and_then(|()| LendingMeasured::measure(core));
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("lending".into())
            .spawn_scoped(scope, measuring);
        let thread = thread.map_err(|why| Refusal {
            what: "measuring what lending a core costs".into(),
            why: why.to_string(),
            remedy: "raise the limit on threads (ulimit -u)".into(),
        })?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_99th_percentiles_and_what_is_above_the_control_is_told() {
        let upto = |n: u64| (1..=n).map(Nanos).collect::<Vec<_>>();
        let measured = LendingMeasured {
            hand_over: upto(100),
            take_back: upto(200),
            control: upto(10),
        };
        assert_eq!(measured.costs().hand_over, Nanos(99));
        assert_eq!(measured.costs().take_back, Nanos(198));
        assert_eq!(measured.take_back_above_control(), Nanos(188));
        let twice = LendingMeasured::merged([&measured, &measured]);
        assert_eq!((twice.take_back.len(), twice.costs()), (400, measured.costs()));
        assert!(twice.take_back.is_sorted());
        assert_eq!(quantile(&[], 0.5), Nanos::ZERO);
    }
}
