//! The machine as the runtime sees it: offers, settings, readings.

use std::fmt;

use punctual_os::Refusal;
use punctual_units::{Clock, CoreId, Hertz, Nanos, Time};
use serde::{Deserialize, Serialize};

use crate::{Applied, DomainId, KnobId, Plan};

/// A device on which work runs, with knobs, meters and a clock.
///
/// The runtime alone holds a machine; policies see only [`Offers`] and [`Readings`].
pub trait Machine: Clock {
    /// The knobs and meters of this machine. Constant while the machine is held.
    fn offers(&self) -> &Offers;

    /// Turns the knobs that `plan` names, and reports the value obtained for each: the nearest one that the machine
    /// has, within its range. A knob that does not exist, or that the machine does not turn, is refused and keeps its
    /// value; the others are still turned.
    fn apply(&mut self, plan: &Plan) -> Applied;

    /// Reads every meter once. A meter that fails reports that as its reading; the others are still read.
    fn read(&mut self) -> Readings;

    /// Restores every knob to its original value, and returns the failures. Idempotent; also done when the machine is
    /// dropped.
    fn restore(&mut self) -> Vec<Refusal>;
}

punctual_units::named! {
    /// How real a knob or a figure is. Printed beside every number that depends on it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Provenance by name {
        /// The hardware or the kernel provides it.
        Real = "real",
        /// Real extra work stands in for it.
        Emulated = "emulated",
        /// Exists in a model only.
        Simulated = "simulated",
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The knobs and meters of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offers {
    /// The machine's name for people, e.g. the CPU model.
    pub machine: String,
    /// Cores that work may be placed on, ascending.
    pub cores: Vec<CoreId>,
    /// The available knobs, each once.
    pub knobs: Vec<KnobOffer>,
    /// The available optional meters, each once: energy, temperature, clocks of domains.
    #[serde(default)]
    pub meters: Vec<(MeterId, Provenance)>,
    /// Cores of each clock domain that has a knob of its own, beginning with [`DomainId`] 1; empty if all cores share
    /// one clock, or none can be set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<Vec<CoreId>>,
}

/// A knob that a machine has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnobOffer {
    /// Id under which plans name the knob.
    pub knob: KnobId,
    /// Values that the knob can take.
    pub range: Range,
}

/// The values that a knob can take, and its provenance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Range {
    /// A step of a clock. Frequencies between steps are rounded.
    Clock(ClockOffer),
    /// Any share from 0 to 1.
    Share(Provenance),
    /// Adjacent cache ways, out of this number; cores share no way.
    Ways(u8, Provenance),
    /// 1 up to this number of partitions; all cores together have no more.
    Parts(u8, Provenance),
    /// A core is lent or kept.
    Lent(Provenance),
    /// Any number of items from the first bound to the second.
    Items(u64, u64, Provenance),
}

impl Range {
    /// Provenance of the knob, whatever its kind.
    pub fn provenance(&self) -> Provenance {
        match self {
            Range::Clock(clock) => clock.provenance,
            Range::Share(provenance)
            | Range::Ways(_, provenance)
            | Range::Parts(_, provenance)
            | Range::Lent(provenance)
            | Range::Items(_, _, provenance) => *provenance,
        }
    }
}

/// For people: `200 MHz to 2.00 GHz in 19 steps`, `0 to 1`.
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Range::Clock(clock) => {
                let steps = clock.steps.len();
                write!(f, "{} to {} in {steps} steps", clock.bottom(), clock.top())
            }
            Range::Share(_) => f.write_str("0 to 1"),
            Range::Ways(ways, _) => write!(f, "of {ways} ways"),
            Range::Parts(parts, _) => write!(f, "1 to {parts}"),
            Range::Lent(_) => f.write_str("lent or kept"),
            Range::Items(least, most, _) => write!(f, "{least} to {most} items"),
        }
    }
}

impl Offers {
    /// The range of `knob`; `None` if the machine has no such knob.
    pub fn range(&self, knob: KnobId) -> Option<&Range> {
        let offer = self.knobs.iter().find(|offer| offer.knob == knob)?;
        Some(&offer.range)
    }

    /// Leaves out the dear steps of its clocks ([`ClockOffer::economical`]).
    #[must_use]
    pub fn economical(mut self) -> Offers {
        for offer in &mut self.knobs {
            if let Range::Clock(clock) = &mut offer.range {
                *clock = clock.economical();
            }
        }
        self
    }

