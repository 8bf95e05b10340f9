//! `punctual-lab experiment`: what it leaves, and what it says of bad input.

use crate::common;

use common::{lab, refused};

const CLAIM: &str = "\
[[claim]]
id = \"faster\"
experiment = \"qedb-qod\"
kind = \"structural\"
source = \"nowhere\"
text = \"Fewer updates, shorter accesses.\"
paper = \"shorter\"
formula = \"mean(data, qod=50) < mean(data, qod=100)\"
";

#[test]
fn an_unknown_experiment_is_answered_with_the_list() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = refused(folder.path(), &["experiment", "qebd"]);
    assert!(error.starts_with("there is no experiment \"qebd\""), "{error}");
    for name in [
        "qedb-interference",
        "qedb-qod",
        "qedb-identify",
        "qedb-average",
        "qedb-cores",
        "qedb-transient",
        "qedb ",
    ] {
        assert!(error.contains(&format!("  {name}")), "{name}: {error}");
    }
}

#[test]
fn a_formula_with_an_unknown_sample_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(
        folder.path().join("c.toml"),
        CLAIM.replacen("mean(data", "mean(date", 1),
    )
    .expect("a file");
    let error = refused(
        folder.path(),
        &["experiment", "qedb-qod", "--claims", "c.toml", "--json", "out.json"],
    );
    assert!(
        error.starts_with("c.toml:8: claim[0].formula: at character 1: ") && error.contains("`date`"),
        "{error}"
    );
    assert!(!folder.path().join("out.json").exists());
}

#[test]
fn a_file_that_is_missing_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = refused(folder.path(), &["experiment", "qedb", "--claims", "none.toml"]);
    assert!(error.starts_with("none.toml: no such file; "), "{error}");
    let error = refused(folder.path(), &["experiment", "qedb", "--machines", "none.toml"]);
    assert!(error.starts_with("none.toml: no such file; "), "{error}");
}

#[test]
fn an_experiment_is_told_written_and_drawn() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("c.toml"), CLAIM).expect("a file");
    let arguments = ["experiment", "qedb-qod", "--seeds", "2", "--claims", "c.toml"];
    let output = lab(
        folder.path(),
        &[&arguments[..], &["--json", "out.json", "--html", "out.html"]].concat(),
    );
    let table = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        table.contains("qedb-qod (simulated)") && table.contains("faster"),
        "{table}"
    );
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("a file");
    let json: serde_json::Value = serde_json::from_str(&read("out.json")).expect("JSON");
    let claim = &json["claims"][0];
    for key in ["id", "kind", "text", "paper", "ours", "ours_range", "outcome"] {
        assert!(!claim[key].is_null(), "{key}: {claim}");
    }
    assert_eq!(json["seeds"], serde_json::json!([1, 2]));
    assert!(!json["samples"][0]["runs"][0]["series"]["power"][0].is_null());
    let page = read("out.html");
    assert!(page.contains("simulated") && page.contains("Fewer updates, shorter accesses.") && page.contains("<svg"));
    for outside in ["http", "src=", "url(", "@import", "<link", "<script"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn profiles_that_cannot_be_used_are_refused_before_anything_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    let error = refused(here, &["experiment", "dna", "--profiles", "none"]);
    assert!(error.starts_with("none: cannot be read: "), "{error}");
    std::fs::create_dir(here.join("empty")).expect("a folder");
    let error = refused(here, &["experiment", "dna", "--profiles", "empty"]);
    assert!(error.starts_with("empty: no profiles there; "), "{error}");
    std::fs::create_dir(here.join("odd")).expect("a folder");
    std::fs::write(here.join("odd/walk.csv"), "a,b\n1,2\n").expect("a file");
    let error = refused(here, &["experiment", "dna", "--profiles", "odd"]);
    assert!(error.contains("odd/walk.csv"), "{error}");
    let error = refused(here, &["experiment", "qedb-qod", "--profiles", "odd"]);
    assert!(error.starts_with("qedb-qod: only dna-*"), "{error}");
}

#[test]
fn programs_alone_are_told_and_drawn() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = lab(folder.path(), &["experiment", "dna-motivation", "--html", "out.html"]);
    let table = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        table.contains("dna-motivation (simulated)") && table.contains("fft-late-gains"),
        "{table}"
    );
    let page = std::fs::read_to_string(folder.path().join("out.html")).expect("a file");
    assert!(page.contains("scaled: ocean, billion instructions"));
}
