//! What tests that take a core for real share.

use std::collections::BTreeSet;
use std::fs;
use std::process::Child;

/// A program of ours, ended with the test.
#[allow(dead_code, reason = "not every test starts one by itself")]
pub struct ScopedChild(pub Child);

impl Drop for ScopedChild {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The names of all programs but `helper`, which are to be left alone.
pub fn all_programs_but(helper: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let names: BTreeSet<String> = processes
        .filter_map(|entry| fs::read_to_string(entry.path().join("comm")).ok())
        .map(|name| name.trim_end().to_owned())
        .filter(|name| name != helper)
        .collect();
    names.into_iter().collect()
}
