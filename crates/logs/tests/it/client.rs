//! A client of a log over its socket, which waits for each answer, as tests need one; a node keeps several questions
//! under way instead.

use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use punctual_logs::frame::{self, FrameError, Frames};
use punctual_logs::socket::{
    FRAME_BYTES_MAX, NumberedAnswer, NumberedQuestion, OLDEST, Question, Response, VERSION, records,
};
use punctual_logs::{
    AppendResult, CommitLog, ENTRY_BYTES_MAX, Identity, LogError, LogRecord, LogState, Revision, Stretch,
};

type Connect = Box<dyn Fn() -> io::Result<UnixStream> + Send>;

/// A log in another process. Waits for an answer as long as its `patience`; then it closes the connection, so that a
/// late answer is never read.
pub struct LogClient {
    connect: Connect,
    patience: Duration,
    connection: Option<(UnixStream, Frames)>,
    /// Version of the next connection: the other one after each failure, which may be that of an older log.
    version: u8,
    tickets: u64,
}

impl LogClient {
    /// Calls the log at the socket `path`, and waits for `patience` for each answer.
    pub fn at(path: &Path, patience: Duration) -> LogClient {
        let path = path.to_path_buf();
        LogClient::by(move || UnixStream::connect(&path), patience)
    }

    /// Calls a log over connections made by `connect`: a new one after each failure.
    pub fn by(connect: impl Fn() -> io::Result<UnixStream> + Send + 'static, patience: Duration) -> LogClient {
        LogClient {
            connect: Box::new(connect),
            patience,
            connection: None,
            version: VERSION,
            tickets: 0,
        }
    }

    fn ask(&mut self, question: Question) -> Result<Response, LogError> {
        self.tickets += 1;
        let asked = NumberedQuestion {
            ticket: self.tickets,
            question,
        };
        let answer = self.exchange(&asked);
        if answer.is_err() {
            self.connection = None;
            self.version = OLDEST + VERSION - self.version;
        }
        answer.unwrap_or(Err(LogError::NoAnswer))
    }

    fn exchange(&mut self, asked: &NumberedQuestion) -> io::Result<Result<Response, LogError>> {
        let until = Instant::now() + self.patience;
        let (stream, frames) = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let frames = Frames::between([self.version, VERSION], FRAME_BYTES_MAX);
                none.insert(((self.connect)()?, frames))
            }
        };
        let mut out = Vec::new();
        frame::write(&mut out, self.version, asked);
        stream.set_write_timeout(Some(self.patience))?;
        stream.write_all(&out)?;
        let mut bytes = vec![0; 64 << 10];
        loop {
            while let Some(NumberedAnswer { ticket, said }) = frames
                .take()
                .map_err(|error: FrameError| io::Error::new(io::ErrorKind::InvalidData, error))?
            {
                if ticket == asked.ticket {
                    return Ok(said);
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left))?;
            match stream.read(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => frames.feed(&bytes[..count]),
                Err(error) if matches!(error.kind(), WouldBlock | TimedOut | Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl CommitLog for LogClient {
    fn open(&mut self, identity: Identity) -> Result<LogState, LogError> {
        match self.ask(Question::Open(identity))? {
            Response::Opened(opened) => Ok(opened),
            _ => Err(LogError::NoAnswer), // the answer to another question
        }
    }

    fn append(&mut self, last: Revision, entry: &[u8]) -> Result<AppendResult, LogError> {
        if entry.len() > ENTRY_BYTES_MAX {
            return Err(LogError::EntryTooLong { len: entry.len() });
        }
        let entry = entry.to_vec();
        match self.ask(Question::Append { last, entry })? {
            Response::Appended(appended) => Ok(appended),
            _ => Err(LogError::NoAnswer),
        }
    }

    fn read_from(&mut self, after: Revision, max: usize) -> Result<Stretch, LogError> {
        let mut found = Vec::new();
        // The end at the first answer bounds the read, because the log may grow meanwhile.
        let mut end = None;
        loop {
            let from = Revision(after.0 + found.len() as u64);
            let max_left = u32::try_from(max - found.len()).unwrap_or(u32::MAX);
            let question = Question::Read {
                after: from,
                max: max_left,
            };
            let Response::Read { entries, last } = self.ask(question)? else {
                return Err(LogError::NoAnswer);
            };
            let last = *end.get_or_insert(last);
            let due = usize::try_from(last.0.saturating_sub(after.0)).map_or(max, |due| due.min(max));
            let is_empty = entries.is_empty();
            found.extend(records(from, entries));
            if found.len() >= due {
                found.truncate(due);
                return Ok(Stretch { records: found, last });
            }
            if is_empty {
                return Err(LogError::NoAnswer); // the log has more entries, and does not return them
            }
        }
    }

    fn watch_from(&mut self, after: Revision, max: usize) -> Result<Vec<LogRecord>, LogError> {
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        match self.ask(Question::Watch { after, max, wait_ms: 0 })? {
            Response::Watched(entries) => Ok(records(after, entries)),
            _ => Err(LogError::NoAnswer),
        }
    }

    fn trim(&mut self, upto: Revision) -> Result<(), LogError> {
        match self.ask(Question::Trim { upto })? {
            Response::Trimmed => Ok(()),
            _ => Err(LogError::NoAnswer),
        }
    }
}
