//! Stages of a scenario in `punctual run`: alone, or beside its tasks.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use punctual_loop::EventLog;
use punctual_pipelines::TardinessFigures;
use punctual_pipelines::linux::{Panel, PipeError, PipelineError, QueueNow, StageNow};
use punctual_platform::Refusal;
use punctual_platform::linux::HeldOutput;
use punctual_runtime::report::{Progress, Protection, StageReport};
use punctual_scenario::WithoutEffect;
use punctual_scenario::stages::{StageError, StageRun, Stages, StagesSpec, stage_cores};
use punctual_units::CoreId;
use punctual_workload::TaskGoal;
use serde::Serialize;

use super::{print_report, replay};
use crate::args::{Platform, Run};
use crate::decisions::Recorder;
use crate::pipeline::display::{Display, ViewRequest};
use crate::pipeline::history::{History, PipelineRecorder};
use crate::pipeline::meddler::Meddler;
use crate::pipeline::page::{Along, page};
use crate::pipeline::shown::{GoalShown, Observer, Tone, ViewContent};
use punctual_files::failure::Failure;
use punctual_files::scenario::Loaded;
use punctual_report::output::OutputFile;
use punctual_report::stages::{is_good, summary};
use punctual_report::summary::count;
use punctual_report::terminal::{FRAME, is_live, is_there, say};

/// Interval between looks at a run of stages.
const LOOK: Duration = Duration::from_millis(5);
/// Interval between lines of progress.
const LINE: Duration = Duration::from_secs(1);

/// Starts the processes of the scenario's stages, on other cores than its exclusive tasks get; `None` if it has none.
/// In such a process, this serves the stage and does not return.
pub fn prepare(loaded: &mut Loaded, arguments: &Run) -> Result<Option<Stages>, Failure> {
    match (loaded.stages.stages.as_slice(), arguments.change.platform) {
        ([], _) => Ok(None),
        (_, Platform::Sim) if loaded.is_stages_only() => {
            let place = loaded.place_of("stage");
            let why = "stages alone are carried out on Linux only: leave out --platform sim, or add a task";
            Err(Failure::of(format!("{place}: stage: {why}")))
        }
        (_, Platform::Sim) => Ok(None),
        (_, Platform::Linux) => {
            let records = arguments.record.is_some();
            if punctual_pipelines::linux::told().is_none() {
                place(loaded)?;
            }
            let prepared = Stages::prepare(&loaded.scenario.name, &loaded.stages, records, loaded.keep()?);
            prepared.map(Some).map_err(|why| told(&why, loaded))
        }
    }
}

/// Settles the cores of stages, so that no exclusive task gets one of them.
fn place(loaded: &mut Loaded) -> Result<(), Failure> {
    let cores = stage_cores(&loaded.stages, &loaded.scenario, &loaded.neighbours);
    let cores = cores.map_err(|problem| told(&StageError::Problems(vec![problem]), loaded))?;
    loaded.neighbours.stages.clone_from(&cores);
    loaded.stages.open = cores;
    Ok(())
}

/// Failure for a stage's error, with its place in the file if it has one.
fn told(why: &StageError, loaded: &Loaded) -> Failure {
    let number = |name: &str| loaded.stages.stages.iter().position(|stage| stage.name == name);
    let at = |key: String, what: String| format!("{}: {key}: {what}", loaded.place_of(&key));
    match why {
        StageError::Problems(problems) => Failure::input(problems.iter().map(|it| at(it.key.clone(), it.what.clone()))),
        StageError::Pipe(PipeError::Start { name, program, why }) => {
            let key = number(name).map_or("stage".into(), |number| format!("stage[{number}].program"));
            let what = format!("`{program}` does not start: {why}; install it, or name it with its folder");
            Failure::of(at(key, what))
        }
        StageError::File { stage, path, why } => {
            let key = number(stage).map_or("stage".into(), |number| format!("stage[{number}].file"));
            Failure::of(at(key, format!("{path}: {why}")))
        }
        // Shared memory was refused: the message names its largest user, to be made smaller.
        StageError::Pipeline(PipelineError::Machine(why)) => Failure::of(at(largest(&loaded.stages), why.to_string())),
        StageError::Pipeline(PipelineError::Policy(why)) => {
            let key = format!("pipeline.{}", why.key);
            Failure::of(at(key, why.what.clone()))
        }
        why => Failure::of(why),
    }
}

