//! Which runs there are: laws, disturbances, and models that are right or wrong.

use punctual_workload::Pace;

use super::disturbance::Disturbance;
use crate::qedb::Mix;
use crate::samples::{Labels, labels};

/// A law and its pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// LQR-PI at a sample of one second: the baseline.
    Paper,
    /// The same weights at every job.
    MimoJob,
    /// `MimoJob`, with jobs paced from within.
    MimoWithin,
}

impl Law {
    /// All of them, the baseline first.
    pub const ALL: [Law; 3] = [Law::Paper, Law::MimoJob, Law::MimoWithin];

    /// The name in tables and labels.
    pub const fn name(self) -> &'static str {
        match self {
            Law::Paper => "paper",
            Law::MimoJob => "mimo-job",
            Law::MimoWithin => "mimo-within",
        }
    }

    /// How often.
    pub const fn pace(self) -> Pace {
        match self {
            Law::Paper => Pace::Period(crate::qedb::CONTROL_PERIOD),
            Law::MimoJob | Law::MimoWithin => Pace::Job,
        }
    }

    /// Whether jobs are paced from within as well.
    pub const fn within(self) -> bool {
        matches!(self, Law::MimoWithin)
    }
}

/// What the law knows, and of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// A model of this machine and this workload.
    Own,
    /// The same model, and another workload: the job half as long again, interferers that mostly access data.
    Outside,
    /// B with the opposite sign.
    Reversed,
    /// A quarter of B: the machine answers four times as much as the model says.
    Weak,
    /// Four times B.
    Strong,
}

impl Case {
    /// All of them.
    pub const ALL: [Case; 5] = [Case::Own, Case::Outside, Case::Reversed, Case::Weak, Case::Strong];

    /// The name in tables and labels.
    pub const fn name(self) -> &'static str {
        match self {
            Case::Own => "own",
            Case::Outside => "outside",
            Case::Reversed => "reversed",
            Case::Weak => "weak",
            Case::Strong => "strong",
        }
    }

    /// What B is multiplied by.
    pub const fn gain(self) -> f64 {
        match self {
            Case::Own | Case::Outside => 1.0,
            Case::Reversed => -1.0,
            Case::Weak => 0.25,
            Case::Strong => 4.0,
        }
    }

    /// What the real-time job is multiplied by.
    pub const fn job(self) -> f64 {
        match self {
            Case::Outside => 1.5,
            _ => 1.0,
        }
    }

    /// What interferes.
    pub const fn mix(self) -> Mix {
        match self {
            Case::Outside => Mix(90),
            _ => Mix(50),
        }
    }
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Planned {
    /// The law that decides.
    pub law: Law,
    /// What disturbs.
    pub disturbance: Disturbance,
    /// What the law knows.
    pub case: Case,
    /// Set points of a front; those of the experiment if none.
    pub front: Option<SetPoint>,
}

/// Set points of a run on a front.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SetPoint {
    /// Of tardiness.
    pub tardiness: f64,
    /// Of drr, as a multiple of the nominal one.
    pub drr: f64,
}

/// Set points of the fronts: tardiness, and drr as a multiple of the nominal one.
const FRONT_TARDINESS: [f64; 6] = [0.6, 0.7, 0.8, 0.9, 0.95, 1.0];
const FRONT_DRR: [f64; 2] = [1.0, 1.43];

impl Planned {
    /// What tells it from the others.
    pub fn labels(&self) -> Labels {
        let mut labels = labels([
            ("law", self.law.name()),
            ("disturbance", self.disturbance.name()),
            (
                "case",
                if self.front.is_some() {
                    "front"
                } else {
                    self.case.name()
                },
            ),
        ]);
        if let Some(point) = self.front {
            labels.insert("tardiness".into(), point.tardiness.to_string());
            labels.insert("drr".into(), point.drr.to_string());
        }
        labels
    }
}

/// Every law under every disturbance with its own model; under a step outside of the model's range and with wrong
/// models; and under the random disturbance with other set points.
pub fn plan() -> Vec<Planned> {
    let planned = |law, disturbance, case, front| Planned {
        law,
        disturbance,
        case,
        front,
    };
    let own = Disturbance::ALL.into_iter().map(|disturbance| (disturbance, Case::Own));
    let others = Case::ALL.into_iter().skip(1).map(|case| (Disturbance::Step, case));
    let runs = own
        .chain(others)
        .flat_map(|(d, case)| Law::ALL.map(|law| planned(law, d, case, None)));
    let points = FRONT_TARDINESS
        .into_iter()
        .flat_map(|tardiness| FRONT_DRR.map(|drr| SetPoint { tardiness, drr }));
    let front = points.flat_map(|point| Law::ALL.map(|law| planned(law, Disturbance::Random, Case::Own, Some(point))));
    runs.chain(front).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_run_is_planned_twice() {
        let plan = plan();
        for (i, run) in plan.iter().enumerate() {
            assert!(plan[..i].iter().all(|other| other.labels() != run.labels()), "{run:?}");
        }
    }
}
