//! Runs on the simulated machine from the command line to the files they leave.

use crate::common;

use std::path::Path;
use std::process::Output;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The answer of a run that succeeds.
fn punctual(folder: &Path, arguments: &[&str]) -> Output {
    let output = common::punctual(folder, arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    output
}

#[test]
fn a_built_in_scenario_runs_in_an_empty_folder_unless_a_file_of_that_name_is_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    let arguments = ["run", "shared-cache", "--platform", "sim", "--duration", "8s"];
    let summary = String::from_utf8(punctual(here, &arguments).stdout).expect("text");
    assert!(summary.starts_with("\nshared-cache on sim ("), "{summary}");

    let shown = punctual(here, &["new", "robot", "-"]).stdout;
    let text = String::from_utf8(shown).expect("text");
    std::fs::write(here.join("robot.toml"), text.replace("\"robot\"", "\"mine\"")).expect("written");
    let arguments = ["run", "robot.toml", "--platform", "sim", "--duration", "6s"];
    let summary = String::from_utf8(punctual(here, &arguments).stdout).expect("text");
    assert!(
        summary.starts_with("\nmine on sim ("),
        "the user's file wins: {summary}"
    );

    let listed = String::from_utf8(punctual(here, &["new"]).stdout).expect("text");
    assert_eq!(listed.lines().count(), 6, "{listed}");
    std::fs::create_dir(here.join("sub")).expect("a folder");
    for name in listed.lines().take(5).filter_map(|line| line.split(' ').next()) {
        let file = format!("sub/{name}-of-mine.toml");
        punctual(here, &["new", name, &file]);
        punctual(here, &["run", &file, "--platform", "sim", "--duration", "5s"]);
    }
    let refused = common::refused(here, &["new", "rowboat"]);
    assert!(
        refused.starts_with("rowboat: ") && refused.contains("fire-rescue, robot, "),
        "{refused}"
    );
}

/// The gate builds and runs its program as an example; a crate of its own would be built from nothing.
#[test]
fn a_new_crate_has_the_guides_robot_and_depends_on_this_clone() {
    let folder = tempfile::tempdir().expect("a folder");
    let (here, robot) = (folder.path(), folder.path().join("deep/robot"));
    let said = punctual(here, &["new", "crate", "deep/robot"]).stdout;
    assert!(
        String::from_utf8_lossy(&said).contains("deep/robot: cd deep/robot && cargo run"),
        "{said:?}"
    );
    let refused = common::refused(here, &["new", "crate", "deep/robot"]);
    assert!(
        refused.contains("deep/robot already exists; choose a new folder"),
        "{refused}"
    );
    std::fs::write(here.join("file"), "").expect("a file");
    assert!(common::refused(here, &["new", "crate", "file/robot"]).starts_with("file/robot: "));

    let program = std::fs::read_to_string(robot.join("src/main.rs")).expect("a program");
    let blocks = punctual_testing::guide::blocks().into_iter();
    let shown: Vec<_> = blocks
        .filter(|block| block.place.contains("/robot.md:") && block.kind == "rust")
        .collect();
    assert_eq!(shown.len(), 1);
    assert_eq!(
        program, shown[0].text,
        "examples/robot.rs is not the program in docs/guide/robot.md"
    );
    assert_eq!(punctual(here, &["new", "crate", "-"]).stdout, program.as_bytes());

    // Without its dependencies, which a machine without a network need not have in a form that this finds.
    let mut cargo = std::process::Command::new(env!("CARGO"));
    cargo
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(&robot);
    let metadata = punctual_testing::output(&mut cargo, common::BOUND).expect("cargo starts");
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).expect("JSON");
    let dependency = &metadata["packages"][0]["dependencies"][0];
    let front = Path::new(ROOT)
        .join("crates/punctual")
        .canonicalize()
        .expect("a folder");
    assert_eq!(
        (&dependency["name"], &dependency["path"]),
        (&"punctual".into(), &front.to_str().expect("text").into())
    );
}

