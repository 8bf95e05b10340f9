//! `punctual design`: from a model to gains.

use punctual_workload::ControllerKind;

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
    let pace = controller.made_for.pace;
    for (kind, design) in [
        (ControllerKind::Mimo, &controller.mimo),
        (ControllerKind::Qod, &controller.qod),
        (ControllerKind::Clock, &controller.clock),
    ] {
        super::print(&format!("{}\n{}\n", kind.name(), matrices::controller(design, pace)))?;
        match controller.check_loop(kind) {
            Err(error) if arguments.force => super::print(&format!("  forced    {error}\n\n"))?,
            Err(error) => {
                let why = format!("{}: {error}; --force writes it all the same", arguments.model.display());
                return Err(Failure::input([why]));
            }
            Ok(()) => {}
        }
    }
    output.json(&controller)?;
    super::print(&format!("written to {}\n", arguments.output.display()))
}
