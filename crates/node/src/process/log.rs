//! The node's two connections to the log: one for questions, the other for watches.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use mio::Token;
use punctual_federation::action::{Ask, Event, LogAnswer, Ticket};
use punctual_federation::entry::Entry;
use punctual_federation::follower::{BUFFER_MAX, NumberedEntry};
use punctual_federation::ids::{FederationId, Revision};
use punctual_federation::message::Stop;
use punctual_federation::node::Setup;
use punctual_logs::frame::{self, Frames};
use punctual_logs::socket::{FRAME_BYTES_MAX, NumberedAnswer, NumberedQuestion, OLDEST, Question};
use punctual_logs::socket::{Response, VERSION, WAIT_MAX};
use punctual_logs::{ENTRY_BYTES_MAX, FORMAT, HistoryId, Identity, LogError, LogHistory};
use punctual_server::link::{Link, Turn};
use punctual_server::net::{Net, Remote};
use punctual_server::stream::{Ready, Stream};
use punctual_units::{Nanos, Time};

use super::{ASK, RETRY_FIRST, RETRY_MAX, WATCH, WATCHES};

/// Ticket of the opening question, which checks whose log it is; the state machine's begin at 1.
const OPENING: u64 = 0;
/// The most questions without an answer; further ones are answered at once with "no answer of the log".
const ASKED_MAX: usize = 64;
/// The most bytes that wait to be sent to the log.
const UNSENT_MAX: usize = 4 << 20;
/// No further entries are requested while this many are watched but not applied.
const AHEAD_MAX: u64 = BUFFER_MAX / 2;

/// The connections to the log, and the progress of the watch.
pub(super) struct LogLinks {
    pub ask: LogLink,
    pub watch: LogLink,
    /// Revision up to which the log has been watched.
    pub watched: Revision,
    /// Ticket of the last watch.
    pub watches: Ticket,
    /// No watch is requested before this instant.
    pub watch_at: Time,
}

impl LogLinks {
    /// Connections to the log at `path`, which is watched behind `watched`.
    pub fn new(path: PathBuf, setup: &Setup, watched: Revision) -> LogLinks {
        LogLinks {
            ask: LogLink::new(path.clone(), setup, ASK),
            watch: LogLink::new(path, setup, WATCH),
            watched,
            watches: WATCHES,
            watch_at: Time::ZERO,
        }
    }
}

/// A connection to the log.
pub(super) struct LogLink {
    path: PathBuf,
    identity: Identity,
    token: Token,
    link: Option<(Link, Frames)>,
    /// Version of the next connection: the other one after each that ends without an answer, as an older log ends it.
    version: u8,
    retry_at: Time,
    backoff: Nanos,
    /// Questions without an answer, each with the revision behind which it reads.
    asked: BTreeMap<Ticket, Revision>,
}

impl LogLink {
    pub fn new(path: PathBuf, setup: &Setup, token: Token) -> LogLink {
        LogLink {
            path,
            identity: Identity {
                federation: setup.federation,
                format: FORMAT,
                // A boot differs from all others.
                history: LogHistory {
                    id: HistoryId(setup.me.boot.0),
                    ..LogHistory::default()
                },
            },
            token,
            link: None,
            version: VERSION,
            retry_at: Time::ZERO,
            backoff: RETRY_FIRST,
            asked: BTreeMap::new(),
        }
    }

    /// The next instant at which to dial.
    pub fn next_due(&self) -> Time {
        match self.link {
            Some(_) => Time::MAX,
            None => self.retry_at,
        }
    }

    pub fn ready(&mut self, ready: Ready) {
        if let Some((link, _)) = &mut self.link {
            link.ready(ready);
        }
    }

    /// Dials if it is time to, and sends the opening question. Returns a message for the operator once the waits
    /// between failed dials have reached [`RETRY_MAX`], once an outage.
    pub fn connect(&mut self, net: &mut dyn Net, now: Time) -> Option<String> {
        if self.link.is_some() || self.retry_at > now {
            return None;
        }
        self.retry_at = now + self.backoff;
        let before = self.backoff;
        self.backoff = Nanos(before.0 * 2).min(RETRY_MAX);
        let stream = match net.connect(Remote::File(&self.path), self.token) {
            Ok(stream) => stream,
            Err(why) => {
                let path = self.path.display();
                let text = format!("the log {path} does not answer ({why}): start `punctual cluster log`");
                return (before < RETRY_MAX && self.backoff == RETRY_MAX).then_some(text);
            }
        };
        let frames = Frames::between([self.version, VERSION], FRAME_BYTES_MAX);
        self.link = Some((Link::new(Stream::Plain(stream)), frames));
        self.send(OPENING, Revision::ZERO, Question::Open(self.identity));
        None
    }

