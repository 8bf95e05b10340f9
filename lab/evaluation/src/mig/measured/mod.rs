//! The fourth paper's evaluation on this machine: its Figs. 2, 6, 7, 15 and 16, measured in a running pipeline.
//!
//! The part that depends on clocks of cores and on power (`mig-map`) is simulated only.

mod checkpoint;
mod cost;
mod daemons;
mod queues;

use punctual_pipelines::linux::told;

use super::Part;
use crate::claims::judge;
use crate::qedb::{means, of_first_seed};
use crate::samples::{Labels, Replication, Run, failures};
use crate::{ExperimentError, Outcome, Progress, Settings, Testbed};

/// The claims in the form in which they are judged here, written before the first run.
pub const CLAIMS: &str = include_str!("../../../data/mig-linux-claims.toml");
/// Reasons why some claims do not hold, as far as known.
pub const REASONS: &str = include_str!("../../../data/mig-linux-reasons.toml");

/// The parts that can be measured.
pub const PARTS: [Part; 4] = [Part::Cost, Part::Daemons, Part::Queues, Part::Checkpoint];

/// Serves as a stage if a measurement has started this process; in that case it does not return.
///
/// # Errors
/// A message that says why the pipeline cannot be opened.
pub fn serve_if_told() -> Result<(), String> {
    let Some(tag) = told() else { return Ok(()) };
    crate::migration::serve_if_told().map_err(|why| why.to_string())?;
    daemons::serve(&tag)?;
    queues::serve(&tag)?;
    checkpoint::serve(&tag)
}

/// Measures `parts` once for each seed of `settings`.
///
/// # Errors
/// [`ExperimentError`] before any measurement starts. A measurement that fails is part of the outcome.
pub fn run(parts: &[Part], settings: &Settings, progress: Progress) -> Result<Outcome, ExperimentError> {
    settings.claims.check_experiments(&PARTS.map(Part::name))?;
    for part in PARTS {
        settings.claims.check_names(part.name(), series(part), &labels(part))?;
    }
    let parts: Vec<Part> = parts.iter().copied().filter(|part| PARTS.contains(part)).collect();
    if parts.is_empty() || settings.seeds == 0 {
        let measured = PARTS.map(Part::name).join(", ");
        return Err(ExperimentError::Settings(format!(
            "{measured} are measured on this machine, at least once; the others are simulated: leave out --platform"
        )));
    }
    let replicate = |seed: u64| {
        let tell = |what: &str| progress(what);
        let results = parts.iter().flat_map(|part| runs(*part, &tell));
        Replication::of("this machine", seed, results)
    };
    let replications: Vec<Replication> = settings.seeds().map(replicate).collect();
    let claims = parts.iter().flat_map(|part| settings.claims.of(part.name()));
    Ok(Outcome {
        name: match parts.as_slice() {
            [one] => one.name(),
            _ => "mig",
        }
        .into(),
        platform: "linux".into(),
        testbed: Testbed::Machine,
        machines: vec!["this machine".into()],
        seeds: settings.seeds().collect(),
        setting: Vec::new(),
        claims: claims
            .map(|claim| judge(claim, &replications, &settings.reasons))
            .collect(),
        tables: Vec::new(),
        measures: Vec::new(),
        figures: Vec::new(),
        means: means(&replications),
        failures: failures(&replications),
        samples: of_first_seed(replications, settings.seed),
    })
}

fn series(part: Part) -> &'static [&'static str] {
    match part {
        Part::Cost => &cost::SERIES,
        Part::Daemons => &daemons::SERIES,
        Part::Queues => &queues::SERIES,
        Part::Checkpoint => &checkpoint::SERIES,
        Part::Map | Part::Policies => &[],
    }
}

fn labels(part: Part) -> Vec<Labels> {
    match part {
        Part::Cost => cost::labels(),
        Part::Daemons => daemons::labels(),
        Part::Queues => queues::labels(),
        Part::Checkpoint => checkpoint::labels(),
        Part::Map | Part::Policies => Vec::new(),
    }
}

fn runs(part: Part, tell: &dyn Fn(&str)) -> Vec<Result<Run, String>> {
    match part {
        Part::Cost => cost::runs(tell),
        Part::Daemons => daemons::runs(tell),
        Part::Queues => queues::runs(tell),
        Part::Checkpoint => checkpoint::runs(tell),
        Part::Map | Part::Policies => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::Claims;

    #[test]
    fn claims_name_what_is_measured() {
        let claims = Claims::parse(CLAIMS, "x").unwrap();
        claims.check_experiments(&PARTS.map(Part::name)).unwrap();
        for part in PARTS {
            claims.check_names(part.name(), series(part), &labels(part)).unwrap();
            assert!(claims.of(part.name()).count() > 0, "{part:?}");
        }
        assert!(crate::claims::reasons(REASONS, "x").is_ok());
    }
}
