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
fn bad_machines_media_and_options_are_refused() {
    let mut list = String::new();
    let (machines, media) = (("--machines", MACHINE), ("--media", MEDIA));
    let cores = "exclusive = [5] ";
    for ((option, text), from, to, place) in [
        (
            machines,
            "exclusive = [1] ",
            cores,
            "x.toml:HERE: exclusive: there is no core 5",
        ),
        (machines, "cores = 2", "cores = 1", "x.toml:HERE: cores: "),
        (
            machines,
            "cache-step-pages = 1000 ",
            "cache-step-pages = 0 ",
            "x.toml:HERE: cache-step-pages: ",
        ),
        // The line of the table, where a key is missing.
        (media, "erase-us = 1500", "# no time to erase", "x.toml:"),
        (
            media,
            "read-us = 60",
            "read-us = 0 # none",
            "x.toml:HERE: flash.read-us: ",
        ),
    ] {
        let error = complaint(option, text, from, to);
        assert!(error.starts_with(place), "{to}: {error}");
        list += &format!("{option}: {}\n  => {error}", to.trim());
    }
    assert!(list.contains(": flash.erase-us: "), "{list}");
    let folder = tempfile::tempdir().expect("a folder");
    let cases = [("experiment qedb-qod --media x.toml", "qedb-qod: only dps")];
    list += &common::refusals(folder.path(), &cases);
    insta::assert_snapshot!("dual", list);
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
