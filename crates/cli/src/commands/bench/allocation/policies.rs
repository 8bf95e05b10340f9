//! What decides in `bench allocation`. Each is a function of its own that is not inlined, so that an instruction counter
//! (callgrind) can tell them apart.

use punctual_allocation::policy::{Exact, dadna, dna, equal, greedy, static_best, vc2m, weighted};
use punctual_allocation::{Leftovers, Pool, Programs, Running, Share, ZeroDelta};
use punctual_units::Time;

use super::instants::Instants;

/// What the others are compared with.
pub const EXACT: &str = "exact";

/// A policy, given the number of an instant and what runs at it.
type Policy<'a> = dyn FnMut(usize, &[Option<Running<'_>>]) -> Vec<Share> + 'a;

/// One that decides.
pub struct Decide<'a> {
    pub name: &'static str,
    /// Decides nothing.
    pub is_control: bool,
    pub decide: Box<Policy<'a>>,
}

/// All, the control first. Static splits are looked up: they were decided before.
pub fn all<'a>(programs: &'a Programs, pool: Pool, exact: Exact, instants: &Instants) -> Vec<Decide<'a>> {
    let cores = instants.loads().first().map_or(1, |loads| loads.cores());
    let now = instants.now();
    let fixed = |split: &dyn Fn(usize) -> Vec<Share>| -> Box<Policy<'a>> {
        let splits: Vec<Vec<Share>> = (0..instants.task_sets()).map(split).collect();
        Box::new(move |number, _| splits[Instants::set_of(number)].clone())
    };
    let loads = instants.loads();
    let mut exact = exact;
    let other = ZeroDelta::OtherResource;
    let policies: [(&'static str, Box<Policy<'a>>); 11] = [
        (
            "control: nothing decided",
            Box::new(move |_, _| vec![pool.least; cores]),
        ),
        ("equal", fixed(&|_| equal(pool, cores))),
        ("vc2m-frugal", fixed(&|set| vc2m(&loads[set], pool, Leftovers::Kept))),
        ("vc2m", fixed(&|set| vc2m(&loads[set], pool, Leftovers::HandedOut))),
        ("static-best", fixed(&|set| static_best(&loads[set], pool))),
        ("greedy", Box::new(move |_, cores| decide_greedy(programs, pool, cores))),
        (
            "dna",
            Box::new(move |_, cores| decide_dna(programs, pool, cores, other)),
        ),
        (
            "dna-zero",
            Box::new(move |_, cores| decide_dna(programs, pool, cores, ZeroDelta::Nothing)),
        ),
        (
            "dadna",
            Box::new(move |_, cores| decide_dadna(programs, pool, cores, now)),
        ),
        (
            "exact-weighted",
            Box::new(move |_, cores| decide_weighted(programs, pool, cores, now)),
        ),
        (
            EXACT,
            Box::new(move |_, cores| decide_exact(&mut exact, programs, cores)),
        ),
    ];
    let named = |(name, decide)| Decide {
        name,
        is_control: name != EXACT && name.starts_with("control"),
        decide,
    };
    policies.into_iter().map(named).collect()
}

#[inline(never)]
fn decide_greedy(programs: &Programs, pool: Pool, cores: &[Option<Running<'_>>]) -> Vec<Share> {
    greedy(programs, pool, cores)
}

#[inline(never)]
fn decide_dna(programs: &Programs, pool: Pool, cores: &[Option<Running<'_>>], zero: ZeroDelta) -> Vec<Share> {
    dna(programs, pool, cores, zero)
}

#[inline(never)]
fn decide_dadna(programs: &Programs, pool: Pool, cores: &[Option<Running<'_>>], now: Time) -> Vec<Share> {
    dadna(programs, pool, cores, now, ZeroDelta::OtherResource)
}

#[inline(never)]
fn decide_weighted(programs: &Programs, pool: Pool, cores: &[Option<Running<'_>>], now: Time) -> Vec<Share> {
    weighted(programs, pool, cores, now)
}

#[inline(never)]
fn decide_exact(exact: &mut Exact, programs: &Programs, cores: &[Option<Running<'_>>]) -> Vec<Share> {
    exact.decide(programs, cores)
}
