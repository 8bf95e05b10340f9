//! The verdict on a claim, with the premises without which there is none.

use std::fmt;

use serde::Serialize;

punctual_units::named! {
    /// Verdict on a claim.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Verdict by word {
        Holds = "holds",
        DoesNotHold = "does not hold",
        /// A premise of the claim does not hold, or nothing was measured: the figure says nothing about the claim.
        #[default]
        NotJudged = "not judged",
        /// The claim restates the setting, for example a figure of the machine file: that it holds is no finding.
        Setting = "setting",
        /// No run of this outcome is about the claim.
        LeftOut = "left out",
    }
}

impl Verdict {
    /// The verdict by `holds`, unless a premise fails.
    pub fn of(holds: bool, failed: Option<&Premise>) -> Verdict {
        match (failed, holds) {
            (Some(_), _) => Verdict::NotJudged,
            (None, true) => Verdict::Holds,
            (None, false) => Verdict::DoesNotHold,
        }
    }

    /// The verdict as a cell of a table's column "holds".
    pub const fn cell(self) -> &'static str {
        match self {
            Verdict::Holds => "yes",
            Verdict::DoesNotHold => "NO",
            Verdict::NotJudged => "-",
            Verdict::Setting => "set",
            Verdict::LeftOut => "out",
        }
    }
}

/// A goal of a measurement of our own, with its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Goal {
    /// The goal in words.
    pub what: String,
    /// The measured value, in words.
    pub measured: String,
    /// Verdict on the goal.
    pub outcome: Verdict,
    /// The premise that failed, if one did.
    pub failed_premise: Option<Premise>,
}

impl Goal {
    /// The goal `what` with the verdict by `holds`, unless a premise fails.
    pub fn of(what: impl Into<String>, measured: String, holds: bool, failed_premise: Option<Premise>) -> Goal {
        Goal {
            what: what.into(),
            measured,
            outcome: Verdict::of(holds, failed_premise.as_ref()),
            failed_premise,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<14} {}: {}", self.outcome.word(), self.what, self.measured)?;
        self.failed_premise
            .iter()
            .try_for_each(|premise| write!(f, " ({premise})"))
    }
}

/// A condition without which a claim is not judged, and what was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Premise {
    /// The condition.
    pub needs: String,
    /// The figure, in words.
    pub found: String,
}

impl Premise {
    /// The premise that a figure lies within bounds that it cannot leave unless the measurement failed; `None` if it
    /// does. `shown` formats figures.
    pub fn within(value: f64, [low, high]: [f64; 2], shown: impl Fn(f64) -> String) -> Option<Premise> {
        let fails = !(low..=high).contains(&value);
        fails.then(|| Premise {
            needs: format!("a figure of {} to {}", shown(low), shown(high)),
            found: shown(value),
        })
    }

    /// The premise `needs`, unless it `holds`.
    pub fn unless(holds: bool, needs: &str, found: impl FnOnce() -> String) -> Option<Premise> {
        (!holds).then(|| Premise {
            needs: needs.into(),
            found: found(),
        })
    }
}

impl fmt::Display for Premise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "needed is {}; found: {}", self.needs, self.found)
    }
}
