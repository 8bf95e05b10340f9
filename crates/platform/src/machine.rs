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

/// How real a knob or a figure is. Printed beside every number that depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provenance {
    /// The hardware or the kernel provides it.
    Real,
    /// Real extra work stands in for it.
    Emulated,
    /// Exists in a model only.
    Simulated,
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Provenance::Real => "real",
            Provenance::Emulated => "emulated",
            Provenance::Simulated => "simulated",
        })
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
    /// Provenance of the clock knob.
    pub provenance: Provenance,
}

impl ClockOffer {
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

/// The kinds of meters that a machine may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MeterId {
    /// The clock in force; the lowest one if domains have clocks of their own.
    Clock,
    /// The clock in force of each domain that has a knob of its own.
    DomainClocks,
    /// Busy time of each core.
    Busy,
    /// Energy of the whole machine.
    Energy,
    /// Temperature of the hottest sensor.
    Temperature,
    /// Response times of real-time jobs: reported with each job's outcome, not read from a machine.
    Response,
}

impl MeterId {
    /// The meter's name for people.
    pub const fn name(self) -> &'static str {
        match self {
            MeterId::Clock => "clock",
            MeterId::DomainClocks => "clocks of domains",
            MeterId::Busy => "busy",
            MeterId::Energy => "energy",
            MeterId::Temperature => "temperature",
            MeterId::Response => "response",
        }
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

impl Measure {
    /// Multiplies the measure by `factor`, element by element.
    #[must_use]
    pub fn times(&self, factor: f64) -> Measure {
        match self {
            Measure::Clock(clock) => Measure::Clock(clock.scaled(factor)),
            Measure::Clocks(clocks) => Measure::Clocks(clocks.iter().map(|clock| clock.scaled(factor)).collect()),
            Measure::Busy(busy) => Measure::Busy(busy.iter().map(|busy| busy.scaled(factor)).collect()),
            Measure::Joules(joules) => Measure::Joules(joules * factor),
            Measure::Celsius(celsius) => Measure::Celsius(celsius * factor),
        }
    }
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
        #[test]
        fn the_nearest_step_is_a_step_and_none_is_nearer(
            mut mhz in prop::collection::vec(1u64..5000, 1..30),
            wanted in 0u64..6000,
        ) {
            mhz.sort_unstable();
            mhz.dedup();
            let offer =
                ClockOffer { steps: mhz.iter().map(|m| Hertz::from_mhz(*m)).collect(), provenance: Provenance::Real };
            let wanted = Hertz::from_mhz(wanted);
            let found = offer.nearest(wanted);
            prop_assert!(offer.steps.contains(&found));
            for step in &offer.steps {
                prop_assert!(found.0.abs_diff(wanted.0) <= step.0.abs_diff(wanted.0));
            }
        }
    }
}
