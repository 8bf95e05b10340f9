//! Every mapping once, and the best of them for one frame rate.
//!
//! **Method.** Stages are placed one after the other. A stage may go to each core that is in use, and to the first of
//! those that are indistinguishable: unused cores of one domain, and unused domains that are alike. Eight stages on
//! four like cores make 2795 mappings instead of 65536. Which of the like cores is meant is decided last, so that the
//! fewest stages move (`relabel`).
//!
//! **Bound.** At most [`MAPPINGS_MAX`] mappings.

use super::model::{Cores, Mapping, MappingError, Problem};
use super::power::{Demands, LinearPower, Rate, draws_less};
use super::relabel::relabelled;
use super::{Configuration, STAGES_MAX};

/// Most mappings that are compared: those of eight stages on eight cores of which no two are alike are 2^24, too many.
pub const MAPPINGS_MAX: usize = 1 << 18;

/// A problem with all of its mappings.
#[derive(Clone, Debug)]
pub struct Search {
    problem: Problem,
    entries: Vec<SearchEntry>,
}

#[derive(Clone, Debug)]
pub(super) struct SearchEntry {
    pub mapping: Mapping,
    pub demands: Demands,
    pub used: usize,
}

impl SearchEntry {
    fn new(problem: &Problem, mapping: Mapping) -> SearchEntry {
        SearchEntry {
            demands: problem.demands(&mapping),
            used: mapping.used(),
            mapping,
        }
    }
}

impl Search {
    /// Lists the mappings of `problem`.
    ///
    /// # Errors
    /// [`MappingError`] where there are more than [`MAPPINGS_MAX`].
    pub fn new(problem: Problem) -> Result<Search, MappingError> {
        let mut entries = Vec::new();
        let mut placing = Placing {
            core: [0; STAGES_MAX],
            stages: vec![0; problem.cores().count()],
        };
        placing.place(&problem, 0, &mut entries)?;
        Ok(Search { problem, entries })
    }

    /// Compares only `mappings`, at most the first [`MAPPINGS_MAX`].
    pub fn among(problem: Problem, mappings: impl IntoIterator<Item = Mapping>) -> Search {
        let entry = |mapping: Mapping| SearchEntry::new(&problem, mapping);
        let entries = mappings.into_iter().take(MAPPINGS_MAX).map(entry).collect();
        Search { problem, entries }
    }

    /// Problem whose mappings are compared.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Number of mappings that are compared.
    pub fn mappings(&self) -> usize {
        self.entries.len()
    }

    /// The configuration that draws the least at `fps` frames per second. Of equal ones that on the fewest cores, then
    /// that with the fewest moves `from` another mapping, then that which serves the highest rate without another
    /// clock, so that it lasts. `None` where none serves the rate.
    pub fn best(&self, fps: f64, from: Option<&Mapping>) -> Option<Configuration> {
        self.choose(Rate::At(fps), from)
    }

    pub(super) fn entries(&self) -> &[SearchEntry] {
        &self.entries
    }

    pub(super) fn choose(&self, rate: Rate, from: Option<&Mapping>) -> Option<Configuration> {
        let lines = || {
            let line = |entry: &SearchEntry| self.problem.cheapest(&entry.demands, rate);
            self.entries.iter().map(line).zip(&self.entries)
        };
        let least = lines()
            .filter_map(|(line, _)| line)
            .reduce(|least, line| if draws_less(line, least, rate) { line } else { least })?;
        let ties = |line: &Option<LinearPower>| line.is_some_and(|line| !draws_less(least, line, rate));
        let fewest = lines()
            .filter(|(line, _)| ties(line))
            .map(|(_, entry)| entry.used)
            .min()?;
        let tied = lines().filter(|(line, entry)| ties(line) && entry.used == fewest);
        let moves = |one: &Configuration| from.map_or(0, |from| from.moves(&one.mapping).count());
        let candidates = tied.filter_map(|(_, entry)| self.configured(entry, rate, from));
        let ranked = candidates.map(|one| (moves(&one), -self.problem.fps_max(&one), one));
        let best = ranked.min_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)))?;
        Some(best.2)
    }

    fn configured(&self, entry: &SearchEntry, rate: Rate, from: Option<&Mapping>) -> Option<Configuration> {
        let configuration = Configuration {
            mapping: entry.mapping.clone(),
            steps: self.problem.priced(&entry.demands, rate)?.steps,
        };
        Some(match from {
            Some(from) => relabelled(self.problem.cores(), &configuration, from),
            None => configuration,
        })
    }
}

/// A mapping of the first stages.
struct Placing {
    core: [usize; STAGES_MAX],
    /// Number of stages on each core.
    stages: Vec<usize>,
}

impl Placing {
    fn place(&mut self, problem: &Problem, stage: usize, found: &mut Vec<SearchEntry>) -> Result<(), MappingError> {
        let count = problem.stages().len();
        if stage == count {
            return self.keep(problem, count, found);
        }
        for core in 0..self.stages.len() {
            if self.has_earlier_twin(problem.cores(), core) {
                continue;
            }
            self.core[stage] = core;
            self.stages[core] += 1;
            self.place(problem, stage + 1, found)?;
            self.stages[core] -= 1;
        }
        Ok(())
    }

    fn keep(&self, problem: &Problem, count: usize, found: &mut Vec<SearchEntry>) -> Result<(), MappingError> {
        if found.len() == MAPPINGS_MAX {
            return Err(MappingError {
                key: "stage".into(),
                what: format!(
                    "{count} stages on {} cores have more than {MAPPINGS_MAX} mappings: pin some, or join some",
                    self.stages.len()
                ),
            });
        }
        let mapping = Mapping::of(self.core[..count].iter().copied());
        found.push(SearchEntry::new(problem, mapping));
        Ok(())
    }

    /// Whether an unused core could as well be another unused one before it.
    fn has_earlier_twin(&self, cores: &Cores, core: usize) -> bool {
        if self.stages[core] > 0 {
            return false;
        }
        let domain = cores.domain(core);
        let first = cores.first(domain);
        let unused = |domain: usize| {
            let first = cores.first(domain);
            self.stages[first..first + cores.domains[domain].cores]
                .iter()
                .all(|count| *count == 0)
        };
        let in_domain = self.stages[first..core].contains(&0);
        let twin = |other: usize| cores.domains[other] == cores.domains[domain] && unused(other);
        in_domain || (unused(domain) && (0..domain).any(twin))
    }
}
