//! The machines that the evaluation runs on when none are given.

use punctual_sim::MachineModel;

use super::setting::Work;
use crate::Subject;

/// The calibrated machines, each with the job that was calibrated together with it.
pub fn ensemble() -> Vec<Subject> {
    vec![Subject {
        machine: MachineModel::exynos5422_a15(),
        job: Work::PAPER,
    }]
}
