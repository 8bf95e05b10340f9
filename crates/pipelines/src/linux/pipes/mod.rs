//! Programs with pipes, and files, as pinned stages.
//!
//! A program reads frames from its standard input and writes frames to its standard output; the pipes hold plain bytes.
//! Its output is cut into frames of the edge's size, the last one shorter. So `rtl_sdr`, `sox`, `gzip` and `aplay` work
//! as stages without change.
//!
//! **Terms.** A program that only writes is a source, one that only reads is a sink. A program in the middle is two
//! stages of the graph, because it is unknown how many frames it makes of one, and when: a *feeding* stage, which ends
//! where its input does, and a *reading* stage. **Threads.** Each program has a thread that starts it, feeds or reads
//! it and waits for its end; a program in the middle has a second thread that reads. The kernel kills the program with
//! its thread. **Back pressure.** A program that does not read lets its pipe fill up; then its thread waits, the edge
//! before it fills up, and the stage before it waits in turn. No worker is concerned.

mod halves;
mod program;

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use punctual_units::Nanos;

use super::{Pipeline, PipelineError};
use program::PipeRun;

/// Source or destination of a pinned stage's frames.
pub enum Peer {
    /// A program with its arguments.
    Program(Vec<String>),
    /// A file, or other bytes, for a source.
    From(Box<dyn Read + Send>),
    /// A file, or another byte stream, for a sink.
    To(Box<dyn Write + Send>),
}

/// A program or a file, with the stages of the graph that it implements.
pub struct PipeSpec {
    /// Name in messages and reports.
    pub name: String,
    /// Pinned stage whose frames it receives.
    pub takes: Option<String>,
    /// Pinned stage that passes on its output.
    pub makes: Option<String>,
    /// The program or file itself.
    pub peer: Peer,
    /// For a source: least time between the beginnings of two frames.
    pub period: Option<Nanos>,
    /// For a source: time from a frame's capture until it is due. Frames of a program in the middle have the times of
    /// the input frame with the same number.
    pub deadline: Option<Nanos>,
    /// For a source or sink: whether a program that fails is started again, up to [`RESTARTS_MAX`] times without a
    /// frame in between. Frames may be lost then; the report counts those that a sink refused.
    pub restart: bool,
}

/// Greatest number of consecutive restarts of a program without a frame in between; beyond that it has failed.
pub const RESTARTS_MAX: u32 = 16;

/// Longest time for which a thread waits, for a program, for frames or for their time, before it checks for orders.
const LOOK: Nanos = Nanos::from_millis(50);

/// Why a program cannot serve as a stage, or no longer can.
#[derive(Debug, thiserror::Error)]
pub enum PipeError {
    /// The program does not start.
    #[error("stage \"{name}\": the program `{program}` does not start: {why}; install it, or name it with its folder")]
    Start {
        /// Name of the stage.
        name: String,
        /// Program that was to be started.
        program: String,
        /// The system's error, with its error number.
        why: std::io::Error,
    },
    /// The program ended with a failure.
    #[error("stage \"{name}\": its program `{program}` {how}")]
    Ended {
        /// Name of the stage.
        name: String,
        /// The program with its arguments.
        program: String,
        /// Exit status or signal, as text.
        how: String,
    },
    /// A file or pipe cannot be read or written.
    #[error("stage \"{name}\": {why}")]
    Bytes {
        /// Name of the stage.
        name: String,
        /// Message of the system's error.
        why: String,
    },
    /// The stage cannot continue, or is not in the graph.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
}

/// Report on one program or file.
#[derive(Debug)]
pub struct PipeReport {
    /// Name given in its [`PipeSpec`].
    pub name: String,
    /// Number of times that the program was started again.
    pub restarts: u64,
    /// Frames that a sink's program did not take, because it ended meanwhile.
    pub refused: u64,
    /// Whether the program had to be killed, because it still ran when the stream was over.
    pub killed: bool,
    /// Reason of a failure; `None`: it did not fail.
    pub failure: Option<PipeError>,
}

/// Orders to the threads of programs.
#[derive(Debug, Default)]
struct Orders {
    /// Sources must end; frames under way continue to the sinks.
    end_sources: AtomicBool,
    /// All programs must end.
    stop: AtomicBool,
    /// Set once a program has failed.
    failed: AtomicBool,
}

impl Orders {
    fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn sources_end(&self) -> bool {
        self.stop() || self.end_sources.load(Ordering::Relaxed)
    }
}

/// Programs and files at the ends, or in the middle, of a running pipeline.
#[derive(Debug)]
pub struct Pipes {
    threads: Vec<JoinHandle<PipeReport>>,
    orders: Arc<Orders>,
}

impl Pipes {
    /// Starts all programs, each in its own thread.
    ///
    /// # Errors
    /// [`PipeError`] if one of them does not start, or its stages do not exist; none runs then.
    pub fn start(pipeline: &Pipeline, piped: Vec<PipeSpec>) -> Result<Pipes, PipeError> {
        let mut pipes = Pipes {
            threads: Vec::new(),
            orders: Arc::default(),
        };
        for one in piped {
            if let Err(why) = pipes.add(pipeline, one) {
                pipes.finish();
                return Err(why);
            }
        }
        Ok(pipes)
    }

    fn add(&mut self, pipeline: &Pipeline, piped: PipeSpec) -> Result<(), PipeError> {
        let pinned = |name: &Option<String>| name.as_ref().map(|name| pipeline.pinned(name)).transpose();
        let served = PipeRun {
            feeding: pinned(&piped.takes)?,
            reading: pinned(&piped.makes)?,
            shared: pipeline.shared.clone(),
            orders: Arc::clone(&self.orders),
            piped,
        };
        let (told, started) = mpsc::sync_channel(1);
        let thread = { std::thread::Builder::new() }
            .name(format!("pipe {}", served.piped.name))
            .spawn(move || served.serve(&told))
            .map_err(PipelineError::start("the thread of a program"))?;
        // A thread that ends without a message has panicked, which was printed.
        let started = started.recv().unwrap_or(Ok(()));
        self.threads.push(thread);
        started
    }

    /// Whether all programs and files are through.
    pub fn are_over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Whether a program has failed. Sources end then by themselves.
    pub fn have_failed(&self) -> bool {
        self.orders.failed.load(Ordering::Relaxed)
    }

    /// Ends the sources: frames under way continue to the sinks.
    pub fn end_sources(&self) {
        self.orders.end_sources.store(true, Ordering::Relaxed);
    }

    /// Ends all programs that are left, and reports on each, in the order in which they were given.
    pub fn finish(self) -> Vec<PipeReport> {
        self.orders.stop.store(true, Ordering::Relaxed);
        // A panic of a thread has been printed.
        self.threads
            .into_iter()
            .filter_map(|thread| thread.join().ok())
            .collect()
    }
}
