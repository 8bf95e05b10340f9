//! Measures the cost of moving a stage to another core, for every mechanism and for a control, in one run.
//!
//! A stage with a state of a given size takes a frame each period, between a source and a sink of this process. In each
//! round it is moved away from its core once by every mechanism, and one checkpoint is logged without a move: the
//! control, below which no cost can be claimed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_os::LinuxOs;
use punctual_pipelines::linux::{
    Handover, Mechanism, MoveError, Pinned, Pipeline, PipelineError, PipelineOptions, Supervisor, told,
};
use punctual_pipelines::{EdgeSpec, Failure, Frames, Graph, Head, Stage, StageSpec, TurnResult, WhenFull, erase};
use punctual_radio::stages::WorkStage;
use punctual_units::{Clock, Nanos, percentile};
use serde::Serialize;

/// Name of the stage that moves.
const WORK: &str = "work";
/// The least time between two frames, and the most bytes of state that are saved per millisecond: 500 MB/s leaves a
/// core time for other work.
const PERIOD_MIN: Nanos = Nanos::from_millis(1);
const SAVED_PER_MS: usize = 500_000;
/// Limit of the time of one hand-over.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval at which a refused move is requested again.
const LOOK: Duration = Duration::from_micros(50);
/// Number of rounds before those that count.
const WARM_UP: u32 = 2;
/// Real-time priority of all processes, where it is allowed.
const PRIORITY: u8 = 40;

/// Sizes of the state and number of moves to measure.
#[derive(Clone, Debug)]
pub struct MigrationPlan {
    /// Sizes of the state, in bytes.
    pub states: Vec<usize>,
    /// Number of moves by each mechanism, for each size.
    pub moves: u32,
}

/// Percentiles of a span, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Micros {
    /// Median of the spans.
    pub p50: f64,
    /// 99th percentile of the spans.
    pub p99: f64,
    pub max: f64,
}

impl Micros {
    fn of(spans: impl Iterator<Item = Nanos>) -> Micros {
        let spans: Vec<f64> = spans.map(Nanos::as_micros_f64).collect();
        let at = |share| percentile(spans.iter().copied(), share).unwrap_or(0.0);
        Micros {
            p50: at(0.5),
            p99: at(0.99),
            max: at(1.0),
        }
    }
}

/// Costs of one mechanism with one size of state.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the mechanism; `control`: a checkpoint without a move.
    pub mechanism: &'static str,
    /// Size of the state, in bytes.
    pub state_bytes: usize,
    /// Number of measured moves.
    pub n: usize,
    /// Time from the announcement until the old process gets the request.
    pub lead_us: Micros,
    /// Time from the request until the old process has yielded; it may have to finish a step.
    pub freeze_us: Micros,
    /// Time from the yield until the new process is awake.
    pub wake_us: Micros,
    /// Time from its wake-up until the new process has read the state.
    pub copy_us: Micros,
    /// The time in which no process could carry out steps.
    pub blackout_us: Micros,
}

/// A measured operation on the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Nothing,
    Move(Mechanism),
}

impl Act {
    fn all() -> impl Iterator<Item = Act> {
        std::iter::once(Act::Nothing).chain(Mechanism::ALL.map(Act::Move))
    }

    fn name(self) -> &'static str {
        match self {
            Act::Nothing => "control",
            Act::Move(mechanism) => mechanism.name(),
        }
    }
}

/// Reason why the measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// The pipeline did not start, or ended early.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// This process may use one core only, and a move needs two.
    #[error("this process may use one core only: let it use two (taskset, cpuset)")]
    OneCore,
    /// A move did not end in time.
    #[error("{mechanism}: a stage with {state_bytes} bytes of state was not moved within {PATIENCE:?}")]
    Stuck {
        /// Name of the mechanism.
        mechanism: &'static str,
        state_bytes: usize,
    },
    /// A thread of the measurement failed.
    #[error("{0}")]
    Failed(String),
}

/// Serves as a stage if a measurement has started this process; in that case it does not return.
///
/// # Errors
/// [`MigrationError`] where the pipeline cannot be opened.
pub fn serve_if_told() -> Result<(), MigrationError> {
    let size = told().and_then(|tag| tag.parse::<usize>().ok());
    size.map_or(Ok(()), |size| start(size).map(drop))
}

fn start(state_bytes: usize) -> Result<Pipeline, MigrationError> {
    let edge = EdgeSpec {
        slots: 14,
        frame_bytes: 64,
        full: WhenFull::Wait,
    };
    let graph = Graph::builder("migration")
        .stage(StageSpec::new("source").makes(&[1]).pinned())
        .stage(StageSpec::new(WORK).takes(&[1]).makes(&[1]).state(state_bytes + 64))
        .stage(StageSpec::new("sink").takes(&[1]).pinned())
        .edge(("source", 0), (WORK, 0), edge)
        .edge((WORK, 0), ("sink", 0), edge)
        .build()
        .map_err(|why| MigrationError::Failed(why.to_string()))?;
    let options = PipelineOptions {
        priority: Some(PRIORITY),
        tag: state_bytes.to_string(),
        ..PipelineOptions::default()
    };
    let body = move |name: &str| (name == WORK).then(|| erase(WorkStage::new(state_bytes, 0)));
    Ok(Pipeline::start(graph, &options, Arc::new(body))?)
}

