//! Bad input to options that only `punctual-lab run` has: the program's whole answer, and exit code 2.

use crate::common;

use common::{folder_with, refused};

/// A sound scenario with eight made-up sensors, for changing.
const SMALL: &str = "\
duration = \"4s\"
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
";

/// The shipped machine, for changing.
const MACHINE: &str = include_str!("../../../../machines/exynos5422-duo.toml");

#[test]
fn a_machine_that_cannot_be_simulated_is_refused_by_file_line_and_key() {
    let changed = |from: &str, to: &str| {
        assert!(MACHINE.contains(from), "{from}");
        MACHINE.replacen(from, to, 1)
    };
    let line_of = |text: &str, part: &str| 1 + text.lines().position(|line| line.contains(part)).expect("the part");
    let (third, fifth) = ("{ mhz =  400, volt = 0.9 }", "{ mhz = 1300, volt = 1.1 }");
    let unsorted = changed(third, "{ mhz = 4000, volt = 0.9 }");
    let no_voltage = changed(fifth, "{ mhz = 1300 }");
    let misspelt = changed("service-ns", "service-nanos");
    let folder = folder_with(&[
        ("x.toml", SMALL),
        ("unsorted.toml", &unsorted),
        ("no_voltage.toml", &no_voltage),
        ("misspelt.toml", &misspelt),
    ]);
    let run = |machine: &str| format!("run x.toml --platform sim --machine {machine}");
    let at = |file: &str, text: &str, part: &str, key: &str| format!("{file}:{}: {key}: ", line_of(text, part));
    let files = ["unsorted.toml", "no_voltage.toml", "misspelt.toml", "none.toml"];
    let starts = [
        at(files[0], &unsorted, "{ mhz =  500", "steps[3].mhz"),
        at(files[1], &no_voltage, "{ mhz = 1300 }", "steps[11].volt"),
        at(files[2], &misspelt, "[memory]", "memory.service-ns"),
        format!("{}: no such file", files[3]),
    ];
    let commands = files.map(run);
    let cases: Vec<(&str, &str)> = commands
        .iter()
        .map(String::as_str)
        .zip(starts.iter().map(String::as_str))
        .collect();
    let mut list = common::refusals(folder.path(), &cases);
    let linux = [("run x.toml --machine m.toml", "--machine, ")];
    list += &common::refusals(folder.path(), &linux);
    insta::assert_snapshot!("machines", list);
}

#[test]
fn what_only_the_simulated_machine_has_is_refused_elsewhere() {
    let folder = folder_with(&[("x.toml", SMALL)]);
    for option in [
        ["--machine", "m.toml"],
        ["--governor", "ondemand"],
        ["--fault", "stuck:clock@1s..2s"],
        ["--profile", "answer=p.csv"],
        ["--allocate", "exact"],
        ["--way-kib", "64"],
    ] {
        let error = refused(folder.path(), &[&["run", "x.toml"][..], &option].concat());
        assert!(error.contains(option[0]) && error.contains("--platform sim"), "{error}");
    }
}

#[test]
fn a_wrong_option_of_the_simulated_machine_is_refused_with_a_hint() {
    let folder = folder_with(&[("x.toml", SMALL)]);
    for (arguments, part) in [
        (
            &["run", "x.toml", "--governor", "conservative"][..],
            "is no governor: write performance",
        ),
        (
            &["run", "x.toml", "--fault", "melt:clock@1s..2s"],
            "write KIND:METER@FROM..UNTIL",
        ),
        (
            &["run", "x.toml", "--profile", "fft.csv"],
            "expected the name of a task and a file",
        ),
        (
            &["run", "x.toml", "--profile", "answer=p.csv", "--allocate", "luck"],
            "no such policy; there are equal, ",
        ),
    ] {
        let error = refused(folder.path(), arguments);
        assert!(
            error.contains(part) && error.contains("--help"),
            "{arguments:?}: {error}"
        );
    }
}

#[test]
fn a_machine_file_without_an_end_is_refused() {
    let folder = folder_with(&[("x.toml", SMALL)]);
    let said = refused(
        folder.path(),
        &["run", "x.toml", "--platform", "sim", "--machine", "/dev/zero"],
    );
    assert!(said.starts_with("/dev/zero"), "{said}");
}

#[test]
fn costs_that_never_end_are_refused_before_anything_runs() {
    let shipped = include_str!("../../../../machines/exynos5422-a15.toml");
    let begins = ["read-txn", "get", "write-begin", "put", "commit"].map(|call| format!("\n{call} = {{ cycles = "));
    for begin in begins {
        // The digits that follow make it some 9 * 10^15.
        let machine = shipped.replace(&begin, &format!("{begin}9000000000000"));
        assert_ne!(machine, shipped, "{begin}");
        let folder = folder_with(&[("m.toml", &machine)]);
        let said = refused(folder.path(), &["run", "--platform", "sim", "--machine", "m.toml"]);
        assert!(said.contains("which cost "), "{begin}: {said}");
    }
}
