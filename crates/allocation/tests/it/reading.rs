//! Files of profiles: accepted and refused ones (messages in `snapshots/`); no input makes the reader panic.

use proptest::prelude::*;
use punctual_allocation::cluster::ClusteringSettings;
use punctual_allocation::profile::{ProfileOptions, ProfileRecording, ReadError, Span, Timing, load};
use punctual_allocation::{Grid, Share};

const MEASURED: &str = "cache_ways,bandwidth_partitions,cluster,start_instr,end_instr,instr_per_s\n";
const WINDOWS: &str = "window_index,instr_start,instr_count,llc_requests,miss_w1,miss_w2\n";

const SMALL: Grid = Grid { ways: 2, partitions: 1 };

fn one(ways: u8) -> Share {
    Share { ways, partitions: 1 }
}

/// The reader's error for `rows` of a machine with two ways and one partition.
fn refusal(header: &str, rows: &str) -> ReadError {
    let text = format!("{header}{rows}");
    ProfileRecording::read("p/x.csv", text.as_bytes(), Some(SMALL)).unwrap_err()
}

#[test]
fn rows_are_sorted_and_one_instruction_is_tolerated() {
    // With one way one instruction is counted twice, with two ways one is left out.
    let text = format!("{MEASURED}2,1,5,102,200,40\n1,1,4,100,300,20.5\n2,1,3,1,100,80\n1,1,3,1,100,10\n");
    let read = ProfileRecording::read("x.csv", text.as_bytes(), Some(SMALL)).unwrap();
    let ProfileRecording::Measured(measured) = &read else {
        panic!("{read:?}")
    };
    let span = |cluster, ends, rate| Span { cluster, ends, rate };
    assert_eq!(measured.spans(one(1)), [span(3, 100, 10.0), span(4, 300, 20.5)]);
    assert_eq!(measured.spans(one(2)), [span(3, 100, 80.0), span(5, 200, 40.0)]);
    assert_eq!(measured.instructions(one(1)), 300);
    assert_eq!(measured.seconds(one(2)), 100.0 / 80.0 + 100.0 / 40.0);

    // Joint phases begin where either run's rate changes: at 1/3 and at 1/2 of its own instructions.
    let profile = read.compile(&ProfileOptions::default()).unwrap().profile;
    let ends: Vec<f64> = profile.phases.iter().map(|phase| phase.ends).collect();
    assert_eq!(ends, [1.0 / 3.0, 0.5, 1.0]);
    assert!((profile.duration(one(1)) - (10.0 + 200.0 / 20.5)).abs() < 1e-5);
    assert!((profile.duration(one(2)) - 3.75).abs() < 1e-6);
    // Rates are of a run as long as the largest share's: 200 instructions in place of 300.
    assert!((profile.phases[0].rates.rate(one(1)) - 10.0 * 200.0 / 300.0).abs() < 1e-5);
}

#[test]
fn a_machine_is_that_of_the_file_where_none_is_given() {
    let text = format!("{MEASURED}1,1,0,1,10,5\n1,2,0,1,10,6\n1,3,0,1,10,7\n");
    let profile = load("x.csv", text.as_bytes(), &ProfileOptions::default())
        .unwrap()
        .profile;
    assert_eq!(profile.grid, Grid { ways: 1, partitions: 3 });
    let text = format!("{WINDOWS}0,0,10,5,5,1\n");
    let profile = load("x.csv", text.as_bytes(), &ProfileOptions::default())
        .unwrap()
        .profile;
    assert_eq!(
        profile.grid,
        Grid {
            ways: 2,
            partitions: 20
        }
    );
}

#[test]
fn remarks_empty_lines_and_other_columns_are_passed_over() {
    let text = "\u{feff}# of a run\r\nremark,window_index,instr_start,instr_count,llc_requests,miss_w1\r\n\r\nx, 0, 0, 10, 5, 3\r\n# end\r\n";
    let text = text.trim_start_matches('\u{feff}');
    let read = ProfileRecording::read("x.csv", text.as_bytes(), None).unwrap();
    let ProfileRecording::Windows(windows) = read else {
        panic!("{read:?}")
    };
    assert_eq!(
        (windows.ways(), windows.instructions(), windows.windows()[0].misses(1)),
        (1, 10, 3)
    );
}

