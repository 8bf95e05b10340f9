//! What a user sees of bad input: the program's whole answer, and exit code 2.

use crate::common;

use std::fs;

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

#[test]
fn a_wrong_scenario_is_told_line_by_line() {
    let text = SMALL
        .replace("duration", "duratoin")
        .replace("period = \"100ms\"", "period = \"-100ms\"");
    let folder = folder_with(&[("x.toml", &text)]);
    assert_eq!(
        refused(folder.path(), &["run", "x.toml", "--set", "goal.tardiness=often"]),
        "\
x.toml:1: duratoin: unknown key; did you mean duration?
x.toml:10: task[0].period: \"-100ms\" is negative; write a number with its unit (ns, us, ms, s, min or h), such as \"100ms\"
--set goal.tardiness=often: goal.tardiness: expected a number, found the text \"often\"
"
    );
}

#[test]
fn a_goal_out_of_reach_is_refused_before_anything_runs() {
    let folder = folder_with(&[("x.toml", SMALL)]);
    assert_eq!(
        refused(folder.path(), &["run", "x.toml", "--set", "task.answer.compute=150ms"]),
        "--set task.answer.compute=150ms: task[0].compute: a goal out of reach: one job needs 150.00 ms alone at full clock, but the next one is released after 100.00 ms\n"
    );
}

#[test]
fn a_missing_scenario_is_named() {
    let folder = folder_with(&[]);
    assert_eq!(
        refused(folder.path(), &["run", "y.toml"]),
        "y.toml: no such file, and no built-in scenario (`punctual new`); name a scenario file\n"
    );
    assert_eq!(
        refused(folder.path(), &["model", "learn", "y.toml", "-o", "m.json"]),
        "y.toml: no such file, and no built-in scenario (`punctual new`); name a scenario file\n"
    );
}

#[test]
fn a_missing_trace_says_where_it_was_looked_for() {
    let text = SMALL.replace("sensors = 8", "dir = \"no/such/trace\"");
    let folder = folder_with(&[("x.toml", &text)]);
    let here = folder.path().canonicalize().expect("a path");
    assert_eq!(
        refused(folder.path(), &["run", "x.toml"]),
        format!(
            "trace.dir: no folder \"no/such/trace\" in {}, nor beside or above the scenario file; name the folder that holds sensors.csv and readings.csv.zst: --set trace.dir=FOLDER\n",
            here.display()
        )
    );
}

#[test]
fn a_malformed_row_is_named_by_file_and_line() {
    let text = SMALL.replace("sensors = 8", "dir = \"trace\"");
    let readings = "time_s,sensor_id,value\n0.1,0,20\n0.2,0,hot\n";
    let folder = folder_with(&[
        ("scenarios/x.toml", &text),
        ("trace/sensors.csv", "id,period_s,avi_s\n0,1,2\n"),
        ("trace/readings.csv", readings),
    ]);
    let row = "readings.csv:3: value is \"hot\": expected a number; mend the row, or name another trace: --set trace.dir=FOLDER\n";
    assert_eq!(
        refused(folder.path(), &["run", "scenarios/x.toml"]),
        format!("trace/{row}")
    );
    // From elsewhere, the folder above the scenario is found.
    let elsewhere = folder_with(&[]);
    let scenario = folder.path().join("scenarios/x.toml");
    let scenario = scenario.to_str().expect("text");
    assert!(refused(elsewhere.path(), &["run", scenario]).ends_with(row));
}

