//! Measures the cost of measuring and deciding: the CPU time of the workers of a pipeline of 16 stages, as a share of a
//! core.
//!
//!     cargo run -p punctual-pipelines --example coordinator_cost [SECONDS]
//!
//! All stages run on the core whose worker does not coordinate, so that one worker has the statistics of 16 stages, a
//! hundred times a second, and the other one the coordinator alone. Both figures include everything that a worker does.
//! A thread that sleeps for 10 ms, again and again, shows the cost of the wake-ups alone: on a virtual machine that is
//! most of it.

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    if let Err(why) = linux::main() {
        eprintln!("{why}");
        std::process::exit(2);
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::error::Error;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use punctual_pipelines::linux::mapping::MappingPolicy;
    use punctual_pipelines::linux::{Mechanism, Pipeline, PipelineOptions, Supervisor};
    use punctual_pipelines::{
        AnyStage, EdgeSpec, Failure, Frames, Graph, Head, Stage, StageSpec, TurnResult, WhenFull, erase,
    };
    use punctual_platform::linux::process::cpu_time;
    use punctual_units::Nanos;

    const STAGES: usize = 16;
    /// Time between two frames: the paper's statistics describe tasks at such rates.
    const PERIOD: Duration = Duration::from_millis(10);
    /// Time for stages to migrate and for averages to settle.
    const SETTLES: Duration = Duration::from_secs(4);
    const PATIENCE: Duration = Duration::from_secs(20);
    /// Workers measure for three seconds after a request.
    const ASKED_EVERY: Duration = Duration::from_secs(1);

    /// Passes frames on; the first stage makes them.
    struct Relay {
        source: bool,
        sink: bool,
    }

    impl Stage for Relay {
        type State = ();

        fn begin(&self) {}

        fn step(&mut self, (): &mut (), frames: &mut Frames<'_>) -> Result<(), Failure> {
            let head = if self.source {
                Head::default()
            } else {
                frames.head(0, 0)
            };
            if !self.sink {
                frames.make(0, 8, head);
            }
            Ok(())
        }
    }

    fn name(number: usize) -> String {
        format!("stage-{number:02}")
    }

    fn body(name: &str) -> Option<Box<dyn AnyStage>> {
        let (source, sink) = (name == "source", name == "sink");
        Some(erase(Relay { source, sink }))
    }

    fn graph() -> Result<Graph, Box<dyn Error>> {
        let edge = EdgeSpec {
            slots: 14,
            frame_bytes: 64,
            full: WhenFull::Wait,
        };
        let mut graph = Graph::builder("cost").stage(StageSpec::new("source").makes(&[1]).pinned());
        let mut before = "source".to_owned();
        for number in 0..STAGES {
            graph = graph.stage(StageSpec::new(name(number)).takes(&[1]).makes(&[1])).edge(
                (&before, 0),
                (&name(number), 0),
                edge,
            );
            before = name(number);
        }
        let graph = graph
            .stage(StageSpec::new("sink").takes(&[1]).pinned())
            .edge((&before, 0), ("sink", 0), edge);
        Ok(graph.build()?)
    }

    pub fn main() -> Result<(), Box<dyn Error>> {
        let pipeline = Pipeline::start(graph()?, &PipelineOptions::default(), Arc::new(body))?;
        let seconds = std::env::args().nth(1).map_or(Ok(10), |text| text.parse())?;
        let mut source = pipeline.pinned("source")?;
        let mut sink = pipeline.pinned("sink")?;
        std::thread::spawn(move || {
            let Some(mut body) = body("source") else { return };
            while source.turn(body.as_mut()) != TurnResult::Ended {
                std::thread::sleep(PERIOD);
            }
        });
        std::thread::spawn(move || body("sink").map(|mut body| sink.run(body.as_mut())));
        let supervisor = pipeline.supervisor();
        if supervisor.cores().len() < 2 {
            return Err("two cores are compared: this machine has one".into());
        }
        let coordinator = gathered(supervisor)?;
        std::thread::sleep(SETTLES);
        let workers = workers(coordinator)?;
        let span = Duration::from_secs(seconds);
        let woken = std::thread::spawn(move || woken(span));
        let idle = measured(&workers, span, || ());
        supervisor.statistics();
        std::thread::sleep(SETTLES);
        // Workers measure only while statistics are requested.
        let shares = measured(&workers, span, || drop(supervisor.statistics()));
        let woken = woken.join().map_err(|_| "the thread that is woken panicked")?;
        let fps = supervisor.statistics().fps;
        println!("{STAGES} stages, {fps:.0} frames/s, no policy, {seconds} s:");
        println!("  a thread that is woken 100 times a second: {woken:.3} % of a core");
        println!(
            "  statistics of {STAGES} stages, 100 times a second: {:.3} %",
            shares[1]
        );
        println!("  the coordinator's worker, without a stage: {:.3} %", shares[0]);
        println!(
            "  the same two while nothing asks for statistics: {:.3} and {:.3} %",
            idle[1], idle[0]
        );
        supervisor.set_hold(Nanos::ZERO)?;
        for policy in [MappingPolicy::Balance, MappingPolicy::Alone] {
            supervisor.set_policy(policy)?;
            std::thread::sleep(SETTLES + SETTLES);
            let shares = measured(&workers, span, || ());
            println!(
                "policy {}, its moves: {}",
                policy.name(),
                supervisor.coordinator().map_or(0, |it| it.moves)
            );
            println!(
                "  the coordinator's worker, half of the statistics with it: {:.3} %",
                shares[0]
            );
            println!("  the other worker: {:.3} %", shares[1]);
        }
        pipeline.end()?;
        Ok(())
    }

    /// CPU time of this thread, in percent, if it is woken every 10 ms and does nothing.
    fn woken(span: Duration) -> f64 {
        let ran = || {
            let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: the pointer refers to a valid `timespec`.
            unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
            time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
        };
        let (before, begin) = (ran(), Instant::now());
        while begin.elapsed() < span {
            std::thread::sleep(PERIOD);
        }
        (ran() - before) / begin.elapsed().as_secs_f64() * 100.0
    }

    /// Migrates all stages off the coordinator's core; returns the coordinator's process id.
    fn gathered(supervisor: &Supervisor) -> Result<i32, Box<dyn Error>> {
        let begin = Instant::now();
        loop {
            // There is a coordinator once statistics are requested.
            drop(supervisor.statistics());
            if let Some(now) = supervisor.coordinator().filter(|it| it.pid != 0) {
                let elsewhere = supervisor.cores()[usize::from(now.number == 0)];
                let there = |name: &String| supervisor.move_stage(name, elsewhere, Mechanism::Announced).is_ok();
                let asked = (0..STAGES).map(name).filter(there).count();
                let stages = supervisor.stages();
                let mut cores = stages.iter().filter_map(|stage| stage.core);
                if asked == STAGES && cores.all(|core| core == elsewhere) {
                    return Ok(now.pid);
                }
            }
            if begin.elapsed() > PATIENCE {
                return Err("the stages do not get to one core".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Process ids of the workers, which are children of this process; the coordinator's first.
    fn workers(coordinator: i32) -> Result<Vec<i32>, Box<dyn Error>> {
        let mut workers = vec![coordinator];
        for task in std::fs::read_dir("/proc/self/task")? {
            let children = std::fs::read_to_string(task?.path().join("children"))?;
            let pids = children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok());
            workers.extend(pids.filter(|pid| *pid != coordinator));
        }
        Ok(workers)
    }

    /// CPU time of each worker over `span`, in percent; `asks` is called every second.
    fn measured(workers: &[i32], span: Duration, asks: impl Fn()) -> Vec<f64> {
        let ran = || -> Vec<f64> {
            let of = |pid: &i32| cpu_time(*pid).unwrap_or(Nanos::ZERO).as_secs_f64();
            workers.iter().map(of).collect()
        };
        let (before, begin) = (ran(), Instant::now());
        while begin.elapsed() < span {
            asks();
            std::thread::sleep(ASKED_EVERY.min(span.saturating_sub(begin.elapsed())));
        }
        let seconds = begin.elapsed().as_secs_f64();
        let pairs = ran().into_iter().zip(before);
        pairs
            .map(|(after, before)| (after - before) / seconds * 100.0)
            .collect()
    }
}
