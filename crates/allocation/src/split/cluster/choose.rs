//! How many kinds there are.
//!
//! The fifth paper fits mixtures of k = 2 to 30 kinds, takes the one of highest quality by the indices of Davies and
//! Bouldin and of Calinski and Harabasz, and among equals the one with the largest k. How the two make one quality it
//! does not say. Here each index ranks the candidates (its place is the number of better ones), and the sum of both
//! places decides: it needs no weight between quantities of different units, and it does tie.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::indices::{calinski_harabasz, davies_bouldin};
use super::mixture::{Fit, Mixture};
use super::points::Points;
use super::start::start;

/// Which mixtures are fitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusteringSettings {
    /// Numbers of kinds to try.
    pub kinds: RangeInclusive<usize>,
    /// Starts for each number of kinds, at least 1; the fit of highest likelihood counts.
    pub starts: u32,
    /// The first start's seed; the others count up from it.
    pub seed: u64,
}

impl Default for ClusteringSettings {
    /// The paper's 2 to 30 kinds, three starts.
    fn default() -> ClusteringSettings {
        ClusteringSettings {
            kinds: 2..=30,
            starts: 3,
            seed: 1,
        }
    }
}

/// Best fit with one number of kinds, and its quality.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Kinds of the mixture; some may have no point for which they are the likeliest.
    pub kinds: usize,
    /// Fit of highest likelihood among all starts.
    pub fit: Fit,
    /// Index of Davies and Bouldin; lower is better.
    pub davies_bouldin: f64,
    /// Index of Calinski and Harabasz; higher is better.
    pub calinski_harabasz: f64,
}

/// All candidates, and the one that was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// In ascending number of kinds. Left out: candidates with more kinds than there are different points, and those
    /// that label all points alike.
    pub candidates: Vec<Candidate>,
    /// Index of the chosen candidate in `candidates`.
    pub chosen: usize,
}

impl Choice {
    /// Returns the chosen candidate.
    pub fn best(&self) -> &Candidate {
        &self.candidates[self.chosen]
    }
}

/// Fits mixtures to `points`, which are on a common scale, and chooses among them. `None` where all points are alike.
pub fn choose(points: &Points, settings: &ClusteringSettings) -> Option<Choice> {
    let candidates: Vec<Candidate> = settings
        .kinds
        .clone()
        .filter_map(|kinds| candidate(points, kinds, settings))
        .collect();
    let chosen = best_of(&candidates)?;
    Some(Choice { candidates, chosen })
}

fn candidate(points: &Points, kinds: usize, settings: &ClusteringSettings) -> Option<Candidate> {
    let seeds = (0..settings.starts.max(1)).map(|i| settings.seed.wrapping_add(u64::from(i)));
    let fits = seeds.filter_map(|seed| Some(Mixture::fit(points, &start(points, kinds, seed)?, kinds)));
    let fit = fits.max_by(|a, b| a.log_likelihood.total_cmp(&b.log_likelihood))?;
    let labels = fit.mixture.labels(points);
    Some(Candidate {
        kinds,
        davies_bouldin: davies_bouldin(points, &labels)?,
        calinski_harabasz: calinski_harabasz(points, &labels)?,
        fit,
    })
}

/// The candidate with the lowest sum of places; among equals the one with the most kinds.
fn best_of(candidates: &[Candidate]) -> Option<usize> {
    let places = |of: &Candidate| {
        let tighter = |other: &&Candidate| other.davies_bouldin < of.davies_bouldin;
        let further = |other: &&Candidate| other.calinski_harabasz > of.calinski_harabasz;
        candidates.iter().filter(tighter).count() + candidates.iter().filter(further).count()
    };
    let quality = |i: &usize| (places(&candidates[*i]), std::cmp::Reverse(candidates[*i].kinds));
    (0..candidates.len()).min_by_key(quality)
}
