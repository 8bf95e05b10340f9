//! Execution profiles: compiled into phases that keep their own rules, or refused with a line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use punctual_allocation::Grid;
use punctual_allocation::profile::{Facts, Options, load};

fuzz_target!(|bytes: &[u8]| {
    for grid in [None, Some(Grid { ways: 4, partitions: 3 })] {
        let options = Options { grid, ..Options::default() };
        if let Ok(compiled) = load("fuzzed.csv", bytes, &options) {
            compiled.profile.check().expect("a profile that was compiled is sound");
        }
    }
    let _ = Facts::read("fuzzed.csv", bytes);
});
