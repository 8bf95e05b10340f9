//! Everything about a profile as JSON: what `punctual profile show --json` writes.

use punctual_allocation::profile::{Accuracy, Recording, Smoothing, Timing};
use punctual_allocation::{Grid, Phase};
use serde::Serialize;

use super::show::Shown;

/// A compiled profile, what it was compiled from, and what that costs.
#[derive(Serialize)]
pub struct Document<'a> {
    kind: &'static str,
    name: &'a str,
    grid: Grid,
    instructions: f64,
    /// Of a profile by window; a measured one needs none.
    timing: Option<Timing>,
    smoothing: Smoothing,
    candidates: Vec<Kinds>,
    kinds: Option<usize>,
    phases_found: usize,
    accuracy: &'a Accuracy,
    /// Seconds of a whole run as recorded, by ways and then by partitions.
    durations_s: Vec<f64>,
    phases: &'a [Phase],
}

/// How good so many kinds are.
#[derive(Serialize)]
struct Kinds {
    kinds: usize,
    log_likelihood: f64,
    davies_bouldin: f64,
    calinski_harabasz: f64,
}

impl Document<'_> {
    /// Of a profile that was read.
    pub fn of(shown: &Shown) -> Document<'_> {
        let choice = shown.compiled.kinds.as_ref().map(|kinds| &kinds.choice);
        let candidates = choice.into_iter().flat_map(|choice| &choice.candidates);
        Document {
            kind: "punctual-profile",
            name: shown.recording.name(),
            grid: shown.course.grid(),
            instructions: shown.course.instructions(),
            timing: matches!(shown.recording, Recording::Windows(_)).then_some(shown.options.timing),
            smoothing: shown.options.smoothing,
            candidates: candidates
                .map(|candidate| Kinds {
                    kinds: candidate.kinds,
                    log_likelihood: candidate.fit.log_likelihood,
                    davies_bouldin: candidate.davies_bouldin,
                    calinski_harabasz: candidate.calinski_harabasz,
                })
                .collect(),
            kinds: choice.map(|choice| choice.best().kinds),
            phases_found: shown.compiled.phases_found,
            accuracy: &shown.compiled.accuracy,
            durations_s: shown
                .course
                .grid()
                .shares()
                .map(|share| shown.course.duration(share))
                .collect(),
            phases: &shown.compiled.profile.phases,
        }
    }
}
