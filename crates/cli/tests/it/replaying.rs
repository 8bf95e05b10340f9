//! `punctual replay`: a recorded run decides the same again; a changed, damaged or foreign log is reported.

use crate::common;

use std::fs;
use std::path::Path;

use common::{folder_with, punctual, refused, told};
use punctual_loop::LOG_VERSION;

/// Sensors that are shed, and a task; short, and on the simulated machine.
const SMALL: &str = "
duration = \"3s\"
[control]
controller = \"qod\"
warm_up = \"400ms\"
[trace]
sensors = 40
period = [\"100ms\", \"300ms\"]
[[task]]
name = \"look\"
class = \"real-time\"
period = \"50ms\"
deadline = \"40ms\"
compute = \"10ms\"
data = \"5ms\"
rounds = 4
";

/// A log of [`SMALL`], learnt first so that a law decides.
fn recorded(folder: &Path) -> String {
    let run = [
        "run",
        "small.toml",
        "--platform",
        "sim",
        "--identify",
        "--duration",
        "20s",
        "--plain",
        "--record",
        "log.json",
    ];
    told(punctual(folder, &run));
    fs::read_to_string(folder.join("log.json")).expect("a log")
}

#[test]
fn a_recorded_run_decides_the_same_again_and_a_changed_log_does_not() {
    let folder = folder_with(&[("small.toml", SMALL)]);
    let log = recorded(folder.path());
    let (out, _) = told(punctual(folder.path(), &["replay", "log.json"]));
    let (count, rest) = out.split_once(' ').expect("a count");
    assert!(
        count.parse::<u64>().expect("a number") > 100 && rest.starts_with("decisions, identical; "),
        "{out}"
    );

    // The admitted share of the last plan, changed.
    let mut changed: serde_json::Value = serde_json::from_str(&log).expect("JSON");
    let decisions = changed["log"]["decisions"].as_array_mut().expect("decisions");
    let mut steps = decisions.iter_mut().rev();
    let step = steps.find(|it| it["answer"]["step"].is_object()).expect("an answer");
    step["answer"] = "nothing".into();
    fs::write(folder.path().join("changed.json"), changed.to_string()).expect("a file");
    let output = punctual(folder.path(), &["replay", "changed.json"]);
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.starts_with("changed.json: 1 of ") && error.contains("; the first is number "),
        "{error}"
    );

    // Cut in the middle, of another version, and something else.
    let cut = &log[..log.len() / 2];
    let mut other: serde_json::Value = serde_json::from_str(&log).expect("JSON");
    other["version"] = 2.into();
    fs::write(folder.path().join("cut.json"), cut).expect("a file");
    fs::write(folder.path().join("other.json"), other.to_string()).expect("a file");
    fs::write(folder.path().join("noise"), [0xff, 0xfe, 0x00]).expect("a file");
    let says = |file: &str| refused(folder.path(), &["replay", file]);
    assert!(
        says("cut.json").contains(": damaged, or no log of a run: "),
        "{}",
        says("cut.json")
    );
    let older = says("other.json");
    assert!(older.starts_with("other.json: is a log of version 2"), "{older}");
    assert!(older.contains(&format!("version {LOG_VERSION}")), "{older}");
    fs::write(folder.path().join("report.json"), "{}").expect("a file");
    assert!(says("report.json").starts_with("report.json: is no log of a run"));
    assert!(says("noise").starts_with("noise: not text: line 1 is not UTF-8; "));
    assert!(says("none").starts_with("none: no such file; "));
}
