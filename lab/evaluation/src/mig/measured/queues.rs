//! Fig. 15 on this machine: number of frames that are late because a stage moves, by the size of the queues. Labels:
//! `mechanism`, `slots`.
//!
//! The pipeline has a source that makes frames whenever there is room, a stage with the paper's 64 KiB, and a sink that
//! takes a frame each period. A frame is late if the last queue is empty when the frame is due. Each run is repeated
//! without moves as a control.

use std::sync::Arc;

use punctual_os::LinuxOs;
use punctual_pipelines::linux::{Mechanism, Pinned, Pipeline, PipelineOptions};
use punctual_pipelines::{EdgeSpec, Failure, Frames, Graph, Head, Stage, StageSpec, TurnResult, WhenFull, erase};
use punctual_radio::stages::WorkStage;
use punctual_units::{Clock, Nanos};

use crate::mig::single;
use crate::samples::{Labels, Run, labels as labelled};

/// Tag that marks the processes of these pipelines; the number of slots of a queue follows.
pub const TAG: &str = "mig-queues ";
const SLOTS: [u32; 8] = [1, 2, 3, 4, 6, 8, 10, 14];
const MECHANISMS: [Mechanism; 2] = [Mechanism::Replica, Mechanism::Recreate];
/// Number of late frames with moves (`late`) and without (`control`), the least level of the last queue at an instant
/// when a frame was due, with moves, and the number of moves.
pub const SERIES: [&str; 4] = ["late", "control", "least", "moves"];
const PERIOD: Nanos = Nanos::from_millis(1);
/// Number of frames of a run, and of those at its start that do not count.
const FRAMES: u64 = 800;
const BEFORE: u64 = 100;
/// Number of frames between two moves.
const MOVED_EVERY: u64 = 40;
const STATE_BYTES: usize = 64 * 1024;
/// Multiply-adds of a step: a considerable part of a period.
const WORK: u64 = 20_000;
const MOVED: &str = "work";

fn labels_of(mechanism: Mechanism, slots: u32) -> Labels {
    labelled([("mechanism", mechanism.name()), ("slots", &slots.to_string())])
}

fn planned() -> impl Iterator<Item = (Mechanism, u32)> {
    { MECHANISMS.into_iter() }.flat_map(|mechanism| SLOTS.map(|slots| (mechanism, slots)))
}

pub fn labels() -> Vec<Labels> {
    planned()
        .map(|(mechanism, slots)| labels_of(mechanism, slots))
        .collect()
}

pub fn runs(tell: &dyn Fn(&str)) -> Vec<Result<Run, String>> {
    let run = |(mechanism, slots): (Mechanism, u32)| {
        tell(&format!("{}, queues of {slots}", mechanism.name()));
        let with = played(slots, Some(mechanism))?;
        let without = played(slots, None)?;
        let values = [
            ("late", with.late as f64),
            ("control", without.late as f64),
            ("least", with.least as f64),
            ("moves", with.moves as f64),
        ];
        Ok(single(labels_of(mechanism, slots), values))
    };
    planned().map(run).collect()
}

/// Serves as a stage in a process that such a pipeline has started; does nothing if `tag` belongs to another.
pub fn serve(tag: &str) -> Result<(), String> {
    match tag.strip_prefix(TAG).and_then(|slots| slots.parse().ok()) {
        Some(slots) => start(slots).map(drop),
        None => Ok(()),
    }
}

