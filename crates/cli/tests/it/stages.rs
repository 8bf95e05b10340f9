//! Scenarios with stages: what they tell, what goes through, and what is refused.

use crate::common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{folder_with, punctual, refused, told};
use serde_json::Value;

/// A file through a program and a built-in stage into another file.
const PIPES: &str = "\
duration = \"100s\"
[[stage]]
name = \"in\"
file = \"from\"
deadline = \"50s\"
[[stage]]
name = \"upper\"
program = [\"tr\", \"a-z\", \"A-Z\"]
[[stage]]
name = \"copy\"
kind = \"copy\"
[[stage]]
name = \"out\"
file = \"to\"
late = \"50 %\"
[[edge]]
from = \"in\"
to = \"upper\"
frame_bytes = 100
[[edge]]
from = \"upper\"
to = \"copy\"
frame_bytes = 64
[[edge]]
from = \"copy\"
to = \"out\"
frame_bytes = 64
";

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn json(folder: &Path, file: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.join(file)).expect("the report")).expect("JSON")
}

#[test]
fn frames_go_through_programs_files_and_stages() {
    let letters: String = (0..5000u32).map(|at| char::from(b'a' + (at * at % 26) as u8)).collect();
    // A built-in stage that stays here is a thread of the run.
    let here = PIPES.replace("kind = \"copy\"", "kind = \"copy\"\nmigratable = false");
    let folder = folder_with(&[("x.toml", &here), ("from", &letters)]);
    told(punctual(folder.path(), &["run", "x.toml"]));
    assert_eq!(
        fs::read_to_string(folder.path().join("to")).unwrap(),
        letters.to_uppercase()
    );
    let folder = folder_with(&[("x.toml", PIPES), ("from", &letters)]);
    let (out, _) = told(punctual(
        folder.path(),
        &["run", "x.toml", "--json", "r.json", "--check"],
    ));
    assert!(
        out.contains("Goal held by stage \"out\": 0 of 79 (0.0 %) frames late"),
        "{out}"
    );
    assert_eq!(
        fs::read_to_string(folder.path().join("to")).unwrap(),
        letters.to_uppercase()
    );
    let report = json(folder.path(), "r.json");
    let rows = report["stages"].as_array().unwrap();
    let frames = |name: &str, key: &str| {
        let row = rows.iter().find(|row| row["name"] == name).unwrap();
        row[key].as_u64().unwrap()
    };
    assert_eq!((frames("in", "frames_made"), frames("upper", "frames_taken")), (50, 50));
    assert_eq!(
        (frames("upper", "frames_made"), frames("out", "frames_taken")),
        (79, 79)
    );
    assert_eq!(
        (frames("out", "timed"), frames("out", "late"), frames("out", "dropped")),
        (79, 0, 0)
    );
}

#[test]
fn stages_run_beside_tasks() {
    let tasks = "[control]\ncontroller = \"open\"\nwarm_up = \"1s\"\n[trace]\nsensors = 4\n[[task]]\nname = \"t\"\n\
                 class = \"real-time\"\nperiod = \"50ms\"\ndeadline = \"40ms\"\ncompute = \"1ms\"\n";
    // Long enough for a frame on a busy machine.
    let endless = PIPES.replace("duration = \"100s\"", "duration = \"10s\"").replace(
        "file = \"from\"",
        "program = [\"sh\", \"-c\", \"while :; do echo abcdefg; sleep 0.01; done\"]",
    );
    let (head, stages) = endless.split_once('\n').unwrap();
    let text = format!("{head}\n{tasks}{stages}");
    let folder = folder_with(&[("x.toml", &text)]);
    let arguments = ["run", "x.toml", "--plain", "--json", "r.json", "--html", "r.html"];
    let (out, _) = told(punctual(folder.path(), &arguments));
    let report = json(folder.path(), "r.json");
    // A machine that was taken from the run for long excuses its goals.
    let excused = report["summary"]["inconclusive"] == true;
    assert!(excused || out.contains("stage \"out\""), "{out}");
    assert_eq!(report["tasks"].as_array().unwrap().len(), 1);
    assert_eq!(report["stages"].as_array().unwrap().len(), 4);
    assert!(report["stages"][3]["frames_taken"].as_u64().unwrap() > 0, "{report}");
    assert!(
        fs::read_to_string(folder.path().join("r.html"))
            .unwrap()
            .contains("<h2>Stages</h2>")
    );
    assert!(
        fs::read_to_string(folder.path().join("to"))
            .unwrap()
            .starts_with("ABCDEFG\n")
    );
}

