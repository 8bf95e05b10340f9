//! The runs of each experiment.
//!
//! Labels distinguish a run from the others; formulas select by them:
//!
//! | part | labels | experiment |
//! |---|---|---|
//! | `interference` | `clock` (MHz), `cores` | `qedb-interference` |
//! | `qod` | `qod` (percent) | `qedb-qod` |
//! | `identify` | | `qedb-identify` |
//! | `steady` | `approach`, `workload`, `cores` | `qedb-average` (one core), `qedb-cores` |
//! | `transient` | `approach`, of `mimo` also `drr` | `qedb-transient` |

use punctual_units::Nanos;
use punctual_workload::{Active, ControllerKind};

use super::approach::{APPROACHES, Approach, DrrGoal};
use super::setting::{Ask, CONTROL_PERIOD, CONTROLLERS_JOB, EVALUATION_JOB, Interference, JobTimes, MIXES, Mix};
use crate::samples::{Labels, labels};

punctual_units::named! {
    /// A part of the evaluation; each is one experiment, in the paper's order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Part by name {
        /// Fig. 3: response times beside interfering cores, by clock.
        Interference = "qedb-interference",
        /// Fig. 4: data response time by QoD.
        Qod = "qedb-qod",
        /// Fig. 6: identification, and the control law designed from it.
        Identify = "qedb-identify",
        /// Fig. 7: mixes on one interfering core.
        Average = "qedb-average",
        /// Fig. 8 and 9: the two extreme mixes on one to three cores.
        Cores = "qedb-cores",
        /// Fig. 10: a disturbance comes and goes.
        Transient = "qedb-transient",
    }
}

/// A run of the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedRun {
    /// Labels that identify the run among all planned runs.
    pub labels: Labels,
    /// The controller of the run.
    pub approach: Approach,
    /// The real-time job, as a multiple of the microbenchmark's job.
    pub job: f64,
    pub interference: Option<Interference>,
    /// Rate of sensor updates, as a share of the full rate.
    pub rate: f64,
    /// Duration, in control periods.
    pub samples: u64,
    /// Index of the first sample that counts for means.
    pub settled_from: usize,
}

/// Clocks of Fig. 3, in MHz: below the first, the job takes longer than its period beside interfering cores.
pub const CLOCKS: [u64; 4] = [800, 1100, 1400, 2000];
/// Numbers of interfering cores of Fig. 3.
pub const MICROBENCHMARK_CORES: [u32; 3] = [0, 1, 3];
/// Qualities of data (share of updates) of Fig. 4, in percent, at [`QOD_CLOCK`] beside three cores.
pub const QODS: [u32; 5] = [10, 30, 50, 70, 100];
/// Clock of Fig. 4, in MHz.
pub const QOD_CLOCK: u64 = 1000;
/// Mix of the microbenchmark's interferers, which the paper does not specify: the most data-intensive transactions, one
/// after the other.
const MICROBENCHMARK_MIX: Mix = Mix(90);

/// Number of samples of a microbenchmark, and the first that counts: by then the cache is warm. Not stated in the
/// paper.
const MICROBENCHMARK_SAMPLES: (u64, usize) = (7, 2);
/// Number of samples of a run of Figs. 7 to 9, and the first that counts: after 12 s every sensor has reported and the
/// loop has settled. Not stated in the paper.
const STEADY_SAMPLES: (u64, usize) = (45, 12);
/// Number of samples of the recording of Fig. 6: eight rounds of the excitation's 20 samples. Not stated in the paper.
pub const IDENTIFY_SAMPLES: u64 = 164;
/// Samples at which the disturbance begins and ends (section 5.4).
pub const DISTURBED: [u64; 2] = [150, 400];
/// Number of samples of a run with the disturbance, and the first that counts. The end of the paper's figure is not
/// stated.
const TRANSIENT_SAMPLES: (u64, usize) = (415, 12);
/// Mix and number of cores of the disturbance (section 5.4).
const TRANSIENT: (Mix, u32) = (Mix(50), 3);

/// The runs of `parts`, none twice, in the paper's order. Identification is not in the plan: it precedes it.
pub fn plan(parts: &[Part]) -> Vec<PlannedRun> {
    let mut plan: Vec<PlannedRun> = Vec::new();
    for part in parts {
        let runs = match part {
            Part::Interference => interference(),
            Part::Qod => qod(),
            Part::Identify => Vec::new(),
            Part::Average => average(),
            Part::Cores => cores(),
            Part::Transient => transient(),
        };
        for run in runs {
            if !plan.iter().any(|other| other.labels == run.labels) {
                plan.push(run);
            }
        }
    }
    plan
}

/// Labels of the run with the results of identification.
pub fn identify_labels() -> Labels {
    labels([("part", "identify")])
}

/// The run whose drr defines the nominal drr: the clock alone keeps the goal, and nothing interferes.
pub fn profile() -> PlannedRun {
    steady("dvfs-only", Approach::DvfsOnly, None)
}

/// Whether the runs of `parts` need a control law, which must be learnt first.
pub fn needs_model(parts: &[Part]) -> bool {
    parts.iter().any(|part| !matches!(part, Part::Interference | Part::Qod))
}

fn interference() -> Vec<PlannedRun> {
    let run = |clock: u64, cores: u32| {
        microbenchmark(
            labels([
                ("part", "interference"),
                ("clock", &clock.to_string()),
                ("cores", &cores.to_string()),
            ]),
            clock,
            cores,
            1.0,
        )
    };
    CLOCKS
        .into_iter()
        .flat_map(|clock| MICROBENCHMARK_CORES.map(|cores| run(clock, cores)))
        .collect()
}

