//! `punctual-lab experiment dps`: what it says of bad input, and that it runs.

use crate::common;

use common::lab;

const MACHINE: &str = include_str!("../../../../machines/dps-dual-core.toml");
const MEDIA: &str = include_str!("../../../../media/dps-table-1.toml");

/// What is said of a file with one text replaced by another; the line of the new text is written HERE.
fn complaint(option: &str, text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from}");
    let text = text.replacen(from, to, 1);
    let line = text
        .lines()
        .position(|line| line.contains(to))
        .map_or(0, |line| line + 1);
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("x.toml"), text).expect("a file");
    let output = lab(folder.path(), &["experiment", "dps-timeline", option, "x.toml"]);
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(output.stdout.is_empty());
    error.replacen(&format!(":{line}:"), ":HERE:", 1)
}

#[test]
fn a_core_that_there_is_not_is_told_with_its_line() {
    assert_eq!(
        complaint("--machines", MACHINE, "exclusive = [1] ", "exclusive = [5] "),
        "x.toml:HERE: exclusive: there is no core 5: the machine has cores 0 to 1; name one of them\n"
    );
}

#[test]
fn a_machine_with_one_core_and_a_cache_without_pages_are_refused() {
    assert_eq!(
        complaint("--machines", MACHINE, "cores = 2", "cores = 1"),
        "x.toml:HERE: cores: must lie between 2 and 64: one to be exclusive, one for the rest\n"
    );
    assert_eq!(
        complaint(
            "--machines",
            MACHINE,
            "cache-step-pages = 1000 ",
            "cache-step-pages = 0 "
        ),
        "x.toml:HERE: cache-step-pages: a cache has at least one page, and at most 16777216 in a step\n"
    );
}

#[test]
fn a_medium_without_figures_is_told_with_its_key() {
    // The complaint about a missing key names its table.
    let missing = complaint("--media", MEDIA, "erase-us = 1500", "# no time to erase");
    assert!(missing.starts_with("x.toml:"), "{missing}");
    assert!(
        missing.ends_with(": flash.erase-us: missing field `erase-us`\n"),
        "{missing}"
    );
    assert_eq!(
        complaint("--media", MEDIA, "read-us = 60", "read-us = 0 # none"),
        "x.toml:HERE: flash.read-us: a time above 0 and at most ten seconds is needed\n"
    );
}

#[test]
fn media_go_with_dps_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = lab(folder.path(), &["experiment", "qedb-qod", "--media", "x.toml"]);
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        error,
        "qedb-qod: only dps and its parts play a film from media; leave out --media, --film, --fps, --hogs and --decode\n"
    );
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |file: &str| {
        let output = lab(
            folder.path(),
            &[
                "experiment",
                "dps-timeline",
                "--seeds",
                "1",
                "--json",
                file,
                "--html",
                "page.html",
            ],
        );
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let table = String::from_utf8(output.stdout).expect("text");
        assert!(
            table.contains("dps-timeline (simulated)") && table.contains("blocking-missed"),
            "{table}"
        );
        std::fs::read(folder.path().join(file)).expect("a file")
    };
    assert_eq!(run("a.json"), run("b.json"));
    let page = std::fs::read_to_string(folder.path().join("page.html")).expect("a page");
    assert!(page.contains("simulated") && page.contains("Fig. 4") && page.contains("<svg"));
}