/// Key of the largest item in shared memory.
fn largest(spec: &StagesSpec) -> String {
    let states = { spec.stages.iter().enumerate() }.map(|(number, stage)| {
        // A state has two copies.
        (
            2 * stage.state_bytes.unwrap_or(0),
            format!("stage[{number}].state_bytes"),
        )
    });
    let edges = { spec.edges.iter().enumerate() }.map(|(number, edge)| {
        let bytes = edge.edge.frame_bytes.saturating_mul(edge.edge.slots as usize);
        (bytes, format!("edge[{number}].frame_bytes"))
    });
    let largest = states.chain(edges).max_by_key(|(bytes, _)| *bytes);
    largest.map_or("stage".into(), |(_, key)| key)
}

/// JSON report of a run with stages only.
#[derive(Debug, Serialize)]
struct StagesReport<'r> {
    scenario: &'r str,
    platform: &'static str,
    seconds: f64,
    stages: &'r [StageReport],
    /// Features that the machine lacks, and the fallbacks in use.
    refused: Vec<String>,
}

/// Runs a scenario of stages only, until its sinks have ended, its duration is over or the user ends it; `command` is
/// the command line.
pub fn alone(prepared: Stages, loaded: &Loaded, arguments: &Run, command: &str) -> Result<(), Failure> {
    refuse_others(arguments)?;
    let json = OutputFile::report(arguments.json.as_ref())?;
    let html = OutputFile::page(arguments.html.as_ref())?;
    let record = OutputFile::log(arguments.record.as_ref())?;
    let recorder = record.as_ref().map(|_| Recorder::start(prepared.pipeline()));
    let lacks = match prepared.pipeline().clocks() {
        Some(Err(refusal)) => Some(refusal),
        _ => prepared.pipeline().panel().lacks(),
    };
    let mut display = Display::start(is_live(arguments.plain) && is_there())?;
    let held = display.live.then(HeldOutput::begin).transpose();
    let mut held = held.map_err(|error| Failure::Internal(format!("standard output: {error}")))?;
    let (begun, mut run) = (Instant::now(), prepared.begin().map_err(|why| told(&why, loaded))?);
    let seen = watch(&mut run, loaded, &display);
    display.leave();
    held.iter_mut().for_each(HeldOutput::pass);
    let (ends, beside) = (Ends::of(&run.panel()), run.beside());
    let (stages, failed) = run.finish(&mut |told| say(Some(told)));
    held.into_iter().for_each(HeldOutput::end);
    let report = StagesReport {
        scenario: &loaded.scenario.name,
        platform: "linux",
        seconds: begun.elapsed().as_secs_f64(),
        stages: &stages,
        refused: lacks.iter().chain(&beside).map(ToString::to_string).collect(),
    };
    let text = print_report(&summary(report.scenario, report.seconds, &stages, &report.refused));
    let json = json.map_or(Ok(()), |file| file.json(&report));
    let html = html.map_or(Ok(()), |file| {
        let along = ends.along(&seen.history);
        file.text(&page(report.scenario, report.seconds, &stages, &along, command))
    });
    let log = recorder.map(Recorder::end).transpose();
    let record = log.and_then(|log| replay::write(record, log));
    let failed = failed.map_or(Ok(()), |why| Err(told(&why, loaded)));
    Failure::all([text, json, html, record, failed, checked(&stages, arguments.check)])
}

