//! The stages of a scenario in `punctual run`: by themselves, or beside its tasks.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use punctual_pipeline::TardinessFigures;
use punctual_runtime::linux::pipeline::PipeError;
use punctual_runtime::report::{Progress, StageReport};
use punctual_scenario::stages::{StageError, StageRun, Stages};
use serde::Serialize;

use super::print;
use crate::args::{Platform, Run};
use crate::failure::Failure;
use crate::output::{Output, apart};
use crate::scenario::Loaded;
use crate::stages::{is_good, summary};
use crate::summary::count;
use crate::watch::Watcher;

/// How often a run of stages is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How often a line tells how far it is.
const LINE: Duration = Duration::from_secs(1);

/// Starts the processes of the scenario's stages; `None` where it has none. In such a process, this serves and does not
/// return.
pub fn prepare(loaded: &Loaded, platform: Platform) -> Result<Option<Stages>, Failure> {
    match (loaded.stages.stages.as_slice(), platform) {
        ([], _) => Ok(None),
        (_, Platform::Sim) => Err(Failure::input([format!(
            "{}: stage: stages are carried out on Linux only: leave out --platform sim, or the stages",
            loaded.place_of("stage")
        )])),
        (_, Platform::Linux) => {
            let prepared = Stages::prepare(&loaded.scenario.name, &loaded.stages);
            prepared.map(Some).map_err(|why| told(&why, loaded))
        }
    }
}

/// A failure with its place in the file, where it has one.
fn told(why: &StageError, loaded: &Loaded) -> Failure {
    let number = |name: &str| loaded.stages.stages.iter().position(|stage| stage.name == name);
    let at = |key: String, what: String| format!("{}: {key}: {what}", loaded.place_of(&key));
    match why {
        StageError::Problems(problems) => Failure::input(problems.iter().map(|it| at(it.key.clone(), it.what.clone()))),
        StageError::Pipe(PipeError::Start { name, program, why }) => {
            let key = number(name).map_or("stage".into(), |number| format!("stage[{number}].program"));
            let what = format!("`{program}` does not start: {why}; install it, or name it with its folder");
            Failure::input([at(key, what)])
        }
        StageError::File { stage, path, why } => {
            let key = number(stage).map_or("stage".into(), |number| format!("stage[{number}].file"));
            Failure::input([at(key, format!("{path}: {why}"))])
        }
        why => Failure::input([why.to_string()]),
    }
}

/// What a run of stages only tells.
#[derive(Debug, Serialize)]
struct Told<'r> {
    scenario: &'r str,
    platform: &'static str,
    seconds: f64,
    stages: &'r [StageReport],
}

/// Runs a scenario of stages only, until its sinks have ended, its duration is over or the user ends it.
pub fn alone(prepared: Stages, loaded: &Loaded, arguments: &Run) -> Result<(), Failure> {
    refuse_others(arguments)?;
    apart(&[
        ("the scenario", loaded.file.as_deref()),
        ("--json", arguments.json.as_deref()),
    ])?;
    let json = Output::prepare_some(arguments.json.as_ref())?;
    let watcher = Watcher::start(true)?;
    let (begun, duration) = (Instant::now(), Duration::from_nanos(loaded.scenario.duration.0));
    let mut run = prepared.begin().map_err(|why| told(&why, loaded))?;
    let mut lines = Lines::new();
    while run.look() && !watcher.stopped() && begun.elapsed() < duration {
        std::thread::sleep(LOOK);
        if let Some(told) = lines.next(&run) {
            watcher.sinks(format!("{:.0} s  {told}", begun.elapsed().as_secs_f64()));
        }
    }
    let (stages, failed) = run.finish();
    drop(watcher);
    let report = Told {
        scenario: &loaded.scenario.name,
        platform: "linux",
        seconds: begun.elapsed().as_secs_f64(),
        stages: &stages,
    };
    let text = print(&summary(report.scenario, report.seconds, &stages));
    let json = json.map_or(Ok(()), |file| file.json(&report));
    let failed = failed.map_or(Ok(()), |why| Err(told(&why, loaded)));
    Failure::all([text, json, failed, checked(&stages, arguments.check)])
}

/// Tells once a second how far the sinks are.
struct Lines(Instant);

impl Lines {
    fn new() -> Lines {
        Lines(Instant::now())
    }

    fn next(&mut self, run: &StageRun) -> Option<String> {
        if self.0.elapsed() < LINE {
            return None;
        }
        self.0 += LINE;
        let sink = |(name, it): (&str, TardinessFigures)| {
            let (frames, late) = (count(it.frames), count(it.late));
            format!("{name}: {frames} frames, {late} late")
        };
        Some(run.sinks().map(sink).collect::<Vec<_>>().join("; "))
    }
}

/// Fails where the stages were to hold their goals and did not.
pub fn checked(stages: &[StageReport], check: bool) -> Result<(), Failure> {
    match check && !is_good(stages) {
        true => Err(Failure::Refuted("--check: not every stage holds its goal".into())),
        false => Ok(()),
    }
}

/// Refuses options that mean nothing without tasks.
fn refuse_others(arguments: &Run) -> Result<(), Failure> {
    let given = [
        ("--controller", arguments.controller.is_some()),
        ("--model", arguments.model.is_some()),
        ("--identify", arguments.identify),
        ("--force", arguments.force),
        ("--html", arguments.html.is_some()),
        ("--record", arguments.record.is_some()),
    ];
    let refused = given.iter().filter(|(_, given)| *given);
    let refused: Vec<String> = refused
        .map(|(option, _)| format!("{option} has no effect in this run: the scenario has stages only; leave it out"))
        .collect();
    if refused.is_empty() {
        Ok(())
    } else {
        Err(Failure::Input(refused))
    }
}

/// Stages beside tasks: they begin with the run proper, and end with it.
pub struct Beside {
    prepared: Option<Stages>,
    run: Option<StageRun>,
    failed: Option<StageError>,
    lines: Lines,
}

impl Beside {
    pub fn new(prepared: Option<Stages>) -> Beside {
        Beside {
            prepared,
            run: None,
            failed: None,
            lines: Lines::new(),
        }
    }

    /// How far the sinks are, once a second.
    pub fn news(&mut self) -> Option<String> {
        self.lines.next(self.run.as_ref()?)
    }

    /// Looks after the stages; `Break` where they cannot begin.
    pub fn look(&mut self, progress: &Progress<'_>) -> ControlFlow<()> {
        if let Progress::Started(_) = progress
            && let Some(prepared) = self.prepared.take()
        {
            match prepared.begin() {
                Ok(run) => self.run = Some(run),
                Err(why) => {
                    self.failed = Some(why);
                    return ControlFlow::Break(());
                }
            }
        }
        if let Some(run) = &mut self.run {
            run.look();
        }
        ControlFlow::Continue(())
    }

    /// Ends them; what became of each, and whether any has failed.
    pub fn finish(self, loaded: &Loaded) -> (Vec<StageReport>, Result<(), Failure>) {
        let (rows, failed) = self.run.map_or((Vec::new(), None), StageRun::finish);
        let failed = self.failed.or(failed);
        (rows, failed.map_or(Ok(()), |why| Err(told(&why, loaded))))
    }
}
