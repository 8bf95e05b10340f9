//! The stages of a scenario on Linux.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use punctual_allocation::mapping::MappingPolicy;
use punctual_os::LinuxOs;
use punctual_pipelines::linux::{
    Bodies, Cause, ClockOptions, Panel, Peer, PipeError, PipeReport, PipeSpec, Pipeline, PipelineError,
    PipelineOptions, Pipes, told,
};
use punctual_pipelines::{Failure, FrameCounts, TardinessFigures};
use punctual_platform::Refusal;
use punctual_platform::linux::{KernelTree, cores};
use punctual_runtime::frames::StageFrames;
use punctual_runtime::report::{Quantiles, StageReport};
use punctual_units::{Clock, CoreId, Nanos, Time};
use punctual_workload::{Problem, TaskGoal};
use ruzstd::decoding::StreamingDecoder;

use super::libraries::KeptLibraries;
use super::plan::{Parts, StagePlan, body};
use super::{Body, StageNeeds, StagesSpec};

/// Time for the frames under way, once sources have ended, until all is ended.
const DRAINS: Duration = Duration::from_secs(5);
/// Time after which the user is notified of such a wait.
const NOTICED: Duration = Duration::from_millis(500);
/// How often a wait looks.
const LOOK: Duration = Duration::from_millis(5);

/// Why stages do not run, or have failed.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// The scenario is not sound.
    #[error("{}", .0.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n"))]
    Problems(Vec<Problem>),
    /// The pipeline does not start, or has ended.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// A program or file failed.
    #[error(transparent)]
    Pipe(#[from] PipeError),
    /// A file cannot be opened.
    #[error("stage \"{stage}\": {path}: {why}")]
    File {
        stage: String,
        path: String,
        /// Error of the operating system.
        why: String,
    },
    /// A library was there a moment ago, and cannot be opened now.
    #[error("the library of a stage: {0}")]
    Library(io::Error),
    /// A stage in a thread of this process failed.
    #[error("stage \"{stage}\": {why}")]
    Stage {
        stage: String,
        /// Why it cannot go on.
        why: String,
    },
}

/// Stages whose processes have started; no frame flows yet.
pub struct Stages {
    spec: StagesSpec,
    plan: StagePlan,
    pipeline: Pipeline,
    kept: KeptLibraries,
    /// Open for processes that start later.
    _libraries: Vec<File>,
}

impl Stages {
    /// The frames of the stages that have goals, for a loop that serves them.
    pub fn goals(&self) -> Vec<StageFrames> {
        let stages = self.spec.stages.iter().zip(&self.plan.parts);
        let counts = self.pipeline.counts();
        let read = |(stage, parts): (&StageNeeds, &Parts)| frames_of(stage, &parts.takes, counts);
        stages.filter_map(read).collect()
    }

    /// Starts the processes of stages that may move. `records`: decisions on clocks are kept for a log. `tag` is passed
    /// to the processes ([`PipelineOptions::tag`]). In a process that a pipeline has started, this serves and does not
    /// return: no other thread may run there yet.
    ///
    /// # Errors
    /// [`StageError`].
    pub fn prepare(name: &str, spec: &StagesSpec, records: bool, tag: String) -> Result<Stages, StageError> {
        let options = PipelineOptions {
            priority: spec.priority,
            policy: spec.policy,
            rate: spec.rate,
            step_max: spec.step_max,
            clocks: clocks(spec, records),
            ..PipelineOptions::default()
        };
        if told().is_some() {
            // Files and libraries may be others by now: what the pipeline is was settled when it was started.
            Pipeline::serve(&options, &bodies(spec, KeptLibraries::told()))?;
        }
        let plan = StagePlan::new(name, spec).map_err(StageError::Problems)?;
        let cores = match (spec.cores.as_slice(), spec.open.as_slice()) {
            ([], []) => cores::usable(&KernelTree::default()),
            ([], open) => open.to_vec(),
            (named, _) => named.to_vec(),
        };
        let cores: Vec<CoreId> = cores.into_iter().take(punctual_pipelines::linux::CORES_MAX).collect();
        let placement = plan
            .placement(spec, &cores)
            .map_err(|problem| StageError::Problems(vec![problem]))?;
        let (kept, libraries) = KeptLibraries::open(spec).map_err(StageError::Library)?;
        let options = PipelineOptions {
            placement,
            cores,
            joined: { plan.parts.iter() }
                .filter(|parts| parts.makes != parts.takes)
                .map(|parts| (parts.takes.clone(), parts.makes.clone()))
                .collect(),
            tag: kept.tag(&tag),
            ..options
        };
        let pipeline = Pipeline::start(plan.graph.clone(), &options, bodies(spec, kept.clone()))?;
        Ok(Stages {
            spec: spec.clone(),
            plan,
            pipeline,
            kept,
            _libraries: libraries,
        })
    }

