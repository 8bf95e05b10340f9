//! How near the quick policies come to the optimum, on average over many instants.

use punctual_allocation::policy::{Exact, Loads, dna, equal, greedy, static_best, summed};
use punctual_allocation::{Grid, Objective, Pool, Programs, Running, Share, Task, ZeroDelta, synthetic};
use punctual_units::{Nanos, Time};

/// Instants are the product of these many places in each of four programs' runs.
const PLACES: usize = 7;
const CORES: usize = 4;

/// The mean and the least of `policy`'s summed rate over the optimum's, on all instants of four programs.
fn ratio(programs: &Programs, pool: Pool, mut policy: impl FnMut(&[Option<Running<'_>>]) -> Vec<Share>) -> (f64, f64) {
    let mut exact = Exact::new(programs, pool, CORES);
    let (mut sum, mut least) = (0.0, 1.0_f64);
    let instants = PLACES.pow(CORES as u32);
    for instant in 0..instants {
        let place = |core: usize| instant / PLACES.pow(core as u32) % PLACES;
        let job = |core| Running {
            program: core,
            progress: (place(core) as f64 + 0.5) / PLACES as f64,
            deadline: Time(0),
            waiting: &[],
        };
        let cores: Vec<_> = (0..CORES).map(|core| Some(job(core))).collect();
        let best = summed(programs, &cores, &exact.decide(programs, &cores)) as f64;
        let ratio = summed(programs, &cores, &policy(&cores)) as f64 / best;
        sum += ratio;
        least = least.min(ratio);
    }
    (sum / instants as f64, least)
}

#[test]
fn dna_is_near_the_optimum_and_nearer_than_what_is_beside_it() {
    let mut means = [0.0; 4];
    let sets = 6;
    for set in 0..sets {
        let profiles: Vec<_> = (0..4)
            .map(|core| synthetic::program(Grid::PAPER, 20, 4 * set + core))
            .collect();
        let programs = Programs::new(&profiles, Objective::Speed).expect("fine profiles");
        let tasks: Vec<_> = (0..CORES)
            .map(|core| Task {
                program: core,
                period: Nanos::from_secs_f64(programs.duration(core, Grid::PAPER.all())),
                core,
            })
            .collect();
        let fixed = static_best(&Loads::new(&programs, &tasks, CORES), Pool::PAPER);
        let (of_dna, least) = ratio(&programs, Pool::PAPER, |cores| {
            dna(&programs, Pool::PAPER, cores, ZeroDelta::OtherResource)
        });
        assert!(least > 0.6, "an instant at {least} of the optimum, set {set}");
        let others = [
            ratio(&programs, Pool::PAPER, |cores| greedy(&programs, Pool::PAPER, cores)).0,
            ratio(&programs, Pool::PAPER, |_| equal(Pool::PAPER, CORES)).0,
            ratio(&programs, Pool::PAPER, |_| fixed.clone()).0,
        ];
        means[0] += of_dna / f64::from(sets as u32);
        for (mean, other) in means[1..].iter_mut().zip(others) {
            *mean += other / f64::from(sets as u32);
        }
    }
    let [dna, greedy, equal, fixed] = means;
    assert!(dna >= 0.97, "{means:?}");
    assert!(
        dna > greedy && greedy > equal && dna > fixed && fixed < 0.97,
        "{means:?}"
    );
}
