//! A log for several processes of one machine: one of them has it open, the others call it over a socket.
//!
//! The socket is a file (Unix domain), so the folder's permissions decide which users reach the log. Questions and
//! answers are frames ([`crate::frame`]); an answer has the ticket of its question. A connection answers in the order
//! of its questions, so a client that waits in a watch needs a second connection for everything else.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::frame::{self, FrameError, Frames};
use crate::{AppendResult, CommitLog, ENTRY_BYTES_MAX, Identity, LogError, LogRecord, LogState, Revision, Stretch};

/// The version of this conversation. In version 2 all histories are unknown.
pub const VERSION: u8 = 3;
/// The oldest version that is spoken.
pub const OLDEST: u8 = VERSION - 1;
/// Most bytes of entries in one answer, unless a single entry is longer; a client reads the rest with further
/// questions.
pub const PAGE_BYTES: usize = 4 << 20;
/// The longest frame in bytes: a page, one entry, and the overhead around them.
pub const FRAME_BYTES_MAX: usize = PAGE_BYTES + ENTRY_BYTES_MAX + (64 << 10);
/// Most connections at a time; 64 nodes need two each.
pub const CONNECTIONS_MAX: usize = 256;
/// The longest wait of one watch, which also bounds the time that a connection outlives its server.
pub const WAIT_MAX: Duration = Duration::from_millis(100);
/// Time after which a connection ends if its caller does not read an answer.
const STALLED_MAX: Duration = Duration::from_secs(2);
/// Interval at which a thread checks whether the server is to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A call of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// As [`CommitLog::open`] with this identity.
    Open(Identity),
    /// As [`CommitLog::append`], for one entry.
    Append {
        /// Revision at which the log must end.
        last: Revision,
        entry: Vec<u8>,
    },
    /// As [`CommitLog::read_from`], up to [`PAGE_BYTES`].
    Read {
        /// Revision before the first entry to read.
        after: Revision,
        /// Most entries to read.
        max: u32,
    },
    /// As `CommitLog::await_from`, up to [`PAGE_BYTES`].
    Watch {
        /// Revision before the first entry to read.
        after: Revision,
        /// Most entries to read.
        max: u32,
        /// Longest wait for an entry, in milliseconds; at most [`WAIT_MAX`].
        wait_ms: u32,
    },
    /// As [`CommitLog::trim`], up to one revision.
    Trim {
        /// Revision of the last entry to remove.
        upto: Revision,
    },
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Response {
    Opened(LogState),
    Appended(AppendResult),
    /// The result of a read.
    Read {
        /// Entries without a gap, from the one after the requested revision on; perhaps fewer than the log has.
        entries: Vec<Vec<u8>>,
        /// The revision of the last entry.
        last: Revision,
    },
    /// Entries without a gap; empty if none came within the time.
    Watched(Vec<Vec<u8>>),
    Trimmed,
}

/// A question with the number that its answer will have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberedQuestion {
    /// Number of the question, counted up by the client.
    pub ticket: u64,
    pub question: Question,
}

/// The answer to one question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberedAnswer {
    /// Number of the answered question.
    pub ticket: u64,
    pub said: Result<Response, LogError>,
}

/// Numbers the entries from the revision behind `after` on.
pub fn records(after: Revision, entries: Vec<Vec<u8>>) -> Vec<LogRecord> {
    let placed = (after.0 + 1..).map(Revision).zip(entries);
    placed
        .map(|(revision, bytes)| LogRecord {
            revision,
            bytes: bytes.into(),
        })
        .collect()
}

/// A log for several threads, each with a clone of its own.
#[derive(Debug)]
pub struct SharedLog<L>(Arc<(Mutex<L>, Condvar)>);

impl<L> Clone for SharedLog<L> {
    fn clone(&self) -> SharedLog<L> {
        SharedLog(Arc::clone(&self.0))
    }
}

impl<L> SharedLog<L> {
    pub fn new(log: L) -> SharedLog<L> {
        SharedLog(Arc::new((Mutex::new(log), Condvar::new())))
    }

    /// Locks the log. Other threads wait as long as the caller holds it.
    pub fn log(&self) -> MutexGuard<'_, L> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: CommitLog> CommitLog for SharedLog<L> {
    fn open(&mut self, identity: Identity) -> Result<LogState, LogError> {
        self.log().open(identity)
    }

    fn append(&mut self, last: Revision, entry: &[u8]) -> Result<AppendResult, LogError> {
        let appended = self.log().append(last, entry);
        self.0.1.notify_all();
        appended
    }

    fn read_from(&mut self, after: Revision, max: usize) -> Result<Stretch, LogError> {
        self.log().read_from(after, max)
    }

    fn watch_from(&mut self, after: Revision, max: usize) -> Result<Vec<LogRecord>, LogError> {
        self.log().watch_from(after, max)
    }

