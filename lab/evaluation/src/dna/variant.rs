//! Variants of the comparison: the policy that splits, the price of ways that change hands, and the rule for adopting a
//! new split.

use punctual_sim::split::Refill;

use super::policy::Policy;
use super::vc2m::Leftovers;
use crate::samples::{Labels, labels};

/// The paper's baseline: left-over resources are handed out.
pub const VC2M: Policy = Policy::Vc2m(Leftovers::HandedOut);

punctual_units::named! {
    /// Rule by which a new split is adopted.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Rule by name {
        /// Never: the first split stays.
        Static = "static",
        /// Whenever the policy's split changes: the paper's rule.
        EveryChange = "every-change",
        /// Where the gain exceeds the cost of the change, from the base that looking ahead has found.
        Hysteresis = "hysteresis",
    }
}

/// A column of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    pub policy: Policy,
    /// Price of ways that change hands.
    pub refill: Refill,
    pub rule: Rule,
}

impl Variant {
    /// All columns: static policies with free and with charged refill (with equal results, because no way changes
    /// hands); the paper's, free and charged; ours, charged, where it pays; and the optimum, free.
    pub fn all() -> Vec<Variant> {
        let of = |policy: Policy| {
            let kinds: &[(Refill, Rule)] = match policy {
                _ if policy.is_static() => &[(Refill::Free, Rule::Static), (Refill::Charged, Rule::Static)],
                _ if policy.is_published() => {
                    &[(Refill::Free, Rule::EveryChange), (Refill::Charged, Rule::EveryChange)]
                }
                Policy::Exact => &[(Refill::Free, Rule::EveryChange), (Refill::Charged, Rule::Hysteresis)],
                _ => &[(Refill::Charged, Rule::Hysteresis)],
            };
            kinds.iter().map(move |(refill, rule)| Variant {
                policy,
                refill: *refill,
                rule: *rule,
            })
        };
        Policy::ALL.into_iter().flat_map(of).collect()
    }

    /// This variant with another policy, and for a static policy with the rule `Static`.
    pub fn beside(self, policy: Policy) -> Variant {
        let rule = if policy.is_static() { Rule::Static } else { self.rule };
        Variant { policy, rule, ..self }
    }

    /// Whether charts and lists have this variant: a static policy appears once, not for both prices.
    pub fn is_shown(self) -> bool {
        self.rule != Rule::Static || self.refill == Refill::Charged
    }

    pub fn title(self) -> String {
        match (self.rule, self.refill) {
            (Rule::Static, _) => self.policy.name().into(),
            (Rule::EveryChange, Refill::Free) => format!("{}, refill free", self.policy.name()),
            (Rule::EveryChange, Refill::Charged) => format!("{}, refill charged", self.policy.name()),
            (Rule::Hysteresis, _) => format!("{}, hysteresis", self.policy.name()),
        }
    }

    /// Labels of the variant's runs.
    pub fn labels(self) -> Labels {
        let refill = match self.refill {
            Refill::Free => "free",
            Refill::Charged => "charged",
        };
        labels([
            ("policy", self.policy.name()),
            ("refill", refill),
            ("rule", self.rule.name()),
        ])
    }
}
