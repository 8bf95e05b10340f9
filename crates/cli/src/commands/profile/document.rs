//! A profile as JSON, for `punctual profile --json`.

use punctual_allocation::profile::{Accuracy, ProfileRecording, Smoothing, Timing};
use punctual_allocation::{Grid, Profile, Share};
use serde::Serialize;

use super::show::ProfileView;

/// A compiled profile, its source, and the error of the compilation.
#[derive(Serialize)]
pub struct Document<'a> {
    kind: &'static str,
    name: &'a str,
    grid: Grid,
    instructions: f64,
    /// Timing model of a profile traced in windows; `None` for a measured one.
    timing: Option<Timing>,
    smoothing: Smoothing,
    candidates: Vec<Kinds>,
    kinds: Option<usize>,
    phases_found: usize,
    accuracy: &'a Accuracy,
    /// Shares that a core may have, in the order of all lists by share.
    shares: Vec<Share>,
    /// Seconds of a whole run as recorded, by share.
    durations_s: Vec<f64>,
    phases: Vec<Phase<'a>>,
}

/// A stretch of the run with constant rates.
#[derive(Serialize)]
struct Phase<'a> {
    /// Progress at its beginning, as a share of the run's instructions in 0..=1.
    begins: f64,
    /// Progress at its end.
    ends: f64,
    /// Instructions per second, by share.
    rates: &'a [f32],
}

fn phases(profile: &Profile) -> Vec<Phase<'_>> {
    let begins = std::iter::once(0.0).chain(profile.phases.iter().map(|phase| phase.ends));
    begins
        .zip(&profile.phases)
        .map(|(begins, phase)| Phase {
            begins,
            ends: phase.ends,
            rates: phase.rates.rates(),
        })
        .collect()
}

/// Quality of a clustering into `kinds` clusters.
#[derive(Serialize)]
struct Kinds {
    kinds: usize,
    log_likelihood: f64,
    davies_bouldin: f64,
    calinski_harabasz: f64,
}

impl Document<'_> {
    /// Document of a profile that was read.
    pub fn of(shown: &ProfileView) -> Document<'_> {
        let choice = shown.compiled.kinds.as_ref().map(|kinds| &kinds.choice);
        let candidates = choice.into_iter().flat_map(|choice| &choice.candidates);
        Document {
            kind: "punctual-profile",
            name: shown.recording.name(),
            grid: shown.course.grid(),
            instructions: shown.course.instructions(),
            timing: matches!(shown.recording, ProfileRecording::Windows(_)).then_some(shown.options.timing),
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
            shares: shown.course.grid().shares().collect(),
            durations_s: shown
                .course
                .grid()
                .shares()
                .map(|share| shown.course.duration(share))
                .collect(),
            phases: phases(&shown.compiled.profile),
        }
    }
}
