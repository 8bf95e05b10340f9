//! How the tests of this folder run the program.
#![allow(dead_code, reason = "each file of tests uses some of it")]

pub mod certificates;
pub mod serving;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

/// Longest life of a program of these tests, and of a read from it.
pub const BOUND: Duration = punctual_testing::CHILD_MAX;

/// The program, run in `folder`, with its ledger in there where the folder is a temporary one: real-time tasks of tests
/// that run at the same time would be refused beside each other on a small machine.
pub fn program(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    if folder.starts_with(std::env::temp_dir()) {
        command.env("PUNCTUAL_RUN_DIR", folder.join(".run"));
    }
    command.current_dir(folder);
    command
}

/// The program's whole answer, run in `folder`.
pub fn punctual(folder: &Path, arguments: &[&str]) -> Output {
    punctual_testing::output(program(folder).args(arguments), BOUND).expect("the program starts")
}

/// What a refused command says on standard error; checks that it said nothing else and ended with 2.
pub fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = punctual(folder, arguments);
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    error
}

/// Commands and the program's answers, for a snapshot; each is refused with an answer that starts as given. Arguments
/// hold no spaces; `FOLDER` stands for the folder.
pub fn refusals(folder: &Path, cases: &[(&str, &str)]) -> String {
    let here = folder.canonicalize().expect("a path").display().to_string();
    let answers = cases.iter().map(|(command, start)| {
        let arguments: Vec<&str> = command.split(' ').collect();
        let answer = refused(folder, &arguments);
        assert!(answer.starts_with(start), "{command}: {answer}");
        format!("$ punctual {command}\n{}", answer.replace(&here, "FOLDER"))
    });
    answers.collect()
}

/// What a command printed, on standard output and standard error; it must have succeeded.
pub fn told(output: Output) -> (String, String) {
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text"));
    assert!(output.status.success(), "{err}");
    (out, err)
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
