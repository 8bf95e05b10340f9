//! `punctual identify`: learns a model from what the knobs do on the running system.

use super::{matrices, run};
use crate::args::Identify;
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::scenario;
use crate::watch::Watcher;

/// Carries out `punctual identify`. A model that explains too little is printed, but not written.
pub fn identify(arguments: &Identify) -> Result<(), Failure> {
    let loaded = scenario::load(Some(&arguments.scenario), &arguments.change.overrides(None))?;
    output::apart(&[
        ("the scenario", Some(&arguments.scenario)),
        ("--output", Some(&arguments.output)),
        ("--json", arguments.json.as_deref()),
    ])?;
    let output = Output::prepare(&arguments.output)?;
    let record = Output::prepare_some(arguments.json.as_ref())?;
    let request = run::request(&loaded, &arguments.change)?;
    let watcher = Watcher::start(arguments.plain)?;
    let (model, report) = run::learn(&request, &watcher, &loaded)?;
    drop(watcher);
    if let Some(record) = record {
        record.json(&report)?;
    }
    let (both, one) = (matrices::model(&model.mimo), matrices::model(&model.tardiness));
    super::print(&format!("\ntardiness and drr\n{both}\ntardiness alone\n{one}"))?;
    model
        .check_fit()
        .map_err(|error| Failure::input([format!("{error}; nothing was written")]))?;
    output.json(&model)?;
    super::print(&format!("\nwritten to {}\n", arguments.output.display()))
}
