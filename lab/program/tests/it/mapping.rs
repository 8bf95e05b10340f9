//! `punctual-lab experiment mig-*`: what it says of bad input, and that it runs.

use crate::common;

use common::{lab, refused};

const MACHINE: &str = include_str!("../../../../machines/mpsoc.toml");

/// What is said of the machine with one text replaced by another.
fn complaint(from: &str, to: &str) -> String {
    assert!(MACHINE.contains(from), "{from}");
    let text = MACHINE.replacen(from, to, 1);
    let line = text
        .lines()
        .position(|line| line.contains(to))
        .map_or(0, |line| line + 1);
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("x.toml"), text).expect("a file");
    let error = refused(folder.path(), &["experiment", "mig-map", "--machines", "x.toml"]);
    error.replacen(&format!(":{line}:"), ":HERE:", 1)
}

#[test]
fn bad_machines_and_options_are_refused() {
    let mut list = String::new();
    for (from, to, place) in [
        ("cores = 3 ", "cores = 0 ", "x.toml:HERE: cores: "),
        ("top-watts = 1.0", "top-watts = -1", "x.toml:HERE: top-watts: "),
        ("least-mhz = 100", "least-mhz = 400", "x.toml:9: top-mhz: "),
        ("cores = 3 ", "cores = 2 ", "cores: 2"),
    ] {
        let error = complaint(from, to);
        assert!(error.starts_with(place), "{to}: {error}");
        list += &format!("{}\n  => {error}", to.trim());
    }
    let folder = tempfile::tempdir().expect("a folder");
    let cases = [
        ("experiment mig --machines a.toml,b.toml", "--machines: mig "),
        ("experiment chronos-scale --machines a.toml", "chronos-scale: "),
        ("experiment mig --film bd", "mig: "),
        ("experiment mig-map --platform linux", "mig-cost, mig-daemons, "),
        (
            "experiment chronos-nodes --platform linux",
            "chronos-scale, chronos-delay, ",
        ),
        (
            "experiment chronos-scale --platform linux --machines a.toml",
            "chronos-scale ",
        ),
        ("experiment mig-cost --platform linux --machines a.toml", "mig-cost "),
    ];
    list += &common::refusals(folder.path(), &cases);
    insta::assert_snapshot!("mapping", list);
}

#[test]
#[cfg(target_os = "linux")]
fn moves_are_measured_on_this_machine() {
    let _cores = punctual_testing::shared_machine();
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() < 2) {
        return eprintln!("skipped: stages are moved between two cores");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["experiment", "mig-cost", "--platform", "linux", "--json", "out.json"];
    let output = lab(folder.path(), &arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let outcome = std::fs::read_to_string(folder.path().join("out.json")).expect("a file");
    let outcome: serde_json::Value = serde_json::from_str(&outcome).expect("JSON");
    assert_eq!(outcome["platform"], "linux");
    assert_eq!(outcome["failures"], serde_json::json!([]));
    // By each mechanism and none, of each size.
    assert_eq!(outcome["means"].as_array().map(Vec::len), Some(6 * 8), "{outcome}");
}

#[test]
fn it_runs_and_draws() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = [
        "experiment",
        "mig-queues",
        "--seeds",
        "1",
        "--json",
        "out.json",
        "--html",
        "out.html",
    ];
    let output = lab(folder.path(), &arguments);
    let table = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        table.contains("mig-queues (simulated)") && table.contains("no-miss-with-14"),
        "{table}"
    );
    let json = std::fs::read_to_string(folder.path().join("out.json")).expect("a file");
    let outcome: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(outcome["platform"], "sim");
    assert_eq!(outcome["failures"].as_array().map(Vec::len), Some(0));
    let page = std::fs::read_to_string(folder.path().join("out.html")).expect("a file");
    assert!(page.contains("Fig. 15(b)"));
}
