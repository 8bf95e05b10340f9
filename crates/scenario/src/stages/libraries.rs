//! The libraries of stages as they were when the pipeline was started.
//!
//! **Problem.** A library is replaced by renaming a new one into its place. A process that starts later, because
//! another one has died, would run the new code without an upgrade having been asked for. **Method.** The process that
//! starts the pipeline holds each library open, and the tag of its processes says where: a file that was renamed over
//! can still be opened through `/proc`. Only a process that was started to replace a stage opens the library by its
//! path.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use punctual_pipelines::linux::{replaces, told};

use super::{Body, StagesSpec};

/// Libraries that the process that started the pipeline holds open, by the number of their stage.
#[derive(Clone, Debug, Default)]
pub(super) struct KeptLibraries(Vec<(usize, PathBuf)>);

impl KeptLibraries {
    /// Opens the libraries; they stay open as long as the files are kept.
    pub(super) fn open(spec: &StagesSpec) -> io::Result<(KeptLibraries, Vec<File>)> {
        let (mut kept, mut files) = (Vec::new(), Vec::new());
        for (number, stage) in spec.stages.iter().enumerate() {
            if let Body::Library(path) = &stage.does {
                let file = File::open(path)?;
                let descriptor = file.as_raw_fd();
                kept.push((number, format!("/proc/{}/fd/{descriptor}", std::process::id()).into()));
                files.push(file);
            }
        }
        Ok((KeptLibraries(kept), files))
    }

    /// The tag of the pipeline's processes: the given one, and a line for each library.
    pub(super) fn tag(&self, tag: &str) -> String {
        let lines = self
            .0
            .iter()
            .map(|(number, path)| format!("\n{number}={}", path.display()));
        tag.to_owned() + &lines.collect::<String>()
    }

    /// The libraries of the tag of this process; none if it was started to replace a stage.
    pub(super) fn told() -> KeptLibraries {
        let tag = told().filter(|_| !replaces()).unwrap_or_default();
        let line = |line: &str| {
            let (number, path) = line.split_once('=')?;
            Some((number.parse().ok()?, path.into()))
        };
        KeptLibraries(tag.lines().skip(1).filter_map(line).collect())
    }

    /// Path of the library of a stage: its own unless another file is there by now, because a library may look for
    /// others beside it.
    pub(super) fn path(&self, number: usize, path: &Path) -> PathBuf {
        let id = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
        let kept = self.0.iter().find(|(of, _)| *of == number).map(|(_, kept)| kept);
        match kept {
            Some(kept) if id(kept) != id(path) => kept.clone(),
            _ => path.to_owned(),
        }
    }
}
