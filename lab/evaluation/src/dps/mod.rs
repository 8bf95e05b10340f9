//! The evaluation of the second paper: dual management of real-time and interactive jobs (DPS-NV; E. Lee, Y. Kim and H.
//! Bahn, 2014), Figs. 3 to 5.
//!
//! `setting` has the paper's parameters, and those that were chosen where it is silent; `film` and `interactive` make
//! the load. `plan` lists the runs; `decide` decides which job gets a core, from the measurements of `rehearsal`.
//! `replicate` performs the runs with one seed; `figures` and `measures` list the charts and the measures beside the
//! claims, `reasons` explains why a claim does not hold. The machine and the media are files; the film and the load are
//! options ([`Ground`]).

mod decide;
mod figures;
mod film;
mod interactive;
mod measures;
mod plan;
mod reasons;
mod rehearsal;
mod replicate;
mod setting;

use crate::dual::DualMachine;
use punctual_machine::media::Media;

use crate::claims::judge;
use crate::parallel::in_order;
use crate::qedb::{means, of_first_seed};
use crate::samples::{Labels, Replication};
use crate::{Experiment, ExperimentError, Outcome, Progress, Settings};

use measures::over;
pub use plan::{Approach, Part, PlannedRun, Source, plan};
pub use replicate::{FRAME_SERIES, RUN_SERIES};
pub use setting::{FPS, Film, Play};

use replicate::SeededMachine;

/// The claims of the paper, as written before the first run. Reasons why some do not hold are computed from the runs.
pub const CLAIMS: &str = include_str!("../../data/dps-claims.toml");

/// The paper's experiments, and all of them together.
pub const EXPERIMENTS: [Experiment; 5] = [
    Experiment {
        name: "dps-cache",
        about: "Fig. 3(a): missed frames by cache size, blocking against dual management",
        run: |settings, progress| run(&[Part::Cache], &Ground::paper(), settings, progress),
    },
    Experiment {
        name: "dps-wait",
        about: "Fig. 3(b): missed frames by the wait in the ready queue",
        run: |settings, progress| run(&[Part::Wait], &Ground::paper(), settings, progress),
    },
    Experiment {
        name: "dps-timeline",
        about: "Fig. 4: when each of 150 frames is done",
        run: |settings, progress| run(&[Part::Timeline], &Ground::paper(), settings, progress),
    },
    Experiment {
        name: "dps-utilisation",
        about: "Fig. 5: what polling costs on PCM, flash and a disk",
        run: |settings, progress| run(&[Part::Utilisation], &Ground::paper(), settings, progress),
    },
    Experiment {
        name: "dps",
        about: "all four of them, no run twice",
        run: |settings, progress| run(&Part::ALL, &Ground::paper(), settings, progress),
    },
];

/// Conditions of the experiments: machine, media and load.
#[derive(Clone, Debug, PartialEq)]
pub struct Ground {
    pub machine: DualMachine,
    /// The media that hold the data.
    pub media: Media,
    /// The film, and the number of interactive jobs.
    pub play: Play,
}

impl Ground {
    /// The conditions of the paper: two cores, the media of Table 1.
    pub fn paper() -> Ground {
        Ground {
            machine: DualMachine::dps_dual_core(),
            media: Media::dps_table_1(),
            play: Play::default(),
        }
    }
}

/// The parts of the experiment `name`; `None` for a name that is not in [`EXPERIMENTS`].
pub fn parts(name: &str) -> Option<Vec<Part>> {
    if name == "dps" {
        return Some(Part::ALL.to_vec());
    }
    Part::ALL
        .into_iter()
        .find(|part| part.name() == name)
        .map(|part| vec![part])
}

/// Runs `parts` on `ground` with every seed. The machines of `settings` are ignored: they are of another kind.
///
/// # Errors
/// [`ExperimentError`] before any run starts. A run that fails is part of the outcome.
pub fn run(
    parts: &[Part],
    ground: &Ground,
    settings: &Settings,
    progress: Progress,
) -> Result<Outcome, ExperimentError> {
    check(ground, settings)?;
    let film = ground.play.film;
    let plan = plan(parts, film);
    check_claims(film, settings)?;
    let replications = carry_out(&plan, ground, settings, progress);
    let claims = parts.iter().flat_map(|part| settings.claims.of(part.name()));
    let reasons = reasons::reasons(ground, &replications);
    Ok(Outcome {
        name: name(parts).into(),
        platform: "sim".into(),
        testbed: crate::Testbed::Machine,
        machines: vec![ground.machine.name.clone()],
        seeds: settings.seeds().collect(),
        setting: setting::rows(&ground.machine, &ground.media, &ground.play),
        claims: claims.map(|claim| judge(claim, &replications, &reasons)).collect(),
        tables: Vec::new(),
        measures: measures::measures(parts, film, &replications),
        figures: figures::figures(parts, film, &replications),
        means: means(&replications),
        failures: replications.iter().flat_map(|one| one.failures.clone()).collect(),
        samples: of_first_seed(replications, settings.seed),
    })
}

fn name(parts: &[Part]) -> &'static str {
    match parts {
        [one] => one.name(),
        _ => "dps",
    }
}

fn check(ground: &Ground, settings: &Settings) -> Result<(), ExperimentError> {
    let refuse = |what: String| Err(ExperimentError::Settings(what));
    if settings.seeds == 0 {
        return refuse("an experiment needs at least one seed".into());
    }
    if let Err(error) = ground.machine.check().and_then(|()| ground.media.check()) {
        return refuse(error.to_string());
    }
    ground.play.check().or_else(refuse)
}

/// Checks that every formula names existing samples and runs; claims about parts that do not run are checked as well.
fn check_claims(film: Film, settings: &Settings) -> Result<(), ExperimentError> {
    let known: Vec<&str> = Part::ALL.iter().map(|part| part.name()).collect();
    settings.claims.check_experiments(&known)?;
    let series: Vec<&str> = FRAME_SERIES.into_iter().chain(RUN_SERIES).collect();
    for part in Part::ALL {
        let labels: Vec<Labels> = plan(&[part], film).iter().map(PlannedRun::labels).collect();
        settings.claims.check_names(part.name(), &series, &labels)?;
    }
    Ok(())
}

fn carry_out(plan: &[PlannedRun], ground: &Ground, settings: &Settings, progress: Progress) -> Vec<Replication> {
    let seeds: Vec<u64> = settings.seeds().collect();
    let done = |count: usize| progress(&format!("{count} of {} seeds, {} runs each", seeds.len(), plan.len()));
    let replicate = |seed: &u64| {
        let place = SeededMachine::new(ground, *seed);
        let results = plan.iter().map(|planned| place.run(planned));
        Replication::of(&ground.machine.name, *seed, results)
    };
    in_order(&seeds, settings.workers(), replicate, &done)
}

#[cfg(test)]
mod tests;
