//! A stage of one's own in a pipeline: it is moved to another core and killed while frames flow, and no frame is lost.
//!
//! The program runs itself again for each process of the pipeline: `Pipeline::start` comes first, and serves there.

use std::{error::Error, sync::Arc, thread, time::Duration};

use punctual::pipelines::*;
use serde::{Deserialize, Serialize};

/// How many frames flow.
const FRAMES: u64 = 2000;

/// What the stage keeps between frames: it moves along.
#[derive(Serialize, Deserialize)]
struct Mean {
    frames: u64,
    sum: u64,
}

impl State for Mean {
    const VERSION: u32 = 1;
}

/// Makes of each number the mean of all numbers so far.
struct Averaging;

impl Stage for Averaging {
    type State = Mean;

    fn begin(&self) -> Mean {
        Mean { frames: 0, sum: 0 }
    }

    fn step(&mut self, mean: &mut Mean, frames: &mut Frames<'_>) -> Result<(), Failure> {
        if frames.count(0) == 1 {
            let (head, number) = (frames.head(0, 0), frames.input(0, 0).try_into());
            let number = number
                .map(u64::from_le_bytes)
                .map_err(|_| Failure("a frame has 8 bytes".into()))?;
            (mean.frames, mean.sum) = (mean.frames + 1, mean.sum + number);
            frames.output(0)[..8].copy_from_slice(&(mean.sum / mean.frames).to_le_bytes());
            frames.make(0, 8, head);
        }
        Ok(())
    }
}

/// The ends of the pipeline stay in this process: one makes the numbers, the other one looks at the means.
struct Numbers;
struct Means;

#[derive(Serialize, Deserialize)]
struct Next(u64);

impl State for Next {
    const VERSION: u32 = 1;
}

impl Stage for Numbers {
    type State = Next;

    fn begin(&self) -> Next {
        Next(0)
    }

    fn step(&mut self, next: &mut Next, frames: &mut Frames<'_>) -> Result<(), Failure> {
        thread::sleep(Duration::from_millis(1));
        let head = Head {
            sequence: next.0,
            ..Head::default()
        };
        frames.output(0)[..8].copy_from_slice(&next.0.to_le_bytes());
        frames.make(0, 8, head);
        next.0 += 1;
        if next.0 == FRAMES {
            frames.end();
        }
        Ok(())
    }
}

impl Stage for Means {
    type State = Next;

    fn begin(&self) -> Next {
        Next(0)
    }

    fn step(&mut self, next: &mut Next, frames: &mut Frames<'_>) -> Result<(), Failure> {
        if frames.count(0) == 1 {
            assert_eq!(frames.head(0, 0).sequence, next.0, "each frame once, in order");
            assert_eq!(frames.input(0, 0), (next.0 / 2).to_le_bytes(), "the mean of 0 to n");
            next.0 += 1;
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let edge = EdgeSpec {
        slots: 14,
        frame_bytes: 8,
        full: WhenFull::Wait,
    };
    let graph = Graph::builder("means")
        .stage(StageSpec::new("numbers").makes(&[1]).pinned())
        .stage(StageSpec::new("averaging").takes(&[1]).makes(&[1]))
        .stage(StageSpec::new("means").takes(&[1]).pinned())
        .edge(("numbers", 0), ("averaging", 0), edge)
        .edge(("averaging", 0), ("means", 0), edge)
        .build()?;
    let made = |name: &str| (name == "averaging").then(|| erase(Averaging));
    let pipeline = Pipeline::start(graph, &PipelineOptions::default(), Arc::new(made))?;

    let (mut numbers, mut means) = (pipeline.pinned("numbers")?, pipeline.pinned("means")?);
    let feeding = thread::spawn(move || numbers.run(erase(Numbers).as_mut()));
    let looking = thread::spawn(move || means.run(erase(Means).as_mut()));
    let (supervisor, mut moves, mut kills, mut died) = (pipeline.supervisor(), 0, 0, 0);
    supervisor.keep_replicas(true);
    for turn in 0.. {
        if looking.is_finished() || !supervisor.runs() {
            break;
        }
        thread::sleep(Duration::from_millis(20));
        if turn % 5 == 4 {
            kills += u32::from(supervisor.kill("averaging")?);
        } else if let Some(core) = supervisor.cores().into_iter().nth(turn % 2) {
            // A move is refused while the stage starts again: the next turn asks for it.
            moves += u32::from(supervisor.move_stage("averaging", core, Mechanism::Announced).is_ok());
        }
        died += supervisor
            .handovers()
            .iter()
            .filter(|it| it.cause == Cause::Died)
            .count();
    }
    feeding.join().expect("the source does not panic")?;
    looking.join().expect("the sink does not panic")?;
    pipeline.end()?;
    println!(
        "{FRAMES} frames, each once and in order; asked for {moves} moves, {kills} kills, {died} starts after them"
    );
    Ok(())
}
