//! The planned runs: control laws, disturbances, and models that are right or wrong.

use punctual_workload::Pace;

use super::disturbance::Disturbance;
use crate::qedb::Mix;
use crate::samples::{Labels, labels};

punctual_units::named! {
    /// A control law and its pace, the baseline first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Law by name {
        /// LQR-PI at a sample of one second: the baseline.
        Paper = "paper",
        /// LQR-PI with the same weights, at every job.
        MimoJob = "mimo-job",
        /// `MimoJob`, which also changes the clock within jobs.
        MimoWithin = "mimo-within",
    }
}

impl Law {
    /// When the law decides.
    pub const fn pace(self) -> Pace {
        match self {
            Law::Paper => Pace::Period(crate::qedb::CONTROL_PERIOD),
            Law::MimoJob | Law::MimoWithin => Pace::Job,
        }
    }

    /// Whether the law also changes the clock within jobs.
    pub const fn within(self) -> bool {
        matches!(self, Law::MimoWithin)
    }
}

punctual_units::named! {
    /// The model that the law was designed from, relative to the machine and the workload of the run.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Case by name {
        /// The model of this machine and this workload.
        Own = "own",
        /// The right model, but another workload: the job takes 1.5 times as long, and interferers mostly access data.
        Outside = "outside",
        /// A model whose gain matrix B has the opposite sign.
        Reversed = "reversed",
        /// A model with a quarter of B: the machine responds four times as strongly as the model says.
        Weak = "weak",
        /// A model with four times B.
        Strong = "strong",
    }
}

impl Case {
    /// Factor on the gain matrix B of the model.
    pub const fn gain(self) -> f64 {
        match self {
            Case::Own | Case::Outside => 1.0,
            Case::Reversed => -1.0,
            Case::Weak => 0.25,
            Case::Strong => 4.0,
        }
    }

    /// Factor on the work of the real-time job.
    pub const fn job(self) -> f64 {
        match self {
            Case::Outside => 1.5,
            _ => 1.0,
        }
    }

    /// The mix of the interfering transactions.
    pub const fn mix(self) -> Mix {
        match self {
            Case::Outside => Mix(90),
            _ => Mix(50),
        }
    }
}

/// A run of the experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannedRun {
    pub law: Law,
    pub disturbance: Disturbance,
    pub case: Case,
    /// Set points of a run on a front; `None`: those of the experiment.
    pub front: Option<SetPoint>,
}

/// Set points of a run on a front, see `fronts.rs`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SetPoint {
    /// Set point of tardiness.
    pub tardiness: f64,
    /// Set point of the data response ratio (drr), as a multiple of the nominal ratio.
    pub drr: f64,
}

/// Set points of the fronts: tardiness, and the data response ratio as a multiple of the nominal ratio.
const FRONT_TARDINESS: [f64; 6] = [0.6, 0.7, 0.8, 0.9, 0.95, 1.0];
const FRONT_DRR: [f64; 2] = [1.0, 1.43];

impl PlannedRun {
    /// Labels that identify the run among all planned runs.
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

/// Plans every law under every disturbance with its own model; under a step with wrong models and outside the model's
/// range; and under the random disturbance with other set points.
pub fn plan() -> Vec<PlannedRun> {
    let planned = |law, disturbance, case, front| PlannedRun {
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
