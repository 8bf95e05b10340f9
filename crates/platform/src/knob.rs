//! Knobs by their ids, and bounded lists of planned values and of results.
//!
//! A policy plans, a machine applies, and both name knobs by [`KnobId`] only. A new knob, offered by a backend and
//! turned by a control law, needs no other change: everything in between passes lists on.

use std::fmt;

use punctual_units::{CoreId, Hertz, Share};
use serde::{Deserialize, Serialize};

use crate::Refusal;

/// Upper bound on clock domains with knobs of their own; a machine with more domains turns them together only.
pub const DOMAINS_MAX: usize = 16;

/// Upper bound on the knobs of one plan: ways and bandwidth of eight cores, and eight more. A list holds them in place,
/// so that a step allocates nothing.
pub const KNOBS_MAX: usize = 24;

/// Largest error of an obtained share before the knob counts as stuck: the kernel's least quota is 5 % of a core.
const SHARE_ROUNDING: f64 = 0.05 + 1e-9;

/// Cores that share one clock, by number: 0 is all cores together, higher numbers are the domains of a machine with
/// several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DomainId(pub u8);

/// Something that can be turned. Files use the same name as people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum KnobId {
    /// The clock of a domain of cores.
    Clock(DomainId),
    /// Share of sensor updates that are admitted; a knob of the store, not of the hardware.
    AdmittedShare,
    /// CPU share of all best-effort work together, on the cores that it runs on.
    BestEffortShare,
    /// The cache ways that a core may fill.
    Ways(CoreId),
    /// The partitions of the memory bandwidth of a core.
    Bandwidth(CoreId),
    /// Whether an exclusive core is lent.
    Lease(CoreId),
    /// Upper bound on the items that a node of a federation has admitted and not finished.
    Backlog,
}

impl KnobId {
    /// The clock of all cores together.
    pub const CLOCK: KnobId = KnobId::Clock(DomainId(0));

    /// The knobs that a user expects: a report lists them even if the machine does not offer them.
    pub const COMMON: [KnobId; 3] = [KnobId::CLOCK, KnobId::AdmittedShare, KnobId::BestEffortShare];
}

/// A name that belongs to no knob.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is no knob; there are clock, admitted-share, best-effort-share, backlog, ways of core 2 and \
     the like"
)]
pub struct UnknownKnob(pub String);

impl From<KnobId> for String {
    fn from(knob: KnobId) -> String {
        knob.to_string()
    }
}

impl TryFrom<String> for KnobId {
    type Error = UnknownKnob;

    fn try_from(name: String) -> Result<KnobId, UnknownKnob> {
        let plain = KnobId::COMMON.into_iter().chain([KnobId::Backlog]);
        if let Some(knob) = { plain }.find(|knob| knob.to_string() == name) {
            return Ok(knob);
        }
        let core = |before: &str| name.strip_prefix(before)?.parse().ok().map(CoreId);
        let domain = name
            .strip_prefix("clock of domain ")
            .and_then(|number| number.parse().ok());
        let knob = domain.map(|domain| KnobId::Clock(DomainId(domain)));
        let knob = knob.or_else(|| core("ways of core ").map(KnobId::Ways));
        let knob = knob.or_else(|| core("bandwidth of core ").map(KnobId::Bandwidth));
        let knob = knob.or_else(|| core("lease of core ").map(KnobId::Lease));
        knob.ok_or(UnknownKnob(name))
    }
}

/// For people, as in reports: `clock`, `clock of domain 1`, `ways of core 2`.
impl fmt::Display for KnobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KnobId::Clock(DomainId(0)) => f.write_str("clock"),
            KnobId::Clock(DomainId(domain)) => write!(f, "clock of domain {domain}"),
            KnobId::AdmittedShare => f.write_str("admitted-share"),
            KnobId::BestEffortShare => f.write_str("best-effort-share"),
            KnobId::Ways(core) => write!(f, "ways of core {core}"),
            KnobId::Bandwidth(core) => write!(f, "bandwidth of core {core}"),
            KnobId::Lease(core) => write!(f, "lease of core {core}"),
            KnobId::Backlog => f.write_str("backlog"),
        }
    }
}

/// A value of a knob, planned or obtained.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Value {
    /// Frequency of a clock.
    Clock(Hertz),
    /// Value of a knob that is a share.
    Share(Share),
    /// The ways that a core may fill, a bit each.
    Ways(u64),
    /// Number of bandwidth partitions of a core.
    Parts(u8),
    /// Whether a core is lent; false: it is kept.
    Lent(bool),
    /// Upper bound on items.
    Items(u64),
}

