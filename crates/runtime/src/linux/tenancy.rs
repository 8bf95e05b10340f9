//! The occupant of an exclusive core: what lending it costs here, and lending it between two jobs.

use punctual_allocation::exclusive::{Lease, LendingCosts, NextRelease, lend};
use punctual_platform::Refusal;
use punctual_platform::linux::clock::MonotonicClock;
use punctual_platform::linux::exclusive::ExclusiveCore;
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

/// An exclusive core with one occupant.
#[derive(Clone, Debug)]
pub struct Tenancy {
    core: ExclusiveCore,
    costs: LendingCosts,
    lent: Nanos,
    /// Why nothing is lent any more.
    refused: Option<Refusal>,
}

impl Tenancy {
    /// Lends `core` at these costs.
    pub fn new(core: ExclusiveCore, costs: LendingCosts) -> Tenancy {
        Tenancy {
            core,
            costs,
            lent: Nanos::ZERO,
            refused: None,
        }
    }

    /// Sleeps until `release` with `sleep`, which says whether to go on; lends the core meanwhile where the policy says so.
    pub fn wait(&mut self, release: Time, mut sleep: impl FnMut(Time) -> bool) -> bool {
        let began = MonotonicClock.now();
        match lend(began, NextRelease::At(release), self.costs) {
            Lease::Until(end) if self.refused.is_none() => {
                self.note(self.core.lend());
                let going_on = sleep(end);
                self.note(self.core.take_back());
                self.lent += end.since(began);
                going_on && sleep(release)
            }
            _ => sleep(release),
        }
    }

    /// For how long the core was lent so far.
    pub fn lent(&self) -> Nanos {
        self.lent
    }

    fn note(&mut self, result: Result<(), Refusal>) {
        self.refused = self.refused.take().or(result.err());
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
