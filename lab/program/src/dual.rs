//! Inputs of `punctual-lab experiment dps`: a machine under dual management, and media, from files.

use punctual_evaluation::dps::{Ground, Part, Play, parts};
use punctual_evaluation::dual::DualMachine;
use punctual_machine::media::Media;

use crate::args::Experiment;
use punctual_files::document;
use punctual_files::failure::Failure;

/// Description of a file for `--machines`.
const MACHINE: &str = "a machine file, such as machines/dps-dual-core.toml";

/// The wanted parts of the second paper's evaluation, and their machine and media; `None` for any other experiment.
pub fn of(arguments: &Experiment) -> Result<Option<(Vec<Part>, Ground)>, Failure> {
    let refuse = |what: String| Err(Failure::of(what));
    let Some(parts) = parts(&arguments.name) else {
        return match (&arguments.media, arguments.play.is_some()) {
            (None, false) => Ok(None),
            _ => refuse(format!(
                "{}: only dps and its parts play a film from media; leave out --media, --film, --fps, --hogs and --decode",
                arguments.name
            )),
        };
    };
    let mut ground = Ground::paper();
    let (asked, shipped) = (&arguments.play, ground.play);
    ground.play = Play {
        film: asked.film.unwrap_or(shipped.film),
        period: asked.period().unwrap_or(shipped.period),
        decode: asked.decode.unwrap_or(shipped.decode),
        jobs: asked.hogs.unwrap_or(shipped.jobs),
    };
    ground.play.check().map_err(Failure::of)?;
    match arguments.machines.as_slice() {
        [] => {}
        [path] => ground.machine = document::load(path, MACHINE, DualMachine::from_toml)?,
        [_, another, ..] => {
            return refuse(format!(
                "--machines: {} runs on one machine; leave out {}",
                arguments.name,
                another.display()
            ));
        }
    }
    if let Some(path) = &arguments.media {
        ground.media = document::load(path, "a media file, such as media/dps-table-1.toml", Media::from_toml)?;
    }
    Ok(Some((parts, ground)))
}
