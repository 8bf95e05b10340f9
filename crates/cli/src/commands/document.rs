//! Model and controller files: their kinds, and errors in them.

use std::path::Path;

use punctual_loop::ModelDocument;
use punctual_scenario::ControllerSource;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use punctual_files::failure::Failure;

/// Kinds of files, as [`ModelDocument`] and [`punctual_loop::ControllerDocument`] write them.
pub const MODEL: &str = "punctual-model";
pub const CONTROLLER: &str = "punctual-controller";

/// Kind of a file, which is read before the rest.
#[derive(Deserialize)]
struct Kind {
    kind: String,
}

/// A right file, for messages about others.
const EXPECTED: &str = "a file that `punctual model learn` or `punctual model design` wrote";

/// Reads a file that `identify` or `design` wrote.
///
/// # Errors
/// [`Failure::Input`] naming the file, and the line of the mistake.
pub fn controller(path: &Path) -> Result<ControllerSource, Failure> {
    of_text(path, &punctual_files::bounded::named_text(path, EXPECTED)?)
}

/// As [`controller`], for a built-in file; messages call it `shown`.
pub fn of_bytes(shown: &Path, content: &[u8]) -> Result<ControllerSource, Failure> {
    of_text(shown, &String::from_utf8_lossy(content))
}

fn of_text(path: &Path, text: &str) -> Result<ControllerSource, Failure> {
    let Kind { kind } = parse(path, text)?;
    match kind.as_str() {
        MODEL => Ok(ControllerSource::Model(parse(path, text)?)),
        CONTROLLER => Ok(ControllerSource::Controller(parse(path, text)?)),
        other => Err(Failure::at(path, format!("is a \"{other}\"; expected {EXPECTED}"))),
    }
}

/// Reads a file that `identify` wrote.
///
/// # Errors
/// As [`controller`]; also for a file that `design` wrote.
pub fn model(path: &Path) -> Result<ModelDocument, Failure> {
    match controller(path)? {
        ControllerSource::Model(model) => Ok(model),
        ControllerSource::Controller(_) => Err(Failure::at(
            path,
            "is a controller already; give the model that `punctual model learn` wrote",
        )),
    }
}

fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|error| {
        Failure::of(format!(
            "{}:{}: neither a model nor a controller of this version: {error}; identify again with `punctual model learn`",
            path.display(),
            error.line()
        ))
    })
}
