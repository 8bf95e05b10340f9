//! Stages of a scenario: `[[stage]]`, `[[edge]]` and `[pipeline]`.

use std::path::Path;

use punctual_allocation::mapping::MappingPolicy;
use punctual_pipelines::{EdgeSpec, WhenFull};
use punctual_platform::CoreChoice;
use punctual_scenario::stages::{self, AddedKinds, Body, EdgeNeeds, StageNeeds, StagesSpec};
use punctual_toml::Section;
use punctual_units::CoreId;

use super::build::task_goal;

/// Default capacity of an edge in frames: the paper's.
const SLOTS: u32 = 14;
/// Greatest real-time priority of stages: tasks with deadlines have higher ones.
const PRIORITY_MAX: u8 = 50;

/// Reads stages, edges and the pipeline, with paths as written. Stages may be of the `kinds` of the program.
pub fn stages(top: &mut Section<'_, '_>, kinds: AddedKinds<'_>) -> StagesSpec {
    let stages = top.tables("stage", |section| stage(section, kinds));
    let edges = top.tables("edge", edge);
    let pipeline = top.table("pipeline", pipeline);
    StagesSpec {
        stages,
        edges,
        ..pipeline
    }
}

fn pipeline(section: &mut Section<'_, '_>) -> StagesSpec {
    StagesSpec {
        cores: cores(section),
        priority: priority(section),
        policy: section.choice("policy", &MappingPolicy::NAMED).unwrap_or_default(),
        rate: section.number("rate"),
        step_max: section.time("step_max"),
        ..StagesSpec::default()
    }
}

fn cores(section: &mut Section<'_, '_>) -> Vec<CoreId> {
    match section.cores("cores") {
        Some(CoreChoice::These(cores)) => cores,
        Some(CoreChoice::Isolated) => {
            section.complain(
                "cores",
                "name the cores of stages one by one, such as [2, 3] or \"2-3\"",
            );
            Vec::new()
        }
        _ => Vec::new(),
    }
}

fn priority(section: &mut Section<'_, '_>) -> Option<u8> {
    let priority = section.count("priority")?;
    if !(1..=PRIORITY_MAX).contains(&priority) {
        let what = format!("{priority} is out of range: 1 to {PRIORITY_MAX}; tasks with deadlines are above");
        section.complain("priority", what);
    }
    Some(priority)
}

fn stage(section: &mut Section<'_, '_>, kinds: AddedKinds<'_>) -> StageNeeds {
    section.require("name", "give the stage a name");
    StageNeeds {
        name: section.text("name").unwrap_or_default(),
        does: does(section, kinds),
        takes: section.counts("takes"),
        makes: section.counts("makes"),
        state_bytes: section.count("state_bytes"),
        save_every: section.count("save_every").unwrap_or(1),
        migratable: section.flag("migratable"),
        core: section.count("core").map(CoreId),
        compute: section.time("compute").unwrap_or_default(),
        period: section.time("period"),
        deadline: section.time("deadline"),
        restart: section.flag("restart").unwrap_or(false),
        goal: task_goal(section),
    }
}

/// Program, file or code of a stage; a program without a name after a complaint.
fn does(section: &mut Section<'_, '_>, kinds: AddedKinds<'_>) -> Body {
    let (program, file) = (section.texts("program"), section.text("file"));
    let (library, kind) = (section.text("library"), section.text("kind"));
    let kind = kind.and_then(|name| match stages::kind(&name, kinds) {
        Ok(kind) => Some(Body::Kind(name, kind)),
        Err(why) => {
            section.complain("kind", why);
            None
        }
    });
    let given: Vec<&str> = ["program", "file", "library", "kind"]
        .into_iter()
        .filter(|key| section.has(key))
        .collect();
    match given.as_slice() {
        [_] => {}
        [] => section.complain(
            "program",
            "missing: give the stage a `program` (a command with its arguments), a `file`, a `library` (in C) or a \
             built-in `kind`",
        ),
        [first, rest @ ..] => {
            let what = format!(
                "a stage has one implementation; remove `{first}` or `{}`",
                rest.join("` and `")
            );
            section.complain(first, what);
        }
    }
    match (program, file, library, kind) {
        (Some(command), ..) => Body::Program(command),
        (_, Some(path), ..) => Body::File(path.into()),
        (_, _, Some(path), _) => Body::Library(path.into()),
        (.., kind) => kind.unwrap_or(Body::Program(Vec::new())),
    }
}

fn edge(section: &mut Section<'_, '_>) -> EdgeNeeds {
    let from = end(section, "from");
    let to = end(section, "to");
    section.require("frame_bytes", "how long is a frame, at most, in bytes?");
    let full = [
        ("wait", WhenFull::Wait),
        ("drop-oldest", WhenFull::DropOldest),
        ("drop-late", WhenFull::DropLate),
    ];
    EdgeNeeds {
        from,
        to,
        edge: EdgeSpec {
            slots: section.count("slots").unwrap_or(SLOTS),
            frame_bytes: section.count("frame_bytes").unwrap_or(1),
            full: section.choice("full", &full).unwrap_or_default(),
        },
    }
}

/// End of an edge: the name of a stage, and a port other than the first.
fn end(section: &mut Section<'_, '_>, key: &'static str) -> (String, usize) {
    section.require(
        key,
        "name a stage, such as \"sum\", or one of its ports, such as \"sum:1\"",
    );
    let Some(text) = section.text(key) else {
        return Default::default();
    };
    let (name, port) = text.split_once(':').unwrap_or((&text, "0"));
    let Ok(port) = port.parse() else {
        let what = format!("\"{port}\" is no port; ports are counted from 0: write it like \"{name}:1\"");
        section.complain(key, what);
        return Default::default();
    };
    (name.to_owned(), port)
}

/// Resolves libraries and files against the scenario's folder.
pub fn located(mut spec: StagesSpec, folder: &Path) -> StagesSpec {
    for stage in &mut spec.stages {
        match &mut stage.does {
            Body::Library(path) | Body::File(path) => *path = folder.join(&path),
            Body::Program(_) | Body::Kind(..) => {}
        }
    }
    spec
}

/// Whether the scenario has stages only; tasks and sensors may be missing then.
pub fn alone(top: &mut Section<'_, '_>) -> bool {
    top.has("stage") && !top.has("task") && !top.has("trace")
}