/// The shipped file with all five systems in it, on the machine that has every knob.
#[test]
fn a_vehicle_runs_with_every_knob_and_replays() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = ["run", "vehicle", "--platform", "sim", "--duration", "4s"];
    let files = ["--json", "run.json", "--html", "run.html", "--record", "log.json"];
    punctual(folder.path(), &[&run[..], &files[..]].concat());
    let text = std::fs::read_to_string(folder.path().join("run.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let names = |key: &str, of: &str| -> Vec<String> {
        let rows = report[key].as_array().expect(key);
        rows.iter()
            .map(|row| row[of].as_str().unwrap_or_default().into())
            .collect()
    };
    assert_eq!(names("tasks", "name"), ["control", "plan", "log"]);
    assert_eq!(names("stages", "name"), ["camera", "detect", "track", "publish"]);
    assert!(report["stages"][3]["frames_taken"].as_u64() > Some(60), "{report}");
    assert!(report["summary"]["energy_j"].as_f64() > Some(0.0));
    let knobs = report["knobs"].as_array().expect("knobs");
    for name in [
        "clock",
        "admitted-share",
        "best-effort-share",
        "ways of core 0",
        "bandwidth of core 0",
    ] {
        let used = knobs.iter().any(|knob| knob["knob"] == name && knob["used"] == true);
        assert!(used, "{name}: {knobs:?}");
    }
    let page = std::fs::read_to_string(folder.path().join("run.html")).expect("a page");
    assert!(page.contains("publish") && page.contains("control"));
    let replayed = punctual(folder.path(), &["replay", "log.json"]).stdout;
    let replayed = String::from_utf8(replayed).expect("text");
    assert!(replayed.contains("decisions, identical"), "{replayed}");
}

/// `--json` without a file: JSON alone on standard output, the words on standard error.
#[test]
fn json_without_a_file_goes_to_standard_output() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = [
        "run",
        "robot",
        "--platform",
        "sim",
        "--controller",
        "open",
        "--duration",
        "4s",
        "--json",
        "-",
    ];
    let output = punctual(folder.path(), &arguments);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON, and nothing else");
    assert_eq!(report["scenario"], "robot");
    let words = String::from_utf8(output.stderr).expect("text");
    assert!(words.contains("robot on sim ("), "{words}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
    let refused = common::refused(folder.path(), &["run", "--json", "robot.toml"]);
    assert!(refused.contains("robot.toml: .toml is for scenarios"), "{refused}");
}

#[test]
fn a_run_is_told_summed_up_and_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let scenario = format!("{ROOT}/scenarios/robot.toml");
    let arguments = [
        "run",
        &scenario,
        "--platform",
        "sim",
        "--controller",
        "open",
        "--duration",
        "8s",
    ];
    let files = ["--json", "run.json", "--html", "run.html", "--record", "run.log"];
    let output = punctual(folder.path(), &[&arguments[..], &files[..]].concat());
    let told = String::from_utf8(output.stderr).expect("text");
    assert!(
        told.contains("tardiness ") && told.lines().count() > 8,
        "a line per second: {told}"
    );
    let summary = String::from_utf8(output.stdout).expect("text");
    assert!(summary.starts_with("\nrobot on sim ("), "{summary}");
    assert!(
        summary.contains("superseded") && summary.contains("simulated"),
        "{summary}"
    );

    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect(name);
    let json: serde_json::Value = serde_json::from_str(&read("run.json")).expect("JSON");
    for key in [
        "scenario",
        "platform",
        "knobs",
        "protection",
        "goal",
        "samples",
        "summary",
        "tasks",
    ] {
        assert!(!json[key].is_null(), "no {key}");
    }
    for key in ["k", "t_s", "admitted_share", "fresh_share", "jobs", "misses"] {
        assert!(json["samples"][3][key].is_number(), "no {key}");
    }
    let page = read("run.html");
    assert!(page.contains("<svg") && page.contains("--html run.html"));
    let _: serde_json::Value = serde_json::from_str(&read("run.log")).expect("JSON");
}