    /// Whether the machine has `meter`.
    pub fn reads(&self, meter: MeterId) -> bool {
        self.meters.iter().any(|(other, _)| *other == meter)
    }

    /// The clock knob of the domain that `core` is in; that of all cores if domains have none of their own.
    pub fn clock_of(&self, core: CoreId) -> Option<KnobId> {
        let domain = self.domains.iter().position(|cores| cores.contains(&core));
        let knob = domain.map_or(KnobId::CLOCK, |domain| KnobId::Clock(DomainId(domain as u8 + 1)));
        self.range(knob).map(|_| knob)
    }

    /// The steps of the clock of all cores together (as on the A15 cluster of the paper); `None` without such a knob.
    pub fn clock(&self) -> Option<&ClockOffer> {
        match self.range(KnobId::CLOCK)? {
            Range::Clock(clock) => Some(clock),
            Range::Share(_) | Range::Ways(..) | Range::Parts(..) | Range::Lent(_) | Range::Items(..) => None,
        }
    }
}

/// The steps of a clock knob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffer {
    /// The possible frequencies, ascending; at least one.
    pub steps: Vec<Hertz>,
    /// Power of the machine at each step while one core is busy, in microwatts; empty where it is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub microwatts: Vec<u32>,
    /// Time until a change of the clock is in force; 0 where it is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub change: Nanos,
    /// Provenance of the clock knob.
    pub provenance: Provenance,
}

fn is_zero(time: &Nanos) -> bool {
    *time == Nanos::ZERO
}

/// Distance above the line between two other steps from which a step is dear: figures of power are rounded.
const DEARER: f64 = 1.001;

impl ClockOffer {
    /// A clock of these steps, ascending and at least one, whose power is not known.
    pub fn new(steps: Vec<Hertz>, provenance: Provenance) -> ClockOffer {
        ClockOffer {
            steps,
            microwatts: Vec::new(),
            change: Nanos::ZERO,
            provenance,
        }
    }

    /// The clock without its dear steps: those above the lower hull of power over frequency. A mean of two other steps
    /// does the same work in the same time for less. All steps where power is not known.
    #[must_use]
    pub fn economical(&self) -> ClockOffer {
        let count = self.steps.len().min(self.microwatts.len());
        let at = |i: usize| (self.steps[i].0 as f64, f64::from(self.microwatts[i]));
        let is_above = |i: usize, j: usize, k: usize| {
            let ((below, cheap), (here, watts), (above, dear)) = (at(i), at(j), at(k));
            watts > DEARER * (cheap + (dear - cheap) * (here - below) / (above - below))
        };
        let is_dear = |j: usize| (0..j.min(count)).any(|i| (j + 1..count).any(|k| is_above(i, j, k)));
        let kept = |i: &usize| !is_dear(*i);
        ClockOffer {
            steps: (0..self.steps.len()).filter(kept).map(|i| self.steps[i]).collect(),
            microwatts: (0..count).filter(kept).map(|i| self.microwatts[i]).collect(),
            change: self.change,
            provenance: self.provenance,
        }
    }

    /// Whether there is anything to turn: a fixed clock has one step.
    pub fn is_turnable(&self) -> bool {
        self.steps.len() > 1
    }

    /// The lowest frequency of the steps.
    pub fn bottom(&self) -> Hertz {
        self.steps[0]
    }

    /// The highest frequency of the steps.
    pub fn top(&self) -> Hertz {
        self.steps[self.steps.len() - 1]
    }

    /// The step nearest to `wanted`; the higher of two equally near ones, because late is worse than hot.
    pub fn nearest(&self, wanted: Hertz) -> Hertz {
        let above = self
            .steps
            .partition_point(|step| *step < wanted)
            .min(self.steps.len() - 1);
        let below = above.saturating_sub(1);
        let distance = |i: usize| self.steps[i].0.abs_diff(wanted.0);
        if distance(below) < distance(above) {
            self.steps[below]
        } else {
            self.steps[above]
        }
    }
}

punctual_units::named! {
    /// The kinds of meters that a machine may have.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum MeterId by name {
        /// The clock in force; the lowest one if domains have clocks of their own.
        Clock = "clock",
        /// The clock in force of each domain that has a knob of its own.
        DomainClocks = "clocks of domains",
        /// Busy time of each core.
        Busy = "busy",
        /// Energy of the whole machine.
        Energy = "energy",
        /// Temperature of the hottest sensor.
        Temperature = "temperature",
        /// Response times of real-time jobs: reported with each job's outcome, not read from a machine.
        Response = "response",
    }
}

