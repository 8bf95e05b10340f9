//! Registry of running pipelines: a file for each in the folder of run-time data, so that other processes of this user
//! find them.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use punctual_custody::recovery;
use punctual_platform::linux::process::ProcessId;
use serde::{Deserialize, Serialize};

use super::PipelineError;
use super::panel::Panel;
use super::shared::Segment;
use crate::Graph;

/// Folder of the files, inside that of run-time data.
const FOLDER: &str = "pipelines";
/// Greatest number of files that are read.
const FILES_MAX: usize = 1024;

/// A running pipeline, as found in the registry.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunningPipeline {
    /// Id of the process that has started it.
    pub process: i32,
    started: u64,
    descriptor: i32,
    graph: Graph,
}

impl RunningPipeline {
    /// Name of the pipeline's graph.
    pub fn name(&self) -> &str {
        self.graph.name()
    }

    /// Opens a control panel of the pipeline.
    ///
    /// # Errors
    /// [`PipelineError`] if the pipeline has ended, or belongs to another user.
    pub fn panel(&self) -> Result<Panel, PipelineError> {
        let shared = Segment::open(self.process, self.descriptor)?;
        Ok(Panel::new(&shared))
    }

    fn id(&self) -> ProcessId {
        ProcessId {
            pid: self.process,
            started: self.started,
        }
    }
}

/// Running pipelines of this user. Removes the files of pipelines that have ended.
pub fn running() -> Vec<RunningPipeline> {
    let files = fs::read_dir(recovery::folder().join(FOLDER))
        .into_iter()
        .flatten()
        .flatten();
    let read = |path: &Path| {
        let running: Option<RunningPipeline> = postcard::from_bytes(&fs::read(path).ok()?).ok();
        // An unreadable file belongs to another version, or is being written.
        let lives = running
            .as_ref()
            .map_or_else(|| is_of_living(path), |running| running.id().lives());
        if !lives {
            // Another process may have removed it.
            let _ = fs::remove_file(path);
        }
        running.filter(|_| lives)
    };
    let mut found: Vec<RunningPipeline> = files.take(FILES_MAX).filter_map(|file| read(&file.path())).collect();
    found.sort_by_key(|running| (running.process, running.descriptor));
    found
}

/// Whether the process in the file's name is alive.
fn is_of_living(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let pid = name.split('-').next().and_then(|pid| pid.parse().ok());
    pid.and_then(ProcessId::of).is_some()
}

/// Registry file of a pipeline; dropping this value removes it.
#[derive(Debug)]
pub(super) struct RegistryFile(PathBuf);

impl RegistryFile {
    pub(super) fn new(shared: &Segment) -> io::Result<RegistryFile> {
        let own = ProcessId::own();
        let running = RunningPipeline {
            process: own.pid,
            started: own.started,
            descriptor: shared.descriptor(),
            graph: (*shared.graph).clone(),
        };
        let folder = recovery::folder().join(FOLDER);
        fs::create_dir_all(&folder)?;
        let bytes = postcard::to_stdvec(&running).map_err(io::Error::other)?;
        let path = folder.join(format!("{}-{}", running.process, running.descriptor));
        // Written to a temporary file first: another process reads the whole file or nothing.
        let beside = path.with_extension("new");
        let mut file = { fs::OpenOptions::new() }
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&beside)?;
        file.write_all(&bytes)?;
        fs::rename(&beside, &path)?;
        Ok(RegistryFile(path))
    }
}

impl Drop for RegistryFile {
    fn drop(&mut self) {
        // If this fails, the next process that reads the registry removes the file.
        let _ = fs::remove_file(&self.0);
    }
}
