//! `punctual pipeline`: lists running pipelines, and controls their stages.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use punctual_pipelines::linux::{Handover, MoveError, Panel, PipelineError, RunningPipeline, running};
use punctual_units::CoreId;
use serde::Serialize;

use super::print;
use crate::args::{Pipeline, PipelineCommand, mapping_policy};
use punctual_files::failure::Failure;
use punctual_files::toml::parse_time;
use punctual_report::output::OutputFile;
use punctual_report::terminal::say;

/// Time limit for a stage to get another process; a process that never gets ready is abandoned earlier.
const PATIENCE: Duration = Duration::from_secs(8);
const LOOK: Duration = Duration::from_millis(1);
/// Consecutive looks without a handover in progress, and with the same owner, until a move counts as abandoned. A new
/// owner logs the handover only after it has woken and loaded the state.
const QUIET_LOOKS: u32 = 50;

/// Carries out `punctual pipeline`.
pub fn pipeline(arguments: &Pipeline) -> Result<(), Failure> {
    let mut found = running();
    if let Some(process) = arguments.process {
        found.retain(|it| it.process == process);
        let none = format!("process {process} has no pipeline of this user: `punctual pipeline list` shows all");
        Failure::refuse(found.is_empty().then_some(none))?;
    }
    match &arguments.what {
        PipelineCommand::List { json } => list(&found, json.as_ref()),
        PipelineCommand::Move { stage, core, mechanism } => {
            let panel = the_one(&found)?;
            print(&hand_over(&panel, stage, |panel| {
                panel.move_stage(stage, CoreId(*core), *mechanism)
            })?)
        }
        PipelineCommand::Upgrade { stage, program } => {
            let absent = |why: std::io::Error| Failure::at(program, format!("{why}: name a program that is there"));
            let path = program.canonicalize().map_err(absent)?;
            let panel = the_one(&found)?;
            print(&hand_over(&panel, stage, |panel| panel.replace(stage, &path))?)
        }
        PipelineCommand::Set { key, value } => print(&set(&the_one(&found)?, key, value)?),
    }
}

/// The only pipeline, or an error that asks for `--process`.
fn the_one(found: &[RunningPipeline]) -> Result<Panel, Failure> {
    match found {
        [one] => one.panel().map_err(Failure::of),
        [] => Err(Failure::of("no pipeline of this user runs here")),
        several => {
            let names = several
                .iter()
                .map(|it| format!("{} (process {})", it.name(), it.process));
            let names = names.collect::<Vec<_>>().join(", ");
            Err(Failure::of(format!(
                "several pipelines run: name one by --process: {names}"
            )))
        }
    }
}

/// Requests a handover until it is accepted, and waits for its end.
fn hand_over(panel: &Panel, stage: &str, ask: impl Fn(&Panel) -> Result<(), MoveError>) -> Result<String, Failure> {
    let (begin, number) = (Instant::now(), panel.stages().iter().position(|it| it.name == stage));
    let owner = || number.map(|number| panel.stages()[number].pid);
    // Discards earlier handovers.
    panel.handovers();
    let before = loop {
        let before = owner();
        match ask(panel) {
            Ok(()) => break before,
            Err(MoveError::Busy(_) | MoveError::NotReady(..)) if begin.elapsed() < PATIENCE => std::thread::sleep(LOOK),
            Err(why) => return Err(Failure::of(why)),
        }
    };
    let mut quiet = 0;
    while panel.runs() && begin.elapsed() < PATIENCE && quiet < QUIET_LOOKS {
        if let Some(handover) = panel.handovers().iter().find(|it| Some(it.stage) == number) {
            return Ok(told(panel, stage, handover));
        }
        let given_up = !panel.is_under_way(stage).unwrap_or(false) && owner() == before;
        quiet = if given_up { quiet + 1 } else { 0 };
        std::thread::sleep(LOOK);
    }
    Err(match panel.refusal(stage).unwrap_or_default() {
        Some(why) => Failure::of(MoveError::Refused(stage.into(), why)),
        None => Failure::of(format!(
            "stage \"{stage}\" kept its process: it was there already, or the new one was abandoned"
        )),
    })
}

fn told(panel: &Panel, stage: &str, handover: &Handover) -> String {
    let now = panel.stages().into_iter().find(|it| it.name == stage);
    let place = now.and_then(|it| Some(format!("process {} on core {}", it.pid, it.core?)));
    let (place, micros) = (place.unwrap_or_default(), handover.blackout.as_micros_f64());
    format!("{stage}: {place}, {micros:.1} us without a process\n")
}

/// Changes a setting; returns its new value as text.
fn set(panel: &Panel, key: &str, value: &str) -> Result<String, Failure> {
    let wrong = |what: String| Failure::of(format!("{key}: {what}"));
    let span = || parse_time(value).map_err(wrong);
    let set = match key {
        "policy" => panel.set_policy(mapping_policy(value).map_err(wrong)?),
        "rate" => {
            let rate = value.parse().map_err(|_| wrong(format!("\"{value}\" is no number")))?;
            panel.set_rate(rate)
        }
        "hold" => panel.set_hold(span()?),
        "period" => panel.set_period(span()?),
        _ => return Err(wrong("there is no such setting: policy, rate, hold, period".into())),
    };
    set.map_err(Failure::of)?;
    let lacks = if key == "policy" { panel.lacks() } else { None };
    let lacks = lacks.map_or(String::new(), |refusal| format!("refused: {refusal}\n"));
    Ok(format!("{key}: {value}\n{lacks}"))
}

