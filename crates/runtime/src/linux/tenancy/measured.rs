//! Measures the cost of lending a core, before it is needed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use punctual_cores::LearntCosts;
use punctual_os::LinuxOs;
use punctual_platform::Refusal;
use punctual_platform::linux::exclusive::ExclusiveCore;
use punctual_platform::linux::thread::{self, Tid};
use punctual_units::{Clock, CoreId, Nanos, Share, Time, percentile};
use serde::Serialize;

use super::occupy;

/// Number of measured leases, and of recent leases that count while a core is in use: by nearest rank their 99th
/// percentile is the third longest.
const ROUNDS: usize = 200;
/// Quantile of the costs that the policy expects; a slower lease is late only by the difference.
const QUANTILE: f64 = 0.99;
/// Length of a measured lease: several times the time of lending, so that borrowers come to run.
const LEASE: Nanos = Nanos::from_millis(1);
/// Pause before a control measurement, after which the core is idle again.
const PAUSE: Nanos = Nanos::from_micros(200);

/// Measured costs of lending, on the occupant's thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LendingMeasured {
    /// Times from the decision to lend until a borrower ran on the core, in the order of measurement; the length of the
    /// lease if none came. Empty if nothing was lent.
    pub hand_over: Vec<Nanos>,
    /// Times for waking up at a given instant and taking the core back, from that instant to the end of the call, in
    /// the same order.
    pub take_back: Vec<Nanos>,
    /// Times of the no-op control: waking up and taking back a core that was not lent, in the same order.
    pub control: Vec<Nanos>,
}

/// A borrower that never rests, and records when it came to the core.
#[derive(Debug)]
struct Visitor {
    core: CoreId,
    /// Nanoseconds of [`LinuxOs`]; zero before it came.
    came: AtomicU64,
    stop: AtomicBool,
}

impl Visitor {
    /// Spins until it is stopped, on a thread that is a borrower of its core.
    fn visit(&self) {
        while !self.stop.load(Ordering::Acquire) {
            if self.came.load(Ordering::Acquire) == 0 && thread::current_core() == Some(self.core) {
                self.came.store(LinuxOs.now().0, Ordering::Release);
            }
        }
    }

    /// When it came, since the last call.
    fn came(&self) -> Option<Time> {
        Some(Time(self.came.swap(0, Ordering::AcqRel))).filter(|came| *came > Time(0))
    }
}

impl LendingMeasured {
    /// Measures on the calling thread, which must be pinned to `core` and real-time; takes half a second. The core is
    /// lent to `visitor` meanwhile; without a visitor only the control is measured.
    fn measure(core: &ExclusiveCore, visitor: Option<&Visitor>) -> Result<LendingMeasured, Refusal> {
        let mut measured = LendingMeasured::default();
        let from = |asked: Time| -> Result<Nanos, Refusal> {
            LinuxOs.sleep_until(asked);
            core.take_back()?;
            Ok(LinuxOs.now().since(asked))
        };
        for _ in 0..ROUNDS {
            if let Some(visitor) = visitor {
                visitor.came();
                let began = LinuxOs.now();
                core.lend()?;
                measured.take_back.push(from(LinuxOs.now() + LEASE)?);
                let came = visitor.came().map_or(LEASE, |came| came.since(began));
                measured.hand_over.push(came.min(LEASE));
            }
            measured.control.push(from(LinuxOs.now() + PAUSE)?);
        }
        Ok(measured)
    }

    /// Joins the samples of several measurements.
    pub fn merged<'m>(all: impl IntoIterator<Item = &'m LendingMeasured>) -> LendingMeasured {
        let mut merged = LendingMeasured::default();
        for one in all {
            merged.hand_over.extend(&one.hand_over);
            merged.take_back.extend(&one.take_back);
            merged.control.extend(&one.control);
        }
        merged
    }

    /// Costs for the policy: 99th percentiles, of these samples until those of real leases have replaced them.
    pub fn costs(&self) -> LearntCosts {
        LearntCosts::new(&self.hand_over, &self.take_back, Share::clamped(QUANTILE), ROUNDS)
    }

    /// Time for waking up at a given instant, at the 99th percentile: every job pays it.
    pub fn waking(&self) -> Nanos {
        quantile(&self.control, QUANTILE)
    }

    /// Time for taking the core back above the control, at the 99th percentile.
    pub fn take_back_above_control(&self) -> Nanos {
        quantile(&self.take_back, QUANTILE).saturating_sub(self.waking())
    }
}

/// Quantile `q` of samples in any order; zero without samples.
pub fn quantile(figures: &[Nanos], q: f64) -> Nanos {
    percentile(figures.iter().copied(), q).unwrap_or(Nanos::ZERO)
}

/// Measures the cost of lending `core`, on a new thread that occupies it at `priority`; if it will not be `lent`, only
/// the time for waking up on it.
///
/// # Errors
/// [`Refusal`] if the kernel refuses that thread or its core, or the core cannot be lent.
pub fn measure_lending(core: &ExclusiveCore, priority: u8, lent: bool) -> Result<LendingMeasured, Refusal> {
    let visitor = Visitor {
        core: core.obtained().core,
        came: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    let visiting = || {
        let lendee = core.lend_to(Tid::current());
        visitor.visit();
        drop(lendee);
    };
    let measuring = || occupy(core, priority).and_then(|()| LendingMeasured::measure(core, lent.then_some(&visitor)));
    let measured = std::thread::scope(|scope| {
        let named = |name: &str| std::thread::Builder::new().name(name.into());
        let refused = |why: std::io::Error| Refusal {
            what: "measuring what lending a core costs".into(),
            why: why.to_string(),
            remedy: "raise the limit on threads (ulimit -u)".into(),
        };
        if lent {
            named("visitor").spawn_scoped(scope, visiting).map_err(refused)?;
        }
        let measured = named("lending").spawn_scoped(scope, measuring).map_err(refused);
        let measured = measured.map(|thread| thread.join());
        visitor.stop.store(true, Ordering::Release);
        measured?.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    // A measurement that failed half-way may have left the core lent.
    measured.inspect_err(|_| drop(core.take_back()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_99th_percentiles_and_what_is_above_the_control_is_told() {
        let down_from = |n: u64| (1..=n).rev().map(Nanos).collect::<Vec<_>>();
        let measured = LendingMeasured {
            hand_over: down_from(100),
            take_back: down_from(200),
            control: down_from(10),
        };
        let costs = measured.costs().costs();
        assert_eq!((costs.hand_over, costs.take_back), (Nanos(99), Nanos(198)));
        assert_eq!(measured.take_back_above_control(), Nanos(188));
        let twice = LendingMeasured::merged([&measured, &measured]);
        assert_eq!(twice.take_back.len(), 400);
        assert_eq!(twice.take_back_above_control(), measured.take_back_above_control());
        assert_eq!(quantile(&[], 0.5), Nanos::ZERO);
    }
}
