//! Recording of a pipeline's mapping policy (inputs and answers) and of the clock decisions, for `punctual replay`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use punctual_loop::EventLog;
use punctual_pipelines::linux::mapping::MappingLog;
use punctual_pipelines::linux::{ClockHand, Panel, Pipeline};

use crate::commands::replay::LogFile;
use punctual_files::failure::Failure;
use punctual_report::output::OutputFile;

/// Interval between fetches: the pipeline keeps its last 64 decisions, which are 0.64 s at the shortest period.
const FETCH: Duration = Duration::from_millis(200);
/// Most decisions that are kept, the first ones: a day at the usual period.
const DECISIONS_MAX: usize = 24 * 3600 * 10;

/// Thread that fetches decisions until the recording ends.
pub struct Recorder {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<MappingLog>,
    clocks: Option<ClockHand>,
    output: OutputFile,
}

impl Recorder {
    /// Starts to record the decisions of a pipeline for `output`.
    pub fn start(pipeline: &Pipeline, output: OutputFile) -> Recorder {
        let ends = Arc::new(AtomicBool::new(false));
        let (panel, told) = (pipeline.panel(), Arc::clone(&ends));
        let log = MappingLog {
            ground: pipeline.ground().clone(),
            decisions: Vec::new(),
            lost: 0,
        };
        let thread = std::thread::spawn(move || record(&panel, log, &told));
        Recorder {
            ends,
            thread,
            clocks: pipeline.clocks().and_then(Result::ok),
            output,
        }
    }

    /// Stops, and writes the recorded decisions.
    ///
    /// # Errors
    /// [`Failure`] if the file cannot be written.
    pub fn write(self) -> Result<(), Failure> {
        self.ends.store(true, Ordering::Release);
        let panicked = || Failure::Internal("the thread that records decisions panicked".into());
        let log = self.thread.join().map_err(|_| panicked())?;
        let clocks = self.clocks.and_then(|hand| hand.log());
        self.output.json(&LogFile::of(EventLog::of_pipeline(log, clocks)))
    }
}

fn record(panel: &Panel, mut log: MappingLog, ends: &AtomicBool) -> MappingLog {
    let mut from = 0;
    loop {
        // Read before the fetch, so that the last fetch has every decision made before the end.
        let last = ends.load(Ordering::Acquire);
        let (fetched, next) = panel.decisions(from);
        let room = DECISIONS_MAX - log.decisions.len();
        let kept = fetched.len().min(room);
        log.lost += next - from - kept as u64;
        log.decisions.extend(fetched.into_iter().take(room));
        from = next;
        if last {
            return log;
        }
        std::thread::sleep(FETCH);
    }
}
