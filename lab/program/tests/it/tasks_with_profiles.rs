//! Tasks with execution profiles: where they are named, what is refused and in which words, and that every reader of a
//! profile takes and refuses the same.

use crate::common;

use std::fs;

use common::{folder_with, lab, refusals, refused, told};

/// One task with a profile beside the scenario, on a machine of four ways and four partitions.
const SCENARIO: &str = "\
duration = \"3s\"
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
profile = \"p.csv\"
[allocation]
policy = \"exact\"
ways = 4
partitions = 4
way_kib = 64
";

const MEASURED: &str = "cache_ways,bandwidth_partitions,cluster,start_instr,end_instr,instr_per_s\n";
const WINDOWS: &str = "window_index,instr_start,instr_count,llc_requests,miss_w1,miss_w2\n";

/// Seconds of a run with so many ways and partitions: 10 ms with everything, 40 ms with least.
fn seconds(ways: u64, partitions: u64) -> f64 {
    0.08 / (ways + partitions) as f64
}

/// A program of a million instructions, on a machine of so many ways and partitions.
fn profile(most: u64, longer: u64) -> String {
    let each = |ways| (1..=most).map(move |partitions| (ways, partitions));
    let row = |(ways, partitions)| {
        let rate = 1e6 / seconds(ways, partitions);
        format!("{ways},{partitions},0,1,{},{rate}\n", 1_000_000 * longer)
    };
    let rows: String = (1..=most).flat_map(each).map(row).collect();
    format!("{MEASURED}{rows}")
}

fn good() -> String {
    profile(4, 1)
}

const RUN: [&str; 4] = ["run", "s/x.toml", "--platform", "sim"];

#[test]
fn a_scenario_needs_no_option_and_options_replace_what_it_says() {
    let folder = folder_with(&[("s/x.toml", SCENARIO), ("s/p.csv", &good()), ("q.csv", &good())]);
    let notes = |more: &[&str]| told(lab(folder.path(), &[&RUN[..], more].concat())).0;
    assert!(notes(&[]).contains("ways and bandwidth were split "), "{}", notes(&[]));
    let given = ["--profile", "answer=q.csv", "--allocate", "equal", "--way-kib", "0"];
    assert!(notes(&given).contains("ways and bandwidth were split 0 times (simulated)"));
}

#[test]
fn elsewhere_a_profile_is_reported_and_worked_around() {
    let folder = folder_with(&[("s/x.toml", SCENARIO), ("s/p.csv", &good())]);
    let (text, _) = told(lab(folder.path(), &["run", "s/x.toml", "--plain"]));
    assert!(
        text.contains("refused    cache ways and bandwidth by the profiles of answer"),
        "{text}"
    );
}

/// Wrong profiles, with the start of the answer after the file's name; every command must answer alike.
fn wrong() -> Vec<(&'static str, String, &'static str)> {
    let rows = |rows: &str| format!("{MEASURED}{rows}");
    vec![
        (
            "gap",
            rows("1,1,0,1,100,5\n1,1,0,103,200,5\n"),
            ":3: leaves a gap of 2 ",
        ),
        (
            "overlap",
            rows("1,1,0,1,100,5\n1,1,0,90,200,5\n"),
            ":3: overlaps the span ",
        ),
        (
            "missing allocation",
            rows("1,1,0,1,100,5\n1,3,0,1,100,5\n"),
            ": 14 of 16 allocations ",
        ),
        (
            "more ways than the machine has",
            rows("1,1,0,1,100,5\n5,1,0,1,100,5\n"),
            ":3: is for 5 ways ",
        ),
        (
            "fewer ways than the machine has",
            format!("{}0,0,10,5,3\n", WINDOWS.replace(",miss_w2", "")),
            ": has misses for 1 ways",
        ),
        (
            "ends before it begins",
            rows("1,1,0,100,50,5\n"),
            ":2: ends at instruction 50",
        ),
        ("ends at once", MEASURED.into(), ": has no rows "),
        ("never ends", rows("1,1,0,1,100,0\n"), ":2: instr_per_s is \"0\""),
        ("cut short", rows("1,1,0,1,100\n"), ":2: has 5 cells "),
        ("no profile", "a,b\n".into(), ":1: is no profile"),
    ]
}