    /// Sends a question; returns false if it cannot be sent now. Until the log is open, no other question is sent:
    /// another log may have replaced the one that the question is for.
    fn send(&mut self, ticket: Ticket, after: Revision, question: Question) -> bool {
        let Some((link, _)) = &mut self.link else {
            return false;
        };
        if link.unsent() > UNSENT_MAX || self.asked.len() >= ASKED_MAX || self.asked.contains_key(&OPENING) {
            return false;
        }
        frame::write(&mut link.out, self.version, &NumberedQuestion { ticket, question });
        self.asked.insert(ticket, after);
        true
    }

    /// Sends a question of the state machine; if it cannot be sent, the event of its missing answer follows at once.
    pub fn ask(&mut self, ticket: Ticket, ask: &Ask, events: &mut impl Extend<Event>) {
        let (after, question) = match ask {
            Ask::Append { last, entry } => {
                let entry = entry.encode(self.identity.federation);
                let len = entry.len();
                if len > ENTRY_BYTES_MAX {
                    events.extend([Event::Log(ticket, Err(LogError::EntryTooLong { len }))]);
                    return;
                }
                (*last, Question::Append { last: *last, entry })
            }
            Ask::Read { after, max } => {
                let max = u32::try_from(*max).unwrap_or(u32::MAX);
                (*after, Question::Read { after: *after, max })
            }
            Ask::Trim { upto } => (*upto, Question::Trim { upto: *upto }),
        };
        if !self.send(ticket, after, question) {
            events.extend([Event::Log(ticket, Err(LogError::NoAnswer))]);
        }
    }

    /// Watches behind `watched` if no watch is open, and if that is not too far ahead of `applied`.
    pub fn watch(&mut self, ticket: Ticket, watched: Revision, applied: Revision) -> bool {
        let open = self.asked.keys().any(|ticket| *ticket != OPENING);
        if open || watched.0 > applied.0 + AHEAD_MAX {
            return false;
        }
        let after = watched.max(applied);
        let question = Question::Watch {
            after,
            max: BUFFER_MAX as u32,
            wait_ms: WAIT_MAX.as_millis() as u32,
        };
        self.send(ticket, after, question)
    }

    /// Reads answers and sends questions; returns true if there may be more to read. When the connection ends, each
    /// open question gets the event of its missing answer.
    pub fn turn(&mut self, scratch: &mut Vec<u8>, events: &mut impl Extend<Event>) -> bool {
        match self.try_turn(scratch, events) {
            Ok(more) => more,
            Err(_) => {
                self.link = None;
                self.version = match self.backoff == RETRY_FIRST {
                    true => VERSION,
                    false => OLDEST + VERSION - self.version,
                };
                let asked = std::mem::take(&mut self.asked).into_keys();
                let none = |ticket| Event::Log(ticket, Err(LogError::NoAnswer));
                events.extend(asked.filter(|ticket| *ticket != OPENING).map(none));
                false
            }
        }
    }

    fn try_turn(&mut self, scratch: &mut Vec<u8>, events: &mut impl Extend<Event>) -> io::Result<bool> {
        let Some((link, frames)) = &mut self.link else {
            return Ok(false);
        };
        let turn = link.read(scratch, |bytes| frames.feed(bytes))?;
        let garbled = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        while let Some(NumberedAnswer { ticket, said }) = frames.take().map_err(garbled)? {
            let Some(after) = self.asked.remove(&ticket) else {
                continue;
            };
            if ticket == OPENING && said == Err(LogError::NoAnswer) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.backoff = RETRY_FIRST;
            events.extend(event(ticket, after, said, self.identity.federation));
        }
        link.flush()?;
        match turn {
            Turn::Ended => Err(io::ErrorKind::UnexpectedEof.into()),
            Turn::More => Ok(true),
            Turn::Empty => Ok(false),
        }
    }
}

