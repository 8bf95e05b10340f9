//! The file of a node whose backlog's bound is turned: the model that it has learned.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use punctual_control::ArxModel;
use punctual_loop::backlog::BacklogLog;
use punctual_node::bound::{Asked, Outcome};
use serde::{Deserialize, Serialize};

use super::membership::BacklogFile;
use crate::failure::Failure;
use crate::output::Output;

/// What a file of a model says first.
const KIND: &str = "punctual-backlog-model";
/// Of what such a file holds.
const VERSION: u32 = 1;

/// A model as it lies in a file.
#[derive(Serialize, Deserialize)]
struct ModelFile {
    kind: String,
    version: u32,
    /// The mean delay of a period in seconds, by the bound in thousands of items.
    model: ArxModel,
}

/// What turns the bound, and its files.
#[derive(Clone)]
pub struct Turns {
    file: BacklogFile,
    model: Option<ArxModel>,
    outcome: Arc<Mutex<Outcome>>,
}

impl Turns {
    /// Reads the model, if there is one.
    ///
    /// # Errors
    /// [`Failure::Input`] where there is a file that is no model.
    pub fn begin(file: &BacklogFile) -> Result<Turns, Failure> {
        let model = match &file.model {
            Some(path) if path.exists() => Some(read(path)?),
            _ => None,
        };
        Ok(Turns {
            file: file.clone(),
            model,
            outcome: Arc::default(),
        })
    }

    /// What the node is asked for.
    pub fn asked(&self) -> (Asked, Arc<Mutex<Outcome>>) {
        let asked = Asked {
            target: self.file.target,
            period: self.file.period,
            model: self.model.clone(),
        };
        (asked, Arc::clone(&self.outcome))
    }

    /// Writes a model that was learned since the last call.
    pub fn keep(&self) {
        let learned = { self.outcome.lock() }
            .unwrap_or_else(PoisonError::into_inner)
            .learned
            .take();
        let (Some(model), Some(path)) = (learned, &self.file.model) else {
            return;
        };
        let file = ModelFile {
            kind: KIND.into(),
            version: VERSION,
            model,
        };
        let written = Output::prepare(path).and_then(|output| output.json(&file));
        let told = match written {
            Ok(()) => format!("the model of the backlog is in {}\n", path.display()),
            Err(why) => format!("the model of the backlog was not written: {why}\n"),
        };
        // A closed standard output ends no node.
        drop(crate::commands::print(&told));
    }

    /// What was decided.
    pub fn end(&self) -> Option<BacklogLog> {
        self.keep();
        let outcome = &mut *self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.log.take()
    }
}

fn read(path: &Path) -> Result<ArxModel, Failure> {
    let refused = |why: &dyn std::fmt::Display| {
        let remedy = "remove it, and the node learns its model anew";
        Failure::input([format!(
            "{}: no model of a node's backlog: {why}; {remedy}",
            path.display()
        )])
    };
    let text = crate::bounded::text(path).map_err(|error| refused(&error))?;
    let file: ModelFile = serde_json::from_str(&text).map_err(|error| refused(&error))?;
    if file.kind != KIND || file.version != VERSION {
        return Err(refused(&format!("it is a {} of version {}", file.kind, file.version)));
    }
    Ok(file.model)
}
