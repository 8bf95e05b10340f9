//! What a user sees of bad input: the program's whole answer, and exit code 2.

use crate::common;

use std::fs;
use std::path::Path;

use common::{folder_with, punctual, refused};
#[cfg(target_os = "linux")]
use punctual_platform::linux::{KernelTree, cores};

/// A sound scenario with eight made-up sensors, for changing.
const SMALL: &str = "\
duration = \"4s\"
[control]
controller = \"open\"
warm_up = \"1s\"
[trace]
sensors = 8
[[task]]
name = \"answer\"
class = \"real-time\"
period = \"100ms\"
deadline = \"50ms\"
compute = \"2ms\"
";

/// A scenario whose trace is `trace`, for changing.
fn traced() -> String {
    SMALL.replace("sensors = 8", "dir = \"trace\"")
}

const SENSORS: &str = "id,period_s,avi_s\n0,1,2\n";
const BAD_ROW: &str = "time_s,sensor_id,value\n0.1,0,20\n0.2,0,hot\n";

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    for arguments in [["run", "--help"], ["--help", "run"]] {
        let mut command = common::program(std::path::Path::new("."));
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let ended = command.args(arguments).stdout(full).output().unwrap();
        assert_eq!(ended.status.code(), Some(2));
    }
}

#[test]
fn the_whole_answer_to_bad_input() {
    let wrong = SMALL
        .replace("duration", "duratoin")
        .replace("period = \"100ms\"", "period = \"-100ms\"");
    let untraced = SMALL.replace("sensors = 8", "dir = \"no/such/trace\"");
    let folder = folder_with(&[
        ("x.toml", SMALL),
        ("wrong.toml", &wrong),
        ("untraced.toml", &untraced),
        ("scenarios/row.toml", &traced()),
        ("trace/sensors.csv", SENSORS),
        ("trace/readings.csv", BAD_ROW),
        ("qod.toml", &SMALL.replace("\"open\"", "\"qod\"")),
        ("other.json", "{\"kind\": \"grocery-list\"}"),
        ("cut.json", "{\"kind\": \"punctual-model\",\n"),
        ("absent.toml", &with_cores("", "", "9")),
        ("full.toml", &with_cores("2", "2", "")),
        ("taken.toml", &with_cores("2", "", "2")),
        ("busy.toml", &with_cores("3", "3", "").replace("exclusive", "real-time")),
    ]);
    let cases = [
        ("run wrong.toml --set goal.tardiness=often", "wrong.toml:1: duratoin: "),
        (
            "run x.toml --set task.answer.compute=150ms",
            "--set task.answer.compute=150ms: task[0].compute: a goal out of reach",
        ),
        ("run y.toml", "y.toml: no such file"),
        ("model learn y.toml -o m.json", "y.toml: no such file"),
        ("run untraced.toml", "trace.dir: no folder"),
        ("run scenarios/row.toml", "trace/readings.csv:3: value is \"hot\""),
        ("run qod.toml --model none.json", "none.json: no such file"),
        ("run qod.toml --model other.json", "other.json: is a \"grocery-list\""),
        ("model design cut.json -o c.json", "cut.json:2: "),
        ("run x.toml --json no/report", "no/report: cannot be written"),
        ("run x.toml --html no/report", "no/report: cannot be written"),
        ("run x.toml --record no/report", "no/report: cannot be written"),
        ("run x.toml --duration -4s", "--duration -4s: duration: "),
        ("run x.toml --duration 500ms", "--duration 500ms: duration: "),
        ("run x.toml --seed -1", "--seed -1: seed: "),
        (
            "run x.toml --set control.period=10us",
            "--set control.period=10us: control.period: ",
        ),
        (
            "run x.toml --set store.group_commit=1ns",
            "--set store.group_commit=1ns: store.group_commit: ",
        ),
        (
            r#"run x.toml --set task.answer.name="a\u001b[2J""#,
            r#"--set task.answer.name="a\u001b[2J": task[0].name: "#,
        ),
        ("run x.toml --json out --html ./out", "./out: is named as --html"),
        ("run x.toml --html x.toml", "x.toml: is named as --html"),
        ("run absent.toml --platform sim", "absent.toml:21: task[2].core: "),
        ("run full.toml --platform sim", "full.toml:16: task[1].core: "),
        ("run taken.toml --platform sim", "taken.toml:22: task[2].core: "),
        ("run busy.toml --platform sim", "busy.toml:7: task: a goal out of reach"),
    ];
    insta::assert_snapshot!("bad_input", common::refusals(folder.path(), &cases));
    assert!(!folder.path().join("c.json").exists());
    assert_eq!(
        fs::read_to_string(folder.path().join("x.toml")).expect("the scenario"),
        SMALL
    );
}

