//! File of the learned model with which a node controls the bound of its backlog.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use punctual_control::ArxModel;
use punctual_loop::EventLog;
use punctual_node::bound::{DelayTarget, Outcome};
use serde::{Deserialize, Serialize};

use punctual_files::failure::Failure;
use punctual_files::node::BacklogFile;
use punctual_report::output::{OutputFile, OutputKind};

/// Value of `kind` in a model's file.
const KIND: &str = "punctual-backlog-model";
/// Version of the file's format.
const VERSION: u32 = 1;

/// Content of a model's file.
#[derive(Serialize, Deserialize)]
struct ModelFile {
    kind: String,
    version: u32,
    /// Model from the bound, in thousands of items, to the mean delay of a period in seconds.
    model: ArxModel,
}

/// Control of a backlog's bound: settings, the stored model, and the outcome that the node fills.
#[derive(Clone)]
pub struct Turns {
    file: BacklogFile,
    model: Option<ArxModel>,
    outcome: Arc<Mutex<Outcome>>,
}

impl Turns {
    /// Reads the stored model, if its file exists.
    ///
    /// # Errors
    /// [`Failure::Input`] if the file exists and holds no model.
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

    /// Settings for the node, and the shared place for its outcome.
    pub fn asked(&self) -> (DelayTarget, Arc<Mutex<Outcome>>) {
        let asked = DelayTarget {
            target: self.file.target,
            period: self.file.period,
            model: self.model.clone(),
        };
        (asked, Arc::clone(&self.outcome))
    }

    /// Writes the model learned since the last call, if there is one.
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
        let written = OutputFile::prepare(path, OutputKind::Document(KIND)).and_then(|output| output.json(&file));
        let told = match written {
            Ok(()) => format!("the model of the backlog is in {}\n", path.display()),
            Err(why) => format!("the model of the backlog was not written: {why}\n"),
        };
        // A closed standard output must not end the node.
        drop(crate::commands::print(&told));
    }

    /// Writes the last model, and returns the log of decisions.
    pub fn end(&self) -> Option<EventLog> {
        self.keep();
        let outcome = &mut *self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.log.take()
    }
}

fn read(path: &Path) -> Result<ArxModel, Failure> {
    let refused = |why: &dyn std::fmt::Display| {
        let remedy = "remove it, and the node learns its model anew";
        Failure::at(path, format!("no model of a node's backlog: {why}; {remedy}"))
    };
    let text = punctual_files::bounded::text(path).map_err(|error| refused(&error))?;
    let file: ModelFile = serde_json::from_str(&text).map_err(|error| refused(&error))?;
    if file.kind != KIND || file.version != VERSION {
        return Err(refused(&format!("it is a {} of version {}", file.kind, file.version)));
    }
    Ok(file.model)
}
