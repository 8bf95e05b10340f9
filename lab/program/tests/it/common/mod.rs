//! How the tests of this folder run the program.
#![allow(dead_code, reason = "each file of tests uses some of it")]

/// Certificates, made as the product's tests make theirs.
#[path = "../../../../../crates/cli/tests/it/common/certificates.rs"]
pub mod certificates;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;

/// How long a program of these tests may take before it is killed: far longer than any does on a busy machine.
pub const BOUND: Duration = Duration::from_secs(300);

/// The program's whole answer, run in `folder`.
pub fn lab(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual-lab"));
    punctual_testing::output(command.args(arguments).current_dir(folder), BOUND).expect("the program starts")
}

/// What a refused command says on standard error; checks that it said nothing else and ended with 2.
pub fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = lab(folder, arguments);
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    error
}

/// Commands and the program's answers, for a snapshot; each is refused with an answer that starts as given. Arguments
/// hold no spaces.
pub fn refusals(folder: &Path, cases: &[(&str, &str)]) -> String {
    let answers = cases.iter().map(|(command, start)| {
        let arguments: Vec<&str> = command.split(' ').collect();
        let answer = refused(folder, &arguments);
        assert!(answer.starts_with(start), "{command}: {answer}");
        format!("$ punctual-lab {command}\n{answer}")
    });
    answers.collect()
}

/// What a command printed, on standard output and standard error; it must have succeeded.
pub fn told(output: Output) -> (String, String) {
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text"));
    assert!(output.status.success(), "{err}");
    (out, err)
}

/// Kills the process of a stage in the output of `pipeline list --json -`; returns whether it was there.
pub fn kill_stage(listed: &Output, stage: &str) -> bool {
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
    let stages = listed[0]["stages"].as_array().cloned().unwrap_or_default();
    let process = { stages.iter().find(|it| it["name"] == stage) }
        .and_then(|it| it["process"].as_i64())
        // 0: none at this instant; kill(1) takes that as the group of this test.
        .filter(|process| *process > 0);
    let kill = |process: i64| {
        Command::new("kill")
            .args(["-KILL", &process.to_string()])
            .output()
            .expect("kill(1)")
    };
    process.is_some_and(|process| kill(process).status.success())
}

/// A new folder with these files, by name and text; removed when dropped.
pub fn folder_with(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        fs::write(path, text).expect("a file");
    }
    folder
}