#[test]
fn what_cannot_run_is_told_with_its_line() {
    let folder = folder_with(&[("from", "abc")]);
    let path = folder.path();
    let with = |from: &str, to: &str| {
        let text = PIPES.replacen(from, to, 1);
        assert_ne!(text, PIPES, "{from}");
        fs::write(path.join("x.toml"), text).unwrap();
    };
    let said = |arguments: &[&str]| refused(path, arguments);
    with("\"tr\", \"a-z\", \"A-Z\"", "\"no-such-program\"");
    let told = said(&["run", "x.toml"]);
    assert!(
        told.starts_with("x.toml:8: stage[1].program: `no-such-program` "),
        "{told}"
    );
    with("file = \"to\"", "file = \"nowhere/to\"");
    let told = said(&["run", "x.toml"]);
    assert!(told.starts_with("x.toml:14: stage[3].file: nowhere/to: "), "{told}");
    with("kind = \"copy\"", "kind = \"copy\"\ncore = 4000");
    let told = said(&["run", "x.toml"]);
    assert!(
        told.starts_with("x.toml:12: stage[2].core: ") && told.contains("core 4000"),
        "{told}"
    );
    with("duration", "[pipeline]\ncores = [4000]\n[pipelin]\nx");
    let told = said(&["run", "x.toml"]);
    assert!(told.contains("pipelin: unknown key"), "{told}");
    with("duration = \"100s\"", "");
    let told = said(&["run", "x.toml", "--platform", "sim"]);
    assert!(
        told.starts_with("x.toml:2: stage: ") && told.contains("Linux"),
        "{told}"
    );
    let told = said(&["run", "x.toml", "--record", "log", "--controller", "open"]);
    assert!(told.contains("--controller has no effect"), "{told}");
    let told = said(&["model", "learn", "x.toml", "-o", "model.json"]);
    assert!(told.contains("no task has a deadline"), "{told}");
}

/// The simulated machine carries out the tasks and the stages of a file, without files and programs.
#[test]
fn tasks_beside_stages_run_on_the_simulated_machine() {
    let tasks = "[trace]\nsensors = 4\n[[task]]\nname = \"t\"\nclass = \"real-time\"\nperiod = \"50ms\"\n\
                 deadline = \"40ms\"\ncompute = \"1ms\"\n[control]\ncontroller = \"open\"\n";
    let stages = PIPES.replace("duration = \"100s\"", "duration = \"12s\"");
    let paced = stages.replace("file = \"from\"", "file = \"from\"\nperiod = \"20ms\"");
    let paced = paced.replace("\"copy\"\n[[stage]]", "\"copy\"\ncompute = \"2ms\"\n[[stage]]");
    let folder = folder_with(&[
        ("x.toml", &format!("{stages}{tasks}")),
        ("paced.toml", &format!("{paced}{tasks}")),
        ("from", "abc"),
    ]);
    let run = |file| {
        [
            "run",
            file,
            "--platform",
            "sim",
            "--plain",
            "--check",
            "--json",
            "r.json",
        ]
    };
    let told_why = refused(folder.path(), &run("x.toml"));
    assert!(told_why.starts_with("x.toml:2: stage[0].period: "), "{told_why}");
    let (out, _) = told(punctual(folder.path(), &run("paced.toml")));
    assert!(out.contains("none: in, upper, out"), "{out}");
    let report = json(folder.path(), "r.json");
    assert_eq!(report["stages"][3]["frames_taken"], 600, "{report}");
    assert!(!folder.path().join("to").exists());
}

/// A scenario of stages only has a page, and a log of what its policy decided.
#[test]
fn stages_alone_have_a_page_and_a_log() {
    let letters: String = (0..5000u32).map(|at| char::from(b'a' + (at % 26) as u8)).collect();
    let text = format!("{PIPES}[pipeline]\npolicy = \"balance\"\n");
    let folder = folder_with(&[("x.toml", &text), ("from", &letters)]);
    let arguments = [
        "run", "x.toml", "--html", "r.html", "--record", "log.json", "--json", "r.json",
    ];
    told(punctual(folder.path(), &arguments));
    let page = fs::read_to_string(folder.path().join("r.html")).unwrap();
    for part in [
        "Goal held by stage",
        "Stages on cores",
        "before copy",
        "Time without a process",
        "punctual run",
    ] {
        assert!(page.contains(part), "no {part}");
    }
    assert_eq!(page.matches("<svg").count(), 3);
    let report = json(folder.path(), "r.json");
    assert_eq!(report["stages"][3]["goal_late"], 0.5, "{report}");
    let (out, _) = told(punctual(folder.path(), &["replay", "log.json"]));
    assert!(out.contains("decisions, identical"), "{out}");
}