#[test]
fn a_trace_above_the_scenario_is_found_from_elsewhere() {
    let folder = folder_with(&[
        ("scenarios/x.toml", &traced()),
        ("trace/sensors.csv", SENSORS),
        ("trace/readings.csv", BAD_ROW),
    ]);
    let elsewhere = folder_with(&[]);
    let scenario = folder.path().join("scenarios/x.toml");
    let scenario = scenario.to_str().expect("text");
    let said = refused(elsewhere.path(), &["run", scenario]);
    assert!(said.contains("readings.csv:3: "), "{said}");
}

/// A model of the simulated machine, for changing.
const MODEL: &str = include_str!("../../../../scenarios/fire-rescue.sim.model.json");

#[test]
fn a_model_in_which_a_knob_works_backwards_is_refused() {
    let mut model: serde_json::Value = serde_json::from_str(MODEL).expect("JSON");
    let effect = &mut model["mimo"]["b"][0][0][0]; // of the clock on tardiness
    let forwards = effect
        .as_f64()
        .filter(|effect| *effect < 0.0)
        .expect("a faster clock makes jobs earlier");
    *effect = (-forwards).into();
    let backwards = model.to_string();
    // With prices in place of a set point of drr, the law is that of the clock alone.
    let text = SMALL
        .replace("\"open\"", "\"mimo\"")
        .replace("[trace]", "[goal]\ndrr = 0.6\n[trace]");
    let folder = folder_with(&[("x.toml", &text), ("back.json", &backwards)]);
    let refused = |arguments: &[&str]| refused(folder.path(), arguments);
    let why = "back.json: the model says that more of `clock`";
    assert!(refused(&["run", "x.toml", "--platform", "sim", "--model", "back.json"]).starts_with(why));
    assert!(refused(&["model", "design", "back.json", "-o", "c.json"]).starts_with(why));
    assert!(!folder.path().join("c.json").exists());
}

#[test]
fn a_wrong_command_line_is_refused_with_a_hint() {
    let folder = folder_with(&[("x.toml", SMALL)]);
    for (arguments, part) in [
        (&["frob"][..], "unrecognized subcommand 'frob'"),
        (
            &["run", "x.toml", "--set", "seed"],
            "write key=value, such as goal.tardiness=0.9",
        ),
        (&["run", "x.toml", "--platform", "mac"], "[possible values: linux, sim]"),
        (
            &["run", "x.toml", "--controller", "pid"],
            "[possible values: open, qod, clock, mimo]",
        ),
        (
            &["run", "x.toml", "--model", "m.json", "--identify"],
            "cannot be used with",
        ),
        (&["model", "learn", "x.toml"], "--output <FILE>"),
    ] {
        let error = refused(folder.path(), arguments);
        assert!(
            error.contains(part) && error.contains("--help"),
            "{arguments:?}: {error}"
        );
    }
}