    /// The pipeline, whose processes have started.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Lets frames flow: opens files, starts programs and the stages that stay here.
    ///
    /// # Errors
    /// [`StageError`], among others where a program is not there.
    pub fn begin(self) -> Result<StageRun, StageError> {
        let mut piped = Vec::new();
        for (number, stage) in self.spec.stages.iter().enumerate() {
            if let Some(peer) = self.peer(stage)? {
                piped.push(self.piped(number, stage, peer));
            }
        }
        let mut threads = Vec::new();
        for stage in self.spec.stages.iter().filter(|stage| stage.migratable == Some(false)) {
            threads.extend(self.thread(stage)?);
        }
        let moves = vec![0; self.plan.graph.stages().len()];
        Ok(StageRun {
            pipes: Pipes::start(&self.pipeline, piped)?,
            stages: self,
            threads,
            moves,
            ending: None,
        })
    }

    /// Program or file of a stage; `None` where it is code.
    fn peer(&self, stage: &StageNeeds) -> Result<Option<Peer>, StageError> {
        let reads = self.spec.edges.iter().any(|edge| edge.to.0 == stage.name);
        let failed = |path: &Path, why: io::Error| StageError::File {
            stage: stage.name.clone(),
            path: path.display().to_string(),
            why: why.to_string(),
        };
        Ok(match &stage.does {
            Body::Program(command) => Some(Peer::Program(command.clone())),
            Body::File(path) if may_wait(path) => Some(copying(path, reads)),
            Body::File(path) if reads => Some(Peer::To(write(path).map_err(|why| failed(path, why))?)),
            Body::File(path) => Some(Peer::From(read(path).map_err(|why| failed(path, why))?)),
            Body::Library(_) | Body::Kind(..) => None,
        })
    }

    fn piped(&self, number: usize, stage: &StageNeeds, peer: Peer) -> PipeSpec {
        let parts = &self.plan.parts[number];
        let spec = |name: &String| self.plan.graph.number(name).map(|at| &self.plan.graph.stages()[at]);
        let takes = spec(&parts.takes).is_some_and(|spec| !spec.takes.is_empty());
        let makes = spec(&parts.makes).is_some_and(|spec| !spec.makes.is_empty());
        PipeSpec {
            name: stage.name.clone(),
            takes: takes.then(|| parts.takes.clone()),
            makes: makes.then(|| parts.makes.clone()),
            peer,
            period: stage.period,
            deadline: stage.deadline,
            restart: stage.restart,
        }
    }

    /// The thread of a stage of code that is to stay here.
    fn thread(&self, stage: &StageNeeds) -> Result<Option<StageThread>, StageError> {
        if matches!(stage.does, Body::Program(_) | Body::File(_)) {
            return Ok(None);
        }
        let mut pinned = self.pipeline.pinned(&stage.name)?;
        let (spec, kept, name) = (self.spec.clone(), self.kept.clone(), stage.name.clone());
        let thread = { std::thread::Builder::new() }
            .name(format!("stage {name}"))
            .spawn(move || match body(&spec, &kept, &name) {
                Some(mut body) => pinned.run(body.as_mut()),
                None => Err(Failure("it cannot be made again".into())),
            })
            .map_err(PipelineError::start("the thread of a stage"))?;
        Ok(Some((stage.name.clone(), thread)))
    }
}

/// A thread that carries out a stage, with the stage's name.
type StageThread = (String, JoinHandle<Result<(), Failure>>);

/// Whether opening, reading or writing the file may take until another program does its part: a named pipe, a device.
fn may_wait(path: &Path) -> bool {
    // A program's own standard input would be another one.
    let there = path.metadata().is_ok_and(|it| !it.is_file());
    there && path != Path::new("/dev/stdin")
}

/// A program in place of a file that may wait: it can be killed while it waits.
fn copying(path: &Path, reads: bool) -> Peer {
    let path = path.display().to_string();
    let command: &[&str] = match reads {
        true => &["sh", "-c", "exec cat > \"$0\""],
        false => &["cat", "--"],
    };
    let words = command.iter().map(|word| word.to_string());
    Peer::Program(words.chain([path]).collect())
}

/// Opens a file to be read; packed ones are unpacked.
fn read(path: &Path) -> io::Result<Box<dyn Read + Send>> {
    let plain = BufReader::new(File::open(path)?);
    match path.extension().is_some_and(|extension| extension == "zst") {
        true => match StreamingDecoder::new(plain) {
            Ok(decoder) => Ok(Box::new(decoder)),
            Err(_) => Err(io::Error::other(
                "is not packed by zstd, or its beginning is damaged; fetch it again",
            )),
        },
        false => Ok(Box::new(plain)),
    }
}

