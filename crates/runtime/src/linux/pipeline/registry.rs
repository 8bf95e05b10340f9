//! Which pipelines run: a file for each in the folder of run-time data, so that other processes of this user find them.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use punctual_pipeline::Graph;
use punctual_platform::linux::process::ProcessId;
use punctual_platform::linux::recovery;
use serde::{Deserialize, Serialize};

use super::PipelineError;
use super::panel::Panel;
use super::shared::Shared;

/// The folder of the files, in that of run-time data.
const FOLDER: &str = "pipelines";
/// Files that are looked at.
const FILES_MAX: usize = 1024;

/// A pipeline that runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Running {
    /// The process that has started it.
    pub process: i32,
    started: u64,
    descriptor: i32,
    graph: Graph,
}

impl Running {
    /// What its graph is called.
    pub fn name(&self) -> &str {
        self.graph.name()
    }

    /// What it can be asked and told by.
    ///
    /// # Errors
    /// [`PipelineError`] where it has ended, or is another user's.
    pub fn panel(&self) -> Result<Panel, PipelineError> {
        let shared = Shared::open(self.graph.clone(), self.process, self.descriptor)?;
        Ok(Panel::new(&shared))
    }

    fn id(&self) -> ProcessId {
        ProcessId {
            pid: self.process,
            started: self.started,
        }
    }
}

/// The pipelines of this user that run. Files of others that have ended are removed.
pub fn running() -> Vec<Running> {
    let files = fs::read_dir(recovery::folder().join(FOLDER))
        .into_iter()
        .flatten()
        .flatten();
    let read = |path: &Path| {
        let running: Option<Running> = postcard::from_bytes(&fs::read(path).ok()?).ok();
        // One that cannot be read is of another version, or is being written.
        let lives = running
            .as_ref()
            .map_or_else(|| is_of_living(path), |running| running.id().lives());
        if !lives {
            // Another process may have removed it.
            let _ = fs::remove_file(path);
        }
        running.filter(|_| lives)
    };
    let mut found: Vec<Running> = files.take(FILES_MAX).filter_map(|file| read(&file.path())).collect();
    found.sort_by_key(|running| (running.process, running.descriptor));
    found
}

/// Whether the process lives after which a file is named.
fn is_of_living(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let pid = name.split('-').next().and_then(|pid| pid.parse().ok());
    pid.and_then(ProcessId::of).is_some()
}

/// The file of a pipeline, which goes with this value.
#[derive(Debug)]
pub(super) struct Registered(PathBuf);

impl Registered {
    pub(super) fn new(shared: &Shared) -> io::Result<Registered> {
        let own = ProcessId::own();
        let running = Running {
            process: own.pid,
            started: own.started,
            descriptor: shared.descriptor(),
            graph: (*shared.graph).clone(),
        };
        let folder = recovery::folder().join(FOLDER);
        fs::create_dir_all(&folder)?;
        let bytes = postcard::to_stdvec(&running).map_err(io::Error::other)?;
        let path = folder.join(format!("{}-{}", running.process, running.descriptor));
        // Written beside its place: another process reads it whole or not at all.
        let beside = path.with_extension("new");
        let mut file = { fs::OpenOptions::new() }
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&beside)?;
        file.write_all(&bytes)?;
        fs::rename(&beside, &path)?;
        Ok(Registered(path))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // One that stays is removed by the next process that looks.
        let _ = fs::remove_file(&self.0);
    }
}
