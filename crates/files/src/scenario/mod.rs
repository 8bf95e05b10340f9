//! Scenario files: from TOML and overrides to a checked [`Scenario`], or to all problems at once.
//!
//! Overrides are inserted into the document (`set`), the document is read key by key (`build`), and the scenario checks
//! itself. Problems of all steps have one form: `scenarios/x.toml:12: task[0].period: what is wrong; what to do`.

mod allocation;
mod build;
mod set;
mod stages;

use std::io::Write;
use std::os::fd::IntoRawFd;
use std::path::{Path, PathBuf};

use punctual_pipelines::linux::told;
use punctual_platform::Neighbours;
use punctual_scenario::stages::{AddedKinds, StagePlan, StagesSpec};
use punctual_toml::tree::{Entries, Origin};
use punctual_toml::{Override, ProblemList, Section, origin_of, place};
use punctual_workload::{Problem, Scenario, TaskSpec};

pub use allocation::{Allocation, ProfileFile, WAY_KIB_MAX, parse_policy};
pub use build::MovieFile;

use build::draft;
pub(crate) use build::{groups, neighbours, task_goal};

use crate::builtin;
use crate::failure::Failure;

/// Path of the default scenario in the project's folder.
pub const SHIPPED_PATH: &str = "scenarios/fire-rescue.toml";

/// A scenario that was read and checked.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The scenario with its defaults.
    pub scenario: Scenario,
    /// Path of the file; `None` for a built-in one.
    pub file: Option<PathBuf>,
    /// Name of its source, for messages.
    pub shown: String,
    /// Model or controller file that the scenario or the command line names.
    pub model: Option<PathBuf>,
    /// Folder of its store; `None` for a temporary one.
    pub store_path: Option<PathBuf>,
    /// File that its temporal objects are mapped to, if they are.
    pub mapped: Option<PathBuf>,
    /// The file that `bench movie` plays.
    pub movie: MovieFile,
    /// Split of cache ways and bandwidth among tasks with profiles.
    pub allocation: Allocation,
    /// Profile files of its tasks; not read yet.
    pub profiles: Vec<ProfileFile>,
    /// Programs that may stay on exclusive cores.
    pub neighbours: Neighbours,
    /// Stages, with their files resolved.
    pub stages: StagesSpec,
    /// The document, with the overrides applied.
    pub document: Entries,
    /// Overrides that were applied.
    pub overrides: Vec<Override>,
    /// Text of the file.
    pub text: String,
}

/// Prefix of paths to another process's open files.
const KEPT: &str = "/proc/";

impl Loaded {
    /// Name of the scenario's source, for messages.
    pub fn shown(&self) -> String {
        self.shown.clone()
    }

    /// Keeps the text as it was read, in a temporary file for later processes of the scenario's stages; returns the
    /// path of that file, which exists until this process ends. Empty for a built-in scenario, and in such a process.
    ///
    /// # Errors
    /// [`Failure::Internal`] if there is no room for it.
    pub fn keep(&self) -> Result<String, Failure> {
        if self.file.is_none() || told().is_some() {
            return Ok(String::new());
        }
        let kept = tempfile::tempfile().and_then(|mut file| {
            file.write_all(self.text.as_bytes())?;
            Ok(file.into_raw_fd())
        });
        let descriptor = kept.map_err(|why| Failure::Internal(format!("keeping the scenario's text: {why}")))?;
        Ok(format!("{KEPT}{}/fd/{descriptor}", std::process::id()))
    }

    /// Whether the scenario has stages, and no tasks for the control loop.
    pub fn is_stages_only(&self) -> bool {
        !self.stages.stages.is_empty() && self.scenario.tasks.is_empty()
    }

    /// Place of `key`, for problems that only show on the machine: file and line, or the option.
    pub fn place_of(&self, key: &str) -> String {
        place(origin_of(&self.document, key), &self.shown(), &self.overrides)
    }
}

/// Reads the scenario at `path` (or the shipped one), else the built-in one of that name, and applies `overrides`.
///
/// # Errors
/// [`Failure::Input`] with one line per problem.
pub fn load(path: Option<&Path>, overrides: &[Override]) -> Result<Loaded, Failure> {
    load_with(path, overrides, None)
}

