//! What a calibration has come to, for tables and files.

use std::collections::BTreeMap;

use punctual_sim::MachineModel;
use serde::Serialize;

use super::Plan;
use super::ensemble::{Member, Question};
use super::fit::{Figure, Fit};
use super::microbenchmark::Work;
use super::parameter::Parameter;
use super::predictions::Prediction;
use super::targets::Targets;
use super::tensions::{Tension, tensions};

/// The ensemble and everything that is known of it. All figures are simulated, the paper's excepted.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Calibration {
    /// With what it was made.
    pub setting: Setting,
    /// The figures.
    pub targets: Targets,
    /// Where they contradict each other.
    pub tensions: Vec<Tension>,
    /// The machines.
    pub members: Vec<MemberResult>,
    /// Which open question moves which prediction.
    pub sensitivities: Vec<Sensitivity>,
}

/// With what a calibration was made: it can be made again.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Setting {
    /// The machine on which all are built.
    pub base: String,
    /// The seed.
    pub seed: u64,
    /// Jobs per figure.
    pub jobs: u64,
    /// Candidates that each member's search was allowed.
    pub evaluations_max: usize,
}

/// One machine of the ensemble.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct MemberResult {
    /// Its name.
    pub name: String,
    /// What it supposes.
    pub about: String,
    /// Which open question it answers.
    pub question: Question,
    /// What was not left to the figures.
    pub pinned: Vec<Parameter>,
    /// Every parameter's value, the pinned ones' included, by name.
    pub parameters: BTreeMap<&'static str, f64>,
    /// Free parameters that came to lie at an end of their range, where the range has decided.
    pub at_bound: Vec<Parameter>,
    /// Ours beside the paper's.
    pub figures: Vec<Figure>,
    /// Root mean square of the relative residuals.
    pub rms: f64,
    /// The rms that exploring reached from each starting point.
    pub rms_by_start: Vec<f64>,
    /// Candidates measured.
    pub evaluations: usize,
    /// The microbenchmark's job on this machine.
    pub job: Work,
    /// What it predicts for the evaluation.
    pub predictions: Vec<Prediction>,
    /// The machine.
    pub machine: MachineModel,
}

/// What one open question does to the predictions: the second member's minus the first's.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Sensitivity {
    /// The question.
    pub question: Question,
    /// The two members that answer it differently.
    pub between: [String; 2],
    /// The change of the clock's rise, by situation; none where either does not reach the deadline.
    pub rise: Vec<Option<f64>>,
    /// The change of the data response ratio, by situation.
    pub drr: Vec<Option<f64>>,
}

impl MemberResult {
    /// A fitted member and what it predicts. Its machine bears its name.
    pub(super) fn new(member: &Member, fit: Fit, predictions: Vec<Prediction>) -> MemberResult {
        let free = member.free();
        let value = |parameter: &Parameter| fit.point.get(*parameter);
        let bound = |parameter: &Parameter| parameter.description().is_at_bound(value(parameter));
        MemberResult {
            name: member.name.into(),
            about: member.about.into(),
            question: member.question,
            pinned: member.pinned.iter().map(|(parameter, _)| *parameter).collect(),
            at_bound: free.into_iter().filter(bound).collect(),
            parameters: Parameter::ALL
                .iter()
                .map(|p| (p.description().name, value(p)))
                .collect(),
            figures: fit.figures,
            rms: fit.rms,
            rms_by_start: fit.rms_by_start,
            evaluations: fit.evaluations,
            job: fit.candidate.job,
            predictions,
            machine: MachineModel {
                name: format!("{} (qedb-{})", fit.candidate.machine.name, member.name),
                ..fit.candidate.machine
            },
        }
    }
}

impl Calibration {
    pub(super) fn new(plan: &Plan, members: Vec<MemberResult>) -> Calibration {
        Calibration {
            setting: Setting {
                base: plan.base.name.clone(),
                seed: plan.seed,
                jobs: plan.jobs,
                evaluations_max: plan.evaluations_max,
            },
            targets: plan.targets.clone(),
            tensions: tensions(&plan.targets),
            sensitivities: Question::ALL
                .into_iter()
                .filter_map(|q| sensitivity(q, &members))
                .collect(),
            members,
        }
    }
}

fn sensitivity(question: Question, members: &[MemberResult]) -> Option<Sensitivity> {
    let mut answers = members.iter().filter(|member| member.question == question);
    let (first, second) = (answers.next()?, answers.next()?);
    let change = |figure: fn(&Prediction) -> Option<f64>| {
        let pairs = first.predictions.iter().zip(&second.predictions);
        pairs.map(|(a, b)| Some(figure(b)? - figure(a)?)).collect()
    };
    Some(Sensitivity {
        question,
        between: [first.name.clone(), second.name.clone()],
        rise: change(|prediction| prediction.rise),
        drr: change(|prediction| prediction.drr),
    })
}