/// A named pipe that no program writes or reads does not keep a run from its end.
#[test]
fn a_named_pipe_may_wait_for_ever() {
    let folder = folder_with(&[("from", "abc")]);
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let short = PIPES.replace("duration = \"100s\"", "duration = \"1s\"");
    for (from, to) in [
        ("file = \"from\"", "file = \"pipe\""),
        ("file = \"to\"", "file = \"pipe\""),
    ] {
        fs::write(folder.path().join("x.toml"), short.replace(from, to)).unwrap();
        told(punctual(folder.path(), &["run", "x.toml"]));
    }
}

#[test]
fn a_program_that_fails_is_named() {
    let folder = folder_with(&[("from", "abc")]);
    let text = PIPES.replace("\"tr\", \"a-z\", \"A-Z\"", "\"sh\", \"-c\", \"cat; exit 6\"");
    fs::write(folder.path().join("x.toml"), text).unwrap();
    let output = punctual(folder.path(), &["run", "x.toml"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.starts_with("stage \"upper\": ") && error.ends_with("exit status 6\n"),
        "{error}"
    );
    assert_eq!(fs::read_to_string(folder.path().join("to")).unwrap(), "abc");
}

/// Rates other than one frame are those of libraries.
#[test]
fn rates_and_rings_of_a_stage_in_c_are_checked() {
    let folder = folder_with(&[("mean.toml", include_str!("../../../../examples/c/mean.toml"))]);
    build_example(folder.path());
    let text = fs::read_to_string(folder.path().join("mean.toml")).unwrap();
    let said = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        fs::write(folder.path().join("x.toml"), text.replacen(from, to, 1)).unwrap();
        refused(folder.path(), &["run", "x.toml"])
    };
    let library = "library = \"mean.so\"";
    let told = said(library, "library = \"mean.so\"\nstate_bytes = 8");
    let place = "x.toml:13: stage[1].state_bytes: its state has 16 bytes";
    assert!(told.starts_with(place), "{told}");
    let told = said(library, "library = \"mean.so\"\ntakes = [20]\nmakes = [20]");
    let place = "x.toml:21: edge[0].slots: the edge hum -> mean has 14 slots";
    assert!(told.starts_with(place) && told.contains("20 to"), "{told}");
    let second = "[[edge]]\nfrom = \"hum\"\nto = \"mean:1\"\nframe_bytes = 960";
    let told = said(library, &format!("{library}\ntakes = [1, 2]\n{second}"));
    assert!(told.starts_with("x.toml:") && told.contains("never balances"), "{told}");
    let told = said(library, "library = \"mean.so\"\ntakes = [1, 1]");
    assert!(told.starts_with("x.toml:13: stage[1].takes: input 1 of "), "{told}");
}

fn build_example(folder: &Path) {
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O2", "-I"])
        .arg(root().join("include"))
        .arg("-o");
    cc.arg(folder.join("mean.so")).arg(root().join("examples/c/mean.c"));
    assert!(cc.status().expect("a C compiler, cc: install gcc or clang").success());
}

/// A frame that does not fit has the example's step answer 1.
#[test]
fn a_stage_in_c_that_cannot_go_on_says_why() {
    let folder = folder_with(&[]);
    build_example(folder.path());
    let text = include_str!("../../../../examples/c/mean.toml");
    let last = text.rfind("frame_bytes = 960").unwrap();
    let short = format!("{}frame_bytes = 96", &text[..last]);
    fs::write(folder.path().join("x.toml"), short).unwrap();
    let output = punctual(folder.path(), &["run", "x.toml"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("stage \"mean\"") && error.ends_with("answered 1\n"),
        "{error}"
    );
}

#[test]
fn a_stage_in_c_is_loaded_beside_its_scenario() {
    let folder = folder_with(&[("mean.toml", include_str!("../../../../examples/c/mean.toml"))]);
    let refusal = refused(folder.path(), &["run", "mean.toml"]);
    let place = "mean.toml:12: stage[1].library: mean.so: ";
    assert!(refusal.starts_with(place), "{refusal}");
    build_example(folder.path());
    let (out, _) = told(punctual(folder.path(), &["run", "mean.toml"]));
    let samples: Vec<&str> = out.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(samples, ["0", "0", "0", "0"], "the offset is gone: {out}");
}