impl Value {
    /// The frequency, if the knob is a clock.
    pub fn clock(self) -> Option<Hertz> {
        match self {
            Value::Clock(clock) => Some(clock),
            Value::Share(_) | Value::Ways(_) | Value::Parts(_) | Value::Lent(_) | Value::Items(_) => None,
        }
    }

    /// Whether a knob planned at `wanted` counts as being there. A share is stored in the kernel's own units, so it may
    /// be a little off.
    fn is_at(self, wanted: Value) -> bool {
        match (self, wanted) {
            (Value::Share(obtained), Value::Share(wanted)) => (obtained.get() - wanted.get()).abs() <= SHARE_ROUNDING,
            (obtained, wanted) => obtained == wanted,
        }
    }

    /// The number of items, if the knob is a bound on them.
    pub fn items(self) -> Option<u64> {
        match self {
            Value::Items(items) => Some(items),
            Value::Clock(_) | Value::Share(_) | Value::Ways(_) | Value::Parts(_) | Value::Lent(_) => None,
        }
    }

    /// The share, if the knob is one.
    pub fn share(self) -> Option<Share> {
        match self {
            Value::Share(share) => Some(share),
            Value::Clock(_) | Value::Ways(_) | Value::Parts(_) | Value::Lent(_) | Value::Items(_) => None,
        }
    }
}

/// For people: `1.40 GHz`, `50 %`.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Clock(clock) => clock.fmt(f),
            Value::Share(share) => share.fmt(f),
            Value::Ways(ways) => write!(f, "ways {ways:#x}"),
            Value::Parts(parts) => write!(f, "{parts} partitions"),
            Value::Lent(lent) => f.write_str(if *lent { "lent" } else { "kept" }),
            Value::Items(items) => write!(f, "{items} items"),
        }
    }
}

/// Values of knobs until the next decision: at most one for each, ascending by id, at most [`KNOBS_MAX`]. A knob that
/// is not named keeps its value.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "Vec<(KnobId, Value)>", into = "Vec<(KnobId, Value)>")]
pub struct Plan {
    settings: [(KnobId, Value); KNOBS_MAX],
    len: usize,
}

/// A plan of more than [`KNOBS_MAX`] knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a plan turns at most {KNOBS_MAX} knobs, not {0}")]
pub struct TooManyKnobs(pub usize);

/// Fills the unused entries of a list; never read.
const NOTHING: (KnobId, Value) = (KnobId::AdmittedShare, Value::Lent(false));

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            settings: [NOTHING; KNOBS_MAX],
            len: 0,
        }
    }
}

/// Entries beyond the length are left over from before [`Plan::clear`], and do not count.
impl PartialEq for Plan {
    fn eq(&self, other: &Plan) -> bool {
        self.settings[..self.len] == other.settings[..other.len]
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Plan {
    /// A plan for one knob.
    ///
    /// ```
    /// use punctual_platform::{KnobId, Plan, Value};
    /// use punctual_units::{Hertz, Share};
    /// let mut plan = Plan::of(KnobId::CLOCK, Value::Clock(Hertz::from_mhz(1400)));
    /// plan.set(KnobId::BestEffortShare, Value::Share(Share::clamped(0.5)));
    /// assert_eq!(plan.clock(), Some(Hertz::from_mhz(1400)));
    /// assert_eq!(plan.get(KnobId::AdmittedShare), None);
    /// ```
    pub fn of(knob: KnobId, value: Value) -> Plan {
        let mut plan = Plan::default();
        plan.set(knob, value);
        plan
    }

    /// Plans `value` for `knob`, in place of an earlier value. Returns whether there was room.
    pub fn set(&mut self, knob: KnobId, value: Value) -> bool {
        match self.settings[..self.len].binary_search_by_key(&knob, |(knob, _)| *knob) {
            Ok(at) => self.settings[at].1 = value,
            Err(_) if self.len == KNOBS_MAX => return false,
            Err(at) => {
                self.settings.copy_within(at..self.len, at + 1);
                self.settings[at] = (knob, value);
                self.len += 1;
            }
        }
        true
    }

    /// Removes all values from the plan.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The planned value of `knob`, if there is one.
    pub fn get(&self, knob: KnobId) -> Option<Value> {
        let at = self.settings[..self.len].binary_search_by_key(&knob, |(knob, _)| *knob);
        at.ok().map(|at| self.settings[at].1)
    }

    /// The plan without `knob`.
    pub fn without(&self, knob: KnobId) -> Plan {
        self.iter().filter(|(other, _)| *other != knob).collect()
    }

    /// The planned knobs and values, ascending by id.
    pub fn iter(&self) -> impl Iterator<Item = (KnobId, Value)> + '_ {
        self.settings[..self.len].iter().copied()
    }

    /// The planned clock of all cores, if there is one.
    pub fn clock(&self) -> Option<Hertz> {
        self.get(KnobId::CLOCK).and_then(Value::clock)
    }

    /// The planned share of `knob`, if there is one.
    pub fn share(&self, knob: KnobId) -> Option<Share> {
        self.get(knob).and_then(Value::share)
    }
}

/// Entries beyond [`KNOBS_MAX`] are left out; later ones for the same knob win.
impl FromIterator<(KnobId, Value)> for Plan {
    fn from_iter<I: IntoIterator<Item = (KnobId, Value)>>(settings: I) -> Plan {
        let mut plan = Plan::default();
        for (knob, value) in settings {
            plan.set(knob, value);
        }
        plan
    }
}

impl TryFrom<Vec<(KnobId, Value)>> for Plan {
    type Error = TooManyKnobs;

