//! `punctual model design`: computes gains from a model.

use punctual_workload::ControllerKind;

use super::{document, matrices};
use crate::args::Design;
use punctual_files::failure::Failure;
use punctual_report::output::{self, OutputFile, OutputKind};

/// Carries out `punctual model design`.
pub fn design(arguments: &Design) -> Result<(), Failure> {
    let model = document::model(&arguments.model)?;
    output::apart(&[
        ("the model", Some(&arguments.model)),
        ("--output", Some(&arguments.output)),
    ])?;
    let output = OutputFile::prepare(&arguments.output, OutputKind::Document(document::CONTROLLER))?;
    let controller = model.design().map_err(|error| Failure::at(&arguments.model, error))?;
    let kinds = [ControllerKind::Mimo, ControllerKind::Qod, ControllerKind::Clock].into_iter();
    let laws = kinds.filter_map(|kind| Some((kind, controller.design_of(kind)?)));
    let refused = |kind| controller.check_loop(kind).err();
    if let Some(error) = laws
        .clone()
        .find_map(|(kind, _)| refused(kind))
        .filter(|_| !arguments.force)
    {
        let why = format!("{}: {error}; --force writes it anyway", arguments.model.display());
        return Err(Failure::of(why));
    }
    for (kind, design) in laws {
        let told = matrices::controller(design, controller.made_for.pace);
        super::print(&format!("{}\n{told}\n", kind.name()))?;
        if let Some(error) = refused(kind) {
            super::print(&format!("  forced    {error}\n\n"))?;
        }
    }
    output.json(&controller)?;
    super::print(&format!("written to {}\n", arguments.output.display()))
}
