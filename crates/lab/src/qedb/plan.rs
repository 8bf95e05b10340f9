//! Which runs each experiment consists of.
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
use super::setting::{Ask, CONTROL_PERIOD, CONTROLLERS_JOB, EVALUATION_JOB, Interference, MIXES, Mix, Work};
use crate::samples::{Labels, labels};

/// A part of the evaluation: one experiment each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Fig. 3: response times beside interfering cores, by clock.
    Interference,
    /// Fig. 4: data response time by QoD.
    Qod,
    /// Fig. 6: identification, and the law designed from it.
    Identify,
    /// Fig. 7: mixes on one interfering core.
    Average,
    /// Fig. 8 and 9: the two extreme mixes on one to three cores.
    Cores,
    /// Fig. 10: a disturbance comes and goes.
    Transient,
}

impl Part {
    /// All parts, in the paper's order.
    pub const ALL: [Part; 6] = [
        Part::Interference,
        Part::Qod,
        Part::Identify,
        Part::Average,
        Part::Cores,
        Part::Transient,
    ];

    /// The experiment's name.
    pub const fn name(self) -> &'static str {
        match self {
            Part::Interference => "qedb-interference",
            Part::Qod => "qedb-qod",
            Part::Identify => "qedb-identify",
            Part::Average => "qedb-average",
            Part::Cores => "qedb-cores",
            Part::Transient => "qedb-transient",
        }
    }
}

/// One planned run.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// What tells it from the others.
    pub labels: Labels,
    /// The approach that decides.
    pub approach: Approach,
    /// The real-time job, as a multiple of the microbenchmark's.
    pub job: f64,
    /// What interferes.
    pub interference: Option<Interference>,
    /// Sensor updates over the full rate.
    pub rate: f64,
    /// Control periods.
    pub samples: u64,
    /// The first one that means count from.
    pub settled_from: usize,
}

/// Clocks of Fig. 3, in MHz: below the first the job outlives its period beside interfering cores.
pub const CLOCKS: [u64; 4] = [800, 1100, 1400, 2000];
/// Interfering cores of Fig. 3.
pub const MICROBENCHMARK_CORES: [u32; 3] = [0, 1, 3];
/// QoD of Fig. 4, in percent, at [`QOD_CLOCK`] beside three cores.
pub const QODS: [u32; 5] = [10, 30, 50, 70, 100];
/// Fig. 4: in MHz.
pub const QOD_CLOCK: u64 = 1000;
/// The microbenchmark's interferers are not specified: transactions like the most data-intensive ones, one after the
/// other.
const MICROBENCHMARK_MIX: Mix = Mix(90);

/// Of a microbenchmark, and the first that counts: by then the cache is warm. Not stated.
const MICROBENCHMARK_SAMPLES: (u64, usize) = (7, 2);
/// Of a run of Figs. 7 to 9: after 12 s every sensor has spoken and the loop has settled. Not stated.
const STEADY_SAMPLES: (u64, usize) = (45, 12);
/// Of the recording of Fig. 6: eight rounds of the excitation's 20 samples. Not stated.
pub const IDENTIFY_SAMPLES: u64 = 164;
/// Section 5.4: the disturbance begins and ends at these samples.
pub const DISTURBED: [u64; 2] = [150, 400];
/// Section 5.4. The figure's end is not stated.
const TRANSIENT_SAMPLES: (u64, usize) = (415, 12);
/// Section 5.4: the disturbance.
const TRANSIENT: (Mix, u32) = (Mix(50), 3);

/// The runs of `parts`, none twice, in the paper's order. Identification is no run of the plan: it precedes it.
pub fn plan(parts: &[Part]) -> Vec<Planned> {
    let mut plan: Vec<Planned> = Vec::new();
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

/// The labels of the run that shows what identification gave.
pub fn identify_labels() -> Labels {
    labels([("part", "identify")])
}

/// The run whose drr is the nominal one: the goal is kept by the clock alone, and nothing interferes.
pub fn profile() -> Planned {
    steady("dvfs-only", Approach::DvfsOnly, None)
}

/// Whether the laws of `parts` must be learnt first.
pub fn needs_model(parts: &[Part]) -> bool {
    parts.iter().any(|part| !matches!(part, Part::Interference | Part::Qod))
}

fn interference() -> Vec<Planned> {
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

fn qod() -> Vec<Planned> {
    let run = |qod: u32| {
        let labels = labels([("part", "qod"), ("qod", &qod.to_string())]);
        microbenchmark(labels, QOD_CLOCK, 3, f64::from(qod) / 100.0)
    };
    QODS.map(run).to_vec()
}

fn microbenchmark(labels: Labels, clock_mhz: u64, cores: u32, rate: f64) -> Planned {
    let beside = Interference {
        mix: MICROBENCHMARK_MIX,
        cores,
        active: Active::ALWAYS,
        dense: true,
    };
    let (samples, settled_from) = MICROBENCHMARK_SAMPLES;
    Planned {
        labels,
        approach: Approach::Pinned(clock_mhz),
        job: 1.0,
        interference: (cores > 0).then_some(beside),
        rate,
        samples,
        settled_from,
    }
}

fn average() -> Vec<Planned> {
    let mixes = std::iter::once(None).chain(MIXES.map(|mix| Some((mix, 1))));
    steady_runs(mixes)
}

fn cores() -> Vec<Planned> {
    let extremes = [MIXES[0], MIXES[4]];
    let loads = extremes
        .into_iter()
        .flat_map(|mix| (1..=3).map(move |cores| Some((mix, cores))));
    steady_runs(std::iter::once(None).chain(loads))
}

fn steady_runs(loads: impl Iterator<Item = Option<(Mix, u32)>>) -> Vec<Planned> {
    loads
        .flat_map(|load| APPROACHES.map(|(name, approach)| steady(name, approach, load)))
        .collect()
}

fn steady(name: &str, approach: Approach, load: Option<(Mix, u32)>) -> Planned {
    let workload = load.map_or("none".into(), |(mix, _)| mix.name());
    let cores = load.map_or(0, |(_, cores)| cores).to_string();
    let (samples, settled_from) = STEADY_SAMPLES;
    Planned {
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

fn transient() -> Vec<Planned> {
    let [from, until] = DISTURBED.map(|sample| CONTROL_PERIOD * sample);
    let (mix, cores) = TRANSIENT;
    let run = |name: &str, approach: Approach| {
        let mut labels = labels([("part", "transient"), ("approach", name)]);
        if let Approach::Mimo(goal) = approach {
            let drr = if goal == DrrGoal::Nominal { "nominal" } else { "high" };
            labels.insert("drr".into(), drr.into());
        }
        Planned {
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

impl Planned {
    /// The scenario's particulars, where the microbenchmark's job is `work` and the evaluation's has this nominal drr.
    pub fn ask(&self, work: Work, seed: u64, nominal_drr: f64) -> Ask {
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

/// What identification asks for in the comparison of controllers, where the microbenchmark's job is `work`.
pub fn identify_ask(work: Work, seed: u64) -> Ask {
    learning(work.scaled(CONTROLLERS_JOB), seed)
}

/// What identification asks for with this job.
///
/// Nothing interferes while a model is learnt: interference is what the law is to reject. (Beside two cores of C50-D50,
/// which come and go at random, R^2 of drr stayed under 0.8 on most machines: by the paper's own criterion no valid
/// model.)
pub fn learning(job: Work, seed: u64) -> Ask {
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

/// What runs that do not control drr have for a goal.
pub const NOMINAL_DRR_IN_THE_PAPER: f64 = 0.28;

/// The longest run, for the length of the readings.
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
