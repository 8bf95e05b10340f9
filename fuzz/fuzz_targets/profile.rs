//! Execution profiles: compiled into phases that keep their own rules, or refused with a line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use punctual_allocation::Grid;
use punctual_allocation::profile::{Facts, ProfileOptions, load};

/// Longer files are not clustered: that takes seconds, and most of them in a loop that no content changes.
const CLUSTERED_MAX: usize = 600;

fuzz_target!(|bytes: &[u8]| {
    for grid in [None, Some(Grid { ways: 4, partitions: 3 })] {
        let usual = ProfileOptions::default();
        let options = ProfileOptions {
            grid,
            clustering: usual.clustering.clone().filter(|_| bytes.len() <= CLUSTERED_MAX),
            ..usual
        };
        if let Ok(compiled) = load("fuzzed.csv", bytes, &options) {
            compiled.profile.check().expect("a profile that was compiled is sound");
        }
    }
    let _ = Facts::read("fuzzed.csv", bytes);
});
