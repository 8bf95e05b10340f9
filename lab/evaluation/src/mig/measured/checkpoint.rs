//! Fig. 16 on this machine: the cost of making each task of the radio movable after each frame, in instructions.
//! Labels: `task`.
//!
//! Instructions do not depend on the machine's other load. Two counts use a pipeline on the heap: a step with its
//! commit, and a read of the words that say whether another process should get the stage. A third counts a whole frame
//! in a process of a running pipeline. Its excess over the step is the cost of a process of its own: reading these
//! words, reading clocks, ringing the neighbours, sleeping and waking up.

use std::hint::black_box;
use std::io::{Read, Repeat};
use std::sync::Arc;

use punctual_pipelines::linux::{Pipeline, PipelineOptions, Supervisor};
use punctual_pipelines::{AnyStage, Checkpoint, Failure, Graph, Head, Layout, Region, Runner, TurnResult};
use punctual_radio::stages::{Sink, Source};
use punctual_radio::{Options, Recording, SINK, SOURCE, graph, stage};
use punctual_units::{Nanos, Time};

use crate::instructions::{of_process, of_work};
use crate::mig::single;
use crate::samples::{Labels, Run, labels as labelled};

/// Tag that marks the processes of this pipeline.
pub const TAG: &str = "mig-checkpoint";
const TASKS: [&str; 4] = ["low-pass", "demodulator", "band-1", "sum"];
/// Instructions of a frame: the step and its commit (`step`), saving the state, which is part of it (`save`), reading
/// the words that say whether another process should get the stage (`look`), and everything that the process of a stage
/// executes (`process`). Shares of the step: that read (`look-share`), and the excess of the process over the step
/// (`check`).
pub const SERIES: [&str; 6] = ["step", "save", "look", "process", "look-share", "check"];
/// Frames before the counted frame, and counted frames of a running process.
const BEFORE: u64 = 40;
const FRAMES: u64 = 4;
/// Time between two frames that a running pipeline gets: long enough for single steps.
const PERIOD: std::time::Duration = std::time::Duration::from_millis(2);

fn labels_of(task: &str) -> Labels {
    labelled([("task", task)])
}

pub fn labels() -> Vec<Labels> {
    TASKS.map(labels_of).to_vec()
}

pub fn runs(tell: &dyn Fn(&str)) -> Vec<Result<Run, String>> {
    let run = |task: &'static str| {
        tell(task);
        let [step, save, look] = alone(task)?;
        let process = of_running(task)?;
        let check = (process - step).max(0.0) / step;
        let values = [step, save, look, process, look / step, check];
        Ok(single(labels_of(task), SERIES.into_iter().zip(values)))
    };
    TASKS.into_iter().map(run).collect()
}

/// Serves as a stage in a process that this pipeline has started; does nothing if `tag` belongs to another.
pub fn serve(tag: &str) -> Result<(), String> {
    if tag == TAG { start().map(drop) } else { Ok(()) }
}

fn radio() -> Result<Graph, String> {
    graph(&Options::default()).map_err(|why| why.to_string())
}

/// The stage `name`; the source produces noise without end.
fn body(name: &str) -> Option<Box<dyn AnyStage>> {
    let options = Options::default();
    match name {
        SOURCE => {
            let noise: Box<dyn Read + Send> = Box::new(Noise(std::io::repeat(0), 1));
            let recording = Recording::from_reader("noise".as_ref(), noise);
            let head = |sequence| Head {
                sequence,
                ..Head::default()
            };
            Some(punctual_pipelines::erase(Source::new(recording, &options, head)))
        }
        SINK => Some(punctual_pipelines::erase(Sink::new(|_: Head, _: &[f32]| Ok(())))),
        _ => stage(name, &options).ok(),
    }
}