/// Supervises stages until their end; returns their cores and the levels of their queues over time.
fn watch(run: &mut StageRun, loaded: &Loaded, display: &Display) -> PipelineRecorder {
    let (begun, duration) = (Instant::now(), Duration::from_nanos(loaded.scenario.duration.0));
    let panel = run.panel();
    let mut seen = PipelineRecorder::new(&panel.cores());
    let (mut meddler, mut observer) = (Meddler::new(&panel), Observer::default());
    let (mut lines, mut frames, mut standstill) = (Lines::new(), 0, Standstill::default());
    while run.look() && !display.stop.load(Ordering::Acquire) && begun.elapsed() < duration {
        let asked = display.wait(LOOK);
        for asked in asked.into_iter().chain(std::iter::from_fn(|| display.asked())) {
            if let ViewRequest::Stage(wish) = asked {
                meddler.wish(wish);
            }
        }
        seen.look(&panel, &meddler.fetch(&panel));
        meddler.fulfil(&panel);
        if display.live && observer.last().elapsed() >= FRAME {
            let (shown, seconds) = observer.look(&panel, &meddler);
            let (came, late) = run
                .sinks()
                .fold((0, 0), |(frames, late), (_, it)| (frames + it.frames, late + it.late));
            let fps = came.saturating_sub(std::mem::replace(&mut frames, came)) as f64 / seconds;
            let counts = [
                (format!("{} frames", count(came)), Tone::Plain),
                (format!("{} late or missing", count(late)), Tone::bad(late)),
            ];
            let stands = standstill.look(run, Instant::now()).map(|text| (text, Tone::bad(1)));
            display.show(ViewContent {
                title: loaded.scenario.name.clone(),
                pace: format!("{fps:.0} frames/s to sinks"),
                counts: counts.into_iter().chain(stands).collect(),
                goals: run.goals().map(goal_shown).collect(),
                ..shown
            });
        } else if !display.live
            && let Some(told) = lines.next(run)
        {
            say(Some(format!("{:.0} s  {told}", begun.elapsed().as_secs_f64())));
        }
    }
    seen
}

fn goal_shown((stage, goal, taken): (&str, TaskGoal, TardinessFigures)) -> GoalShown {
    GoalShown {
        stage: stage.into(),
        goal,
        taken,
    }
}

/// Facts on the pipeline for the page besides its history, gathered before the end.
struct Ends {
    stages: Vec<StageNow>,
    queues: Vec<QueueNow>,
    cores: Vec<CoreId>,
}

impl Ends {
    fn of(panel: &Panel) -> Ends {
        Ends {
            stages: panel.stages(),
            queues: panel.queues(),
            cores: panel.cores(),
        }
    }

    fn along<'h>(&self, history: &'h History) -> Along<'h> {
        let name = |number: usize| self.stages.get(number).map_or("".into(), |stage| stage.name.clone());
        Along {
            history,
            stages: { self.stages.iter() }
                .map(|stage| (stage.name.clone(), stage.core.is_some()))
                .collect(),
            cores: self.cores.iter().map(|core| core.0).collect(),
            queues: self.queues.iter().map(|queue| name(queue.to)).collect(),
            slots: self.queues.iter().map(|queue| queue.slots).max().unwrap_or(1),
        }
    }
}

/// Lines on the progress of the sinks, one a second.
struct Lines {
    told: Instant,
    standstill: Standstill,
}

impl Lines {
    fn new() -> Lines {
        Lines {
            told: Instant::now(),
            standstill: Standstill::default(),
        }
    }

    fn next(&mut self, run: &StageRun) -> Option<String> {
        if self.told.elapsed() < LINE {
            return None;
        }
        self.told += LINE;
        let sink = |(name, it): (&str, TardinessFigures)| {
            let (frames, late) = (count(it.frames), count(it.late));
            format!("{name}: {frames} frames, {late} late or missing")
        };
        let stands = self.standstill.look(run, self.told);
        Some(run.sinks().map(sink).chain(stands).collect::<Vec<_>>().join("; "))
    }
}

/// Since when no frame has reached a sink although some wait: those without a due time are never late.
#[derive(Default)]
struct Standstill {
    frames: u64,
    since: Option<Instant>,
}

