//! Compares the radio in one thread with the radio in processes on two cores: frames a second, at full speed.
//!
//! `cargo run -p punctual-radio --example throughput [-- FRAME [ordinary]]` with FRAME in IQ samples, 250 (1 ms) by
//! default. The channel filter, about half of the work, has one core, and all other stages the other. The best of
//! several rounds counts, because other programs only take time away. The thread and the processes run under
//! `SCHED_FIFO` where that is allowed, as those of `punctual-lab radio` do, or as ordinary ones: these are stopped by
//! each process that they wake, so that few frames are done at a time.

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    linux::main()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::error::Error;
    use std::hint::black_box;
    use std::io::Cursor;
    use std::path::Path;
    use std::sync::Arc;
    use std::thread;
    use std::time::{Duration, Instant};

    use punctual_os::linux::thread::real_time;
    use punctual_pipelines::linux::{Pinned, Pipeline, PipelineOptions};
    use punctual_pipelines::{Failure, Graph, Head, erase};
    use punctual_radio::stages::{Sink, Source};
    use punctual_radio::{Options, Recording, SINK, SOURCE, STATION, graph, receive, stage};

    /// Number of rounds; each starts its own pipeline.
    const ROUNDS: usize = 3;
    /// Repetitions of the recording in each round.
    const TIMES: usize = 5;
    const PRIORITY: u8 = 10;
    /// Longest time for the processes of a pipeline to start.
    const PATIENCE: Duration = Duration::from_secs(10);

    pub fn main() -> Result<(), Box<dyn Error>> {
        let frame = std::env::args().nth(1).map_or(Ok(250), |frame| frame.parse())?;
        // Before other threads start, because they inherit the priority.
        if priority().is_some() && real_time(PRIORITY).is_err() {
            eprintln!("SCHED_FIFO is not allowed here (ulimit -r): ordinary processes");
        }
        let options = Options {
            frame,
            ..Options::default()
        };
        let graph = graph(&options)?;
        // In the processes of a pipeline, this call serves and does not return.
        start(&graph, &options)?.end()?;
        let mut iq = Vec::new();
        Recording::open(Path::new(STATION))?.copy_to(&mut iq)?;
        let iq = iq.repeat(TIMES);
        let (mut single, mut parallel) = (f64::MAX, f64::MAX);
        for _ in 0..ROUNDS {
            let begin = Instant::now();
            black_box(receive(iq.as_chunks().0, &options)?);
            single = single.min(begin.elapsed().as_secs_f64());
            parallel = parallel.min(flow(&graph, &options, &iq)?);
        }
        let frames = iq.len() as f64 / 2.0 / frame as f64;
        let milliseconds = frame as f64 / 250.0;
        let [one, two] = [single, parallel].map(|seconds| frames / seconds);
        println!(
            "measured: frames of {milliseconds} ms: {one:.0}/s in one thread, {two:.0}/s on two cores, {:.2} times",
            two / one
        );
        Ok(())
    }

    fn priority() -> Option<u8> {
        std::env::args().nth(2).is_none().then_some(PRIORITY)
    }

    fn start(graph: &Graph, options: &Options) -> Result<Pipeline, Box<dyn Error>> {
        let options = options.clone();
        let core = |name: &str| usize::from(name != "low-pass");
        let run = PipelineOptions {
            placement: graph.stages().iter().map(|spec| core(&spec.name)).collect(),
            priority: priority(),
            ..PipelineOptions::default()
        };
        let bodies = Arc::new(move |name: &str| stage(name, &options).ok());
        Ok(Pipeline::start(graph.clone(), &run, bodies)?)
    }

    /// Seconds from the first frame in to the last frame out.
    fn flow(graph: &Graph, options: &Options, iq: &[u8]) -> Result<f64, Box<dyn Error>> {
        let pipeline = start(graph, options)?;
        let (mut source, sink) = (pipeline.pinned(SOURCE)?, pipeline.pinned(SINK)?);
        let missing = || {
            pipeline
                .supervisor()
                .stages()
                .iter()
                .any(|stage| stage.core.is_some() && stage.pid == 0)
        };
        let asked = Instant::now();
        while missing() && asked.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(1));
        }
        let recording = Recording::from_reader(Path::new(STATION), Box::new(Cursor::new(iq.to_vec())));
        let options = options.clone();
        let begin = Instant::now();
        let source = thread::spawn(move || {
            let head = |_| Head::default();
            source.run(&mut *erase(Source::new(recording, &options, head)))
        });
        let ended = thread::spawn(move || listen(sink));
        source.join().expect("the source does not panic")?;
        ended.join().expect("the sink does not panic")?;
        let seconds = begin.elapsed().as_secs_f64();
        pipeline.end()?;
        Ok(seconds)
    }

    fn listen(mut sink: Pinned) -> Result<(), Failure> {
        sink.run(&mut *erase(Sink::new(|_, sound: &[f32]| {
            black_box(sound);
            Ok(())
        })))
    }
}