#[derive(Debug, Serialize)]
struct PipelineEntry {
    name: String,
    process: i32,
    cores: Vec<CoreId>,
    policy: &'static str,
    /// Core of the worker that decides.
    coordinator: Option<CoreId>,
    /// Moves requested by policies.
    policy_moves: u64,
    /// Requested frame rate, in frames per second; `rate` is the rate of frames that leave the pipeline.
    rate_asked: Option<f64>,
    rate: f64,
    stages: Vec<StageEntry>,
}

#[derive(Debug, Serialize)]
struct StageEntry {
    name: String,
    core: Option<CoreId>,
    process: i32,
    steps: u64,
    busy_us: f64,
    restarts: u64,
    /// Share of a core that the stage takes.
    load: f64,
    /// Processor time for each frame that leaves the pipeline.
    frame_us: Option<f64>,
    /// Cycles for each frame that leaves the pipeline; `None` if the clock cannot be read.
    frame_cycles: Option<u64>,
    /// Resident memory of its process in bytes, shared pages included.
    memory_bytes: u64,
    /// Frames waiting at each input.
    waiting: Vec<u64>,
}

fn list(found: &[RunningPipeline], json: Option<&PathBuf>) -> Result<(), Failure> {
    let panel = |running: &RunningPipeline| match running.panel() {
        Ok(panel) => Some(listed(running, &panel)),
        Err(PipelineError::Layout(why)) => {
            say(Some(format!("{} (process {}): {why}", running.name(), running.process)));
            None
        }
        // The pipeline has ended meanwhile.
        Err(_) => None,
    };
    let json = OutputFile::report(json)?;
    let listed: Vec<PipelineEntry> = found.iter().filter_map(panel).collect();
    let mut text = String::new();
    if listed.is_empty() {
        text.push_str("no pipeline of this user runs here\n");
    }
    for one in &listed {
        write_listed(&mut text, one);
    }
    print(&text)?;
    json.map_or(Ok(()), |file| file.json(&listed))
}

fn write_listed(text: &mut String, listed: &PipelineEntry) {
    let cores = listed.cores.iter().map(CoreId::to_string).collect::<Vec<_>>().join(",");
    let (name, process, rate, policy) = (&listed.name, listed.process, listed.rate, listed.policy);
    let _ = write!(
        text,
        "{name} (process {process}), cores {cores}, {rate:.0} frames/s, policy {policy}"
    );
    if let Some(core) = listed.coordinator {
        let _ = write!(text, " asked on core {core}, {} moves by it", listed.policy_moves);
    }
    let _ = writeln!(
        text,
        "\n  {:<14} {:>4} {:>8} {:>10} {:>9} {:>7} {:>9} {:>7} {:>8}  waiting",
        "stage", "core", "process", "steps", "us/step", "load", "us/frame", "MiB", "restarts"
    );
    for stage in &listed.stages {
        let core = stage.core.map_or("-".into(), |core| core.to_string());
        let each = stage.busy_us / stage.steps.max(1) as f64;
        let frame = stage.frame_us.map_or("-".into(), |us| format!("{us:.1}"));
        let memory = stage.memory_bytes as f64 / f64::from(1 << 20);
        let waiting = stage.waiting.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        let _ = writeln!(
            text,
            "  {:<14} {core:>4} {:>8} {:>10} {each:>9.1} {:>6.1}% {frame:>9} {memory:>7.1} {:>8}  {waiting}",
            stage.name,
            stage.process,
            stage.steps,
            stage.load * 100.0,
            stage.restarts
        );
    }
}

fn listed(running: &RunningPipeline, panel: &Panel) -> PipelineEntry {
    let statistics = panel.measure();
    let stages = panel.stages().into_iter().zip(statistics.stages);
    let stages = stages.map(|(stage, measured)| StageEntry {
        core: stage.core,
        // A pinned stage is a thread of the process that started the pipeline.
        process: if stage.core.is_some() {
            stage.pid
        } else {
            running.process
        },
        steps: stage.steps,
        busy_us: stage.busy.as_micros_f64(),
        restarts: stage.restarts,
        name: stage.name,
        load: measured.load,
        frame_us: measured.frame_time.map(|time| time.as_micros_f64()),
        frame_cycles: measured.frame_cycles,
        memory_bytes: measured.memory_bytes,
        waiting: measured.waiting,
    });
    let coordinator = panel.coordinator();
    PipelineEntry {
        name: running.name().into(),
        process: running.process,
        cores: panel.cores(),
        policy: panel.policy().name(),
        coordinator: coordinator.map(|it| it.core),
        policy_moves: coordinator.map_or(0, |it| it.moves),
        rate_asked: panel.rate(),
        rate: statistics.fps,
        stages: stages.collect(),
    }
}
