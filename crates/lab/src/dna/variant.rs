//! Which policy splits, what ways cost that change hands, and when a new split is taken up.

use punctual_sim::split::Refill;

use crate::samples::{Labels, labels};

/// The policy that says what each core gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// Every core the same.
    Equal,
    /// Static by WCETs, what is left over given out.
    Vc2m,
    /// Static by WCETs, what is left over given to no core.
    Vc2mStrict,
    /// The static split with the least largest utilisation of a core.
    StaticBest,
    /// The static split that overloads the fewest cores.
    StaticFewest,
    /// The fifth paper's greedy.
    Dna,
    /// The same, late tasks first.
    Dadna,
    /// The largest summed rate that there is.
    Exact,
}

/// When a new split is taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Never.
    Static,
    /// Whenever the policy gives another one: the paper's.
    EveryChange,
    /// Where it pays for what it costs.
    Hysteresis,
}

/// A column of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The policy that splits.
    pub policy: Policy,
    /// What ways cost.
    pub refill: Refill,
    /// When.
    pub rule: Rule,
}

impl Policy {
    /// In the order of the tables.
    pub const ALL: [Policy; 8] = [
        Policy::Equal,
        Policy::Vc2mStrict,
        Policy::Vc2m,
        Policy::StaticBest,
        Policy::StaticFewest,
        Policy::Dna,
        Policy::Dadna,
        Policy::Exact,
    ];

    /// What it is called in labels.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Equal => "equal",
            Policy::Vc2m => "vc2m",
            Policy::Vc2mStrict => "vc2m-strict",
            Policy::StaticBest => "static-best",
            Policy::StaticFewest => "static-fewest",
            Policy::Dna => "dna",
            Policy::Dadna => "dadna",
            Policy::Exact => "exact",
        }
    }

    /// Whether it splits once and for all.
    pub fn is_static(self) -> bool {
        self < Policy::Dna
    }
}

impl Rule {
    /// What it is called in labels.
    pub fn name(self) -> &'static str {
        match self {
            Rule::Static => "static",
            Rule::EveryChange => "every-change",
            Rule::Hysteresis => "hysteresis",
        }
    }
}

impl Variant {
    /// Every column: static policies in both worlds, because nothing changes hands; dynamic ones free, charged, and
    /// charged with hysteresis.
    pub fn all() -> Vec<Variant> {
        let of = |policy: Policy| {
            let kinds: &[(Refill, Rule)] = if policy.is_static() {
                &[(Refill::Free, Rule::Static), (Refill::Charged, Rule::Static)]
            } else {
                &[
                    (Refill::Free, Rule::EveryChange),
                    (Refill::Charged, Rule::EveryChange),
                    (Refill::Charged, Rule::Hysteresis),
                ]
            };
            kinds.iter().map(move |(refill, rule)| Variant {
                policy,
                refill: *refill,
                rule: *rule,
            })
        };
        Policy::ALL.into_iter().flat_map(of).collect()
    }

    /// The same refill and rule under another policy; static ones keep to theirs.
    pub fn beside(self, policy: Policy) -> Variant {
        let rule = if policy.is_static() { Rule::Static } else { self.rule };
        Variant { policy, rule, ..self }
    }

    /// Whether it is drawn and listed: static policies once.
    pub fn is_shown(self) -> bool {
        self.rule != Rule::Static || self.refill == Refill::Charged
    }

    /// For people.
    pub fn title(self) -> String {
        match (self.rule, self.refill) {
            (Rule::Static, _) => self.policy.name().into(),
            (Rule::EveryChange, Refill::Free) => format!("{}, refill free", self.policy.name()),
            (Rule::EveryChange, Refill::Charged) => format!("{}, refill charged", self.policy.name()),
            (Rule::Hysteresis, _) => format!("{}, hysteresis", self.policy.name()),
        }
    }

    /// Its labels.
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