/// Measures every size of the plan; calls `progress` before each.
///
/// # Errors
/// [`MigrationError`] if the pipeline fails or a move does not end.
pub fn measure(plan: &MigrationPlan, progress: &mut dyn FnMut(&str)) -> Result<Vec<Row>, MigrationError> {
    let mut rows = Vec::new();
    for state_bytes in &plan.states {
        progress(&format!("a state of {state_bytes} bytes"));
        rows.extend(measure_size(*state_bytes, plan.moves)?);
    }
    Ok(rows)
}

fn measure_size(state_bytes: usize, moves: u32) -> Result<Vec<Row>, MigrationError> {
    let pipeline = start(state_bytes)?;
    if pipeline.supervisor().cores().len() < 2 {
        return Err(MigrationError::OneCore);
    }
    let period = PERIOD_MIN.max(Nanos::from_millis((state_bytes / SAVED_PER_MS) as u64));
    let (source, mut sink) = (pipeline.pinned("source")?, pipeline.pinned("sink")?);
    let feeding = std::thread::spawn(move || feed(source, period));
    let draining = std::thread::spawn(move || sink.run(erase(Drain).as_mut()));
    let measured = rounds(pipeline.supervisor(), state_bytes, moves);
    pipeline.end()?;
    let panicked = |_| MigrationError::Failed("a thread of the measurement panicked".into());
    let ended = [feeding.join().map_err(panicked)?, draining.join().map_err(panicked)?];
    ended
        .into_iter()
        .collect::<Result<(), Failure>>()
        .map_err(|why| MigrationError::Failed(why.0))?;
    measured
}

fn rounds(supervisor: &Supervisor, state_bytes: usize, moves: u32) -> Result<Vec<Row>, MigrationError> {
    let mut taken: Vec<(Act, Vec<Handover>)> = Act::all().map(|act| (act, Vec::new())).collect();
    for round in 0..moves + WARM_UP {
        for (act, handovers) in &mut taken {
            let handover = perform(supervisor, *act, state_bytes)?;
            if round >= WARM_UP {
                handovers.push(handover);
            }
        }
    }
    Ok(taken
        .into_iter()
        .map(|(act, handovers)| row(act, state_bytes, &handovers))
        .collect())
}

fn row(act: Act, state_bytes: usize, handovers: &[Handover]) -> Row {
    let of = |span: fn(&Handover) -> Nanos| Micros::of(handovers.iter().map(span));
    Row {
        mechanism: act.name(),
        state_bytes,
        n: handovers.len(),
        lead_us: of(|it| it.lead),
        freeze_us: of(|it| it.freeze),
        wake_us: of(|it| it.wake),
        copy_us: of(|it| it.copy),
        blackout_us: of(|it| it.blackout),
    }
}

/// Performs one move, or a checkpoint without a move, and waits for its end.
fn perform(supervisor: &Supervisor, act: Act, state_bytes: usize) -> Result<Handover, MigrationError> {
    let (begin, mechanism) = (Instant::now(), act.name());
    let stuck = || MigrationError::Stuck { mechanism, state_bytes };
    // Discards records of earlier hand-overs.
    supervisor.handovers();
    while let Err(MoveError::Busy(_) | MoveError::NotReady(..)) = ask(supervisor, act) {
        if begin.elapsed() > PATIENCE {
            return Err(stuck());
        }
        std::thread::sleep(LOOK);
    }
    loop {
        if let Some(handover) = supervisor.handovers().pop() {
            if act == Act::Move(Mechanism::Affinity) {
                send_home(supervisor, begin);
            }
            return Ok(handover);
        }
        if begin.elapsed() > PATIENCE {
            return Err(stuck());
        }
        std::thread::sleep(LOOK);
    }
}

fn ask(supervisor: &Supervisor, act: Act) -> Result<(), MoveError> {
    let Act::Move(mechanism) = act else {
        return supervisor.no_op(WORK);
    };
    let now = supervisor.stages().into_iter().find(|stage| stage.name == WORK);
    let now = now.and_then(|stage| stage.core);
    let elsewhere = supervisor.cores().into_iter().find(|core| Some(*core) != now);
    elsewhere.map_or(Ok(()), |core| supervisor.move_stage(WORK, core, mechanism))
}

/// Moves a process that was pinned elsewhere back to the core of its slot.
fn send_home(supervisor: &Supervisor, begin: Instant) {
    let stages = supervisor.stages();
    let home = stages
        .iter()
        .find(|stage| stage.name == WORK)
        .and_then(|stage| stage.core);
    let asked = home.map(|core| supervisor.move_stage(WORK, core, Mechanism::Affinity));
    while asked == Some(Ok(())) && supervisor.handovers().is_empty() && begin.elapsed() < PATIENCE {
        std::thread::sleep(LOOK);
    }
}

/// Makes a frame each period, until the pipeline ends.
fn feed(mut source: Pinned, period: Nanos) -> Result<(), Failure> {
    let mut body = erase(Ticks);
    let mut next = LinuxOs.now();
    loop {
        LinuxOs.sleep_until(next);
        next = next + period;
        match source.turn(body.as_mut()) {
            TurnResult::Ended | TurnResult::ShutOut => return Ok(()),
            TurnResult::Failed(why) => return Err(why),
            TurnResult::Stepped | TurnResult::Wait => {}
        }
    }
}

struct Ticks;

impl Stage for Ticks {
    type State = ();

    fn begin(&self) {}

    fn step(&mut self, (): &mut (), frames: &mut Frames<'_>) -> Result<(), Failure> {
        frames.make(0, 8, Head::default());
        Ok(())
    }
}

struct Drain;

impl Stage for Drain {
    type State = ();

    fn begin(&self) {}

    fn step(&mut self, (): &mut (), _: &mut Frames<'_>) -> Result<(), Failure> {
        Ok(())
    }
}