fn qod() -> Vec<PlannedRun> {
    let run = |qod: u32| {
        let labels = labels([("part", "qod"), ("qod", &qod.to_string())]);
        microbenchmark(labels, QOD_CLOCK, 3, f64::from(qod) / 100.0)
    };
    QODS.map(run).to_vec()
}

fn microbenchmark(labels: Labels, clock_mhz: u64, cores: u32, rate: f64) -> PlannedRun {
    let beside = Interference {
        mix: MICROBENCHMARK_MIX,
        cores,
        active: Active::ALWAYS,
        dense: true,
    };
    let (samples, settled_from) = MICROBENCHMARK_SAMPLES;
    PlannedRun {
        labels,
        approach: Approach::Pinned(clock_mhz),
        job: 1.0,
        interference: (cores > 0).then_some(beside),
        rate,
        samples,
        settled_from,
    }
}

fn average() -> Vec<PlannedRun> {
    let mixes = std::iter::once(None).chain(MIXES.map(|mix| Some((mix, 1))));
    steady_runs(mixes)
}

fn cores() -> Vec<PlannedRun> {
    let extremes = [MIXES[0], MIXES[4]];
    let loads = extremes
        .into_iter()
        .flat_map(|mix| (1..=3).map(move |cores| Some((mix, cores))));
    steady_runs(std::iter::once(None).chain(loads))
}

fn steady_runs(loads: impl Iterator<Item = Option<(Mix, u32)>>) -> Vec<PlannedRun> {
    loads
        .flat_map(|load| APPROACHES.map(|(name, approach)| steady(name, approach, load)))
        .collect()
}

fn steady(name: &str, approach: Approach, load: Option<(Mix, u32)>) -> PlannedRun {
    let workload = load.map_or("none".into(), |(mix, _)| mix.name());
    let cores = load.map_or(0, |(_, cores)| cores).to_string();
    let (samples, settled_from) = STEADY_SAMPLES;
    PlannedRun {
        labels: labels([
            ("part", "steady"),
            ("approach", name),
            ("workload", &workload),
            ("cores", &cores),
        ]),
        approach,
        job: EVALUATION_JOB,
        interference: load.map(|(mix, cores)| beside(mix, cores, Active::ALWAYS)),
        rate: 1.0,
        samples,
        settled_from,
    }
}

fn transient() -> Vec<PlannedRun> {
    let [from, until] = DISTURBED.map(|sample| CONTROL_PERIOD * sample);
    let (mix, cores) = TRANSIENT;
    let run = |name: &str, approach: Approach| {
        let mut labels = labels([("part", "transient"), ("approach", name)]);
        if let Approach::Mimo(goal) = approach {
            let drr = if goal == DrrGoal::Nominal { "nominal" } else { "high" };
            labels.insert("drr".into(), drr.into());
        }
        PlannedRun {
            labels,
            approach,
            job: EVALUATION_JOB,
            interference: Some(beside(mix, cores, Active { from, until })),
            rate: 1.0,
            samples: TRANSIENT_SAMPLES.0,
            settled_from: TRANSIENT_SAMPLES.1,
        }
    };
    vec![
        run("open", Approach::Open),
        run("dvfs-only", Approach::DvfsOnly),
        run("qod1000", Approach::Qod(1000)),
        run("mimo", Approach::Mimo(DrrGoal::Nominal)),
        run("mimo", Approach::Mimo(DrrGoal::High)),
    ]
}

fn beside(mix: Mix, cores: u32, active: Active) -> Interference {
    Interference {
        mix,
        cores,
        active,
        dense: false,
    }
}

impl PlannedRun {
    /// The parameters of the scenario, for the microbenchmark's job `work` and the evaluation's nominal drr.
    pub fn ask(&self, work: JobTimes, seed: u64, nominal_drr: f64) -> Ask {
        let (controller, drr) = self.approach.controller(nominal_drr);
        Ask {
            job: work.scaled(self.job),
            controller,
            drr,
            rate: self.rate,
            interference: self.interference,
            samples: self.samples,
            seed,
        }
    }
}

/// Parameters of identification in the comparison of controllers, for the microbenchmark's job `work`.
pub fn identify_ask(work: JobTimes, seed: u64) -> Ask {
    learning(work.scaled(CONTROLLERS_JOB), seed)
}

/// Parameters of identification with this job.
///
/// Nothing interferes while a model is learnt, because interference is a disturbance that the law must reject. (Beside
/// two cores of C50-D50, which come and go at random, R^2 of drr stayed under 0.8 on most machines: by the paper's own
/// criterion no valid model.)
pub fn learning(job: JobTimes, seed: u64) -> Ask {
    Ask {
        job,
        controller: ControllerKind::Mimo,
        drr: NOMINAL_DRR_IN_THE_PAPER,
        rate: 1.0,
        interference: None,
        samples: IDENTIFY_SAMPLES,
        seed,
    }
}

/// The goal for drr in runs that do not control it.
pub const NOMINAL_DRR_IN_THE_PAPER: f64 = 0.28;

/// Duration of the longest run, which determines the length of the sensor readings.
pub fn longest() -> Nanos {
    CONTROL_PERIOD * TRANSIENT_SAMPLES.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_together_run_nothing_twice() {
        let whole = plan(&Part::ALL);
        for (i, run) in whole.iter().enumerate() {
            assert!(
                whole[..i].iter().all(|other| other.labels != run.labels),
                "{:?}",
                run.labels
            );
        }
        for part in Part::ALL {
            let own = plan(&[part]);
            assert!(own.iter().all(|run| whole.contains(run)), "{part:?}");
        }
        assert_eq!(whole.len(), 4 * 3 + 5 + 5 * (1 + 5 + 2 * 2) + 5);
    }

    #[test]
    fn the_profile_is_a_run_of_the_plan() {
        assert!(plan(&[Part::Average]).contains(&profile()));
    }
}
