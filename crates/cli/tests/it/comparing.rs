//! `punctual compare` and `run --trace`, on simulated runs.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn punctual(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    command.current_dir(folder).args(words).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

#[test]
fn a_run_without_control_regresses_and_other_files_are_no_reports() {
    let folder = tempfile::tempdir().unwrap();
    let punctual = |words: &[&str]| punctual(folder.path(), words);
    let simulated = ["run", "--platform", "sim", "--duration", "12s", "--plain"];
    let controlled = [&simulated[..], &["--json", "held.json", "--trace", "trace.json"]].concat();
    let open = [&simulated[..], &["--json", "open.json", "--controller", "open"]].concat();
    assert!(punctual(&controlled).status.success() && punctual(&open).status.success());

    let same = punctual(&["compare", "held.json", "held.json", "--check"]);
    assert!(same.status.success(), "{}", text(&same));
    let worse = punctual(&[
        "compare",
        "held.json",
        "open.json",
        "--check",
        "--json",
        "comparison.json",
    ]);
    assert_eq!(worse.status.code(), Some(1), "{}", text(&worse));
    let written = std::fs::read(folder.path().join("comparison.json")).unwrap();
    let comparison: Value = serde_json::from_slice(&written).unwrap();
    assert_eq!(comparison["figures"][0]["judgement"], "regressed", "{comparison}");
    assert_eq!(comparison["setup"][0], "controller: mimo, open");

    for wrong in ["trace.json", "missing.json"] {
        let refused = punctual(&["compare", "held.json", wrong]);
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
        assert!(text(&refused).starts_with(wrong), "{}", text(&refused));
        assert!(!text(&refused).contains("struct"), "{}", text(&refused));
    }
    let timeline: Value = serde_json::from_slice(&std::fs::read(folder.path().join("trace.json")).unwrap()).unwrap();
    let begun = timeline["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["ph"] == "b");
    // One job every 100 ms.
    assert_eq!(begun.count(), 120);
}