impl Standstill {
    /// Text on a standstill that has lasted for a line at least.
    fn look(&mut self, run: &StageRun, now: Instant) -> Option<String> {
        let (frames, waiting) = (run.sinks().map(|(_, it)| it.frames).sum(), run.waiting());
        if std::mem::replace(&mut self.frames, frames) != frames || waiting == 0 {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        let seconds = now.saturating_duration_since(since).as_secs();
        (seconds > 0).then(|| format!("no frame came through for {seconds} s, {} wait", count(waiting)))
    }
}

/// Fails if the stages were to meet their goals and did not.
fn checked(stages: &[StageReport], check: bool) -> Result<(), Failure> {
    match check && !is_good(stages) {
        true => Err(Failure::Refuted(
            "--check: a stage misses its goal, or frames were left".into(),
        )),
        false => Ok(()),
    }
}

/// Refuses options without effect in a scenario without tasks.
fn refuse_others(arguments: &Run) -> Result<(), Failure> {
    let why = "the scenario has stages only; leave it out";
    let controller = arguments.controller.map(|_| "--controller").into_iter();
    let trace = arguments.trace.as_ref().map(|_| "--trace");
    let metrics = arguments.metrics.map(|_| "--metrics");
    let given = controller.chain(trace).chain(metrics).chain(arguments.of_a_model());
    Failure::refuse(given.map(|option| WithoutEffect::of(option, why).to_string()))
}

/// Stages that have ended beside tasks.
pub struct EndedStages {
    pub rows: Vec<StageReport>,
    /// The first error, of a stage or of a program.
    pub failed: Result<(), Failure>,
    /// The decisions about them, where they were kept.
    pub decided: Result<Option<EventLog>, Failure>,
}

/// Stages beside tasks: they start with the run proper, and end with it.
pub struct SideStages {
    prepared: Option<Stages>,
    run: Option<StageRun>,
    failed: Option<StageError>,
    /// Seconds of the start-up that the run's figures leave out; `None` once it is over.
    start_up_s: Option<f64>,
    lines: Lines,
    recorder: Option<Recorder>,
}

impl SideStages {
    /// Stages that begin with the run; `records`: their decisions are kept.
    pub fn new(prepared: Option<Stages>, records: bool) -> SideStages {
        let recorded = prepared.as_ref().filter(|_| records);
        SideStages {
            recorder: recorded.map(|prepared| Recorder::start(prepared.pipeline())),
            prepared,
            run: None,
            failed: None,
            start_up_s: None,
            lines: Lines::new(),
        }
    }

    /// Progress of the sinks, once a second.
    pub fn news(&mut self) -> Option<String> {
        self.lines.next(self.run.as_ref()?)
    }

    /// Supervises the stages; `Break` if they cannot start.
    pub fn look(&mut self, progress: &Progress<'_>) -> ControlFlow<()> {
        if let Progress::Started(header) = progress {
            self.start_up_s = Some(header.settle_s);
        }
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
            if let Progress::Sample(sample) = progress
                && self.start_up_s.is_some_and(|start_up| sample.t_s >= start_up)
            {
                self.start_up_s = None;
                run.settle();
            }
        }
        ControlFlow::Continue(())
    }

    /// Real-time work that other programs have on the stages' cores, for the report.
    pub fn beside(&self) -> Vec<Protection> {
        let found = self.run.as_ref().map_or_else(Vec::new, StageRun::beside);
        let refused = |refusal: Refusal| Protection {
            what: refusal.what.clone(),
            refused: Some(refusal),
            stays: Vec::new(),
        };
        found.into_iter().map(refused).collect()
    }

    /// Ends the stages, and waits until their processes have.
    pub fn finish(self, loaded: &Loaded) -> EndedStages {
        let (rows, failed) = match self.run {
            Some(run) => run.finish(&mut |told| say(Some(told))),
            None => (Vec::new(), None),
        };
        let failed = self.failed.or(failed);
        let log = self.recorder.map(Recorder::end).transpose();
        EndedStages {
            rows,
            failed: failed.map_or(Ok(()), |why| Err(told(&why, loaded))),
            decided: log,
        }
    }
}