fn start(slots: u32) -> Result<Pipeline, String> {
    let edge = EdgeSpec {
        slots,
        frame_bytes: 64,
        full: WhenFull::Wait,
    };
    let moved = StageSpec::new(MOVED).takes(&[1]).makes(&[1]).state(STATE_BYTES + 64);
    let graph = Graph::builder("queues")
        .stage(StageSpec::new("source").makes(&[1]).pinned())
        .stage(moved)
        .stage(StageSpec::new("sink").takes(&[1]).pinned())
        .edge(("source", 0), (MOVED, 0), edge)
        .edge((MOVED, 0), ("sink", 0), edge)
        .build()
        .map_err(|why| why.to_string())?;
    let options = PipelineOptions {
        priority: Some(40),
        tag: format!("{TAG}{slots}"),
        ..PipelineOptions::default()
    };
    let body = |name: &str| (name == MOVED).then(|| erase(WorkStage::new(STATE_BYTES, WORK)));
    Pipeline::start(graph, &options, Arc::new(body)).map_err(|why| why.to_string())
}

/// Results of a run.
#[derive(Default)]
struct QueueResults {
    late: u64,
    least: u64,
    moves: u64,
}

fn played(slots: u32, mechanism: Option<Mechanism>) -> Result<QueueResults, String> {
    let pipeline = start(slots)?;
    let failed = |why: punctual_pipelines::linux::PipelineError| why.to_string();
    let mut source = pipeline.pinned("source").map_err(failed)?;
    let mut sink = pipeline.pinned("sink").map_err(failed)?;
    let feeding = std::thread::spawn(move || source.run(erase(Numbers).as_mut()));
    // The sink runs in a thread of its own, because it becomes real-time.
    let taking = std::thread::scope(|scope| scope.spawn(|| taken(&pipeline, &mut sink, mechanism)).join());
    let played = taking.map_err(|_| "the sink panicked".to_string())?;
    pipeline.end().map_err(failed)?;
    let fed = feeding.join().map_err(|_| "the source panicked".to_string())?;
    fed.map_err(|why| why.0)?;
    played
}

fn taken(pipeline: &Pipeline, sink: &mut Pinned, mechanism: Option<Mechanism>) -> Result<QueueResults, String> {
    let supervisor = pipeline.supervisor();
    let cores = supervisor.cores();
    if cores.len() < 2 {
        return Err("this process may use one core only: let it use two (taskset, cpuset)".into());
    }
    // Where real-time priority is not allowed, this thread stays ordinary, like the processes of the stages.
    let _ = punctual_os::linux::thread::real_time(40);
    let mut body = erase(QueueSink);
    let mut played = QueueResults {
        least: u64::MAX,
        ..QueueResults::default()
    };
    supervisor.keep_replicas(false);
    let mut due = LinuxOs.now();
    let mut wanted = None;
    for frame in 0..FRAMES {
        due = due + PERIOD;
        LinuxOs.sleep_until(due);
        let waiting = sink.waiting(0);
        if frame >= BEFORE {
            played.late += u64::from(waiting == 0);
            played.least = played.least.min(waiting);
        }
        if let TurnResult::Failed(why) = sink.turn(body.as_mut()) {
            return Err(why.0);
        }
        if frame >= BEFORE && frame % MOVED_EVERY == 0 {
            wanted = mechanism;
        }
        // A move is refused while the target gets ready: it is requested again with the next frame.
        if let Some(mechanism) = wanted {
            let mut stages = supervisor.stages().into_iter();
            let now = stages.find(|stage| stage.name == MOVED).and_then(|stage| stage.core);
            let elsewhere = cores.iter().find(|core| Some(**core) != now);
            if elsewhere.is_some_and(|core| supervisor.move_stage(MOVED, *core, mechanism).is_ok()) {
                played.moves += 1;
                wanted = None;
            }
        }
    }
    Ok(played)
}

/// A source that makes frames as fast as there is room.
struct Numbers;

impl Stage for Numbers {
    type State = ();

    fn begin(&self) {}

    fn step(&mut self, (): &mut (), frames: &mut Frames<'_>) -> Result<(), Failure> {
        frames.make(0, 8, Head::default());
        Ok(())
    }
}

struct QueueSink;

impl Stage for QueueSink {
    type State = ();

    fn begin(&self) {}

    fn step(&mut self, (): &mut (), _: &mut Frames<'_>) -> Result<(), Failure> {
        Ok(())
    }
}
