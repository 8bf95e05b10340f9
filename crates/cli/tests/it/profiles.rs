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

/// What a refused command says on standard error; checks that it said nothing else and ended with 2.
fn refused(text: &str, arguments: &[&str]) -> String {
    let folder = folder_with(text);
    let output = punctual(folder.path(), &[&["profile"], arguments].concat());
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert_eq!(
        fs::read_dir(folder.path()).expect("a folder").count(),
        1,
        "nothing was written"
    );
    error
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
        "rates by a timing model, not measured: 0.6 cycles an instruction, 40 for a hit, 200 for a miss, 2100 MHz, 72 MB/s a partition\n",
        "rate, million instructions per second, with 2 ways and 20 partitions\n",
        "misses per 1000 instructions, with 1 way\n",
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
    let gap = format!("{MEASURED}1,1,0,1,100,5\n1,1,1,103,200,7\n");
    assert_eq!(
        refused(&gap, &["x.csv", "--json", "y.json"]),
        "x.csv:3: leaves a gap of 2 instructions before it, with 1 ways and 1 partitions; at most one is tolerated\n"
    );
    let grows = format!("{WINDOWS}0,0,10,5,3,4\n");
    assert_eq!(
        refused(&grows, &["x.csv"]),
        "x.csv:2: miss_w2 is 4, more than the 3 before it: more ways cannot miss more, nor miss what was not asked for\n"
    );
    let good = format!("{WINDOWS}0,0,10,5,4,3\n");
    assert_eq!(
        refused(&good, &["x.csv", "--ways", "20", "--partitions", "20"]),
        "x.csv: has misses for 2 ways; the machine has 20: profile again with --ways 20\n"
    );
    assert_eq!(
        refused(&good, &["y.csv"]),
        "y.csv: cannot be read: entity not found; name a profile, such as data/profiles/fft.scaled.csv\n"
    );
    assert_eq!(
        refused(&good, &["x.csv", "--json", "x.csv"]),
        "x.csv: is named as --json, but also as the profile: name another file\n"
    );
    assert!(refused(&good, &["x.csv", "--html", "no/x.html"]).starts_with("no/x.html: cannot be written: "));
}
