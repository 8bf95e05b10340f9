//! `punctual pipeline`: the pipelines that run, and what their stages are to do.

use std::fmt::Write;
use std::time::{Duration, Instant};

use punctual_runtime::linux::pipeline::{Handover, MoveError, Panel, Running, running};
use punctual_units::CoreId;
use serde::Serialize;

use super::print;
use crate::args::{Pipeline, PipelineCommand};
use crate::failure::Failure;

/// How long a command waits until a stage has another process: one that never gets ready is given up before.
const PATIENCE: Duration = Duration::from_secs(8);
const LOOK: Duration = Duration::from_millis(1);
/// Looks in a row at which nothing is under way until a move counts as given up: its end is logged just before.
const QUIET_LOOKS: u32 = 50;

/// Carries out `punctual pipeline`.
pub fn pipeline(arguments: &Pipeline) -> Result<(), Failure> {
    let mut found = running();
    found.retain(|it| arguments.process.is_none_or(|process| process == it.process));
    match &arguments.what {
        PipelineCommand::List { json } => list(&found, *json),
        PipelineCommand::Move { stage, core, mechanism } => {
            let panel = the_one(&found)?;
            let told = hand_over(&panel, stage, true, |panel| {
                panel.move_stage(stage, CoreId(*core), *mechanism)
            })?;
            print(&told)
        }
        PipelineCommand::Upgrade { stage, program } => {
            let path = program.canonicalize();
            let path = path.map_err(|why| Failure::input([format!("{}: {why}", program.display())]))?;
            let panel = the_one(&found)?;
            print(&hand_over(&panel, stage, true, |panel| panel.replace(stage, &path))?)
        }
        PipelineCommand::Kill { stage } => {
            let panel = the_one(&found)?;
            print(&hand_over(&panel, stage, false, |panel| panel.kill(stage).map(drop))?)
        }
    }
}

/// The pipeline that is meant.
fn the_one(found: &[Running]) -> Result<Panel, Failure> {
    let failed = |why: String| Failure::input([why]);
    match found {
        [one] => one.panel().map_err(|why| failed(why.to_string())),
        [] => Err(failed(
            "no pipeline of this user runs here (with --process: of that process)".into(),
        )),
        several => {
            let names = several
                .iter()
                .map(|it| format!("{} (process {})", it.name(), it.process));
            let names = names.collect::<Vec<_>>().join(", ");
            Err(failed(format!("several pipelines run: name one by --process: {names}")))
        }
    }
}

/// Asks for a hand-over until it is begun, and waits for its end.
fn hand_over(
    panel: &Panel,
    stage: &str,
    is_move: bool,
    ask: impl Fn(&Panel) -> Result<(), MoveError>,
) -> Result<String, Failure> {
    let failed = |why: String| Failure::input([why]);
    let (begin, before) = (Instant::now(), panel.stages());
    let number = before.iter().position(|it| it.name == stage);
    // What happened before is not asked for.
    panel.handovers();
    loop {
        match ask(panel) {
            Ok(()) => break,
            Err(MoveError::Busy(_) | MoveError::NotReady(..)) if begin.elapsed() < PATIENCE => std::thread::sleep(LOOK),
            Err(why) => return Err(failed(why.to_string())),
        }
    }
    let mut quiet = 0;
    while panel.runs() && begin.elapsed() < PATIENCE && quiet < QUIET_LOOKS {
        let handovers = panel.handovers();
        if let Some(handover) = handovers.iter().find(|it| Some(it.stage) == number) {
            return Ok(told(panel, stage, handover));
        }
        // The death of a killed process is under way without a word about it.
        let given_up = is_move && !panel.is_under_way(stage).unwrap_or(false);
        quiet = if given_up { quiet + 1 } else { 0 };
        std::thread::sleep(LOOK);
    }
    Err(failed(format!(
        "stage \"{stage}\" has the process that it had: it was there already, or the new one was given up"
    )))
}

fn told(panel: &Panel, stage: &str, handover: &Handover) -> String {
    let now = panel.stages().into_iter().find(|it| it.name == stage);
    let place = now.and_then(|it| Some(format!("process {} on core {}", it.pid, it.core?)));
    let (place, micros) = (place.unwrap_or_default(), handover.blackout.as_micros_f64());
    format!("{stage}: {place}, {micros:.1} us without a process\n")
}

#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    process: i32,
    cores: Vec<CoreId>,
    stages: Vec<Stage>,
}

#[derive(Debug, Serialize)]
struct Stage {
    name: String,
    core: Option<CoreId>,
    process: i32,
    steps: u64,
    busy_us: f64,
    restarts: u64,
}

fn list(found: &[Running], json: bool) -> Result<(), Failure> {
    // One that ends meanwhile is left out.
    let panels = found
        .iter()
        .filter_map(|running| Some((running, running.panel().ok()?)));
    let listed: Vec<Listed> = panels.map(|(running, panel)| listed(running, &panel)).collect();
    if json {
        let json = serde_json::to_string_pretty(&listed).map_err(|error| Failure::Internal(error.to_string()))?;
        return print(&format!("{json}\n"));
    }
    let mut text = String::new();
    if listed.is_empty() {
        text.push_str("no pipeline of this user runs here\n");
    }
    for Listed {
        name,
        process,
        cores,
        stages,
    } in &listed
    {
        let cores = cores.iter().map(CoreId::to_string).collect::<Vec<_>>().join(",");
        let _ = writeln!(text, "{name} (process {process}), cores {cores}");
        for stage in stages {
            let core = stage.core.map_or("-".into(), |core| core.to_string());
            let each = stage.busy_us / stage.steps.max(1) as f64;
            let _ = writeln!(
                text,
                "  {:<14} core {core:>3}  process {:>8}  {:>10} steps of {each:>8.1} us  {} restarts",
                stage.name, stage.process, stage.steps, stage.restarts
            );
        }
    }
    print(&text)
}

fn listed(running: &Running, panel: &Panel) -> Listed {
    let stages = panel.stages().into_iter().map(|stage| Stage {
        core: stage.core,
        // A pinned one is a thread of the process that started the pipeline.
        process: if stage.core.is_some() {
            stage.pid
        } else {
            running.process
        },
        steps: stage.steps,
        busy_us: stage.busy.as_micros_f64(),
        restarts: stage.restarts,
        name: stage.name,
    });
    Listed {
        name: running.name().into(),
        process: running.process,
        cores: panel.cores(),
        stages: stages.collect(),
    }
}
