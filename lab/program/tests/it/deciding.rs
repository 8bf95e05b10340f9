//! A policy decides where the stages of a radio run: its decisions replay, a planted difference is found, and its
//! settings change while it plays.

#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Command, Output};

use punctual_platform::linux::recovery;
use punctual_testing::{CHILD_MAX, wait_ok};
use serde_json::Value;

fn lab(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual-lab"));
    command
        .args(arguments)
        .env(recovery::FOLDER, folder)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    command
}

fn ran(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = punctual_testing::output(&mut lab(folder, arguments), CHILD_MAX).unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn decisions_are_recorded_and_replay() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log.json");
    let path = log.to_str().unwrap();
    let played = ran(
        folder.path(),
        &[
            "radio", "--frames", "5000", "--rate", "2000", "--policy", "balance", "--record", path,
        ],
    );
    assert_eq!(played.0, Some(0), "{}", played.2);
    assert!(played.1.contains("lost 0, twice 0"), "{}", played.1);
    let (code, told, errors) = ran(folder.path(), &["replay", path]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(
        told.contains(" decisions, identical; ") && told.contains("about where stages run"),
        "{told}"
    );

    let mut changed: Value = serde_json::from_slice(&std::fs::read(&log).unwrap()).unwrap();
    let decisions = changed["log"]["decisions"].as_array_mut().unwrap();
    let last = decisions.last_mut().expect("a decision in 25 periods");
    last["answer"]["stages"]["moves"] = serde_json::json!([{"stage": 0, "from": 0, "to": 0}]);
    std::fs::write(&log, changed.to_string()).unwrap();
    let (code, _, errors) = ran(folder.path(), &["replay", path]);
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("where stages run, asked of balance"), "{errors}");
}

#[test]
fn settings_change_while_it_plays() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = lab(folder.path(), &["radio", "--rate", "50"]);
    command.stdout(std::process::Stdio::null());
    let _radio = punctual_testing::start(&mut command, CHILD_MAX).unwrap();
    let listed = || -> Value {
        let (code, told, errors) = ran(folder.path(), &["pipeline", "list", "--json", "-"]);
        assert_eq!(code, Some(0), "{errors}");
        serde_json::from_str(&told).unwrap()
    };
    let eventually = |what: &str, condition: &dyn Fn(&Value) -> bool| {
        wait_ok(what, || {
            let listed = listed();
            if condition(&listed[0]) { Ok(()) } else { Err(listed) }
        });
    };
    eventually("it plays", &|radio| {
        radio["coordinator"].is_number() && radio["rate"].as_f64().is_some_and(|rate| rate > 1.0)
    });
    let set = |key: &str, value: &str| ran(folder.path(), &["pipeline", "set", key, value]);
    for (key, value) in [
        ("policy", "balance"),
        ("hold", "1s"),
        ("period", "50ms"),
        ("rate", "100"),
    ] {
        assert_eq!(set(key, value), (Some(0), format!("{key}: {value}\n"), String::new()));
    }
    eventually("its stages are measured", &|radio| {
        let stages = radio["stages"].as_array().unwrap();
        let measured =
            |stage: &&Value| stage["load"].as_f64().unwrap() > 0.0 && stage["memory_bytes"].as_u64() > Some(0);
        radio["policy"] == "balance" && stages.iter().filter(measured).count() >= 7
    });
    // What the machine has not is told, and the policy is asked all the same.
    let (code, told, _) = set("policy", "table");
    assert!(
        code == Some(0) && told.starts_with("policy: table\nrefused: setting clocks"),
        "{told}"
    );
    // It began with 50 a second.
    eventually("it follows the rate", &|radio| {
        radio["rate_asked"] == 100.0 && radio["rate"].as_f64() > Some(75.0)
    });
    let refused = [
        ("policy", "magic", "policy: \"magic\": "),
        ("rate", "-3", "give 0.001 to 1000000"),
        ("rate", "fast", "rate: \"fast\" is no number"),
        ("hold", "100000h", "hold: "),
        ("period", "1ns", "period: "),
        ("colour", "red", "colour: "),
    ];
    for (key, value, why) in refused {
        let (code, _, errors) = ran(folder.path(), &["pipeline", "set", key, "--", value]);
        assert!(code == Some(2) && errors.contains(why), "{key} {value}: {errors}");
    }
    let (code, _, errors) = ran(folder.path(), &["radio", "--policy", "magic"]);
    assert!(code == Some(2) && errors.contains("none, balance, table"), "{errors}");
}
