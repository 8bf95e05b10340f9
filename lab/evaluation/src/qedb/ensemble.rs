//! The default machines of the evaluation: those that were calibrated on the paper's microbenchmarks, each with the job
//! that was calibrated together with it (`machines/qedb-*`, docs/lab/qedb.md).

use punctual_sim::MachineModel;
use punctual_units::Nanos;
use serde::Deserialize;

use super::setting::JobTimes;
use crate::Subject;

/// Results of the calibration (docs/lab/qedb.md).
const CALIBRATION: &str = include_str!("../../../../machines/qedb-calibration.json");

macro_rules! machine {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../../../machines/qedb-", $name, ".toml")),
        )
    };
}

/// Texts of the machine files, by the name of the calibration's member.
const MACHINES: [(&str, &str); 7] = [
    machine!("constant-memory"),
    machine!("clocked-memory"),
    machine!("slow-pollution"),
    machine!("fast-pollution"),
    machine!("cheap-updates"),
    machine!("dear-updates"),
    machine!("gradual-pollution"),
];

/// Number of machines that were calibrated together, two for each open question. The control laws of this project are
/// compared on these (docs/lab/control.md); the seventh machine was added later.
pub const FIRST_MACHINES: usize = 6;

#[derive(Deserialize)]
struct Calibration {
    members: Vec<Member>,
}

#[derive(Deserialize)]
struct Member {
    name: String,
    job: Job,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Job {
    compute_ms: f64,
    data_ms: f64,
}

/// The calibrated machines with their jobs.
pub fn ensemble() -> Vec<Subject> {
    calibrated().into_iter().filter_map(subject).collect()
}

fn calibrated() -> Vec<Member> {
    // The calibration is part of the program; a test reads it.
    let calibration: Calibration = match serde_json::from_str(CALIBRATION) {
        Ok(calibration) => calibration,
        Err(error) => unreachable!("the shipped calibration is no calibration: {error}"),
    };
    calibration.members
}

fn subject(Member { name, job }: Member) -> Option<Subject> {
    let (shown, text) = MACHINES.into_iter().find(|(known, _)| *known == name)?;
    let millis = |ms: f64| Nanos::from_secs_f64(ms * 1e-3);
    Some(Subject {
        machine: MachineModel::from_toml(text, shown).ok()?,
        job: JobTimes {
            compute: millis(job.compute_ms),
            data: millis(job.data_ms),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qedb::setting::DEADLINE;

    #[test]
    fn every_calibrated_machine_is_there_with_its_job() {
        let ensemble = ensemble();
        assert_eq!(ensemble.len(), MACHINES.len());
        for Subject { machine, job } in ensemble {
            assert_eq!(machine.check(), Ok(()), "{}", machine.name);
            let share = job.response().ratio(DEADLINE);
            assert!((0.1..0.3).contains(&share), "{}: {share}", machine.name);
        }
    }
}
