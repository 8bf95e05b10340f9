//! Progress through the phases of a profile.

use punctual_allocation::profile::{ProfileOptions, load};
use punctual_allocation::{Objective, Profile, Programs};

use super::*;

/// At both ends of every phase of every shipped profile, an allocator finds the phase that the job is in. Unbounded,
/// progress computed from what is done of it names another phase at some of them.
#[test]
fn an_allocator_finds_the_phase_that_a_job_is_in() {
    let mut misread = 0;
    for name in ["fft", "ocean", "fluidanimate"] {
        for caches in ["full", "scaled"] {
            let file = format!("{}/../../data/profiles/{name}.{caches}.csv", env!("CARGO_MANIFEST_DIR"));
            for phases in [32, 64] {
                let options = ProfileOptions {
                    clustering: None,
                    phases,
                    ..ProfileOptions::default()
                };
                let profile = load(&file, &std::fs::read(&file).unwrap(), &options).unwrap().profile;
                misread += phases_agree(profile);
            }
        }
    }
    assert!(misread > 0, "no profile needs the bound: choose others");
}

/// At how many boundaries the bound is needed.
fn phases_agree(profile: Profile) -> usize {
    let compiled = Programs::new(std::slice::from_ref(&profile), Objective::Speed).unwrap();
    let program = RunnableProfile::new(profile).unwrap();
    let mut misread = 0;
    for phase in 0..program.phases() {
        for done in [0.0, 1.0_f64.next_down(), 1.0] {
            let phases = &program.profile().phases;
            let begins = phase.checked_sub(1).map_or(0.0, |before| phases[before].ends);
            let unbounded = begins + done * (phases[phase].ends - begins);
            misread += usize::from(compiled.phase_at(0, unbounded) != phase);
            let progress = program.progress(phase, done);
            assert_eq!(compiled.phase_at(0, progress), phase, "{}", program.profile().name);
        }
    }
    misread
}
