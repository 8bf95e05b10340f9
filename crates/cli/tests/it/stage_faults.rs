//! Stages that hang or cannot go on, and runs that are killed: what is reported, and what is left.

use crate::common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{folder_with, punctual, told};
use punctual_platform::linux::process::ProcessId;
use punctual_testing::{start, wait_until};
use serde_json::Value;

/// A program that writes frames of 16 bytes, a stage in C, and a program that counts.
const SCENARIO: &str = "\
duration = \"DURATION\"
[pipeline]
step_max = \"200ms\"
[[stage]]
name = \"src\"
program = [\"sh\", \"-c\", \"i=0; while [ $i -lt 60 ]; do printf %016d $i; i=$((i+1)); sleep 0.01; done\"]
[[stage]]
name = \"faulty\"
library = \"faulty.so\"
[[stage]]
name = \"sink\"
program = [\"wc\", \"-c\"]
[[edge]]
from = \"src\"
to = \"faulty\"
frame_bytes = 16
[[edge]]
from = \"faulty\"
to = \"sink\"
frame_bytes = 16
";

/// Hands frames on; the tenth is a `FAULT`.
const FAULTY: &str = r#"
    #include "punctual_stage.h"
    #include <stdio.h>
    #include <string.h>
    struct counter { uint64_t frames; };
    PUNCTUAL_STAGE(struct counter, 1)
    void punctual_stage_begin(void *memory) { (void)memory; }
    int punctual_stage_step(void *memory, struct punctual_frames *frames) {
        struct counter *counter = memory;
        if (frames->count(frames, 0) == 0)
            return 0;
        size_t bytes;
        const void *in = frames->input(frames, 0, 0, &bytes, 0);
        memcpy(frames->output(frames, 0, 0), in, bytes);
        if (++counter->frames == 10) { FAULT; }
        return frames->make(frames, 0, bytes, 0);
    }
"#;

/// The scenario with another command for the source's shell.
fn with_source(text: &str, shell: &str) -> String {
    let source = SCENARIO.find("i=0;").expect("the source")..SCENARIO.find("done\"").expect("its end") + 4;
    text.replace(&SCENARIO[source], shell)
}

/// A C compiler's library of that source, `name` in `folder`.
pub fn library(folder: &Path, name: &str, source: &str) {
    let (path, include) = (
        folder.join("stage.c"),
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../include"),
    );
    fs::write(&path, source).expect("a file");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-I", include, "-o"]);
    cc.arg(folder.join(name)).arg(path);
    assert!(cc.status().expect("a C compiler, cc: install gcc or clang").success());
}

/// Standard error, exit code and JSON report of a run with that fault.
fn run(fault: &str, scenario: &str) -> (String, Option<i32>, Value) {
    run_until(None, fault, scenario)
}

/// As [`run`]; once the stage has made the file `interrupts`, the run is interrupted.
fn run_until(interrupts: Option<&str>, fault: &str, scenario: &str) -> (String, Option<i32>, Value) {
    let folder = folder_with(&[("x.toml", scenario)]);
    library(folder.path(), "faulty.so", &FAULTY.replace("FAULT", fault));
    let mut command = common::program(folder.path());
    command.args(["run", "x.toml", "--plain", "--json", "r.json", "--html", "r.html"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = start(&mut command, common::BOUND).expect("the program starts");
    if let Some(file) = interrupts {
        wait_until(file, || folder.path().join(file).exists());
        // SAFETY: plain numbers, of a child that has not been waited for.
        unsafe { libc::kill(run.id() as i32, libc::SIGINT) };
    }
    let output = run.output().expect("its end");
    let page = fs::read_to_string(folder.path().join("r.html")).expect("a page");
    assert!(page.contains("faulty"), "{page}");
    let report = fs::read_to_string(folder.path().join("r.json")).expect("a report");
    let error = String::from_utf8(output.stderr).expect("text");
    (
        error,
        output.status.code(),
        serde_json::from_str(&report).expect("JSON"),
    )
}

fn stage(report: &Value) -> &Value {
    let mut stages = report["stages"].as_array().expect("stages").iter();
    stages.find(|stage| stage["name"] == "faulty").expect("the stage")
}

/// A stage that hangs when the run is interrupted: its frames are counted, and the program says what it waits for.
#[test]
fn a_stage_that_hangs_is_killed_and_the_frames_before_it_are_counted() {
    let scenario = SCENARIO.replace("DURATION", "100s").replace("200ms", "1s");
    let hangs = "fclose(fopen(\"hangs\", \"w\")); for (;;) ;";
    let (error, code, report) = run_until(Some("hangs"), hangs, &scenario);
    let stage = stage(&report);
    let number = |key: &str| stage[key].as_u64().expect("a number");
    assert_eq!((code, number("frames_taken")), (Some(0), 9), "{error}");
    assert!(number("hung") > 0 && number("left") > 0, "{stage}");
    assert!(error.contains("before \"faulty\""), "{error}");
}

/// The same stage with more time: it is given up, with the reason.
#[test]
fn a_stage_that_hangs_at_each_try_ends_the_run_and_the_report_is_written() {
    let (error, code, report) = run("for (;;) ;", &SCENARIO.replace("DURATION", "100s"));
    assert_eq!((code, stage(&report)["frames_taken"].as_u64()), (Some(2), Some(9)));
    assert!(error.contains("\"faulty\"") && error.contains("step_max"), "{error}");
}

#[test]
fn a_stage_that_fails_beside_tasks_leaves_a_report() {
    let tasks = "[control]\ncontroller = \"open\"\nwarm_up = \"1s\"\n[trace]\nsensors = 4\n[[task]]\nname = \"t\"\n\
                 class = \"real-time\"\nperiod = \"50ms\"\ndeadline = \"40ms\"\ncompute = \"1ms\"\n";
    let scenario = SCENARIO
        .replace("DURATION", "5s")
        .replacen("[[stage]]", &format!("{tasks}[[stage]]"), 1);
    let at_once = "i=0; while [ $i -lt 60 ]; do printf %016d $i; i=$((i+1)); done";
    let (error, code, report) = run("return 7", &with_source(&scenario, at_once));
    assert_eq!(code, Some(2), "{error}");
    assert!(
        error.contains("\"faulty\"") && error.ends_with("answered 7\n"),
        "{error}"
    );
    assert_eq!(stage(&report)["frames_taken"], 9);
    assert_eq!(report["tasks"].as_array().expect("tasks").len(), 1);
}

/// A stage that hangs, and one whose steps take longer than its frames have: updates are shed for either beside a task
/// that is in time, both are late, and the decisions replay.
#[test]
fn knobs_are_turned_for_a_late_stage_beside_a_task_in_time() {
    let tasks = "[goal]\ntardiness = 0.8\n[control]\ncontroller = \"qod\"\nwarm_up = \"500ms\"\n[trace]\nsensors = 4\n[[task]]\nname = \"t\"\n\
                 class = \"real-time\"\nperiod = \"50ms\"\ndeadline = \"40ms\"\ncompute = \"100us\"\n";
    let endless = "while :; do printf %016d 7; sleep 0.02; done";
    let scenario = with_source(&SCENARIO.replace("DURATION", "8s"), endless)
        .replace("step_max = \"200ms\"", "step_max = \"60s\"")
        .replacen("[[stage]]", &format!("{tasks}[[stage]]"), 1)
        .replacen("name = \"src\"", "name = \"src\"\ndeadline = \"1ms\"", 1)
        .replacen("name = \"faulty\"", "name = \"faulty\"\nlate = \"1 %\"", 1);
    for (fault, hangs) in [("for (;;) ;", true), ("counter->frames = 9; usleep(5000)", false)] {
        let folder = folder_with(&[("x.toml", &scenario)]);
        let source = FAULTY.replacen("#include", "#include <unistd.h>\n    #include", 1);
        library(folder.path(), "faulty.so", &source.replace("FAULT", fault));
        let arguments = ["run", "x.toml", "--plain", "--json", "r.json", "--record", "log.json"];
        let output = punctual(folder.path(), &arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        let report: Value =
            serde_json::from_str(&fs::read_to_string(folder.path().join("r.json")).expect(&error)).unwrap();
        let samples = report["samples"].as_array().expect("samples");
        let pressed = |sample: &&Value| sample["stage_pressure"].as_f64() > Some(1.0);
        assert!(samples.iter().any(|sample| pressed(&sample)), "{hangs}: {error}");
        let knob = |sample: &Value| sample["admitted_knob"].as_f64();
        // The law of the tasks admits all; start-up and fallback tell nothing.
        let running = samples.iter().filter(|sample| sample["mode"] == "running");
        let shares: Vec<f64> = running.filter_map(knob).collect();
        let least = shares.iter().copied().reduce(f64::min);
        // A machine that was taken from the run for long excuses its goals.
        let excused = report["summary"]["inconclusive"] == true;
        let is_turned = shares.first() > Some(&0.9) && least < Some(0.9);
        assert!(excused || is_turned, "{hangs}: {shares:?}");
        let stage = stage(&report);
        let count = |key: &str| stage[key].as_u64().unwrap_or(0);
        assert!(count("late") > 0 && (!hangs || count("missing") > 0), "{stage}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(excused || text.contains("Goal missed by stage \"faulty\""), "{text}");
        let (out, _) = told(punctual(folder.path(), &["replay", "log.json"]));
        assert!(out.contains("decisions, identical"), "{out}");
    }
}

/// Hands frames on with what it has counted; `MORE` fields, `VERSION`, and `CONVERT`, which takes over version 1.
const COUNTER: &str = r#"
    #include "punctual_stage.h"
    #include <string.h>
    struct counter { uint64_t frames; MORE };
    PUNCTUAL_STAGE(struct counter, VERSION)
    void punctual_stage_begin(void *memory) { (void)memory; }
    int punctual_stage_convert(uint32_t version, const void *old, size_t bytes, void *memory) {
        if (version != 1 || bytes != 8) return 1;
        memcpy(memory, old, bytes);
        return CONVERT;
    }
    int punctual_stage_step(void *memory, struct punctual_frames *frames) {
        struct counter *counter = memory;
        if (frames->count(frames, 0) == 0)
            return 0;
        unsigned char *out = frames->output(frames, 0, 0);
        memset(out, VERSION, 16);
        memcpy(out, &counter->frames, 8);
        counter->frames++;
        return frames->make(frames, 0, 16, 0);
    }
"#;

fn counter(folder: &Path, name: &str, more: &str, version: &str, convert: &str) {
    let source = { COUNTER.replace("MORE", more) }
        .replace("VERSION", version)
        .replace("CONVERT", convert);
    library(folder, name, &source);
}

/// A stage in C gets a longer state by an upgrade, while what was started is fixed: workers that die are replaced, and
/// a library that is refused says why.
#[test]
fn a_state_grows_by_an_upgrade_and_a_refusal_has_its_reason() {
    let endless = "while ! test -e stop; do printf %016d 7; sleep 0.01; done";
    let text = SCENARIO.replace("DURATION", "200s").replace("200ms", "100s");
    let text = with_source(&text, endless);
    let text = text.replace("[\"wc\", \"-c\"]", "[\"sh\", \"-c\", \"cat > out\"]");
    let folder = folder_with(&[("x.toml", &text)]);
    let path = folder.path();
    counter(path, "faulty.so", "", "1", "1");
    let mut command = common::program(path);
    command.args(["run", "x.toml", "--plain"]);
    let mut run = start(&mut command, common::BOUND).expect("the program starts");
    let process = run.id().to_string();
    let on = |what: &[&str]| {
        punctual(
            path,
            &[&["pipeline", what[0], "--process", &process], &what[1..]].concat(),
        )
    };
    let frames = || fs::metadata(path.join("out")).map_or(0, |out| out.len() / 16);
    let more_frames = || {
        let before = frames();
        wait_until("more frames come", || frames() > before + 5);
    };
    let renamed = |name: &str| fs::rename(path.join(name), path.join("faulty.so")).expect("a library");
    more_frames();
    let upgrade = || {
        let answer = on(&["upgrade", "faulty", env!("CARGO_BIN_EXE_punctual")]);
        String::from_utf8([answer.stdout, answer.stderr].concat()).expect("text")
    };
    // Longer than its room; without a version of its own; a version that takes over none; no library at all.
    counter(path, "new.so", "char more[2000000];", "2", "0");
    renamed("new.so");
    let told = upgrade();
    assert!(told.contains("state_bytes") || told.contains("state_room"), "{told}");
    counter(path, "new.so", "uint64_t more;", "1", "0");
    renamed("new.so");
    let told = upgrade();
    assert!(told.contains("another version"), "{told}");
    counter(path, "new.so", "uint64_t more;", "3", "1");
    renamed("new.so");
    let told = upgrade();
    assert!(told.contains("does not convert"), "{told}");
    fs::write(path.join("new.so"), "no library").expect("a file");
    renamed("new.so");
    let told = upgrade();
    assert!(told.contains("cannot be loaded"), "{told}");
    let told = on(&["upgrade", "faulty", "/bin/false"]);
    let told = String::from_utf8(told.stderr).expect("text");
    assert!(told.contains("exit status 1"), "{told}");
    let told = on(&["upgrade", "faulty", "x.toml"]);
    let told = String::from_utf8(told.stderr).expect("text");
    assert!(told.contains("x.toml cannot be started: Permission denied"), "{told}");
    let told = on(&["upgrade", "faulty", "none"]);
    let told = String::from_utf8(told.stderr).expect("text");
    assert!(told.contains("name a program"), "{told}");
    // The refused library lies at the path, and the stage goes on with the code that it was started with.
    kill_workers(run.id());
    more_frames();
    counter(path, "new.so", "uint64_t more;", "2", "0");
    renamed("new.so");
    let told = upgrade();
    assert!(told.contains("us without a process"), "{told}");
    more_frames();
    kill_workers(run.id());
    more_frames();
    fs::write(path.join("stop"), "").expect("a file");
    assert!(run.wait().expect("its end").success());
    let out = fs::read(path.join("out")).expect("frames");
    let versions: Vec<u8> = out.chunks(16).map(|frame| frame[8]).collect();
    assert!(
        versions.is_sorted() && versions.first() == Some(&1) && versions.last() == Some(&2),
        "{versions:?}"
    );
    for (number, frame) in out.chunks(16).enumerate() {
        let counted = u64::from_le_bytes(frame[..8].try_into().expect("a number"));
        assert_eq!(counted, number as u64, "the state went along");
    }
}

/// Kills the workers of a run, which are its children of the same program.
fn kill_workers(process: u32) {
    let program = |process: u32| fs::read_link(format!("/proc/{process}/exe")).ok();
    // A single read of the kernel's list of children may miss some.
    wait_until("a worker is killed", || {
        let tasks = fs::read_dir(format!("/proc/{process}/task"))
            .expect("threads")
            .flatten();
        let children = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
        let children: Vec<u32> = { children }
            .flat_map(|list| {
                list.split_whitespace()
                    .filter_map(|pid| pid.parse().ok())
                    .collect::<Vec<u32>>()
            })
            .collect();
        let workers = children.into_iter().filter(|child| program(*child) == program(process));
        let killed = workers
            .filter_map(|worker| ProcessId::of(worker as i32))
            .filter(|worker| worker.kill());
        killed.count() > 0
    });
}

/// A run that is killed ends the processes that a stage's shell has started.
#[test]
fn nothing_of_a_stage_outlives_a_run_that_is_killed() {
    let shell = "sleep 1000 & echo $! > new; mv new pid; wait";
    let source = SCENARIO.find("i=0;").expect("the source")..SCENARIO.find("done\"").expect("its end") + 4;
    let mut text = SCENARIO
        .replace("DURATION", "100s")
        .replace("library = \"faulty.so\"", "kind = \"copy\"");
    text = text.replace(&SCENARIO[source], shell);
    let folder = folder_with(&[("x.toml", &text)]);
    let mut command = common::program(folder.path());
    command.args(["run", "x.toml", "--plain"]);
    let mut run = start(&mut command, common::BOUND).expect("the program starts");
    let mut started = None;
    wait_until("the shell has started a process", || {
        let pid = fs::read_to_string(folder.path().join("pid")).ok();
        started = pid.and_then(|pid| ProcessId::of(pid.trim().parse().ok()?));
        started.is_some()
    });
    run.kill().expect("the run is killed");
    wait_until("the shell's process ends", || !started.is_some_and(ProcessId::lives));
}
