//! `punctual profile`: what it draws and writes, and what it refuses.

use crate::common;

use std::fs;

use common::punctual;

const WINDOWS: &str = "window_index,instr_start,instr_count,llc_requests,miss_w1,miss_w2\n";
const MEASURED: &str = "cache_ways,bandwidth_partitions,cluster,start_instr,end_instr,instr_per_s\n";

/// A folder with `x.csv`, which holds `text`.
fn folder_with(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("x.csv"), text).expect("a file");
    folder
}

#[test]
fn a_profile_is_drawn_and_written() {
    // Twenty windows that compute, twenty that wait for memory.
    let window = |i: u64| {
        let misses = if i < 20 { 10 + i % 3 } else { 30_000 + i % 5 };
        format!("{i},{},1000000,{},{misses},{}\n", i * 1_000_000, 2 * misses, misses / 2)
    };
    let rows: String = (0..40).map(window).collect();
    let folder = folder_with(&format!("{WINDOWS}{rows}"));
    let output = punctual(
        folder.path(),
        &["profile", "x.csv", "--json", "x.json", "--html", "x.html"],
    );
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for part in [
        "x: traced, 40 windows; 2 ways and 20 partitions\n",
        "rates by a timing model, not measured: 0.6 cycles an instruction",
        "rate, million instructions per second",
        "misses per 1000 instructions",
        "phases\n",
        "instructions    40,000,000\n",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 200), "{text}");
    let json = fs::read_to_string(folder.path().join("x.json")).expect("a file");
    let document: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(document["kind"], "punctual-profile");
    assert_eq!(document["durations_s"].as_array().map(Vec::len), Some(40));
    let phases = document["phases"].as_array().expect("phases");
    let half = |phase: &serde_json::Value| phase["ends"] == 0.5;
    assert!(phases.iter().any(half), "the program changes in the middle");
    assert!(
        fs::read_to_string(folder.path().join("x.html"))
            .expect("a file")
            .ends_with("</html>\n")
    );
}

#[test]
fn a_measured_profile_is_drawn_without_misses() {
    let folder = folder_with(&format!("{MEASURED}1,1,0,1,100,5\n1,1,1,101,200,7\n"));
    let output = punctual(folder.path(), &["profile", "x.csv"]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success());
    assert!(text.starts_with("x: measured; 1 way and 1 partition\n"), "{text}");
    assert!(!text.contains("misses"), "{text}");
}

#[test]
fn bad_profiles_are_named_by_file_and_line() {
    let folder = common::folder_with(&[
        ("gap.csv", &format!("{MEASURED}1,1,0,1,100,5\n1,1,1,103,200,7\n")),
        ("grows.csv", &format!("{WINDOWS}0,0,10,5,3,4\n")),
        ("x.csv", &format!("{WINDOWS}0,0,10,5,4,3\n")),
    ]);
    let cases = [
        ("profile gap.csv --json y.json", "gap.csv:3: leaves a gap"),
        ("profile grows.csv", "grows.csv:2: miss_w2 is 4"),
        (
            "profile x.csv --ways 20 --partitions 20",
            "x.csv: has misses for 2 ways",
        ),
        ("profile y.csv", "y.csv: no such file"),
        ("profile x.csv --json x.csv", "x.csv: is named as --json"),
        ("profile x.csv --html no/x.html", "no/x.html: cannot be written: "),
    ];
    insta::assert_snapshot!("profiles", common::refusals(folder.path(), &cases));
    let files = fs::read_dir(folder.path()).expect("a folder");
    assert_eq!(files.count(), 3, "nothing was written");
}
