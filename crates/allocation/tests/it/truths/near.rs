//! How near the quick policies come to the optimum, on average over many instants of real programs: those of
//! `data/profiles`, and the measured ones where `PUNCTUAL_MEASURED_PROFILES` names their folder.

use std::path::{Path, PathBuf};

use punctual_allocation::policy::{Exact, Loads, dna, equal, summed};
use punctual_allocation::profile::{ProfileOptions, load};
use punctual_allocation::{Base, Grid, Objective, PerCore, PeriodicTask, Pool, Programs, RunningJob, Share};
use punctual_units::{Nanos, Time};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const CORES: usize = 4;
/// Instants that are compared.
const INSTANTS: usize = 1000;

/// The programs of the files in `folder` whose names end with `ending`.
fn programs(folder: &Path, ending: &str) -> Programs {
    let files = folder
        .read_dir()
        .expect("the folder")
        .map(|entry| entry.expect("a file").path());
    let mut files: Vec<PathBuf> = files.filter(|file| file.to_string_lossy().ends_with(ending)).collect();
    files.sort();
    // Phases as they are recorded, joined where they differ least: what a decision reads, without the search for
    // clusters.
    let options = ProfileOptions {
        grid: Some(Grid::PAPER),
        clustering: None,
        ..ProfileOptions::default()
    };
    let profile = |file: &PathBuf| {
        let bytes = std::fs::read(file).expect("the file");
        load(&file.to_string_lossy(), &bytes, &options)
            .expect("a sound profile")
            .profile
    };
    let profiles: Vec<_> = files.iter().map(profile).collect();
    Programs::new(&profiles, Objective::Speed).expect("profiles of one machine")
}

/// The mean of each policy's summed speed over the optimum's: dna, equal, the best static split.
fn ratios(programs: &Programs) -> [f64; 3] {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut exact = Exact::new(programs, Pool::PAPER, CORES);
    let even = equal(Pool::PAPER, CORES);
    let mut sums = [0.0; 3];
    for _ in 0..INSTANTS {
        let cores: Vec<_> = (0..CORES)
            .map(|_| {
                Some(RunningJob {
                    program: rng.random_range(0..programs.len()),
                    progress: rng.random_range(0.0..1.0),
                    deadline: Time::MAX,
                    waiting: &[],
                })
            })
            .collect();
        let tasks: Vec<PeriodicTask> = cores
            .iter()
            .flatten()
            .enumerate()
            .map(|(core, job)| {
                PeriodicTask::new(
                    job.program,
                    Nanos::from_secs_f64(programs.duration(job.program, Grid::PAPER.all())),
                    core,
                )
            })
            .collect();
        let splits: [PerCore<Share>; 3] = [
            dna(programs, Pool::PAPER, &cores),
            even.clone(),
            Base::StaticBest
                .split(&Loads::new(programs, &tasks, CORES), Pool::PAPER)
                .shares,
        ];
        let best = summed(programs, &cores, &exact.decide(programs, &cores)) as f64;
        for (sum, shares) in sums.iter_mut().zip(&splits) {
            *sum += summed(programs, &cores, shares) as f64 / best / INSTANTS as f64;
        }
    }
    sums
}

fn check(name: &str, programs: &Programs) {
    let [dna, equal, fixed] = ratios(programs);
    println!("{name}: dna {dna:.3}, equal {equal:.3}, static-best {fixed:.3} of exact");
    assert!(dna >= 0.97, "{name}: dna {dna}");
    assert!(dna > fixed && fixed > equal, "{name}: {dna} {fixed} {equal}");
}

#[test]
fn dna_is_near_the_optimum_and_nearer_than_what_is_beside_it() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/profiles");
    for set in ["full", "scaled"] {
        check(set, &programs(&shipped, &format!(".{set}.csv")));
    }
    if let Some(folder) = std::env::var_os("PUNCTUAL_MEASURED_PROFILES").map(PathBuf::from) {
        check("measured", &programs(&folder, ".csv"));
    }
}
