//! The comparing benches on the simulated machine, from the command line to the files they leave.

use crate::common;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{lab, told};

/// A machine that is easily full: eight sensors at 20 ms, and a job that is late when they take what it needs.
const SMALL: &str = "\
name = \"small\"
[control]
controller = \"open\"
warm_up = \"500ms\"
[store]
update_mode = \"transaction\"
objects = 100
[trace]
sensors = 8
period = [\"20ms\", \"40ms\"]
[[task]]
name = \"answer\"
class = \"real-time\"
period = \"100ms\"
deadline = \"50ms\"
compute = \"10ms\"
data = \"20ms\"
rounds = 4
";

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("small.toml"), SMALL).expect("a file");
    folder
}

fn json(folder: &Path, file: &str) -> serde_json::Value {
    let text = std::fs::read_to_string(folder.join(file)).expect(file);
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn controllers_are_compared_run_by_run() {
    let folder = folder();
    let arguments = [
        "bench",
        "controllers",
        "small.toml",
        "--platform",
        "sim",
        "--duration",
        "7s",
        "--repetitions",
        "2",
        "--controllers",
        "open,qod",
        "--identify",
        "--identify-duration",
        "20s",
        // Enough of them that the admitted share shows in the model.
        "--set",
        "trace.sensors=200",
        "--seed",
        "5",
        "--json",
        "c.json",
    ];
    let (table, lines) = told(lab(folder.path(), &arguments));
    assert!(lines.contains("R^2 of tardiness, for mimo"), "{lines}");
    assert!(
        table.contains("holds its goal in 0 of 2, not judged in 2"),
        "two seconds have too few jobs: {table}"
    );
    assert!(table.contains("(simulated)"), "{table}");

    let json = json(folder.path(), "c.json");
    let runs: Vec<(u64, &str)> = json["runs"]
        .as_array()
        .expect("runs")
        .iter()
        .map(|run| {
            (
                run["header"]["seed"].as_u64().expect("a seed"),
                run["header"]["controller"].as_str().expect("a name"),
            )
        })
        .collect();
    assert_eq!(runs, [(5, "open"), (5, "qod"), (6, "qod"), (6, "open")]);
    // The table says of the runs what they say themselves.
    let row = &json["table"]
        .as_array()
        .expect("rows")
        .iter()
        .find(|row| row["figure"] == "tardiness_mean")
        .expect("a row")["controllers"];
    let of_open = [0, 3].map(|run| json["runs"][run]["summary"]["tardiness_mean"].as_f64().expect("a mean"));
    assert_eq!(row[0]["min"].as_f64(), Some(of_open[0].min(of_open[1])));
    assert_eq!(row[0]["max"].as_f64(), Some(of_open[0].max(of_open[1])));
}

#[test]
fn rates_are_raised_until_they_are_not_held() {
    let folder = folder();
    let arguments = [
        "bench",
        "rates",
        "small.toml",
        "--platform",
        "sim",
        "--duration",
        "7s",
        "--json",
        "r.json",
    ];
    let (table, lines) = told(lab(folder.path(), &arguments));
    assert!(lines.contains("not held: "), "{lines}");
    assert!(
        table.contains("highest rate held") && table.contains("memory-first"),
        "{table}"
    );
    let json = json(folder.path(), "r.json");
    let transaction = &json["modes"][0];
    let (held, tries) = (
        transaction["held_updates_per_s"].as_f64().expect("a rate"),
        &transaction["tries"],
    );
    for tried in tries.as_array().expect("tries") {
        let rate = tried["header"]["load"]["updates_per_s"].as_f64().expect("a rate");
        assert_eq!(tried["outcome"] == "holds", rate <= held, "{tried}");
    }
    assert_eq!(transaction["is_lower_bound"], false);
}

#[test]
fn an_interrupt_leaves_what_was_measured() {
    let folder = folder();
    let arguments = [
        "bench",
        "controllers",
        "small.toml",
        "--platform",
        "sim",
        "--duration",
        "7s",
        "--repetitions",
        "1000",
        "--controllers",
        "open",
        "--json",
        "c.json",
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual-lab"));
    command.args(arguments).current_dir(folder.path());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut bench = punctual_testing::start(&mut command, common::BOUND).expect("the program starts");
    let mut lines = BufReader::new(bench.stderr().expect("standard error"));
    let mut line = String::new();
    while !line.starts_with("1 of 1000") {
        line.clear();
        assert!(lines.read_line(&mut line).expect("text") > 0, "the bench ended early");
    }
    let pid = libc::pid_t::try_from(bench.id()).expect("a process id");
    // SAFETY: plain system call; the child has not been waited for, so the id is still its own.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGINT) }, 0);
    let (mut rest, mut table) = (String::new(), String::new());
    lines.read_to_string(&mut rest).expect("text");
    bench
        .stdout()
        .expect("standard output")
        .read_to_string(&mut table)
        .expect("text");
    assert_eq!(bench.wait().expect("an end").code(), Some(0), "{rest}");
    assert!(
        rest.contains("this run does not count") && table.contains("tardiness"),
        "{rest}{table}"
    );
    assert!(
        !json(folder.path(), "c.json")["runs"]
            .as_array()
            .expect("runs")
            .is_empty()
    );
}

#[test]
fn what_cannot_be_compared_is_refused_before_the_first_run() {
    let folder = folder();
    let refused = |arguments: &[&str]| {
        let output = lab(folder.path(), &[&["bench"], arguments].concat());
        let error = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        error
    };
    let sim = ["small.toml", "--platform", "sim"];
    let short = refused(&[&["controllers"], &sim[..], &["--duration", "5s"]].concat());
    assert!(short.starts_with("small.toml: duration: a run of 5.00 s"), "{short}");
    assert_eq!(
        refused(&[&["rates"], &sim[..], &["--set", "trace.period=[\"19s\", \"19s\"]"]].concat())
            .split(" on: ")
            .last(),
        Some("--set control.warm_up=15s --duration 24s\n")
    );
    for command in ["controllers", "rates"] {
        let unwritable = refused(&[&[command], &sim[..], &["--json", "no/x"]].concat());
        assert!(unwritable.starts_with("no/x: cannot be written"), "{unwritable}");
        let absent = refused(&[command, "y.toml"]);
        assert!(absent.starts_with("y.toml: no such file"), "{absent}");
    }
    assert!(
        refused(&["controllers", "small.toml", "--controllers", "open,pid"])
            .contains("[possible values: open, qod, clock, mimo]")
    );
}