    fn try_from(settings: Vec<(KnobId, Value)>) -> Result<Plan, TooManyKnobs> {
        let mut plan = Plan::default();
        let fits = settings.iter().all(|(knob, value)| plan.set(*knob, *value));
        fits.then_some(plan).ok_or(TooManyKnobs(settings.len()))
    }
}

impl From<Plan> for Vec<(KnobId, Value)> {
    fn from(plan: Plan) -> Self {
        plan.iter().collect()
    }
}

/// The result of applying a plan: the obtained value of each knob, or its refusal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Applied {
    /// The value obtained for each knob that was not refused: the nearest one that the machine has.
    pub obtained: Plan,
    /// Knobs that do not exist here or that the machine did not turn, with the reason; they keep their values. An empty
    /// list allocates nothing.
    pub refused: Vec<(KnobId, Refusal)>,
}

impl Applied {
    /// Records the outcome for `knob`.
    pub fn note(&mut self, knob: KnobId, result: Result<Value, Refusal>) {
        match result {
            Ok(value) => {
                self.obtained.set(knob, value);
            }
            Err(refusal) => self.refused.push((knob, refusal)),
        }
    }

    /// The first knob of `plan` that did not obtain its planned value, in words: refused, or stuck at another value. A
    /// plan names values that the machine offers, so a knob that obtains another value counts as refused.
    pub fn failed(&self, plan: &Plan) -> Option<String> {
        plan.iter().find_map(|(knob, wanted)| match self.result(knob)? {
            Err(refusal) => Some(refusal.to_string()),
            Ok(obtained) if obtained.is_at(wanted) => None,
            Ok(obtained) => Some(format!("the {knob} was set to {wanted} and stayed at {obtained}")),
        })
    }

    /// The outcome for one knob; `None` if the plan did not name it.
    pub fn result(&self, knob: KnobId) -> Option<Result<Value, &Refusal>> {
        let refused = self.refused.iter().find(|(other, _)| *other == knob);
        let refused = refused.map(|(_, refusal)| Err(refusal));
        refused.or_else(|| self.obtained.get(knob).map(Ok))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn knob() -> impl Strategy<Value = KnobId> {
        prop_oneof![
            Just(KnobId::CLOCK),
            Just(KnobId::AdmittedShare),
            Just(KnobId::BestEffortShare),
            Just(KnobId::Backlog),
            (0u32..20).prop_map(|core| KnobId::Ways(CoreId(core))),
            (0u32..20).prop_map(|core| KnobId::Lease(CoreId(core))),
        ]
    }

    proptest! {
        /// A plan is a map from knobs to values, of at most so many.
        #[test]
        fn a_plan_is_a_bounded_map(settings in prop::collection::vec((knob(), 0u8..9), 0..40)) {
            let mut plan = Plan::default();
            let mut map = BTreeMap::new();
            for (knob, parts) in settings {
                let room = map.len() < KNOBS_MAX || map.contains_key(&knob);
                prop_assert_eq!(plan.set(knob, Value::Parts(parts)), room);
                if room {
                    map.insert(knob, Value::Parts(parts));
                }
            }
            prop_assert!(plan.iter().eq(map.iter().map(|(knob, value)| (*knob, *value))));
            for (knob, value) in &map {
                prop_assert_eq!(KnobId::try_from(knob.to_string()), Ok(*knob));
                prop_assert_eq!(plan.get(*knob), Some(*value));
                prop_assert_eq!(plan.without(*knob).get(*knob), None);
            }
            prop_assert_eq!(Plan::try_from(Vec::from(plan)), Ok(plan));
        }
    }
}
