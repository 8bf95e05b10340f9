//! Sets of profiles, by what their files say.

use super::*;

/// A file by window with these remarks.
fn windows(remarks: &str) -> String {
    let ways: String = (1..=20).map(|way| format!(",miss_w{way}")).collect();
    let row = |index: u32, misses: u32| {
        let misses = format!(",{misses}").repeat(20);
        format!("{index},{},1000000,9000{misses}\n", index * 1_000_000)
    };
    format!(
        "window_index,instr_start,instr_count,llc_requests{ways}\n{remarks}{}{}",
        row(0, 9000),
        row(1, 10)
    )
}

fn sets(files: &[(&str, String)]) -> Result<Vec<ProfileSet>, String> {
    let files: Vec<File> = files.iter().map(|(name, text)| (*name, text.as_bytes())).collect();
    read(&files).map_err(|error| error.to_string())
}

#[test]
fn a_file_is_what_it_says_and_not_what_it_is_called() {
    let small = windows("# kind: modelled\n# way-bytes: 65536\n");
    let found = sets(&[("a/fft.csv", small.clone()), ("a/ocean.profile.csv", small)]).unwrap();
    let [set] = &found[..] else { panic!("{found:?}") };
    assert_eq!(
        (set.name.as_str(), set.kind, set.way_bytes),
        ("modelled", ProfileOrigin::Modelled, 65536.0)
    );
    assert_eq!(set.about(), "modelled: modelled, ways of 64 KiB");
    let programs: Vec<&str> = set.profiles.iter().map(|profile| profile.name.as_str()).collect();
    assert_eq!(programs, ["fft", "ocean"]);
    let found = sets(&[("fft.csv", windows("# kind: counted\n# way-bytes: 65536\n"))]).unwrap();
    assert_eq!(found[0].about(), "measured: counted, ways of 64 KiB");
    // The name alone says nothing of ways.
    let found = sets(&[("fft.scaled.csv", windows(""))]).unwrap();
    assert_eq!((found[0].name.as_str(), found[0].way_bytes), ("scaled", WAY_BYTES));
    assert_eq!(
        found[0].assumed,
        [
            "fft.scaled.csv: no `# kind: ...`; assumed: modelled",
            "fft.scaled.csv: no `# way-bytes: ...`; assumed: 2 MiB"
        ]
    );
    let about = found[0].about();
    assert!(
        about.starts_with("scaled: modelled") && about.contains("assumed"),
        "{about}"
    );
}

#[test]
fn a_set_is_of_one_machine_and_of_one_kind() {
    let small = windows("# kind: modelled\n# way-bytes: 65536\n");
    let large = windows("# kind: modelled\n# way-bytes: 2097152\n");
    let differing = sets(&[("fft.lab.csv", small.clone()), ("ocean.lab.csv", large)]).unwrap_err();
    assert!(
        differing.starts_with("ocean.lab.csv: way-bytes is 2097152, and 65536"),
        "{differing}"
    );
    let counted = windows("# kind: counted\n");
    assert!(
        sets(&[("fft.lab.csv", small.clone()), ("ocean.lab.csv", counted)])
            .unwrap_err()
            .contains("kind is counted, and modelled")
    );
    // A profile that does not say how large its ways are has those of its set.
    let found = sets(&[("fft.lab.csv", windows("# kind: modelled\n")), ("ocean.lab.csv", small)]).unwrap();
    assert_eq!(found[0].way_bytes, 65536.0);
    assert_eq!(
        found[0].assumed,
        ["fft.lab.csv: no `# way-bytes: ...`; assumed: 64 KiB"]
    );
}

#[test]
fn of_the_shipped_profiles_nothing_is_assumed() {
    let about: Vec<String> = crate::dna::tests::SHIPPED.iter().map(ProfileSet::about).collect();
    assert_eq!(
        about,
        ["full: modelled, ways of 2 MiB", "scaled: modelled, ways of 64 KiB"]
    );
}
