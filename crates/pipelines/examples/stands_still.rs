//! Measures how soon a stage that stands still is replaced: one that spins in a step, at several priorities, and one
//! that is stopped (SIGSTOP) while it waits for frames.
//!
//!     cargo run --release -p punctual-pipelines --example stands_still [TIMES] [STEP_MAX_MS] [PRIORITY,...]
//!
//! A spin is measured inside of the stream: from the beginning of the step that spins to the beginning of the same step
//! in the process that repeats it. A stop is measured from the stop to the arrival, at the sink, of a frame that was
//! made right after it. Both include the start of the next process. Priority 0 is ordinary scheduling.

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
    use std::fs;
    use std::io::Write;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant};

    use punctual_os::LinuxOs;
    use punctual_pipelines::linux::{Pipeline, PipelineOptions};
    use punctual_pipelines::{
        AnyStage, EdgeSpec, Failure, Frames, Graph, Head, Stage, StageSpec, TurnResult, WhenFull, erase,
    };
    use punctual_platform::linux::thread;
    use punctual_units::{Clock, Nanos, Time};

    /// Environment variable: folder in which each frame that has made a process spin is noted.
    const FOLDER: &str = "PUNCTUAL_STANDS_STILL";
    const PATIENCE: Duration = Duration::from_secs(30);

    /// Frames that the source may have made.
    static OPEN: AtomicU64 = AtomicU64::new(0);
    /// Whether frames make the stage spin, each of them once.
    static SPINS: AtomicBool = AtomicBool::new(false);
    /// Times in nanoseconds, by the sink.
    static TIMES: Mutex<Vec<u64>> = Mutex::new(Vec::new());

    enum Relay {
        Source,
        Middle(PathBuf),
        Sink,
    }

    impl Stage for Relay {
        type State = ();

        fn begin(&self) {}

        fn step(&mut self, (): &mut (), frames: &mut Frames<'_>) -> Result<(), Failure> {
            let now = LinuxOs.now();
            match self {
                Relay::Source => {
                    frames.output(0)[0] = SPINS.load(Relaxed).into();
                    let head = Head {
                        sequence: OPEN.load(Relaxed),
                        captured_at: now,
                        due_by: Time::ZERO,
                    };
                    frames.make(0, 8, head);
                }
                Relay::Middle(folder) => {
                    let (head, spins) = (frames.head(0, 0), frames.input(0, 0)[0] != 0);
                    let path = folder.join(head.captured_at.0.to_string());
                    let mut took = 0;
                    if spins {
                        match fs::File::create_new(&path) {
                            Ok(mut note) => {
                                let _ = note.write_all(now.0.to_string().as_bytes());
                                loop {
                                    std::hint::spin_loop();
                                }
                            }
                            Err(_) => {
                                let began = fs::read_to_string(&path).unwrap_or_default();
                                took = now.0.saturating_sub(began.parse().unwrap_or(0));
                            }
                        }
                    }
                    frames.output(0)[..8].copy_from_slice(&took.to_le_bytes());
                    frames.make(0, 8, head);
                }
                Relay::Sink => {
                    let took = u64::from_le_bytes(frames.input(0, 0).try_into().unwrap_or_default());
                    let took = if took > 0 {
                        took
                    } else {
                        now.since(frames.head(0, 0).captured_at).0
                    };
                    TIMES.lock().unwrap_or_else(|it| it.into_inner()).push(took);
                }
            }
            Ok(())
        }
    }

    fn body(name: &str) -> Option<Box<dyn AnyStage>> {
        Some(erase(match name {
            "source" => Relay::Source,
            "middle" => Relay::Middle(std::env::var_os(FOLDER)?.into()),
            _ => Relay::Sink,
        }))
    }

    fn start(priority: u8, step_max: Nanos) -> Result<Pipeline, Box<dyn Error>> {
        let edge = EdgeSpec {
            slots: 14,
            frame_bytes: 8,
            full: WhenFull::Wait,
        };
        let graph = Graph::builder("stands-still")
            .stage(StageSpec::new("source").makes(&[1]).pinned())
            .stage(StageSpec::new("middle").takes(&[1]).makes(&[1]))
            .stage(StageSpec::new("sink").takes(&[1]).pinned())
            .edge(("source", 0), ("middle", 0), edge)
            .edge(("middle", 0), ("sink", 0), edge)
            .build()?;
        let options = PipelineOptions {
            priority: (priority > 0).then_some(priority),
            step_max: Some(step_max),
            ..PipelineOptions::default()
        };
        Ok(Pipeline::start(graph, &options, Arc::new(body))?)
    }

    pub fn main() -> Result<(), Box<dyn Error>> {
        let mut arguments = std::env::args().skip(1);
        let times: u64 = arguments.next().map_or(Ok(100), |text| text.parse())?;
        let step_max = Nanos::from_millis(arguments.next().map_or(Ok(100), |text| text.parse())?);
        let priorities = arguments.next().unwrap_or_else(|| "0,1,20,98,99".into());
        let priorities: Vec<u8> = priorities.split(',').map(str::parse).collect::<Result<_, _>>()?;
        if std::env::var_os(FOLDER).is_some() {
            // In the processes of a pipeline, this serves.
            drop(start(0, step_max)?);
        }
        let folder = tempfile::tempdir()?;
        // SAFETY: no other thread runs.
        unsafe { std::env::set_var(FOLDER, folder.path()) };
        println!("a step takes {step_max} at most; {times} times each, later than that by");
        for priority in priorities {
            let permitted = std::thread::spawn(move || priority == 0 || thread::real_time(priority).is_ok()).join();
            if !permitted.unwrap_or(false) {
                println!("  priority {priority}: not permitted here");
                continue;
            }
            let spins = measure(start(priority, step_max)?, times, true)?;
            report(&format!("priority {priority}, it spins"), &spins, step_max, 50);
            let stops = measure(start(priority, step_max)?, times, false)?;
            report(&format!("priority {priority}, it is stopped"), &stops, step_max, 100);
        }
        Ok(())
    }

    fn measure(pipeline: Pipeline, times: u64, spins: bool) -> Result<Vec<u64>, Box<dyn Error>> {
        OPEN.store(0, Relaxed);
        SPINS.store(false, Relaxed);
        let (mut source, mut sink) = (pipeline.pinned("source")?, pipeline.pinned("sink")?);
        std::thread::spawn(move || {
            let Some(mut body) = body("source") else { return };
            while source.runs() {
                if source.made(0) >= OPEN.load(Relaxed) || source.turn(body.as_mut()) != TurnResult::Stepped {
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
        });
        std::thread::spawn(move || body("sink").map(|mut body| sink.run(body.as_mut())));
        let one = || -> Result<(), Box<dyn Error>> {
            let (open, begun) = (OPEN.fetch_add(1, Relaxed) + 1, Instant::now());
            while pipeline.supervisor().stages()[2].steps < open {
                if begun.elapsed() > PATIENCE || !pipeline.supervisor().runs() {
                    return Err(format!("no frame came: {:?}", pipeline.supervisor().stages()).into());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        };
        one()?;
        SPINS.store(spins, Relaxed);
        TIMES.lock().unwrap_or_else(|it| it.into_inner()).clear();
        for _ in 0..times {
            if !spins {
                // Until the process waits for frames.
                std::thread::sleep(Duration::from_millis(5));
                // SAFETY: plain numbers.
                unsafe { libc::kill(pipeline.supervisor().stages()[1].pid, libc::SIGSTOP) };
            }
            one()?;
        }
        let measured = std::mem::take(&mut *TIMES.lock().unwrap_or_else(|it| it.into_inner()));
        pipeline.end()?;
        Ok(measured)
    }

    fn report(what: &str, times: &[u64], step_max: Nanos, bound_ms: u64) {
        let mut over: Vec<f64> = { times.iter() }
            .map(|time| (*time as f64 - step_max.0 as f64) / 1e6)
            .collect();
        over.sort_by(f64::total_cmp);
        let within = over.iter().filter(|over| **over <= bound_ms as f64).count();
        let (Some(p50), Some(max)) = (over.get(over.len() / 2), over.last()) else {
            return;
        };
        println!(
            "  {what}: {p50:.1} ms p50, {max:.1} ms max; {within} of {} within {bound_ms} ms",
            over.len()
        );
    }
}
