//! Programs with pipes, and files, as pinned stages.
//!
//! A program reads frames from its standard input and writes frames to its standard output; the pipes hold plain bytes.
//! What it writes is cut into frames of the edge's size, the last one shorter. So `rtl_sdr`, `sox`, `gzip` and `aplay`
//! are stages as they are.
//!
//! **Terms.** One that only writes is a source, one that only reads is a sink. One in the middle is two stages of the
//! graph, because nothing says how many frames it makes of one, and when: a *feeding* one, which ends where its input
//! does, and a *reading* one. **Threads.** Each program has a thread that starts it, feeds or reads it and waits for
//! its end; one in the middle has a second one that reads. The kernel kills the program with its thread. **Back
//! pressure.** A program that does not read lets its pipe fill up; then its thread waits, the edge before it fills up,
//! and the stage before it waits in turn. No worker is concerned.

mod halves;
mod program;

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use punctual_units::Nanos;

use super::{Pipeline, PipelineError};
use program::Served;

/// What a stage's frames come from or go to.
pub enum Peer {
    /// A program with its arguments.
    Program(Vec<String>),
    /// A file, or other bytes: of a source.
    From(Box<dyn Read + Send>),
    /// Likewise: of a sink.
    To(Box<dyn Write + Send>),
}

/// A program or a file, with the stages of the graph that it stands behind.
pub struct Piped {
    /// For people.
    pub name: String,
    /// The pinned stage whose frames it gets.
    pub takes: Option<String>,
    /// The pinned stage that hands on what it makes.
    pub makes: Option<String>,
    /// The program or file.
    pub peer: Peer,
    /// Of a source: at least so much time between the beginnings of two frames.
    pub period: Option<Nanos>,
    /// Of a source: how long after its capture a frame is due. Frames of a program in the middle bear the times of the
    /// input frame of their number.
    pub deadline: Option<Nanos>,
    /// Of a source or sink: a program that fails is started again, up to [`RESTARTS_MAX`] times without a frame
    /// between. Frames may be missing then; how many a sink refused is told.
    pub restart: bool,
}

/// Restarts of a program in a row, without a frame between, until it counts as failed.
pub const RESTARTS_MAX: u32 = 16;

/// How long a thread waits, for a program, for frames or for their time, until it looks for orders.
const LOOK: Nanos = Nanos::from_millis(50);

/// Why a program is no stage, or is none any more.
#[derive(Debug, thiserror::Error)]
pub enum PipeError {
    /// It does not start.
    #[error("stage \"{name}\": the program `{program}` does not start: {why}; install it, or name it with its folder")]
    Start {
        /// The stage.
        name: String,
        /// The program.
        program: String,
        /// In the system's words.
        why: std::io::Error,
    },
    /// It has failed.
    #[error("stage \"{name}\": its program `{program}` {how}")]
    Ended {
        /// The stage.
        name: String,
        /// The program with its arguments.
        program: String,
        /// With which exit status.
        how: String,
    },
    /// A file or pipe cannot be read or written.
    #[error("stage \"{name}\": {why}")]
    Bytes {
        /// The stage.
        name: String,
        /// In the system's words.
        why: String,
    },
    /// The stage cannot go on, or is none of the graph.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
}

/// What became of one program or file.
#[derive(Debug)]
pub struct PipeReport {
    /// The name of its [`Piped`].
    pub name: String,
    /// How often it was started again.
    pub restarts: u64,
    /// Frames that a sink's program did not take, because it ended meanwhile.
    pub refused: u64,
    /// Whether it had to be killed, because it went on when the stream was over.
    pub killed: bool,
    /// Why it has failed, if it has.
    pub failure: Option<PipeError>,
}

/// What the threads are told.
#[derive(Debug, Default)]
struct Orders {
    /// Sources are to end; what is under way goes on to the sinks.
    end_sources: AtomicBool,
    /// All are to end.
    stop: AtomicBool,
    /// A program has failed.
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

/// Programs and files that are the ends, or in the middle, of a running pipeline.
#[derive(Debug)]
pub struct Pipes {
    threads: Vec<JoinHandle<PipeReport>>,
    orders: Arc<Orders>,
}

impl Pipes {
    /// Starts all programs, each in a thread of its own.
    ///
    /// # Errors
    /// [`PipeError`] where one of them does not start, or its stages are not there; none runs then.
    pub fn start(pipeline: &Pipeline, piped: Vec<Piped>) -> Result<Pipes, PipeError> {
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

    fn add(&mut self, pipeline: &Pipeline, piped: Piped) -> Result<(), PipeError> {
        let pinned = |name: &Option<String>| name.as_ref().map(|name| pipeline.pinned(name)).transpose();
        let served = Served {
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
            .map_err(|why| PipelineError::Start {
                what: "the thread of a program",
                why,
            })?;
        // A thread that ends without a word has panicked, which was printed.
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

    /// Ends the sources: what is under way goes on to the sinks.
    pub fn end_sources(&self) {
        self.orders.end_sources.store(true, Ordering::Relaxed);
    }

    /// Ends all that is left, and tells what became of each, in the order in which they were given.
    pub fn finish(self) -> Vec<PipeReport> {
        self.orders.stop.store(true, Ordering::Relaxed);
        // A panic in a thread has been printed.
        self.threads
            .into_iter()
            .filter_map(|thread| thread.join().ok())
            .collect()
    }
}
