//! `punctual-lab radio`: an FM receiver as a pipeline of processes, whose stages move, die and restart while it plays.

mod orders;
mod page;
mod pipes;
mod plan;
mod rate;
mod report;
pub mod scenario;
mod seen;
mod session;
mod sink;
mod view;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use punctual_pipelines::linux::{Pipeline, PipelineError, PipelineOptions};
use punctual_radio::{Options, sound};

use crate::args::Radio;
use punctual_cli::commands::replay;
use punctual_cli::decisions::Recorder;
use punctual_cli::pipeline::display::Display;
use punctual_files::failure::Failure;
use punctual_report::output::{OutputFile, apart};
use punctual_report::terminal;

use plan::RadioPlan;
use report::RadioReport;
use seen::RadioFigures;
use session::RadioResult;

/// Carries out `punctual-lab radio`; `command` is the command line.
pub fn radio(arguments: &Radio, command: &str) -> Result<(), Failure> {
    let plan = RadioPlan::new(arguments)?;
    let graph = punctual_radio::graph(&plan.radio).map_err(Failure::of)?;
    let options = PipelineOptions {
        cores: plan.cores.clone(),
        priority: Some(session::PRIORITY),
        placement: plan.placement(&graph),
        policy: arguments.policy,
        rate: plan.period.map(|period| 1.0 / period.as_secs_f64()),
        clocks: plan.clocks(arguments),
        ..PipelineOptions::default()
    };
    let made: Options = plan.radio.clone();
    let bodies = Arc::new(move |name: &str| punctual_radio::stage(name, &made).ok());
    // In a process started by a radio, this serves the stage and does not return.
    let started = Pipeline::start(graph, &options, bodies);
    let pipeline = started.map_err(|why| Failure::of(explained(&why)))?;
    plan.check_moves(&pipeline.supervisor().cores())?;
    let layout = plan.layout()?;

    apart(&[
        ("--json", arguments.json.as_deref()),
        ("--wav", arguments.wav.as_deref()),
        ("--html", arguments.html.as_deref()),
        ("--record", arguments.record.as_deref()),
    ])?;
    let json = OutputFile::report(arguments.json.as_ref())?;
    let record = OutputFile::log(arguments.record.as_ref())?;
    let recorder = record.as_ref().map(|_| Recorder::start(&pipeline));
    let html = OutputFile::page(arguments.html.as_ref())?;
    let mut display = Display::start(is_watched(arguments))?;
    let heard = session::play(&plan, pipeline, &display)?;
    display.leave();
    let report = RadioReport::new(&plan, layout, &heard)?;
    if let Some(json) = json {
        json.json(&report)?;
    }
    if let (Some(html), Some(seen)) = (html, &heard.seen) {
        html.text(&page::page(&report, &shown(&plan, &heard, seen), command))?;
    }
    let text = report.to_string();
    let to_stdout = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new("-"));
    if to_stdout(&arguments.json) || to_stdout(&arguments.wav) {
        // If standard error is closed, only the exit code reports the result.
        let _ = std::io::stderr().write_all(text.as_bytes());
    } else {
        punctual_cli::commands::print(&text)?;
    }
    replay::write(record, recorder.map(Recorder::end).transpose()?)?;
    match heard.failed {
        Some(why) => Err(Failure::of(why)),
        None => report.verdict(arguments.check),
    }
}

/// Whether there is a live view: it needs a terminal to draw on and to read keys from, apart from the destination and
/// the source of the sound.
fn is_watched(arguments: &Radio) -> bool {
    let is_standard = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new("-"));
    let output_taken = is_standard(&arguments.wav) || is_standard(&arguments.json);
    let seen = match output_taken {
        true => std::io::stderr().is_terminal() && !is_standard(&arguments.json),
        false => std::io::stdout().is_terminal(),
    };
    let heard = std::io::stdin().is_terminal() || is_standard(&arguments.input.recording);
    !arguments.plain && seen && heard && terminal::is_there()
}

/// Content of the page besides the report.
fn shown<'h>(plan: &RadioPlan, heard: &'h RadioResult, seen: &'h RadioFigures) -> page::PageContent<'h> {
    page::PageContent {
        history: &seen.watched.history,
        queues: heard.queues.iter().map(|queue| (queue.from, queue.to)).collect(),
        slots: plan.radio.slots,
        input: seen.input.decibels(),
        sound: seen.sound.decibels(),
        edges: seen.spectrum.edges().collect(),
        samples: &heard.delivered.sound,
    }
}

fn explained(why: &PipelineError) -> String {
    why.to_string()
}

/// True sound of the file at `path`, to compare with.
fn reference(path: &Path) -> Result<Vec<f32>, Failure> {
    sound::read(path).map_err(Failure::of)
}