/// Translates an answer of the log into an event.
fn event(ticket: Ticket, after: Revision, said: Result<Response, LogError>, federation: FederationId) -> Option<Event> {
    let answer = match said {
        Err(error @ (LogError::OtherFederation { .. } | LogError::NewerFormat { .. } | LogError::Gone)) => {
            return Some(Event::Unreadable(Stop::Log(error)));
        }
        Ok(Response::Opened(opened)) => return Some(Event::Opened(opened)),
        _ if ticket == OPENING => return None,
        Err(error) => Err(error),
        Ok(Response::Appended(appended)) => Ok(LogAnswer::Appended(appended)),
        Ok(Response::Trimmed) => Ok(LogAnswer::Trimmed),
        Ok(Response::Read { entries, last }) => match placed(after, &entries, federation) {
            Ok(entries) => Ok(LogAnswer::Read { entries, last }),
            Err(stop) => return Some(Event::Unreadable(stop)),
        },
        // An empty answer does not show that the log is there: the state machine reads the log after a silence.
        Ok(Response::Watched(entries)) if entries.is_empty() => return None,
        Ok(Response::Watched(entries)) => {
            return Some(match placed(after, &entries, federation) {
                Ok(entries) => Event::Watched(entries),
                Err(stop) => Event::Unreadable(stop),
            });
        }
    };
    Some(Event::Log(ticket, answer))
}

/// Decodes entries, which follow the revision `after`.
fn placed(after: Revision, entries: &[Vec<u8>], federation: FederationId) -> Result<Vec<NumberedEntry>, Stop> {
    let placed = (after.0 + 1..).map(Revision).zip(entries);
    let entry =
        |(revision, bytes): (Revision, &Vec<u8>)| Ok((revision, Arc::new(Entry::decode(bytes, revision, federation)?)));
    placed.map(entry).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use punctual_federation::admission::Gate;
    use punctual_federation::ids::{Boot, Member, NodeId};
    use punctual_logs::LogState;
    use punctual_server::net::Sockets;

    use super::*;

    fn setup() -> Setup {
        Setup {
            me: Member {
                node: NodeId(0),
                boot: Boot(1),
            },
            federation: FederationId(3),
            peers: Vec::new(),
            log_entries_max: 1,
            executors: 1,
            gate: Gate::Open,
        }
    }

    #[test]
    fn a_log_that_is_not_there_is_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let (mut net, mut now) = (Sockets::new().unwrap(), Time::ZERO);
        let mut link = LogLink::new(folder.path().join("log"), &setup(), ASK);
        let mut dial = |_| {
            now = now + RETRY_MAX;
            link.connect(&mut net, now)
        };
        let told: Vec<String> = (0..100).filter_map(&mut dial).collect();
        assert!(
            told.len() == 1 && told[0].contains("start `punctual cluster log`"),
            "{told:?}"
        );
    }

    #[test]
    fn a_log_of_the_version_before_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let listener = UnixListener::bind(&path).unwrap();
        let setup = setup();
        let mut net = Sockets::new().unwrap();
        let (mut link, mut events, mut now) = (LogLink::new(path, &setup, ASK), Vec::new(), Time::ZERO);
        let mut turn = |link: &mut LogLink| {
            link.ready(Ready {
                reads: true,
                writes: true,
                ends: false,
            });
            link.turn(&mut vec![0; 1 << 10], &mut events);
        };
        for version in [VERSION, OLDEST] {
            now = now + RETRY_MAX;
            link.connect(&mut net, now);
            turn(&mut link);
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = [0; 256];
            let count = stream.read(&mut bytes).unwrap();
            let mut frames = Frames::new(OLDEST, FRAME_BYTES_MAX);
            frames.feed(&bytes[..count]);
            let asked = frames.take::<NumberedQuestion>();
            assert_eq!(asked.is_ok(), version == OLDEST, "{asked:?}");
            assert!(
                !link.send(OPENING + 1, Revision::ZERO, Question::Trim { upto: Revision(1) }),
                "not yet"
            );
            if asked.is_ok() {
                // As that version wrote it: ticket, success, the index of the answer, revision.
                let mut bytes = Vec::new();
                frame::write(&mut bytes, OLDEST, &(OPENING, 0_u32, 0_u32, Revision(5)));
                stream.write_all(&bytes).unwrap();
                turn(&mut link);
                assert!(link.send(OPENING + 1, Revision::ZERO, Question::Trim { upto: Revision(1) }));
            }
            drop(stream);
            turn(&mut link);
        }
        let opened = LogState {
            last: Revision(5),
            ..LogState::default()
        };
        let [Event::Opened(state), Event::Log(1, Err(LogError::NoAnswer))] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!(*state, opened);
    }
}
