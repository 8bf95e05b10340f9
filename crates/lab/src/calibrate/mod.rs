//! Calibration of the simulated machine on the paper's microbenchmarks: an ensemble of machines, all near the same
//! figures, that differ in what the figures leave open.
//!
//! **Problem.** The figures (`data/qedb-calibration.toml`) are ten, some contradict each other ([`tensions()`]), and they do not
//! identify the machine: fits that are equally near them predict very different evaluations. One fit would hide that.
//!
//! **Method.** Every candidate runs the microbenchmark itself on the simulator (`microbenchmark.rs`); the free parameters
//! ([`Parameter`]) move by a derivative-free search ([`minimise`]) until the relative residuals are least ([`Task::fit`]). Each member of
//! the [`ensemble()`] pins one open question at one end. What the members then predict ([`predictions()`]) for the evaluation,
//! which no figure of the calibration knows, shows which question decides which claim.
//!
//! Same plan, same result, to the last bit, on however many threads.

mod ensemble;
mod fit;
mod microbenchmark;
mod parameter;
mod predictions;
mod result;
mod search;
mod targets;
mod tensions;

use std::sync::Mutex;

use punctual_sim::MachineModel;

pub use ensemble::{Member, Question, ensemble};
pub use fit::{Figure, Fit, Task, interferer_of};
pub use microbenchmark::{Bench, Condition, INTERFERER_ROUNDS, Interferer, JOB_ROUNDS, MeasureError, Response, Work};
pub use parameter::{Candidate, Description, Parameter, Point};
pub use predictions::{ALONE, Prediction, Rest, SITUATIONS, Situation, predictions};
pub use result::{Calibration, MemberResult, Sensitivity, Setting};
pub use search::{EDGE, Found, minimise};
pub use targets::{Kind, Quantity, Target, TargetError, Targets, rms};
pub use tensions::{Tension, tensions};

/// What to calibrate, and how thoroughly.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The figures.
    pub targets: Targets,
    /// The machine on which every candidate is built.
    pub base: MachineModel,
    /// The machines to be.
    pub members: Vec<Member>,
    /// Seeds the sensors' reports, the pauses and the objects read.
    pub seed: u64,
    /// Jobs over which each figure is a mean.
    pub jobs: u64,
    /// Candidates that may be measured per member.
    pub evaluations_max: usize,
    /// Members fitted at the same time, at least 1; the result does not depend on it.
    pub threads: usize,
}

/// What has been done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress<'a> {
    /// A member's search goes on.
    Searching {
        /// The member.
        member: &'a str,
        /// Candidates measured so far.
        evaluations: usize,
        /// The best rms so far.
        rms: f64,
    },
    /// A member is fitted, and has made its predictions.
    Done {
        /// The member.
        member: &'a str,
        /// Candidates measured.
        evaluations: usize,
        /// Its rms.
        rms: f64,
    },
}

/// Why there is no calibration.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CalibrateError {
    /// The figures are not sound.
    #[error(transparent)]
    Targets(#[from] TargetError),
    /// A figure asks for what the machine does not have.
    #[error(transparent)]
    Measure(#[from] MeasureError),
}

/// Fits every member of the plan and lets it predict.
///
/// # Errors
/// [`CalibrateError`], the first member's first where there are several.
pub fn calibrate(plan: &Plan, progress: &(dyn Fn(Progress) + Sync)) -> Result<Calibration, CalibrateError> {
    plan.targets.check()?;
    let bench = Bench::new(&plan.targets, plan.jobs, plan.seed);
    let task = Task {
        targets: &plan.targets,
        bench: &bench,
        base: &plan.base,
        evaluations_max: plan.evaluations_max,
    };
    let fitted = in_parallel(&plan.members, plan.threads, |member| {
        let mut tell = |evaluations, rms| {
            let member = member.name;
            progress(Progress::Searching {
                member,
                evaluations,
                rms,
            });
        };
        let fit = task.fit(member, &mut tell)?;
        let predictions = predictions(&bench, &fit.candidate)?;
        progress(Progress::Done {
            member: member.name,
            evaluations: fit.evaluations,
            rms: fit.rms,
        });
        Ok::<_, MeasureError>((fit, predictions))
    });
    let mut members = Vec::new();
    for (member, fitted) in plan.members.iter().zip(fitted) {
        let (fit, predictions) = fitted?;
        members.push(MemberResult::new(member, fit, predictions));
    }
    Ok(Calibration::new(plan, members))
}

/// `work` on every item, on so many threads; the answers in the order of the items.
fn in_parallel<T: Sync, R: Send>(items: &[T], threads: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = Mutex::new(items.iter().enumerate());
    let take = || next.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next();
    let labour = || {
        let mut done = Vec::new();
        while let Some((i, item)) = take() {
            done.push((i, work(item)));
        }
        done
    };
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(labour)).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined
            .flat_map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    done.sort_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, answer)| answer).collect()
}

#[cfg(test)]
mod tests;
