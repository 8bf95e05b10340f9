//! `punctual-lab cluster sim` on the command line: exit codes, and the exact words.

use std::process::{Command, Output};

fn sim(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual-lab"));
    command
        .args(["cluster", "sim"])
        .args(arguments)
        .output()
        .expect("the command starts")
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn clean_seeds_end_with_0_and_the_same_words_each_time() {
    let (first, second) = (sim(&["--seeds", "8"]), sim(&["--seeds", "8"]));
    assert_eq!(first.status.code(), Some(0), "{}", words(&first.stderr));
    let told = words(&first.stdout);
    assert!(told.starts_with("8 seeds from 1 on: no promise was broken"), "{told}");
    assert_eq!(told, words(&second.stdout));
}

#[test]
fn a_planted_fault_ends_with_1_and_its_chart_can_be_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let (page, json) = (folder.path().join("page.html"), folder.path().join("sim.json"));
    let (page, json) = (page.to_str().unwrap(), json.to_str().unwrap());
    let plant = ["--plant", "session-going-back"];
    let found = sim(&[&plant[..], &["--seeds", "1000", "--html", page, "--json", json]].concat());
    assert_eq!(found.status.code(), Some(1));
    let told = words(&found.stderr);
    let seed = told
        .strip_prefix("seed ")
        .and_then(|rest| rest.split(',').next())
        .unwrap_or_default();
    let again = sim(&[&plant[..], &["--seeds", "1", "--seed", seed]].concat());
    let chart = |output: &Output| {
        words(&output.stdout)
            .split_once("\n\n")
            .map(|(_, chart)| chart.to_owned())
    };
    assert!(
        chart(&again).is_some_and(|chart| chart.contains("violation: ")),
        "{told}"
    );
    assert_eq!(chart(&found), chart(&again));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<svg") && page.contains("simulated"));
    let document: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(document["violation"]["seed"].to_string(), seed);
    assert_eq!(
        (&document["simulated"], &document["planted"]),
        (&true.into(), &"session-going-back".into())
    );
}

#[test]
fn bad_input_ends_with_2_and_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.toml");
    std::fs::write(&file, "nodes = 3\nclints = 4\n").unwrap();
    let file = file.to_str().unwrap();
    for (arguments, said) in [
        (vec![file], format!("{file}:2: clints: unknown key")),
        (vec!["absent.toml"], "absent.toml: no such file; ".to_owned()),
        (vec!["--plant", "gremlin"], "--plant gremlin: no such fault".to_owned()),
        (vec!["--export", "list-append"], "--export list-append: ".to_owned()),
        (vec!["--seeds", "0"], "error: invalid value '0' for ".to_owned()),
    ] {
        let refused = sim(&arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        let told = words(&refused.stderr);
        assert!(told.starts_with(&said), "{arguments:?}: {told}");
    }
}

/// A pipe without a writer and a device without an end are refused before they are read.
#[test]
fn a_file_without_an_end_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
    // SAFETY: a path that ends with a zero.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o700) }, 0);
    for file in [pipe.to_str().unwrap(), "/dev/zero"] {
        let refused = sim(&[file]);
        assert_eq!(refused.status.code(), Some(2), "{file}");
        assert!(words(&refused.stderr).starts_with(file), "{file}");
    }
}

#[test]
fn only_an_etcd_of_the_bench_loses_its_leader() {
    let folder = tempfile::tempdir().unwrap();
    let error = crate::common::refused(folder.path(), &["bench", "failover", "--leader-kills", "1"]);
    assert!(error.contains("--log etcd"), "{error}");
}