#[test]
fn a_report_does_not_overwrite_the_scenario() {
    let folder = folder_with(&[("x.toml", SMALL)]);
    for option in ["--json", "--html", "--record"] {
        let said = refused(folder.path(), &["run", "x.toml", "--set", "seed=2", option, "./x.toml"]);
        assert!(said.contains("x.toml"), "{said}");
        let said = refused(folder.path(), &["run", "robot", "--platform", "sim", option, "x.toml"]);
        assert!(said.contains("x.toml: .toml is for scenarios"), "{said}");
    }
    let said = refused(folder.path(), &["run", "x.toml", "--json", ""]);
    assert!(said.starts_with("--json takes a file"), "{said}");
    assert_eq!(
        fs::read_to_string(folder.path().join("x.toml")).expect("the scenario"),
        SMALL
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_that_is_refused_leaves_no_new_store() {
    let folder = folder_with(&[("x.toml", SMALL)]);
    let set = |value: &str| {
        let run = ["run", "x.toml", "--set", "store.path=new.store", "--set", value];
        refused(folder.path(), &run)
    };
    let said = set("task.answer.core=9999");
    assert!(said.contains("task[0].core: "), "{said}");
    // Three times 64 TiB are no addresses of a process.
    let said = set("store.map_bytes=70368744177664");
    assert!(said.contains("store.map_bytes"), "{said}");
    assert!(!folder.path().join("new.store").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn a_mapped_file_that_cannot_be_is_refused_before_the_run() {
    let folder = folder_with(&[("x.toml", SMALL)]);
    let memory = punctual_testing::shared_folder();
    let file = memory.path().join("temporal.map");
    let set = |file: &Path, value: &str| {
        let mapped = format!("store.temporal=mapped:{}", file.display());
        refused(folder.path(), &["run", "x.toml", "--set", &mapped, "--set", value])
    };
    assert!(set(&file, "task.answer.core=9999").contains("task[0].core: "));
    assert!(!file.exists());
    fs::write(&file, "short").expect("written");
    let said = set(&file, "seed=2");
    assert!(said.contains("temporal.map: it has 5 bytes, not "), "{said}");
    assert_eq!(fs::read(&file).expect("there"), b"short");
    let nowhere = memory.path().join("no folder/temporal.map");
    let said = set(&nowhere, "seed=2");
    assert!(
        said.contains("No such file or directory (os error 2); name a file in /dev/shm "),
        "{said}"
    );
}

/// The store's folder is new, so that the mapped file in it can be made only with it.
#[cfg(target_os = "linux")]
#[test]
fn a_mapped_file_lies_in_the_folder_of_a_new_store() {
    let folder = folder_with(&[("x.toml", &SMALL.replace("\"4s\"", "\"2s\""))]);
    let memory = punctual_testing::shared_folder();
    let store = memory.path().join("new.store");
    let path = format!("store.path={}", store.display());
    let run = ["run", "x.toml", "--set", &path, "--set", "store.temporal=mapped"];
    let output = punctual(folder.path(), &run);
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).expect("text");
    // The goal may be missed beside other tests.
    assert!(said.contains("0 have values of an earlier run"), "{said}");
    assert!(store.join("temporal.map").exists());
}

#[test]
fn an_output_that_cannot_be_written_does_not_take_the_others_with_it() {
    let folder = folder_with(&[("x.toml", SMALL)]);
    let run = [
        "run",
        "x.toml",
        "--platform",
        "sim",
        "--json",
        "/dev/full",
        "--html",
        "page.html",
    ];
    let output = punctual(folder.path(), &run);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(error.contains("/dev/full: cannot be written"), "{error}");
    assert!(folder.path().join("page.html").exists());
}

#[test]
fn a_trace_that_ends_before_it_begins_is_refused() {
    let folder = folder_with(&[
        ("x.toml", &traced()),
        ("trace/sensors.csv", SENSORS),
        ("trace/readings.csv", "time_s,sensor_id,value\n0,0,20\n"),
    ]);
    let said = refused(folder.path(), &["run", "x.toml"]);
    assert!(said.contains("trace/readings.csv:2: "), "{said}");
}

/// Two exclusive tasks of 60 %, and something beside them.
const EXCLUSIVE: &str = "\
duration = \"4s\"
[control]
controller = \"open\"
warm_up = \"1s\"
[trace]
sensors = 8
[[task]]
name = \"left\"
class = \"exclusive\"
period = \"100ms\"
deadline = \"100ms\"
compute = \"60ms\"
[[task]]
name = \"right\"
class = \"exclusive\"
period = \"100ms\"
deadline = \"100ms\"
compute = \"60ms\"
[[task]]
name = \"browse\"
class = \"best-effort\"
pause = [\"5ms\", \"10ms\"]
compute = \"1ms\"
";

/// `EXCLUSIVE` with cores of the tasks; an empty one is left out.
fn with_cores(left: &str, right: &str, browse: &str) -> String {
    let mut text = EXCLUSIVE.to_owned();
    for (name, core) in [("left", left), ("right", right), ("browse", browse)] {
        if !core.is_empty() {
            let name = format!("name = \"{name}\"");
            text = text.replace(&name, &format!("{name}\ncore = {core}"));
        }
    }
    text
}

#[test]
fn two_exclusive_tasks_of_sixty_percent_run_where_there_are_two_cores_for_them() {
    let folder = folder_with(&[("x.toml", EXCLUSIVE)]);
    let (out, _) = common::told(punctual(
        folder.path(),
        &["run", "x.toml", "--platform", "sim", "--plain"],
    ));
    assert!(
        out.contains("core 2 kept for exclusive tasks") && out.contains("core 3 kept for exclusive tasks"),
        "{out}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn cores_and_interrupts_that_are_not_there_are_named_by_file_line_and_key() {
    let _cores = punctual_testing::shared_machine();
    let said = |exclusive: &str| {
        let text = format!("{}\n[exclusive]\n{exclusive}\n", EXCLUSIVE.trim_end());
        let folder = folder_with(&[("x.toml", &text)]);
        let line = text.lines().count();
        let said = refused(folder.path(), &["run", "x.toml"]);
        said.strip_prefix(&format!("x.toml:{line}: exclusive."))
            .map(str::to_owned)
            .unwrap_or_else(|| panic!("line {line}: {said}"))
    };
    for (asked, told) in [
        (
            "cores = [4000]",
            "cores: choosing exclusive cores: there is no core 4000",
        ),
        (
            "cores = \"4000-4001\"",
            "cores: choosing exclusive cores: there is no core 4000",
        ),
        ("cores = \"3-2\"", "cores: expected cores such as"),
        ("cores = [-1]", "cores: expected cores such as"),
        ("cores = []", "cores: expected cores such as"),
        ("cores = true", "cores: expected cores such as"),
        (
            "interrupts = [\"no-such-device\"]",
            "interrupts: steering the interrupt \"no-such-device\"",
        ),
        ("interrupts = [\"\"]", "interrupts: an interrupt has a number or a name"),
    ] {
        let said = said(asked);
        assert!(said.starts_with(told), "{asked}: {said}");
    }
    let all = cores::usable(&KernelTree::default());
    let all: Vec<String> = all.iter().map(|core| core.to_string()).collect();
    let said = said(&format!("cores = [{}]", all.join(", ")));
    assert!(said.contains("are all cores that this process may use"), "{said}");
}
