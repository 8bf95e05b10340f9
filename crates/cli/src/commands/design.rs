//! `punctual design`: from a model to gains.

use super::{document, matrices};
use crate::args::Design;
use crate::failure::Failure;
use crate::output::{self, Output};

/// Carries out `punctual design`.
pub fn design(arguments: &Design) -> Result<(), Failure> {
    let model = document::model(&arguments.model)?;
    output::apart(&[
        ("the model", Some(&arguments.model)),
        ("--output", Some(&arguments.output)),
    ])?;
    let output = Output::prepare(&arguments.output)?;
    let controller = model
        .design()
        .map_err(|error| Failure::input([format!("{}: {error}", arguments.model.display())]))?;
    for (name, design) in [
        ("mimo", &controller.mimo),
        ("qod", &controller.qod),
        ("clock", &controller.clock),
    ] {
        super::print(&format!("{name}\n{}\n", matrices::controller(design)))?;
    }
    output.json(&controller)?;
    super::print(&format!("written to {}\n", arguments.output.display()))
}
