//! `punctual calibrate`: what it writes, and what it says of bad input.
#![cfg(feature = "lab")]

mod common;

use std::fs;
use std::path::Path;

const SHIPPED: &str = include_str!("../../lab/data/qedb-calibration.toml");

/// What a refused calibration says on standard error.
fn refused(folder: &Path, arguments: &[&str]) -> String {
    common::refused(folder, &[&["calibrate"], arguments].concat())
}

#[test]
fn bad_figures_and_folders_are_refused_before_anything_is_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |text: String| fs::write(folder.path().join("x.toml"), text).expect("a file");

    let missing = refused(folder.path(), &["--targets", "x.toml"]);
    assert!(missing.starts_with("x.toml: cannot be read: "), "{missing}");

    write(SHIPPED.replacen("qod = 1.0", "qod = 1.5", 1));
    assert_eq!(
        refused(folder.path(), &["--targets", "x.toml"]),
        "x.toml: target[0].qod: must lie between 0 and 1\n"
    );

    write(SHIPPED.replacen("clock-mhz = 2000", "clock-mhz = 2050", 1));
    let no_step = refused(
        folder.path(),
        &["--targets", "x.toml", "--evaluations", "1", "--jobs", "1"],
    );
    assert!(
        no_step.contains("x.toml: Exynos 5422, 4 x Cortex-A15: has no clock step at 2050 MHz"),
        "{no_step}"
    );

    let nowhere = refused(folder.path(), &["-o", "nowhere"]);
    assert!(nowhere.contains("there is no folder nowhere"), "{nowhere}");
}

#[test]
fn the_same_command_writes_the_same_bytes() {
    let written = || {
        let folder = tempfile::tempdir().expect("a folder");
        let arguments = ["--evaluations", "4", "--jobs", "1", "-o", ".", "--json", "all.json"];
        let output = common::punctual(folder.path(), &[&["calibrate"], &arguments[..]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        names.sort();
        let files: Vec<_> = names
            .iter()
            .map(|name| fs::read(folder.path().join(name)).expect("a file"))
            .collect();
        (output.stdout, names, files)
    };
    let (printed, names, files) = written();
    assert_eq!(names.len(), 7, "six machines and the JSON: {names:?}");
    assert!(String::from_utf8_lossy(&printed).contains("rms of the residuals"));
    assert!((printed, names, files) == written(), "two runs differ");
}
