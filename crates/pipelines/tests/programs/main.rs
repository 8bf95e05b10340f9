//! Programs that start pipelines: their processes run the program again, so `main` is that of a user's program and
//! there is no test harness. Each case is a process of its own, and fails this one if it fails.
#![cfg(target_os = "linux")]

mod announced;
mod c_stage;
mod hangs;
mod pipeline;
mod pipes;

use std::process::{Command, ExitCode};

/// Name of the case that a process runs; inherited by the processes of its pipelines.
const CASE: &str = "PUNCTUAL_TEST_CASE";
const CASES: [(&str, fn()); 5] = [
    ("announced", announced::main),
    ("c_stage", c_stage::main),
    ("hangs", hangs::main),
    ("pipeline", pipeline::main),
    ("pipes", pipes::main),
];

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(CASE) {
        let (_, case) = CASES
            .iter()
            .find(|(it, _)| *it == name)
            .expect("a case of this program");
        case();
        return ExitCode::SUCCESS;
    }
    let wanted = std::env::args()
        .skip(1)
        .find(|it| !it.starts_with('-'))
        .unwrap_or_default();
    let failed: Vec<&str> = CASES
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| name.contains(wanted.as_str()))
        .filter(|name| {
            let own = std::env::current_exe().expect("this program");
            let status = Command::new(own).env(CASE, name).status().expect("a process");
            println!("case {name}: {status}");
            !status.success()
        })
        .collect();
    match failed[..] {
        [] => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