/// Instructions of a step of `task` with its commit, of saving its state, and of reading the words that a process
/// checks between two frames.
fn alone(task: &str) -> Result<[f64; 3], String> {
    let graph = radio()?;
    let layout = Arc::new(Layout::new(&graph));
    let region = Region::on_heap(layout.bytes());
    layout.prepare(&region).map_err(|why| why.to_string())?;
    let names = graph.stages().iter().map(|stage| stage.name.as_str());
    let mut stages = Vec::new();
    for (number, name) in names.enumerate() {
        let mut body = body(name).ok_or_else(|| format!("there is no stage {name}"))?;
        let runner = Runner::take(&layout, &region, number, 1, body.as_mut()).map_err(|why| why.to_string())?;
        stages.push((name, runner, body));
    }
    loop {
        for (name, runner, body) in &mut stages {
            let mut turn = |runner: &mut Runner| runner.turn(body.as_mut(), Time::ZERO, &mut |_| {});
            if *name != task || runner.steps() < BEFORE {
                turn(runner);
                continue;
            }
            let step = of_work(&mut || drop(turn(runner)));
            let mut room = vec![0; 1 << 20];
            let save = of_work(&mut || drop(body.save(&mut room)));
            let number = runner.stage();
            let checkpoint = Checkpoint {
                control: layout.control(&region, number),
                end: &layout.shared(&region)[0],
                besides: &layout.notes(&region, number)[0],
            };
            let bell = layout.bell(&region, number);
            let look = of_work(&mut || {
                black_box(bell.heard());
                black_box(checkpoint.look(0));
            });
            let counts = [step, save, look].map(|count| count.map(|count| count as f64));
            let [step, save, look] = counts.map(|count| count.map_err(|why| why.to_string()));
            return Ok([step?, save?, look?]);
        }
    }
}

fn start() -> Result<Pipeline, String> {
    let options = PipelineOptions {
        tag: TAG.into(),
        // A single-stepped process is slow, but must not count as hung.
        step_max: Some(Nanos::from_secs(600)),
        ..PipelineOptions::default()
    };
    Pipeline::start(radio()?, &options, Arc::new(body)).map_err(|why| why.to_string())
}

/// Number of instructions per frame of the process that runs `task`.
fn of_running(task: &str) -> Result<f64, String> {
    let pipeline = start()?;
    let failed = |why: punctual_pipelines::linux::PipelineError| why.to_string();
    let mut source = pipeline.pinned(SOURCE).map_err(failed)?;
    let mut sink = pipeline.pinned(SINK).map_err(failed)?;
    let feeding = std::thread::spawn(move || {
        let Some(mut body) = body(SOURCE) else { return };
        while source.turn(body.as_mut()) != TurnResult::Ended {
            std::thread::sleep(PERIOD);
        }
    });
    let draining = std::thread::spawn(move || body(SINK).map_or(Ok(()), |mut body| sink.run(body.as_mut())));
    let counted = counted(pipeline.supervisor(), task);
    pipeline.end().map_err(failed)?;
    let panicked = |_| "a thread of the measurement panicked".to_string();
    feeding.join().map_err(panicked)?;
    draining.join().map_err(panicked)?.map_err(|why: Failure| why.0)?;
    counted
}

fn counted(supervisor: &Supervisor, task: &str) -> Result<f64, String> {
    let steps = || {
        { supervisor.stages().into_iter() }
            .find(|stage| stage.name == task)
            .map_or(0, |stage| stage.steps)
    };
    while steps() < BEFORE {
        std::thread::sleep(PERIOD);
    }
    let pid = { supervisor.stages().into_iter() }
        .find(|stage| stage.name == task)
        .map_or(0, |stage| stage.pid);
    let first = std::cell::Cell::new(0);
    let mut begins = || {
        let now = steps();
        if first.get() == 0 {
            first.set(now + 1);
        }
        now >= first.get()
    };
    let mut ends = || steps() >= first.get() + FRAMES;
    let count = of_process(pid, &mut begins, &mut ends).map_err(|why| format!("{task}: {why}"))?;
    Ok(count as f64 / FRAMES as f64)
}

/// Source of bytes from a generator (Marsaglia's xorshift): noise, like that of a receiver without a station.
struct Noise(Repeat, u64);

impl Read for Noise {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        let length = self.0.read(room)?;
        for byte in &mut room[..length] {
            self.1 ^= self.1 << 13;
            self.1 ^= self.1 >> 7;
            self.1 ^= self.1 << 17;
            *byte = self.1 as u8;
        }
        Ok(length)
    }
}
