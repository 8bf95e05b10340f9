//! The guide and the readers of files are the same: each block in TOML is taken by the reader of its kind, and each key
//! that a reader asks for is on the page of the references.

use std::fs;
use std::path::Path;

use punctual_testing::guide;
use punctual_toml::{ProblemList, Section};

use crate::failure::Failure;
use crate::local::{self, LocalSettings};
use crate::{attach, balancer, scenario, server};

/// Reads a block as the kind that the name in its first line says.
fn taken(name: &str, path: &Path) -> Result<(), Failure> {
    match name {
        name if name.ends_with("node.toml") => server::load(path).map(drop),
        "control.toml" => attach::load(path).map(drop),
        "balancer.toml" => balancer::load(path).map(drop),
        "cluster.toml" => {
            let read = |top: &mut Section<'_, '_>| LocalSettings::default().or_of(top);
            local::load(path, read, LocalSettings::faults).map(drop)
        }
        _ => scenario::load(Some(path), &[]).map(drop),
    }
}

#[test]
fn the_readers_take_every_file_of_the_guide() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut read = 0;
    for block in guide::blocks().into_iter().filter(|block| block.kind == "toml") {
        let name = block.text.lines().next().and_then(|line| line.strip_prefix("# "));
        let name = name.unwrap_or_else(|| panic!("{}: begin with `# NAME.toml`", block.place));
        let path = folder.path().join(name);
        fs::write(&path, &block.text).expect("a file");
        taken(name, &path).unwrap_or_else(|error| panic!("{}: {error:?}", block.place));
        read += 1;
    }
    assert!(read >= 6, "{read} files");
    let wrong = folder.path().join("balancer.toml");
    fs::write(&wrong, "[server]\nlissen = \"127.0.0.1:1\"\n").expect("a file");
    assert!(taken("balancer.toml", &wrong).is_err());
}

/// Keys that the reader of this kind asks for, in the block of the page that has the most of them.
fn known(kind: &str, text: &str) -> Vec<String> {
    let mut report = ProblemList::default();
    let document = report.document(text).expect("TOML");
    let mut top = Section::top(&document, &mut report);
    match kind {
        "node" => drop(server::node(&mut top)),
        "balancer" => drop(balancer::read(&mut top)),
        _ => drop(LocalSettings::default().or_of(&mut top)),
    }
    report.known_keys().to_vec()
}

#[test]
fn the_reference_has_every_key_of_nodes_and_balancers() {
    let page = guide::page("reference/node-file.md");
    for block in guide::blocks()
        .iter()
        .filter(|block| block.place.contains("node-file.md"))
    {
        let name = block.text.lines().next().unwrap_or_default();
        let kind = ["node", "balancer"]
            .into_iter()
            .find(|kind| name.contains(kind))
            .unwrap_or("cluster");
        for key in known(kind, &block.text) {
            let leaf = key.rsplit('.').next().unwrap_or(&key);
            let leaf = leaf.split('[').next().unwrap_or(leaf);
            let named = [format!("\n{leaf} = "), format!("[{leaf}]"), format!(".{leaf}]")];
            assert!(
                named.iter().any(|name| page.contains(name)),
                "{key} of {kind} is not on the page"
            );
        }
    }
}
