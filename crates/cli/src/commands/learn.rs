//! `punctual model learn`: fits a model to the response of the running system to its knobs.

use std::io::Write;

use punctual_scenario::stages::AddedKinds;
use punctual_workload::ControllerKind;

use super::{document, matrices, run};
use crate::args::Learn;
use punctual_files::failure::Failure;
use punctual_files::scenario;
use punctual_report::output::{self, OutputFile, OutputKind};
use punctual_report::watch::Watcher;

/// Controllers that work with a model, the most demanding one last: if none can use a model, the printed reason is that
/// of the least demanding.
const LAWS: [ControllerKind; 3] = [ControllerKind::Clock, ControllerKind::Qod, ControllerKind::Mimo];

/// Carries out `punctual model learn`. A model with a poor fit is printed, but not written.
pub fn learn(arguments: &Learn, stages: AddedKinds<'_>) -> Result<(), Failure> {
    let loaded = scenario::load_with(Some(&arguments.scenario), &arguments.change.overrides(None), stages)?;
    if !loaded.stages.stages.is_empty() {
        let place = loaded.place_of("stage");
        // If standard error is closed, the exit code has to report the rest.
        let _ = writeln!(
            std::io::stderr(),
            "{place}: stage: stages are left out while a model is learnt"
        );
    }
    output::apart(&[
        ("the scenario", Some(&arguments.scenario)),
        ("--output", Some(&arguments.output)),
        ("--json", arguments.json.as_deref()),
    ])?;
    let output = OutputFile::prepare(&arguments.output, OutputKind::Document(document::MODEL))?;
    let record = OutputFile::report(arguments.json.as_ref())?;
    let request = run::request(&loaded, &arguments.change)?;
    let watcher = Watcher::start(arguments.plain, Some(&loaded.scenario.name))?;
    let (model, report) = run::learn(&request, &watcher, &loaded)?;
    drop(watcher);
    if let Some(record) = record {
        record.json(&report)?;
    }
    if let Some(both) = &model.mimo {
        super::print(&format!("\ntardiness and drr\n{}", matrices::model(both)))?;
    }
    super::print(&format!("\ntardiness alone\n{}", matrices::model(&model.tardiness)))?;
    let kinds = match loaded.scenario.control.kind {
        ControllerKind::Open => &LAWS[..],
        kind => &[kind],
    };
    let usable = |kind: &&ControllerKind| model.check_fit(**kind).is_ok();
    if !kinds.iter().any(|kind| usable(&kind)) {
        let why = model.check_fit(kinds[0]).expect_err("no controller can use it");
        return Err(Failure::of(format!("{why}; nothing was written")));
    }
    let names: Vec<&str> = LAWS.iter().filter(usable).map(|kind| kind.name()).collect();
    super::print(&format!("\ngood for {}\n", names.join(", ")))?;
    output.json(&model)?;
    super::print(&format!("\nwritten to {}\n", arguments.output.display()))
}
