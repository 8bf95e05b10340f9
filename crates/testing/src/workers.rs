//! The workers of a pipeline, as the kernel shows them.

use std::fs;

/// The direct children of a process: a radio's are its workers (and the guardian of what it has changed, if any).
fn children(pid: u32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let of = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).unwrap_or_default();
    let text = threads.map(of).collect::<String>();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// The workers of a process, and what the environment told each: where the memory of the pipeline is, and what it is.
pub fn workers(pid: u32) -> Vec<(i32, String)> {
    let told = |pid: i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let mut variables = environment.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        variables.find_map(|it| Some((pid, it.strip_prefix(ROLE)?.strip_prefix('=')?.to_owned())))
    };
    children(pid).into_iter().filter_map(told).collect()
}

/// The variable that tells a worker where the memory of its pipeline is.
pub const ROLE: &str = "PUNCTUAL_PIPELINE_ROLE";