    fn await_from(&mut self, after: Revision, max: usize, wait: Duration) -> Result<Vec<LogRecord>, LogError> {
        let until = Instant::now() + wait;
        let mut log = self.log();
        loop {
            let found = log.watch_from(after, max)?;
            let left = until.saturating_duration_since(Instant::now());
            if !found.is_empty() || left.is_zero() {
                return Ok(found);
            }
            let waited = self.0.1.wait_timeout(log, left);
            (log, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn trim(&mut self, upto: Revision) -> Result<(), LogError> {
        self.log().trim(upto)
    }
}

fn carry_out(log: &mut impl CommitLog, question: Question) -> Result<Response, LogError> {
    match question {
        Question::Open(identity) => log.open(identity).map(Response::Opened),
        Question::Append { last, entry } => log.append(last, &entry).map(Response::Appended),
        Question::Read { after, max } => {
            let Stretch { records, last } = log.read_from(after, max as usize)?;
            let entries = page(records);
            Ok(Response::Read { entries, last })
        }
        Question::Watch { after, max, wait_ms } => {
            let wait = Duration::from_millis(wait_ms.into()).min(WAIT_MAX);
            let found = log.await_from(after, max as usize, wait)?;
            Ok(Response::Watched(page(found)))
        }
        Question::Trim { upto } => log.trim(upto).map(|()| Response::Trimmed),
    }
}

/// Answers one connection from `log` until the connection ends, or `ends` is true.
///
/// # Errors
/// Those of the socket; [`io::ErrorKind::InvalidData`] for bytes that are no question.
pub fn answer(mut stream: UnixStream, log: &mut impl CommitLog, ends: &AtomicBool) -> io::Result<()> {
    stream.set_read_timeout(Some(LOOK_EVERY))?;
    stream.set_write_timeout(Some(STALLED_MAX))?;
    let mut frames = Frames::between([OLDEST, VERSION], FRAME_BYTES_MAX);
    let (mut bytes, mut out) = (vec![0; 64 << 10], Vec::new());
    while !ends.load(Ordering::SeqCst) {
        let count = match stream.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if waits(&error) => continue,
            Err(error) => return Err(error),
        };
        frames.feed(&bytes[..count]);
        while let Some(NumberedQuestion { ticket, question }) = frames.take().map_err(invalid)? {
            let said = carry_out(log, question);
            out.clear();
            frame::write(&mut out, frames.spoken(), &NumberedAnswer { ticket, said });
            stream.write_all(&out)?;
        }
    }
    Ok(())
}

fn page(records: Vec<LogRecord>) -> Vec<Vec<u8>> {
    let (mut bytes, mut page) = (0, Vec::new());
    for record in records {
        bytes += record.bytes.len() + 8; // with its length
        if bytes > PAGE_BYTES && !page.is_empty() {
            break;
        }
        page.push(record.bytes.to_vec());
    }
    page
}

/// Whether a read must be tried again. A read with a timeout is also interrupted if its process was stopped and
/// continues, for example after Ctrl-Z (signal(7)).
fn waits(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

fn invalid(error: FrameError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Answers other processes at a socket, with one thread per connection, until it is dropped.
#[derive(Debug)]
pub struct LogServer {
    ends: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl LogServer {
    /// Serves at a socket at `path`, which must not exist. Each connection gets the log that `log` makes for it: a
    /// [`SharedLog`] one, or a client of its own. If `log` returns `None`, the connection ends, and may be tried again.
    ///
    /// # Errors
    /// Those of the system.
    pub fn start<L: CommitLog>(
        path: &Path,
        log: impl Fn() -> Option<L> + Send + Sync + 'static,
    ) -> io::Result<LogServer> {
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        let ends = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ends);
        let accepting = std::thread::Builder::new()
            .name("log".into())
            .spawn(move || accept(&listener, &log, &until))?;
        Ok(LogServer {
            ends,
            accepting: Some(accepting),
        })
    }
}

impl Drop for LogServer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        if let Some(accepting) = self.accepting.take() {
            drop(accepting.join());
        }
    }
}

fn accept<L: CommitLog>(listener: &UnixListener, log: &(impl Fn() -> Option<L> + Sync), ends: &AtomicBool) {
    let open = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        while !ends.load(Ordering::SeqCst) {
            match listener.accept() {
                // Connections above the maximum are closed, and their processes try again.
                Ok((stream, _)) if open.load(Ordering::SeqCst) < CONNECTIONS_MAX => {
                    open.fetch_add(1, Ordering::SeqCst);
                    let open = &open;
                    scope.spawn(move || {
                        // At the other end, the process sees that its connection has ended, and needs no reason.
                        drop(log().map(|mut log| answer(stream, &mut log, ends)));
                        open.fetch_sub(1, Ordering::SeqCst);
                    });
                }
                Ok(_) => {}
                Err(_) => std::thread::sleep(LOOK_EVERY / 10),
            }
        }
    });
}