/// As [`load`]; stages may also be of the `kinds` that the program adds.
///
/// # Errors
/// [`Failure::Input`] with one line per problem.
pub fn load_with(path: Option<&Path>, overrides: &[Override], kinds: AddedKinds<'_>) -> Result<Loaded, Failure> {
    let asked = path.unwrap_or(Path::new(SHIPPED_PATH));
    let built_in = builtin::scenario(asked).filter(|_| !asked.exists());
    let text = built_in.and_then(builtin::text);
    let file = text.is_none().then_some(asked);
    let text = match text {
        Some(text) => text.to_string(),
        None => read(kept().as_deref().unwrap_or(asked))?,
    };
    let shown = built_in.map_or_else(|| asked.display().to_string(), |path| format!("built-in {path}"));
    let name = asked
        .file_stem()
        .map_or("scenario".into(), |stem| stem.to_string_lossy());
    let folder = file.and_then(Path::parent).unwrap_or(Path::new(""));
    let (draft, profiles, document) = check(&text, &shown, folder, &name, overrides, kinds).map_err(Failure::input)?;
    Ok(Loaded {
        scenario: draft.scenario,
        file: file.map(Path::to_path_buf),
        shown,
        model: draft.model.map(|model| folder.join(model)),
        store_path: draft.store_path.map(PathBuf::from),
        mapped: draft.mapped,
        movie: draft.movie,
        allocation: draft.allocation,
        profiles,
        neighbours: draft.neighbours,
        stages: draft.stages,
        document,
        overrides: overrides.to_vec(),
        text,
    })
}

/// Path of the text that the parent's process has read, because the file may have changed since.
fn kept() -> Option<PathBuf> {
    let tag = told().filter(|tag| tag.starts_with(KEPT))?;
    // Further lines are the stages' own.
    tag.lines().next().map(PathBuf::from)
}

fn read(path: &Path) -> Result<String, Failure> {
    crate::bounded::named_text(
        path,
        "a scenario file, or a built-in scenario (`punctual new` lists them)",
    )
}

/// Parses and checks the text of a scenario in `folder`, and lists the profiles that it names; the error has one line
/// per problem.
fn check(
    text: &str,
    shown: &str,
    folder: &Path,
    name: &str,
    overrides: &[Override],
    kinds: AddedKinds<'_>,
) -> Result<(build::Draft, Vec<ProfileFile>, Entries), Vec<String>> {
    let mut report = ProblemList::default();
    let Some(mut document) = report.document(text) else {
        return Err(report.lines(shown, overrides));
    };
    set::apply(&mut document, overrides, &mut report);
    let mut draft = draft(Section::top(&document, &mut report), name, kinds);
    draft.stages = stages::located(draft.stages, folder);
    if report.readable() {
        for Problem { mut key, what } in problems(&draft) {
            // The warm-up has to fit into the run: of both keys, the one that the user gave last is named.
            if key == "control.warm_up" && origin_of(&document, "duration") > origin_of(&document, &key) {
                key = "duration".into();
            }
            report.problem(origin_of(&document, &key), &key, what);
        }
    }
    let lines = report.lines(shown, overrides);
    if !lines.is_empty() {
        return Err(lines);
    }
    let profiles = profiles(
        &draft.scenario,
        &document,
        |origin| place(origin, shown, overrides),
        folder,
    );
    Ok((draft, profiles, document))
}

/// Problems of a draft whose values could all be read.
fn problems(draft: &build::Draft) -> Vec<Problem> {
    let stages_only = !draft.stages.stages.is_empty() && draft.scenario.tasks.is_empty();
    let mut problems = if stages_only {
        Vec::new()
    } else {
        draft.scenario.problems()
    };
    let any = !draft.stages.stages.is_empty() || !draft.stages.edges.is_empty();
    // In a process of the stages, the plan is that of the process that has started them: a library may have changed.
    let plans = any && told().is_none();
    if plans && let Err(more) = StagePlan::new(&draft.scenario.name, &draft.stages) {
        problems.extend(more);
    }
    problems
}

/// Profile files of the scenario's tasks. A path in the scenario is relative to its folder, one on the command line to
/// the current folder.
fn profiles(
    scenario: &Scenario,
    document: &Entries,
    place: impl Fn(Origin) -> String,
    folder: &Path,
) -> Vec<ProfileFile> {
    let file = |(i, task): (usize, &TaskSpec)| {
        let file = task.profile.as_ref()?;
        let key = format!("task[{i}].profile");
        let origin = origin_of(document, &key);
        Some(ProfileFile {
            task: task.name.clone(),
            path: match origin {
                Origin::Override(_) => file.into(),
                Origin::Document | Origin::Line(_) => folder.join(file),
            },
            place: format!("{}: {key}", place(origin)),
        })
    };
    scenario.tasks.iter().enumerate().filter_map(file).collect()
}

#[cfg(test)]
mod tests;
