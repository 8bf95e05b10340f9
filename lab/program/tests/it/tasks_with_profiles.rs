//! Tasks with execution profiles: where they are named, what is refused and in which words, and that every reader of a
//! profile takes and refuses the same.

use crate::common;

use std::fs;

use common::{folder_with, lab, refused, told};

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
    // There is no such file: no reader looks for it.
    let folder = folder_with(&[("s/x.toml", SCENARIO)]);
    let (text, _) = told(lab(folder.path(), &["run", "s/x.toml", "--plain"]));
    assert!(
        text.contains("refused    cache ways and bandwidth by the profiles of answer: nothing splits them here, so these tasks compute what `compute` says; add --platform sim to see what a split would do"),
        "{text}"
    );
}

/// A profile that is wrong, by the line that every reader must say after the file's name.
fn wrong() -> Vec<(&'static str, String, &'static str)> {
    let rows = |rows: &str| format!("{MEASURED}{rows}");
    vec![
        (
            "gap",
            rows("1,1,0,1,100,5\n1,1,0,103,200,5\n"),
            ":3: leaves a gap of 2 instructions before it, with 1 ways and 1 partitions; at most one is tolerated",
        ),
        (
            "overlap",
            rows("1,1,0,1,100,5\n1,1,0,90,200,5\n"),
            ":3: overlaps the span before it by 11 instructions, with 1 ways and 1 partitions; at most one is tolerated",
        ),
        (
            "missing allocation",
            rows("1,1,0,1,100,5\n1,3,0,1,100,5\n"),
            ": 14 of 16 allocations are missing, the first with 1 ways and 2 partitions; every one must be profiled",
        ),
        (
            "more ways than the machine has",
            rows("1,1,0,1,100,5\n5,1,0,1,100,5\n"),
            ":3: is for 5 ways and 1 partitions; the machine has 4 and 4: leave such rows out, or profile for this machine",
        ),
        (
            "fewer ways than the machine has",
            format!("{}0,0,10,5,3\n", WINDOWS.replace(",miss_w2", "")),
            ": has misses for 1 ways; the machine has 4: profile again with --ways 4",
        ),
        (
            "ends before it begins",
            rows("1,1,0,100,50,5\n"),
            ":2: ends at instruction 50, before its start 100",
        ),
        (
            "ends at once",
            MEASURED.into(),
            ": has no rows under its first line; profile the program again",
        ),
        (
            "never ends",
            rows("1,1,0,1,100,0\n"),
            ":2: instr_per_s is \"0\"; it must be instructions per second, a number of at least 0.001",
        ),
        (
            "cut short",
            rows("1,1,0,1,100\n"),
            ":2: has 5 cells under 6 columns; is the file cut short here?",
        ),
        (
            "no profile",
            "a,b\n".into(),
            ":1: is no profile: its first line is \"a,b\"; expected cache_ways,bandwidth_partitions,... (measured) or window_index,instr_start,... (by window, as `punctual profile` writes it)",
        ),
    ]
}

#[test]
fn every_command_refuses_a_wrong_profile_alike() {
    for (what, text, line) in wrong() {
        let folder = folder_with(&[("s/x.toml", SCENARIO), ("s/p.csv", &text), ("ours/p.csv", &text)]);
        let refused = |arguments: &[&str]| refused(folder.path(), arguments);
        let show = ["profile", "s/p.csv", "--ways", "4", "--partitions", "4"];
        assert_eq!(refused(&show), format!("s/p.csv{line}\n"), "{what}");
        assert_eq!(
            refused(&RUN),
            format!("s/x.toml:13: task[0].profile: s/p.csv{line}\n"),
            "{what}"
        );
        let option = ["--profile", "answer=s/p.csv"];
        assert_eq!(
            refused(&[&RUN[..], &option].concat()),
            format!("--profile answer=s/p.csv: task[0].profile: s/p.csv{line}\n"),
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
    let refused_of = |scenario: &str, more: &[&str]| {
        let run = ["run", scenario, "--platform", "sim"];
        refused(folder.path(), &[&run[..], more].concat())
    };
    let refused = |more: &[&str]| refused_of("s/x.toml", more);
    assert_eq!(
        refused(&["--profile", "answer=none.csv"]),
        "--profile answer=none.csv: task[0].profile: none.csv: cannot be read: entity not found; name a profile, such as data/profiles/fft.scaled.csv\n"
    );
    assert_eq!(
        refused(&["--profile", "answer=a.csv", "--profile", "answer=b.csv"]),
        "--profile answer=b.csv: the task has the profile a.csv already; give it one\n"
    );
    assert_eq!(
        refused(&["--profile", "absent=s/p.csv"]),
        "--profile absent=s/p.csv: task.absent.profile: no such task; there are answer, the first of them being task[0]\n"
    );
    assert_eq!(
        refused(&["--profile", "answer=long.csv"]),
        "s/x.toml: a goal out of reach: with all ways and the whole bandwidth, at full clock, one job of \"answer\" computes for 200.00 ms as its profile says, but the next one is released after 100.00 ms; give it a longer period, or the profile of a shorter program\n"
    );
    // Four cores need a way each.
    let narrow = [
        "--profile",
        "answer=narrow.csv",
        "--set",
        "allocation.ways=2",
        "--set",
        "allocation.partitions=2",
    ];
    assert_eq!(
        refused(&narrow),
        "s/x.toml: allocation: 4 cores with at least 1 ways and 1 partitions each need more than the 2 ways and 2 partitions that there are: lower the least share, or use fewer cores\n"
    );
    // 10 ms of every 100 ms, and of every 11 ms.
    assert_eq!(
        refused_of("s/two.toml", &[]),
        "s/two.toml: a goal out of reach: the real-time tasks together need 101 % of their core even with all ways, the whole bandwidth and the full clock; give them longer periods, or profiles of shorter programs\n"
    );
}
