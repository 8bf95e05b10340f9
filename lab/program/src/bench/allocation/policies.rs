//! The split that each policy wants at an instant, regardless of the split in force, to measure its distance from the
//! optimum.

use punctual_allocation::policy::{Exact, dadna, dna, equal};
use punctual_allocation::{Base, PerCore, Pool, Programs, RunningJob, Share};
use punctual_evaluation::dna::{Leftovers, vc2m};

use super::instants::Instants;

/// Name of the optimum, with which the other policies are compared.
pub const EXACT: &str = "exact";

/// A policy: from the number of an instant and the running jobs to the split.
type Policy<'a> = dyn FnMut(usize, &[Option<RunningJob<'_>>]) -> PerCore<Share> + 'a;

/// A named policy under comparison.
pub struct NamedPolicy<'a> {
    pub name: &'static str,
    pub decide: Box<Policy<'a>>,
}

/// All policies. Static splits were decided before, and are looked up.
pub fn all<'a>(programs: &'a Programs, pool: Pool, mut exact: Exact, instants: &Instants) -> Vec<NamedPolicy<'a>> {
    let (loads, now) = (instants.loads(), instants.now());
    let cores = loads.first().map_or(1, |loads| loads.cores());
    let fixed = |split: &dyn Fn(usize) -> PerCore<Share>| -> Box<Policy<'a>> {
        let splits: Vec<PerCore<Share>> = (0..instants.task_sets()).map(split).collect();
        Box::new(move |number, _| splits[Instants::set_of(number)].clone())
    };
    let best = |base: Base| fixed(&|set| base.split(&loads[set], pool).shares);
    let policies: [(&'static str, Box<Policy<'a>>); 8] = [
        ("equal", fixed(&|_| equal(pool, cores))),
        ("vc2m-frugal", fixed(&|set| vc2m(&loads[set], pool, Leftovers::Kept))),
        ("vc2m", fixed(&|set| vc2m(&loads[set], pool, Leftovers::HandedOut))),
        ("static-best", best(Base::StaticBest)),
        ("static-fewest", best(Base::StaticFewest)),
        ("dna", Box::new(move |_, cores| dna(programs, pool, cores))),
        ("dadna", Box::new(move |_, cores| dadna(programs, pool, cores, now))),
        (EXACT, Box::new(move |_, cores| exact.decide(programs, cores))),
    ];
    policies
        .into_iter()
        .map(|(name, decide)| NamedPolicy { name, decide })
        .collect()
}