/// What a script reads of each task, and what the exit code says of its goal.
#[test]
fn every_task_is_told_and_checked_against_its_own_goal() {
    let folder = common::folder_with(&[("two.toml", TWO_TASKS)]);
    let arguments = ["run", "two.toml", "--platform", "sim", "--check", "--json", "run.json"];
    let output = common::punctual(folder.path(), &arguments);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("--check: Goal missed by \"long\""), "{said}");
    assert!(said.contains("late jobs were preempted by task short"), "{said}");

    let text = std::fs::read_to_string(folder.path().join("run.json")).expect("a report");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let tasks = json["tasks"].as_array().expect("tasks");
    assert_eq!(tasks.len(), 2, "the best-effort task has no deadline to be late for");
    for task in tasks {
        for key in ["goal_late", "jobs", "late", "late_share", "tardiness_mean"] {
            assert!(task[key].is_number(), "no {key} in {task}");
        }
        for key in ["p50", "p99", "p999", "max"] {
            assert!(task["response_us"][key].is_number(), "no {key} in {task}");
        }
        let parts = ["released_late", "preempted", "lock", "data", "computation", "commit"];
        assert!(parts.iter().all(|part| task["where_us"][part].is_number()), "{task}");
    }
    assert_eq!(
        (&tasks[0]["name"], &tasks[1]["name"]),
        (&"short".into(), &"long".into())
    );
    assert_eq!(tasks[0]["late"], 0);
    let cause = &tasks[1]["causes"][0];
    assert_eq!(
        (&cause["cause"], &cause["by"][0]["name"]),
        (&"preempted".into(), &"short".into())
    );
    let worst = &tasks[1]["late_jobs"][0];
    assert_eq!(
        (&worst["cause"], &worst["by"][0]["name"]),
        (&"preempted".into(), &"short".into())
    );
    let spans = worst["spans_us"].as_object().expect("spans").values();
    assert!(spans.filter_map(serde_json::Value::as_f64).sum::<f64>() > 0.0);
    assert_eq!(json["summary"]["start_up"]["seconds"], 6.0);

    let kept = [&arguments[..], &["--set", "task.long.deadline=45ms"]].concat();
    let output = common::punctual(folder.path(), &kept);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(0), "{said}");
    let wrong = [&arguments[..], &["--set", "task.long.deadline=-1ms"]].concat();
    assert_eq!(
        common::punctual(folder.path(), &wrong).status.code(),
        Some(2),
        "bad input stays 2"
    );
}

/// The short task takes a quarter of the core, and the long one, which would end in time by itself, ends late beside
/// it. The two name one core: of their own accord they would be spread.
const TWO_TASKS: &str = r#"
seed = 1
duration = "12s"

[goal]
late = "1 %"
min_fresh = 0.5

[control]
controller = "open"
warm_up = "1s"

[trace]
sensors = 20

[[task]]
name = "short"
class = "real-time"
period = "4ms"
deadline = "3ms"
compute = "1ms"
core = 3

[[task]]
name = "long"
class = "real-time"
period = "40ms"
deadline = "22ms"
compute = "20ms"
core = 3
"#;

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let scenario = format!("{ROOT}/scenarios/robot.toml");
    let run = |seed: &str, file: &str| {
        let arguments = [
            "run",
            &scenario,
            "--platform",
            "sim",
            "--controller",
            "open",
            "--duration",
            "6s",
        ];
        punctual(
            folder.path(),
            &[&arguments[..], &["--seed", seed, "--json", file]].concat(),
        );
        let text = std::fs::read_to_string(folder.path().join(file)).expect(file);
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        (json["samples"].clone(), json["summary"].clone())
    };
    assert_eq!(run("7", "a.json"), run("7", "b.json"));
    assert_ne!(run("7", "a.json"), run("8", "c.json"));
}

#[test]
fn the_doctor_speaks_to_people_and_to_programs() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = String::from_utf8(punctual(folder.path(), &["doctor"]).stdout).expect("text");
    assert!(text.contains("real-time scheduling"), "{text}");
    let json = punctual(folder.path(), &["doctor", "--json", "-"]).stdout;
    let findings: Vec<serde_json::Value> = serde_json::from_slice(&json).expect("JSON");
    assert!(findings.len() > 10);
    for finding in findings {
        assert!(finding["facility"].is_string() && finding["status"].is_string());
    }
}