#[test]
fn a_model_that_is_none_is_refused() {
    let text = SMALL.replace("\"open\"", "\"qod\"");
    let folder = folder_with(&[
        ("x.toml", &text),
        ("other.json", "{\"kind\": \"grocery-list\"}"),
        ("cut.json", "{\"kind\": \"punctual-model\",\n"),
    ]);
    let refused = |arguments: &[&str]| refused(folder.path(), arguments);
    assert_eq!(
        refused(&["run", "x.toml"]),
        "x.toml: the controller `qod` needs a model: give one with --model, learn one with --identify, or run `open`\n"
    );
    assert_eq!(
        refused(&["run", "x.toml", "--model", "none.json"]),
        "none.json: no such file; name one that `punctual model learn` or `punctual model design` wrote\n"
    );
    assert_eq!(
        refused(&["run", "x.toml", "--model", "other.json"]),
        "other.json: is a \"grocery-list\"; expected a file that `punctual model learn` or `punctual model design` wrote\n"
    );
    assert!(
        refused(&["model", "design", "cut.json", "-o", "c.json"])
            .starts_with("cut.json:2: neither a model nor a controller")
    );
    assert!(!folder.path().join("c.json").exists());
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
    let text = SMALL.replace("\"open\"", "\"mimo\"");
    let folder = folder_with(&[("x.toml", &text), ("back.json", &backwards)]);
    let refused = |arguments: &[&str]| refused(folder.path(), arguments);
    let why = "back.json: the model says that more of `clock` makes jobs later, which cannot be";
    assert!(refused(&["run", "x.toml", "--platform", "sim", "--model", "back.json"]).starts_with(why));
    assert!(refused(&["model", "design", "back.json", "-o", "c.json"]).starts_with(why));
    assert!(!folder.path().join("c.json").exists());
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_the_run() {
    let folder = folder_with(&[("x.toml", SMALL)]);
    for option in ["--json", "--html", "--record"] {
        assert_eq!(
            refused(folder.path(), &["run", "x.toml", option, "no/report"]),
            "no/report: cannot be written: there is no folder no; name a file in a folder that is yours\n"
        );
    }
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
    for (arguments, line) in [
        (
            ["run", "x.toml", "--duration", "-4s"],
            "--duration -4s: duration: \"-4s\" is negative; write a number with its unit (ns, us, ms, s, min or h), such as \"100ms\"\n",
        ),
        (
            ["run", "x.toml", "--duration", "500ms"],
            "x.toml:4: control.warm_up: 1.00 s leaves nothing of the run's 500.00 ms: make it shorter than `duration`\n",
        ),
        (
            ["run", "x.toml", "--seed", "-1"],
            "--seed -1: seed: -1 is out of range: write a number from 0 on\n",
        ),
    ] {
        assert_eq!(refused(folder.path(), &arguments), line);
    }
}

#[test]
fn what_would_never_end_or_upset_a_terminal_is_refused() {
    let folder = folder_with(&[("x.toml", SMALL)]);
    for (set, answer) in [
        (
            "control.period=10us",
            "control.period: 10.0 us is out of range: write a time of at least 100.0 us and at most 24 h, such as \"100ms\"",
        ),
        (
            "store.group_commit=1ns",
            "store.group_commit: 1 ns is out of range: write a time of at least 100.0 us and at most 24 h, such as \"100ms\"",
        ),
        (
            r#"task.answer.name="a\u001b[2J""#,
            "task[0].name: has control characters in it: use letters, digits, signs and spaces",
        ),
    ] {
        let said = refused(folder.path(), &["run", "x.toml", "--set", set]);
        assert_eq!(said, format!("--set {set}: {answer}\n"));
    }
}

#[test]
fn a_file_named_twice_is_refused_before_anything_runs() {
    let folder = folder_with(&[("x.toml", SMALL)]);
    assert_eq!(
        refused(folder.path(), &["run", "x.toml", "--json", "out", "--html", "./out"]),
        "./out: is named as --html, but also as --json: name another file\n"
    );
    assert_eq!(
        refused(folder.path(), &["run", "x.toml", "--html", "x.toml"]),
        "x.toml: is named as --html, but also as the scenario: name another file\n"
    );
    let said = refused(folder.path(), &["run", "--json", "x.toml"]);
    assert!(said.contains("would overwrite this file"), "{said}");
    assert_eq!(
        fs::read_to_string(folder.path().join("x.toml")).expect("the scenario"),
        SMALL
    );
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
    let text = SMALL.replace("sensors = 8", "dir = \"trace\"");
    let folder = folder_with(&[
        ("x.toml", &text),
        ("trace/sensors.csv", "id,period_s,avi_s\n0,1,2\n"),
        ("trace/readings.csv", "time_s,sensor_id,value\n0,0,20\n"),
    ]);
    let said = refused(folder.path(), &["run", "x.toml"]);
    assert!(
        said.contains("trace/readings.csv:2: the readings end after 1 ns"),
        "{said}"
    );
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

#[test]
fn a_core_that_cannot_be_had_is_named_by_file_line_and_key() {
    let at = |left: &str, right: &str, browse: &str| {
        let mut text = EXCLUSIVE.to_owned();
        for (name, core) in [("left", left), ("right", right), ("browse", browse)] {
            if !core.is_empty() {
                text = text.replace(
                    &format!("name = \"{name}\""),
                    &format!("name = \"{name}\"\ncore = {core}"),
                );
            }
        }
        let folder = folder_with(&[("x.toml", &text)]);
        refused(folder.path(), &["run", "x.toml", "--platform", "sim"])
    };
    assert_eq!(
        at("", "", "9"),
        "x.toml:21: task[2].core: there is no core 9 here; name one of cores 0 to 3, or remove this key\n"
    );
    assert_eq!(
        at("2", "2", ""),
        "x.toml:16: task[1].core: core 2 cannot hold this task beside the other exclusive tasks that name it: together they need more \
         than the whole core; name another core, or remove this key\n"
    );
    assert_eq!(
        at("2", "", "2"),
        "x.toml:22: task[2].core: core 2 is named by an exclusive task, so only exclusive tasks can have it; name another core, or \
         remove this key\n"
    );
    let crowded = EXCLUSIVE
        .replace("exclusive", "real-time")
        .replace("[[task]]\nname = \"right\"", "[[task]]\ncore = 3\nname = \"right\"");
    let crowded = crowded.replace("name = \"left\"", "core = 3\nname = \"left\"");
    let folder = folder_with(&[("x.toml", &crowded)]);
    assert_eq!(
        refused(folder.path(), &["run", "x.toml", "--platform", "sim"]),
        "x.toml:7: task: a goal out of reach: the real-time tasks on core 3, the only one that they can have, together need 120 % of it; \
         give them longer periods or less to do, or run on a machine with more cores\n"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn cores_and_interrupts_that_are_not_there_are_named_by_file_line_and_key() {
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
            "cores: choosing exclusive cores: there is no core 4000; this process may use",
        ),
        (
            "cores = \"4000-4001\"",
            "cores: choosing exclusive cores: there is no core 4000",
        ),
        (
            "cores = \"3-2\"",
            "cores: expected cores such as [2, 3] or \"2-3\", or \"isolated\", found",
        ),
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
