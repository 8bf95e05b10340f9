//! Fig. 6 on this machine: shares of a core that a worker (the paper's slave daemon) and the coordinator (its master)
//! use. Labels: `tasks`.
//!
//! All stages are on the core of one worker, which measures them a hundred times a second; the other worker
//! coordinates. As a control, a thread that wakes up as often and does nothing shows the cost of the wake-ups alone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_pipelines::linux::{Mechanism, Pipeline, PipelineOptions, Supervisor};
use punctual_pipelines::{EdgeSpec, Failure, Frames, Graph, Head, Stage, StageSpec, TurnResult, WhenFull, erase};
use punctual_platform::linux::process::cpu_time;

use crate::mig::single;
use crate::samples::{Labels, Run, labels as labelled};

/// Tag that marks the processes of these pipelines; the number of tasks follows.
pub const TAG: &str = "mig-daemons ";
const TASKS: [usize; 2] = [8, 16];
/// Shares of a core, 0 to 1: of the worker that measures all stages (`slave`), of the worker that coordinates
/// (`master`), and of the control thread that wakes up as often (`woken`); how often the worker and the control thread
/// woke up, per second (`slave-hz`, `woken-hz`).
pub const SERIES: [&str; 5] = ["slave", "master", "woken", "slave-hz", "woken-hz"];
/// Time between two frames, and between two wake-ups of the control thread.
const PERIOD: Duration = Duration::from_millis(10);
const SETTLES: Duration = Duration::from_secs(2);
const SPAN: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(20);
/// Interval of queries for statistics: workers measure for three seconds after a query.
const ASKED_EVERY: Duration = Duration::from_secs(1);

fn labels_of(tasks: usize) -> Labels {
    labelled([("tasks", tasks.to_string().as_str())])
}

pub fn labels() -> Vec<Labels> {
    TASKS.map(labels_of).to_vec()
}

pub fn runs(tell: &dyn Fn(&str)) -> Vec<Result<Run, String>> {
    let run = |tasks: usize| {
        tell(&format!("{tasks} tasks"));
        let shares = measured(tasks)?;
        Ok(single(labels_of(tasks), SERIES.into_iter().zip(shares)))
    };
    TASKS.into_iter().map(run).collect()
}

/// Serves as a stage in a process that such a pipeline has started; does nothing if `tag` belongs to another.
pub fn serve(tag: &str) -> Result<(), String> {
    match tag.strip_prefix(TAG).and_then(|tasks| tasks.parse().ok()) {
        Some(tasks) => start(tasks).map(drop),
        None => Ok(()),
    }
}

fn name(number: usize) -> String {
    format!("task-{number:02}")
}

fn start(tasks: usize) -> Result<Pipeline, String> {
    let edge = EdgeSpec {
        slots: 14,
        frame_bytes: 64,
        full: WhenFull::Wait,
    };
    let mut graph = Graph::builder("daemons").stage(StageSpec::new("source").makes(&[1]).pinned());
    let mut before = "source".to_owned();
    for next in (0..tasks).map(name) {
        let stage = StageSpec::new(&next).takes(&[1]).makes(&[1]);
        graph = graph.stage(stage).edge((&before, 0), (&next, 0), edge);
        before = next;
    }
    let sink = StageSpec::new("sink").takes(&[1]).pinned();
    let graph = graph.stage(sink).edge((&before, 0), ("sink", 0), edge).build();
    let options = PipelineOptions {
        tag: format!("{TAG}{tasks}"),
        ..PipelineOptions::default()
    };
    let body = |name: &str| {
        let hands_on = name != "sink";
        Some(erase(Relay { hands_on }))
    };
    let graph = graph.map_err(|why| why.to_string())?;
    Pipeline::start(graph, &options, Arc::new(body)).map_err(|why| why.to_string())
}

fn measured(tasks: usize) -> Result<[f64; 5], String> {
    let pipeline = start(tasks)?;
    let failed = |why: punctual_pipelines::linux::PipelineError| why.to_string();
    let mut source = pipeline.pinned("source").map_err(failed)?;
    let mut sink = pipeline.pinned("sink").map_err(failed)?;
    let feeding = std::thread::spawn(move || {
        let mut body = erase(Relay { hands_on: true });
        while source.turn(body.as_mut()) != TurnResult::Ended {
            std::thread::sleep(PERIOD);
        }
    });
    let draining = std::thread::spawn(move || sink.run(erase(Relay { hands_on: false }).as_mut()));
    let shares = shares(pipeline.supervisor(), tasks);
    pipeline.end().map_err(failed)?;
    let panicked = |_| "a thread of the measurement panicked".to_string();
    feeding.join().map_err(panicked)?;
    draining.join().map_err(panicked)?.map_err(|why| why.0)?;
    shares
}

