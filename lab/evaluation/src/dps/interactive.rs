//! The interactive jobs: they compute, send a request to the flash, and compute again, without a pause.

use crate::dual::compute;
use punctual_sim::{Access, Jobs, PageRequest, Release, Step, Task};
use punctual_units::Nanos;
use punctual_workload::{Active, Arrival};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::setting::{BURST, BURSTS, HOT, REQUEST_PAGES_MAX, WRITE_SHARE};

/// Jobs of a task follow each other at once.
const WITHOUT_REST: Arrival = Arrival::AfterCompletion {
    pause_min: Nanos::ZERO,
    pause_max: Nanos::ZERO,
};

/// Creates `jobs` tasks that use `device`, which has `pages` pages.
pub fn tasks(jobs: u32, device: usize, pages: u32, seed: u64) -> Vec<Task> {
    let mut draws = ChaCha8Rng::seed_from_u64(seed);
    let task = |number: u32| Task {
        name: format!("interactive {number}"),
        deadline: None,
        release: Release::Arrival(WITHOUT_REST),
        active: Active::ALWAYS,
        core: None,
        jobs: Jobs::Cycled((0..BURSTS).map(|_| burst(device, pages, &mut draws)).collect()),
        program: None,
        backlog_max: 0,
    };
    (0..jobs).map(task).collect()
}

/// Steps of a computation and the request after it.
fn burst(device: usize, pages: u32, draws: &mut ChaCha8Rng) -> Vec<Step> {
    let write = draws.random_bool(WRITE_SHARE);
    let request = PageRequest {
        access: if write { Access::Write } else { Access::Read },
        page: u64::from(page(pages, draws)),
        pages: if draws.random_bool(0.5) {
            1
        } else {
            draws.random_range(2..=REQUEST_PAGES_MAX)
        },
    };
    // Exponential by inversion; at least a nanosecond, so that no burst is empty.
    let length = BURST.scaled(-(1.0 - draws.random::<f64>()).ln()).max(Nanos(1));
    vec![compute(length), Step::Io { device, request }]
}

fn page(pages: u32, draws: &mut ChaCha8Rng) -> u32 {
    let [requests, share] = HOT;
    let hot = ((f64::from(pages) * share) as u32).clamp(1, pages);
    if hot == pages || draws.random_bool(requests) {
        draws.random_range(0..hot)
    } else {
        draws.random_range(hot..pages)
    }
}