fn write(path: &Path) -> io::Result<Box<dyn Write + Send>> {
    Ok(Box::new(io::BufWriter::new(File::create(path)?)))
}

/// Code of the stages, for the processes that run them.
fn bodies(spec: &StagesSpec, kept: KeptLibraries) -> Bodies {
    let spec = spec.clone();
    Arc::new(move |name: &str| body(&spec, &kept, name))
}

/// Whether the policy has a table, whose rows name clocks.
fn has_rows(policy: MappingPolicy) -> bool {
    matches!(policy, MappingPolicy::Table | MappingPolicy::TableOff)
}

/// How clocks are turned, where a table decides: for the first stage with a goal, above the table's rows.
fn clocks(spec: &StagesSpec, records: bool) -> Option<ClockOptions> {
    let goal = |stage: &StageNeeds| Some((stage.name.clone(), stage.goal?));
    (has_rows(spec.policy) && spec.turns_clocks).then(|| ClockOptions {
        tree: KernelTree::default(),
        holds: spec.stages.iter().find_map(goal),
        records,
    })
}

/// Running stages of a scenario.
pub struct StageRun {
    stages: Stages,
    pipes: Pipes,
    threads: Vec<StageThread>,
    /// Moves so far, of each stage of the graph.
    moves: Vec<u64>,
    /// When the sources were ended; `None`: not yet.
    ending: Option<Instant>,
}

impl StageRun {
    /// Counts moves, and ends the sources once all sinks have ended or a program has failed. To be called some times a
    /// second. Returns whether frames still flow.
    pub fn look(&mut self) -> bool {
        for handover in self.stages.pipeline.supervisor().handovers() {
            self.moves[handover.stage] += u64::from(handover.cause == Cause::Moved);
        }
        if self.stages.pipeline.sinks_have_ended() || self.pipes.have_failed() {
            self.end_sources();
        }
        let over = self.pipes.are_over() && self.stages.pipeline.sinks_have_ended();
        let late = self.ending.is_some_and(|since| since.elapsed() > DRAINS);
        self.stages.pipeline.supervisor().runs() && !over && !late
    }

    /// Ends the start-up: how late frames are counts from here.
    pub fn settle(&mut self) {
        self.stages.pipeline.settle();
    }

    /// Panel for queries and requests to the pipeline.
    pub fn panel(&self) -> Panel {
        self.stages.pipeline.panel()
    }

    /// Real-time work of other programs on the stages' cores ([`Pipeline::beside`]), and clocks that are not set.
    pub fn beside(&self) -> Vec<Refusal> {
        let spec = &self.stages.spec;
        let clocks = (has_rows(spec.policy) && !spec.turns_clocks).then(|| Refusal {
            what: format!("setting clocks (pipeline.policy = \"{}\")", spec.policy.name()),
            why: "beside tasks, the clock belongs to their controller".into(),
            remedy: "the table is made for the highest clock alone; give the stages a file of their own".into(),
        });
        self.stages.pipeline.beside().into_iter().chain(clocks).collect()
    }

    /// The stages that take frames and make none, and how late these were so far.
    pub fn sinks(&self) -> impl Iterator<Item = (&str, TardinessFigures)> {
        let sinks = self
            .stages
            .plan
            .graph
            .stages()
            .iter()
            .filter(|stage| stage.makes.is_empty());
        let names = sinks.map(|stage| stage.name.as_str());
        names.filter_map(|name| Some((name, self.stages.pipeline.tardiness(name)?)))
    }

    /// The stages that have goals, and how late the frames were so far that they took.
    pub fn goals(&self) -> impl Iterator<Item = (&str, TaskGoal, TardinessFigures)> {
        let stages = self.stages.spec.stages.iter().zip(&self.stages.plan.parts);
        stages.filter_map(|(stage, parts)| {
            let figures = self.stages.pipeline.tardiness(&parts.takes)?;
            Some((stage.name.as_str(), stage.goal?, figures))
        })
    }

    /// Number of frames that wait before stages.
    pub fn waiting(&self) -> u64 {
        let parts = self.stages.plan.parts.iter();
        parts
            .map(|parts| self.stages.pipeline.counts().waiting(&parts.takes))
            .sum()
    }

    /// Where frames are that have not reached the sinks.
    fn under_way(&self) -> String {
        let waiting = { self.stages.plan.parts.iter() }
            .map(|parts| (&parts.takes, self.stages.pipeline.counts().waiting(&parts.takes)))
            .filter(|(_, waiting)| *waiting > 0)
            .map(|(name, waiting)| format!("{waiting} before \"{name}\""));
        let waiting = waiting.collect::<Vec<_>>().join(", ");
        let waiting = if waiting.is_empty() {
            "none waits".into()
        } else {
            waiting
        };
        format!("waiting at most {} s for frames under way: {waiting}", DRAINS.as_secs())
    }

