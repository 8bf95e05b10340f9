//! The log of a federation as a host: it answers nodes over the network as `punctual cluster log` does, and keeps all
//! entries for the check of the history.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use mio::Token;
use punctual_federation::entry::Entry;
use punctual_federation::ids::{FederationId, Revision};
use punctual_logs::frame::{self, Frames};
use punctual_logs::socket::{FRAME_BYTES_MAX, NumberedAnswer, NumberedQuestion, OLDEST, Question, Response, VERSION};
use punctual_logs::{AppendResult, CommitLog, LogError, LogRecord, Memory};
use punctual_server::net::{FIRST, LOCAL, Net, Socket};
use punctual_units::{Nanos, Time};

use super::net::HostNet;
use super::os::WorldClock;
use super::world::Actor;

/// Entries that were ever appended, each with its instant.
pub type Entries = Rc<RefCell<Vec<(Time, Arc<Entry>)>>>;

pub struct LogHost {
    net: HostNet,
    clock: WorldClock,
    federation: FederationId,
    log: Memory,
    lines: BTreeMap<usize, LogLine>,
    begun: usize,
    entries: Entries,
}

struct LogLine {
    socket: Box<dyn Socket>,
    frames: Frames,
    unsent: Vec<u8>,
    /// The watch that waits: its ticket, the revision behind which it reads, the most entries, and its end.
    watch: Option<(u64, Revision, usize, Time)>,
}

impl LogHost {
    pub fn new(mut net: HostNet, clock: WorldClock, at: &Path, federation: FederationId, entries: &Entries) -> LogHost {
        net.listen_locally(at, 0o600, LOCAL).expect("a file");
        LogHost {
            net,
            clock,
            federation,
            log: Memory::default(),
            lines: BTreeMap::new(),
            begun: 0,
            entries: Rc::clone(entries),
        }
    }

    fn answer(&mut self, question: Question) -> Result<Response, LogError> {
        match question {
            Question::Open(identity) => self.log.open(identity).map(Response::Opened),
            Question::Append { last, entry } => {
                let appended = self.log.append(last, &entry)?;
                if let AppendResult::At(revision) = appended {
                    let entry = Entry::decode(&entry, revision, self.federation).expect("an entry");
                    self.entries.borrow_mut().push((self.clock.now(), Arc::new(entry)));
                }
                Ok(Response::Appended(appended))
            }
            Question::Read { after, max } => {
                let found = self.log.read_from(after, max as usize)?;
                let (entries, last) = (bytes(found.records), found.last);
                Ok(Response::Read { entries, last })
            }
            Question::Watch { after, max, .. } => {
                let found = self.log.watch_from(after, max as usize)?;
                Ok(Response::Watched(bytes(found)))
            }
            Question::Trim { upto } => self.log.trim(upto).map(|()| Response::Trimmed),
        }
    }

    /// Answers what a line asks; returns whether it goes on.
    fn turn_of(&mut self, line: &mut LogLine) -> bool {
        let now = self.clock.now();
        let mut buffer = [0; 4096];
        loop {
            match line.socket.read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => line.frames.feed(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
        }
        // In the order of the questions.
        while line.watch.is_none()
            && let Some(NumberedQuestion { ticket, question }) = line.frames.take().expect("a question")
        {
            if let Question::Watch { after, max, wait_ms } = question {
                let until = now + Nanos::from_millis(wait_ms.into());
                line.watch = Some((ticket, after, max as usize, until));
            } else {
                let said = self.answer(question);
                line.says(ticket, said);
            }
        }
        if let Some((ticket, after, max, until)) = line.watch {
            let said = self.log.watch_from(after, max).map(bytes);
            if until <= now || said.as_ref().is_ok_and(|found| !found.is_empty()) || said.is_err() {
                line.watch = None;
                line.says(ticket, said.map(Response::Watched));
            }
        }
        while !line.unsent.is_empty() {
            match line.socket.write(&line.unsent) {
                Ok(count) => _ = line.unsent.drain(..count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
        }
        true
    }
}

fn bytes(records: Vec<LogRecord>) -> Vec<Vec<u8>> {
    records.into_iter().map(|record| record.bytes.to_vec()).collect()
}

impl LogLine {
    fn says(&mut self, ticket: u64, said: Result<Response, LogError>) {
        let answer = NumberedAnswer { ticket, said };
        frame::write(&mut self.unsent, self.frames.spoken(), &answer);
    }
}

impl Actor for LogHost {
    fn turn(&mut self) -> Option<Nanos> {
        self.net.poll(&mut Vec::new(), Nanos::ZERO).expect("events");
        while let Ok(socket) = self.net.accept(LOCAL, Token(FIRST + self.begun)) {
            let line = LogLine {
                socket,
                frames: Frames::between([OLDEST, VERSION], FRAME_BYTES_MAX),
                unsent: Vec::new(),
                watch: None,
            };
            self.lines.insert(self.begun, line);
            self.begun += 1;
        }
        // Twice, because an entry that one line appends ends the watches of others.
        for _ in 0..2 {
            for (number, mut line) in std::mem::take(&mut self.lines) {
                if self.turn_of(&mut line) {
                    self.lines.insert(number, line);
                }
            }
        }
        let ends = self
            .lines
            .values()
            .filter_map(|line| line.watch.map(|(.., until)| until));
        Some(
            ends.min()
                .map_or(Nanos::from_secs(1), |end| end.since(self.clock.now())),
        )
    }
}