#[test]
fn files_are_refused_with_the_line_and_a_remedy() {
    let (mut list, mut headed) = (String::new(), String::new());
    let mut record = |header: &str, rows: &str, line: Option<usize>| {
        let error = refusal(header, rows);
        assert_eq!(error.line, line, "{header}{rows}");
        // Once above all rows under it.
        if headed != header {
            list += &format!("\n{header}");
            header.clone_into(&mut headed);
        }
        list += &format!("{rows}  => {error}\n");
    };
    for (rows, line) in [
        ("", None),
        ("1,1,0,1,100,5\n", None),
        ("1,1,0,1,100,5\n3,1,0,1,100,5\n", Some(3)),
        ("1,1,0,103,200,5\n1,1,0,1,100,5\n2,1,0,1,100,5\n", Some(2)),
        ("1,1,0,1,100,5\n1,1,0,99,200,5\n2,1,0,1,100,5\n", Some(3)),
        ("1,1,0,1,100,5\n1,1,0,1,100,5\n2,1,0,1,100,5\n", Some(3)),
        ("1,1,0,9,1,5\n", Some(2)),
        ("1,1,0,1,100\n", Some(2)),
        ("1,1,0,1,1e3,5\n", Some(2)),
        ("0,1,0,1,100,5\n", Some(2)),
        ("1,1,0,1,100,NaN\n", Some(2)),
        ("1,1,0,1,100,0\n", Some(2)),
    ] {
        record(MEASURED, rows, line);
    }
    record(
        "cache_ways,bandwidth_partitions,cluster,start_instr,end_instr\n",
        "",
        None,
    );
    for (rows, line) in [
        ("1,0,10,5,4,3\n", Some(2)),
        ("0,0,10,5,4,3\n1,9,10,5,4,3\n", Some(3)),
        ("0,0,0,5,4,3\n", Some(2)),
        ("0,0,10,5,6,3\n", Some(2)),
        ("0,0,10,5,3,4\n", Some(2)),
        ("0,0,9007199254740992,0,0,0\n1,9007199254740992,1,0,0,0\n", None),
    ] {
        record(WINDOWS, rows, line);
    }
    let one_way = "window_index,instr_start,instr_count,llc_requests,miss_w1\n";
    record(one_way, "0,0,10,5,4\n", None);
    let gap = "window_index,instr_start,instr_count,llc_requests,miss_w1,miss_w3\n";
    record(gap, "0,0,10,5,4,2\n", None);
    record("hello world\n", "", Some(1));
    record("\n", "", Some(1));
    record("a,b,a\n", "", Some(1));
    insta::assert_snapshot!("profiles", list);
}

#[test]
fn bytes_that_are_no_text_and_impossible_machines_are_refused() {
    let bytes = [0x28, 0xb5, 0x2f, 0xfd, 0xff];
    let error = ProfileRecording::read("x.csv.zst", &bytes, None).unwrap_err();
    assert!(
        error.line == Some(1) && error.what.starts_with("is not text"),
        "{error}"
    );
    let none = Grid { ways: 0, partitions: 1 };
    let error = ProfileRecording::read("x", WINDOWS.as_bytes(), Some(none)).unwrap_err();
    assert!(error.what.starts_with("cannot be read for 0 ways"), "{error}");
}

#[test]
fn a_timing_model_that_cannot_be_is_refused() {
    let options = ProfileOptions {
        timing: Timing {
            clock_hz: -1.0,
            ..Timing::PAPER
        },
        ..ProfileOptions::default()
    };
    let text = format!("{WINDOWS}0,0,10,5,5,1\n");
    let error = load("x.csv", text.as_bytes(), &options).unwrap_err();
    assert!(error.what.contains("clock_hz is -1;"), "{error}");
    // So slow that single precision has no rate for it.
    let slow = ProfileOptions {
        timing: Timing {
            memory_cycles: 1e300,
            ..Timing::PAPER
        },
        ..ProfileOptions::default()
    };
    let error = load("x.csv", text.as_bytes(), &slow).unwrap_err();
    assert!(error.what.contains("has a rate of"), "{error}");
}