    /// Ends the sources; frames under way go on to the sinks.
    pub fn end_sources(&mut self) {
        self.pipes.end_sources();
        self.ending.get_or_insert_with(Instant::now);
    }

    /// Ends all stages. Returns a report on each stage of the scenario, and the first failure, if any. `tell` gets a
    /// sentence if frames under way take so long that a user would wonder.
    pub fn finish(mut self, tell: &mut dyn FnMut(String)) -> (Vec<StageReport>, Option<StageError>) {
        self.end_sources();
        let (begun, mut told) = (Instant::now(), false);
        while self.look() {
            std::thread::sleep(LOOK);
            if !told && begun.elapsed() >= NOTICED {
                told = true;
                tell(self.under_way());
            }
        }
        let StageRun {
            stages,
            pipes,
            threads,
            moves,
            ..
        } = self;
        let piped = pipes.finish();
        let reports = { stages.spec.stages.iter().enumerate() }
            .map(|(number, stage)| stages.report(number, stage, &piped, &moves))
            .collect();
        let ended = stages.pipeline.end().err().map(StageError::from);
        let piped = piped.into_iter().find_map(|it| it.failure).map(StageError::from);
        let failed = |(stage, thread): StageThread| {
            // A panic in it has been printed.
            let why = thread.join().ok()?.err()?.to_string();
            Some(StageError::Stage { stage, why })
        };
        let threads = threads.into_iter().filter_map(failed).next();
        (reports, piped.or(threads).or(ended))
    }
}

impl Stages {
    fn report(&self, number: usize, stage: &StageNeeds, piped: &[PipeReport], moves: &[u64]) -> StageReport {
        let parts = &self.plan.parts[number];
        let at = |name: &String| self.plan.graph.number(name);
        let now = at(&parts.takes).map(|at| self.pipeline.supervisor().stages().swap_remove(at));
        let moves = at(&parts.takes).map_or(0, |at| moves[at]);
        let restarts = now.as_ref().map_or(0, |now| now.restarts);
        let piped = piped.iter().find(|it| it.name == stage.name);
        StageReport {
            refused: piped.map_or(0, |it| it.refused),
            restarts: restarts + piped.map_or(0, |it| it.restarts),
            hung: now.as_ref().map_or(0, |now| now.hung),
            moves,
            core: now.as_ref().and_then(|now| now.core),
            steps: now.as_ref().map_or(0, |now| now.steps),
            busy_us: now.as_ref().map_or(Nanos::ZERO, |now| now.busy).as_micros_f64(),
            killed: piped.is_some_and(|it| it.killed),
            ..frames_report(stage, parts, self.pipeline.counts(), LinuxOs.now())
        }
    }
}

/// The frames of a stage that has a goal, for a loop that serves it; `takes` is the stage of the graph that takes them.
pub(crate) fn frames_of(stage: &StageNeeds, takes: &str, counts: &FrameCounts) -> Option<StageFrames> {
    let (goal, frames) = (stage.goal?, Mutex::new(counts.frames(takes)?));
    let read = Arc::new(move |now: Time, into: &mut Vec<f64>| {
        let missing = frames.lock().unwrap_or_else(PoisonError::into_inner).read(now, into);
        (missing.overdue + missing.dropped, missing.tardiness)
    });
    let name = stage.name.clone();
    Some(StageFrames { name, goal, read })
}

/// Report on the frames of a stage by `now`, without its processes.
pub(crate) fn frames_report(stage: &StageNeeds, parts: &Parts, counts: &FrameCounts, now: Time) -> StageReport {
    let taken = counts.tardiness(&parts.takes, now).unwrap_or_default();
    StageReport {
        name: stage.name.clone(),
        goal_late: stage.goal.and_then(TaskGoal::late).map(|late| late.get()),
        goal_tardiness: match stage.goal {
            Some(TaskGoal::Tardiness(mean)) => Some(mean),
            _ => None,
        },
        frames_taken: taken.frames,
        frames_made: counts.made(&parts.makes),
        dropped: counts.dropped(&parts.takes),
        left: counts.waiting(&parts.takes),
        timed: taken.timed,
        late: taken.late,
        missing: taken.missing,
        tardiness_mean: taken.mean_taken(),
        tardiness: taken.mean_taken().map(|_| Quantiles {
            p50: taken.p50,
            p99: taken.p99,
            max: taken.max,
        }),
        ..StageReport::default()
    }
}