#[test]
fn every_command_refuses_a_wrong_profile_alike() {
    for (what, text, line) in wrong() {
        let folder = folder_with(&[("s/x.toml", SCENARIO), ("s/p.csv", &text), ("ours/p.csv", &text)]);
        let refused = |arguments: &[&str]| refused(folder.path(), arguments);
        let shown = refused(&["profile", "s/p.csv", "--ways", "4", "--partitions", "4"]);
        assert!(shown.starts_with(&format!("s/p.csv{line}")), "{what}: {shown}");
        assert_eq!(
            refused(&RUN),
            format!("s/x.toml:13: task[0].profile: {shown}"),
            "{what}"
        );
        let option = ["--profile", "answer=s/p.csv"];
        assert_eq!(
            refused(&[&RUN[..], &option].concat()),
            format!("--profile answer=s/p.csv: task[0].profile: {shown}"),
            "{what}"
        );
        // A folder of profiles is for the machine of the experiments, which has 20 of both.
        let show = ["profile", "ours/p.csv", "--ways", "20", "--partitions", "20"];
        let of_twenty = refused(&show);
        assert_eq!(
            refused(&["experiment", "dna", "--profiles", "ours"]),
            of_twenty,
            "{what}"
        );
        assert_eq!(
            refused(&["bench", "allocation", "--profiles", "ours"]),
            of_twenty,
            "{what}"
        );
    }
}

#[test]
fn every_command_takes_a_right_profile() {
    let folder = folder_with(&[("s/x.toml", SCENARIO), ("s/p.csv", &good())]);
    let show = ["profile", "s/p.csv", "--json", "p.json"];
    told(lab(folder.path(), &show));
    told(lab(folder.path(), &RUN));
    // What `show` writes is enough to say how long a run takes: each phase has a rate for each share.
    let text = fs::read_to_string(folder.path().join("p.json")).expect("a file");
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let instructions = document["instructions"].as_f64().expect("a number");
    let phases = document["phases"].as_array().expect("phases");
    let shares = document["shares"].as_array().expect("shares");
    for (place, share) in shares.iter().enumerate() {
        let mut seconds = 0.0;
        for phase in phases {
            let number = |key: &str| phase[key].as_f64().expect("a number");
            let rate = phase["rates"][place].as_f64().expect("a number");
            seconds += (number("ends") - number("begins")) * instructions / rate;
        }
        let count = |key: &str| share[key].as_u64().expect("a number");
        let known = self::seconds(count("ways"), count("partitions"));
        // Rates have the precision of four bytes.
        assert!((seconds - known).abs() < 1e-7, "{share}: {seconds} s");
        assert!((document["durations_s"][place].as_f64().expect("a number") - known).abs() < 1e-9);
    }
    assert_eq!(shares.len(), 16);
}

#[test]
fn what_is_missing_or_does_not_fit_is_told() {
    let two_tasks = SCENARIO.replace(
        "[allocation]",
        "[[task]]\nname = \"other\"\nclass = \"real-time\"\nperiod = \"11ms\"\ndeadline = \"11ms\"\ncompute = \"1ms\"\nprofile = \"p.csv\"\n[allocation]",
    );
    let folder = folder_with(&[
        ("s/x.toml", SCENARIO),
        ("s/two.toml", &two_tasks),
        ("s/p.csv", &good()),
        ("long.csv", &profile(4, 20)),
        ("narrow.csv", &profile(2, 1)),
    ]);
    let cases = [
        (
            "run s/x.toml --platform sim --profile answer=none.csv",
            "--profile answer=none.csv: task[0].profile: none.csv: no such file",
        ),
        (
            "run s/x.toml --platform sim --profile answer=a.csv --profile answer=b.csv",
            "--profile answer=b.csv: ",
        ),
        (
            "run s/x.toml --platform sim --profile absent=s/p.csv",
            "--profile absent=s/p.csv: task.absent.profile: ",
        ),
        (
            "run s/x.toml --platform sim --profile answer=long.csv",
            "s/x.toml: a goal out of reach: ",
        ),
        // Four cores need a way each.
        (
            "run s/x.toml --platform sim --profile answer=narrow.csv --set allocation.ways=2 --set allocation.partitions=2",
            "s/x.toml: allocation: 4 cores ",
        ),
        // 10 ms of every 100 ms, and of every 11 ms.
        ("run s/two.toml --platform sim", "s/two.toml: a goal out of reach: "),
    ];
    insta::assert_snapshot!("profiles", refusals(folder.path(), &cases));
}
