//! What instants count from is named by boot and time namespace.

#![cfg(target_os = "linux")]

use std::process::Command;

use punctual_os::linux::{boot_id, clock_origin};

const CHILD: &str = "CLOCK_ORIGIN_CHILD";

/// Not a test: what runs in another time namespace.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_some() {
        println!("\norigin {:?}", clock_origin());
    }
}

/// Runs [`child`] through `unshare`; what it says, or none where this machine has no time namespaces for us.
fn elsewhere(arguments: &[&str]) -> Option<String> {
    let output = Command::new("unshare")
        .args(arguments)
        .arg(std::env::current_exe().ok()?)
        .args(["--exact", "clock_origin::child", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("origin ").map(str::to_owned))
}

#[test]
fn a_time_namespace_with_other_clocks_has_another_origin_and_one_with_the_same_has_not() {
    let here = clock_origin();
    assert!(boot_id().is_none() || here.is_some());
    let same = elsewhere(&["--time"]);
    let Some(ahead) = elsewhere(&["--time", "--boottime", "3", "--monotonic", "3"]) else {
        println!("skipped: no time namespace is to be had here");
        return;
    };
    assert_ne!(ahead, format!("{here:?}"));
    assert_eq!(same, Some(format!("{here:?}")));
    let behind = elsewhere(&["--time", "--boottime", "-3", "--monotonic", "-3"]);
    assert!(behind.is_some_and(|behind| behind != ahead && behind != format!("{here:?}")));
}