#[test]
fn a_recording_that_is_too_long_is_made_coarser_or_refused() {
    let windows: String = (0..10_000)
        .map(|i| format!("{i},{},10,5,{},0\n", 10 * i, i % 5))
        .collect();
    let options = ProfileOptions {
        clustering: None,
        grid: Some(Grid { ways: 2, partitions: 2 }),
        ..ProfileOptions::default()
    };
    let compiled = load("x.csv", (WINDOWS.to_string() + &windows).as_bytes(), &options).unwrap();
    assert_eq!(compiled.phases_found, 3334, "three windows in one");
    assert_eq!(compiled.profile.instructions, 100_000.0);

    let spans: String = (0..20_000)
        .map(|i| format!("1,1,0,{},{},{}\n", 10 * i + 1, 10 * i + 10, i + 1))
        .collect();
    let error = load(
        "x.csv",
        (MEASURED.to_string() + &spans).as_bytes(),
        &ProfileOptions::default(),
    )
    .unwrap_err();
    assert!(error.what.starts_with("rates change at 20000 places"), "{error}");
}

/// Windows whose misses fall with ways, as text.
fn windows() -> impl Strategy<Value = String> {
    let window = (1..5_000_000u64, prop::collection::vec(0..90_000u64, 3));
    prop::collection::vec(window, 1..30).prop_map(|rows| {
        let mut text = WINDOWS.to_string();
        let mut start = 0;
        for (i, (instructions, mut counts)) in rows.into_iter().enumerate() {
            counts.sort_unstable_by(|a, b| b.cmp(a));
            text += &format!("{i},{start},{instructions},{},{},{}\n", counts[0], counts[1], counts[2]);
            start += instructions;
        }
        text
    })
}

/// Clustering is tested for itself; here it only has to be passed through.
fn quick() -> ClusteringSettings {
    ClusteringSettings {
        kinds: 2..=3,
        starts: 1,
        ..ClusteringSettings::default()
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = load("x", &bytes, &ProfileOptions::default());
    }

    /// Rows of plausible cells under either first line.
    #[test]
    fn any_cells_are_read_or_refused(
        measured in any::<bool>(),
        rows in prop::collection::vec(prop::collection::vec("[0-9]{1,3}|-1|1e9|9007199254740992|x|", 5..8), 0..8),
    ) {
        let header = if measured { MEASURED } else { WINDOWS };
        let rows: Vec<String> = rows.iter().map(|cells| cells.join(",")).collect();
        let _ = load("x", (header.to_string() + &rows.join("\n")).as_bytes(), &ProfileOptions::default());
    }

    /// A byte of a good file changed, or the file cut there.
    #[test]
    fn a_damaged_file_is_read_or_refused(
        text in windows(),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = text.into_bytes();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        if cut {
            bytes.truncate(place);
        }
        let _ = load("x", &bytes, &ProfileOptions { clustering: Some(quick()), ..ProfileOptions::default() });
    }

    /// However few phases are kept, a run takes as long as its windows, and phases are as many as were asked for.
    #[test]
    fn phases_take_as_long_as_their_windows(text in windows(), phases in 1..9usize, clustered in any::<bool>()) {
        let clustering = clustered.then(quick);
        let options = ProfileOptions { phases, clustering, ..ProfileOptions::default() };
        let read = ProfileRecording::read("x", text.as_bytes(), None).unwrap();
        let ProfileRecording::Windows(windows) = &read else { panic!("{read:?}") };
        let compiled = read.compile(&options).unwrap();
        prop_assert!(compiled.profile.phases.len() <= phases);
        for share in compiled.profile.grid.shares() {
            let seconds: f64 = windows.windows().iter().map(|window| options.timing.seconds(window, share)).sum();
            prop_assert!((compiled.profile.duration(share) / seconds - 1.0).abs() < 1e-6);
        }
        prop_assert!(compiled.accuracy.faster_than_recorded < 1e-6);
    }

    /// Windows that are added up ask and miss as much as before.
    #[test]
    fn coarser_windows_keep_every_count(text in windows(), most in 1..9usize) {
        let read = ProfileRecording::read("x", text.as_bytes(), None).unwrap();
        let ProfileRecording::Windows(fine) = read else { panic!("windows") };
        let coarse = fine.coarser(most);
        prop_assert!(coarse.windows().len() <= most);
        prop_assert_eq!(coarse.instructions(), fine.instructions());
        for ways in 1..=fine.ways() {
            let misses = |windows: &punctual_allocation::profile::Windows| -> u64 {
                windows.windows().iter().map(|window| window.misses(ways)).sum()
            };
            prop_assert_eq!(misses(&coarse), misses(&fine));
        }
    }
}
