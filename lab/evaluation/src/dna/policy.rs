//! Policies of the comparison: the product's, the paper's baseline, and the paper's algorithms as published.

use punctual_allocation::{Objective, Policy as Ours};

use super::vc2m::Leftovers;

/// Policy that splits a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Equal,
    /// Static, by WCETs, after vC2M: [`vc2m`](super::vc2m::vc2m).
    Vc2m(Leftovers),
    StaticBest,
    StaticOverload,
    StaticFewest,
    Dna,
    Dadna,
    Exact,
    /// The fifth paper's Algorithm 1: [`dna_paper`](super::published::dna_paper).
    DnaPaper,
    /// The fifth paper's Algorithm 2: [`dadna_paper`](super::published::dadna_paper).
    DadnaPaper,
}

impl Policy {
    /// All, in the order of the tables.
    pub const ALL: [Policy; 11] = [
        Policy::Equal,
        Policy::Vc2m(Leftovers::Kept),
        Policy::Vc2m(Leftovers::HandedOut),
        Policy::StaticBest,
        Policy::StaticOverload,
        Policy::StaticFewest,
        Policy::Dna,
        Policy::Dadna,
        Policy::Exact,
        Policy::DnaPaper,
        Policy::DadnaPaper,
    ];

    /// The product's policy; `None`: a policy of the comparison only.
    pub fn ours(self) -> Option<Ours> {
        match self {
            Policy::Equal => Some(Ours::Equal),
            Policy::StaticBest => Some(Ours::StaticBest),
            Policy::StaticOverload => Some(Ours::StaticOverload),
            Policy::StaticFewest => Some(Ours::StaticFewest),
            Policy::Dna => Some(Ours::Dna),
            Policy::Dadna => Some(Ours::Dadna),
            Policy::Exact => Some(Ours::Exact),
            Policy::Vc2m(_) | Policy::DnaPaper | Policy::DadnaPaper => None,
        }
    }

    /// Name in tables, labels and claims.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Vc2m(Leftovers::HandedOut) => "vc2m",
            Policy::Vc2m(Leftovers::Kept) => "vc2m-frugal",
            Policy::DnaPaper => "dna-paper",
            Policy::DadnaPaper => "dadna-paper",
            other => other.ours().map_or("", Ours::name),
        }
    }

    /// Whether the policy splits once and for all.
    pub fn is_static(self) -> bool {
        matches!(self, Policy::Vc2m(_)) || self.ours().is_some_and(Ours::is_static)
    }

    /// Whether the policy is the fifth paper's as published.
    pub fn is_published(self) -> bool {
        matches!(self, Policy::DnaPaper | Policy::DadnaPaper)
    }

    /// Objective for which programs must be compiled.
    pub fn objective(self) -> Objective {
        match self.is_published() {
            true => Objective::Instructions,
            false => Objective::Speed,
        }
    }
}