/// The value that a meter measures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// A frequency in hertz.
    Clock(Hertz),
    /// Frequencies, in the order of [`Offers::domains`].
    Clocks(Vec<Hertz>),
    /// Busy time of each core since the clock's origin, in the order of [`Offers::cores`]; never decreases.
    Busy(Vec<Nanos>),
    /// Energy in joules since the machine was opened; never decreases.
    Joules(f64),
    /// Temperature in degrees Celsius.
    Celsius(f64),
}

/// The value of a meter, or the reason why it could not be read this time.
pub type Reading = Result<Measure, String>;

/// Values of all meters, read once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Readings {
    /// Instant at which the meters were read.
    pub at: Time,
    /// The reading of each meter; a missing meter has no entry.
    pub meters: Vec<(MeterId, Reading)>,
}

impl Readings {
    /// The reading of `meter`; `None` if the machine has no such meter.
    pub fn get(&self, meter: MeterId) -> Option<&Reading> {
        let found = self.meters.iter().find(|(other, _)| *other == meter)?;
        Some(&found.1)
    }

    /// The clock in force, if it could be read.
    pub fn clock(&self) -> Option<Hertz> {
        match self.get(MeterId::Clock)? {
            Ok(Measure::Clock(clock)) => Some(*clock),
            _ => None,
        }
    }

    /// The clock in force of each domain, if there are several and they could be read.
    pub fn domain_clocks(&self) -> Option<&[Hertz]> {
        match self.get(MeterId::DomainClocks)? {
            Ok(Measure::Clocks(clocks)) => Some(clocks),
            _ => None,
        }
    }

    /// Busy time of each core, if it could be read.
    pub fn busy(&self) -> Option<&[Nanos]> {
        match self.get(MeterId::Busy)? {
            Ok(Measure::Busy(busy)) => Some(busy),
            _ => None,
        }
    }

    /// The temperature of the hottest place in degrees Celsius, if it could be read.
    pub fn celsius(&self) -> Option<f64> {
        match self.get(MeterId::Temperature)? {
            Ok(Measure::Celsius(celsius)) => Some(*celsius),
            _ => None,
        }
    }

    /// Energy in joules, if it could be read.
    pub fn energy_j(&self) -> Option<f64> {
        match self.get(MeterId::Energy)? {
            Ok(Measure::Joules(joules)) => Some(*joules),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// No mean of two steps that are left is cheaper than a third one, and none that is gone was cheaper than all
        /// such means.
        #[test]
        fn economical_steps_are_the_lower_hull_of_power(
            watts in prop::collection::vec(1_000_000u32..5_000_000, 1..12),
        ) {
            let steps: Vec<Hertz> = (1..=watts.len() as u64).map(|step| Hertz::from_mhz(100 * step)).collect();
            let offer = ClockOffer { microwatts: watts.clone(), ..ClockOffer::new(steps.clone(), Provenance::Real) };
            let kept = offer.economical();
            let line = |i: usize, j: usize, k: usize| {
                let at = |i: usize| f64::from(watts[i]);
                at(i) + (at(k) - at(i)) * (j - i) as f64 / (k - i) as f64
            };
            for j in 0..watts.len() {
                let means = (0..j).flat_map(|i| (j + 1..watts.len()).map(move |k| line(i, j, k)));
                let cheapest = means.fold(f64::INFINITY, f64::min);
                prop_assert_eq!(kept.steps.contains(&steps[j]), f64::from(watts[j]) <= DEARER * cheapest);
            }
            prop_assert_eq!((kept.bottom(), kept.top()), (offer.bottom(), offer.top()));
            prop_assert_eq!(kept.economical(), kept);
            let unknown = ClockOffer::new(steps, Provenance::Real);
            prop_assert_eq!(unknown.economical(), unknown);
        }

        #[test]
        fn the_nearest_step_is_a_step_and_none_is_nearer(
            mut mhz in prop::collection::vec(1u64..5000, 1..30),
            wanted in 0u64..6000,
        ) {
            mhz.sort_unstable();
            mhz.dedup();
            let offer =
                ClockOffer::new(mhz.iter().map(|m| Hertz::from_mhz(*m)).collect(), Provenance::Real);
            let wanted = Hertz::from_mhz(wanted);
            let found = offer.nearest(wanted);
            prop_assert!(offer.steps.contains(&found));
            for step in &offer.steps {
                prop_assert!(found.0.abs_diff(wanted.0) <= step.0.abs_diff(wanted.0));
            }
        }
    }
}