fn shares(supervisor: &Supervisor, tasks: usize) -> Result<[f64; 5], String> {
    let master = gather(supervisor, tasks)?;
    std::thread::sleep(SETTLES);
    let slave = { workers()?.into_iter() }.find(|pid| *pid != master);
    let slave = slave.ok_or("there is one worker only")?;
    let woken = std::thread::spawn(woken);
    let ran = |pid| cpu_time(pid).map(|ran| ran.as_secs_f64()).ok_or("a worker has ended");
    let (begin, before, slept) = (Instant::now(), (ran(slave)?, ran(master)?), sleeps(slave)?);
    while begin.elapsed() < SPAN {
        drop(supervisor.statistics());
        std::thread::sleep(ASKED_EVERY.min(SPAN.saturating_sub(begin.elapsed())));
    }
    let (span, after) = (begin.elapsed().as_secs_f64(), (ran(slave)?, ran(master)?));
    let rate = (sleeps(slave)? - slept) / span;
    let (woken, woken_rate) = woken.join().map_err(|_| "the thread beside panicked")??;
    let share = |before: f64, after: f64| (after - before) / span;
    Ok([
        share(before.0, after.0),
        share(before.1, after.1),
        woken,
        rate,
        woken_rate,
    ])
}

/// Moves all stages off the coordinator's core. Returns the process id of the coordinator.
fn gather(supervisor: &Supervisor, tasks: usize) -> Result<i32, String> {
    if supervisor.cores().len() < 2 {
        return Err("this process may use one core only: let it use two (taskset, cpuset)".into());
    }
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        // A coordinator exists only after a query for statistics.
        drop(supervisor.statistics());
        if let Some(now) = supervisor.coordinator().filter(|it| it.pid != 0) {
            let elsewhere = supervisor.cores()[usize::from(now.number == 0)];
            let asked = |name: &String| supervisor.move_stage(name, elsewhere, Mechanism::Announced).is_ok();
            let asked = (0..tasks).map(name).filter(asked).count();
            let stages = supervisor.stages();
            if asked == tasks
                && stages
                    .iter()
                    .filter_map(|stage| stage.core)
                    .all(|core| core == elsewhere)
            {
                return Ok(now.pid);
            }
        }
        std::thread::sleep(PERIOD);
    }
    Err("the stages do not get to one core".into())
}

/// Process ids of the children of this process.
fn workers() -> Result<Vec<i32>, String> {
    let mut workers = Vec::new();
    for thread in std::fs::read_dir("/proc/self/task")
        .map_err(|why| why.to_string())?
        .flatten()
    {
        // A thread may end between the listing and the read.
        let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        workers.extend(children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    Ok(workers)
}

/// How often the thread of a process that does so most has slept and woken up again (voluntary switches).
fn sleeps(pid: i32) -> Result<f64, String> {
    let mut most: Option<u64> = None;
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_err(|why| why.to_string())?;
    for thread in threads.flatten() {
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        most = most.max(line.and_then(|count| count.trim().parse().ok()));
    }
    most.map(|most| most as f64)
        .ok_or_else(|| "the kernel tells no switches (status)".into())
}

/// The share of a core that this thread uses while it wakes up in every period and does nothing, and how often it woke
/// up, per second.
fn woken() -> Result<(f64, f64), String> {
    let ran = || {
        let thread = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        thread.split_whitespace().next()?.parse::<f64>().ok()
    };
    let ran = || ran().ok_or("the kernel tells no run times (schedstat)");
    let (before, begin) = (ran()?, Instant::now());
    let mut times = 0.0;
    while begin.elapsed() < SPAN {
        std::thread::sleep(PERIOD);
        times += 1.0;
    }
    let span = begin.elapsed().as_secs_f64();
    Ok(((ran()? - before) * 1e-9 / span, times / span))
}

/// Forwards frames; the first relay makes them.
struct Relay {
    hands_on: bool,
}

impl Stage for Relay {
    type State = ();

    fn begin(&self) {}

    fn step(&mut self, (): &mut (), frames: &mut Frames<'_>) -> Result<(), Failure> {
        if self.hands_on {
            frames.make(0, 8, Head::default());
        }
        Ok(())
    }
}
