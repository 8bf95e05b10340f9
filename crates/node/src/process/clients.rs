//! Requests of clients of a node or a balancer, between the door and the federation.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use punctual_federation::message::{Answer, Output, Reason, Request};
use punctual_os::Os;
use punctual_server::commands::Verb;
use punctual_server::cursors::Cursors;
use punctual_server::door::{Asker, Door, DoorOptions, MemoryLimits};
use punctual_server::listening::Listening;
use punctual_server::net::Net;
use punctual_server::subscribers::KeyNotice;
use punctual_server::work::{Handle, JobReply, Work};
use punctual_units::{Nanos, Time};

use super::{Access, CLIENTS_MAX, FIRST_CLIENT, NodeError};
use crate::conversation::{self, Conversation, Next};
use crate::whereabouts::Inquiry;

/// The longest replies and requests that count as short, in bytes: 64 MiB for all clients.
pub(super) const SHORT_MAX: usize = 64 << 10;
/// Limit of unsent replies of all clients. In place of a long reply that does not fit, a client gets `LATE` for a
/// query, `UNKNOWN` for a transaction.
pub(super) const REPLIES_MAX: usize = 192 << 20;
/// Time after which a client is dropped that takes no replies, or stops in the middle of a request.
pub(super) const STALLED_MAX: Nanos = Nanos::from_secs(10);

/// The most readings of one connection that are under way together.
pub(super) const READINGS_MAX: usize = 128;

const MEMORY: MemoryLimits = MemoryLimits {
    requests: 128 << 20,
    replies: REPLIES_MAX,
    short: SHORT_MAX,
    ..MemoryLimits::NONE
};

/// Opens the door of a node or a balancer.
pub(super) fn open(listening: Listening, access: &Access, os: &impl Os) -> Result<(Door, Box<dyn Net>), NodeError> {
    let streams = access.clone();
    let options = DoorOptions {
        connections_max: CLIENTS_MAX,
        first_token: FIRST_CLIENT,
        stalled_max: STALLED_MAX,
        memory: MEMORY,
        settings: conversation::settings(CLIENTS_MAX),
        users: Arc::clone(&access.users),
        stream: Box::new(move |socket| streams.accept(socket, true)),
    };
    Ok(listening.open(options, os)?)
}

/// Whether a command of a federation goes together with those before it: readings do, and any other is a request of its
/// own.
pub(super) fn is_run(first: Verb, next: Verb) -> bool {
    first == Verb::TSet && next == Verb::TSet
}

/// Bytes of what an answer found.
fn bytes(answer: &Answer) -> usize {
    match answer {
        Answer::Done { output, .. } => output.bytes(),
        _ => 0,
    }
}

/// The answer in place of one that does not fit.
pub(super) fn unkept(leaves_nothing: bool) -> Answer {
    match leaves_nothing {
        true => Answer::late(Reason::Backlog, None),
        false => Answer::Unknown,
    }
}

/// Conversations of clients, and the answers to their requests.
#[derive(Default)]
pub(super) struct Clients {
    /// First number of requests outside of a session, drawn at random when the process starts ([`Conversation::new`]).
    first: u64,
    /// Cursors of all clients' scans.
    cursors: Arc<Cursors>,
    conversations: HashMap<u64, Conversation>,
    /// Number of requests of clients and balancers so far, and the last ticket.
    asked: u64,
    /// Connection of each request without an answer, when the request was read, and its place among the replies.
    tickets: BTreeMap<u64, (Handle, Time, usize)>,
    /// Requests that the host has not begun, with their tickets, and when they were read.
    pub asks: Vec<(u64, Request, Time)>,
    /// Answers that the door has not taken, by the tickets of their requests.
    answers: VecDeque<(u64, Answer)>,
    /// Bytes of these answers.
    answers_bytes: usize,
    /// Results of waits for changes of keys.
    pub done: Vec<JobReply>,
    /// Changes of keys that the door has not taken.
    pub told: Vec<KeyNotice>,
    /// Whether any client subscribes.
    pub hears: bool,
    /// Number of answers that were dropped for lack of room.
    pub unkept: u64,
}

impl Clients {
    pub fn new(first: u64) -> Clients {
        Clients {
            first,
            ..Clients::default()
        }
    }

    /// The conversation of connection `id`.
    pub fn of(&mut self, id: u64) -> &mut Conversation {
        let new = || Conversation::new(Arc::clone(&self.cursors), self.first, id as u32);
        self.conversations.entry(id).or_insert_with(new)
    }

    /// Takes a client's work. Returns whether its result follows, or a question about nodes, which the host answers.
    pub fn take(&mut self, work: Work, asker: &mut Asker<'_>) -> Result<bool, Inquiry> {
        let (session, out) = (asker.session, &mut asker.link.out);
        match self.of(session.id).take(work, session, asker.now, out) {
            Next::Answered => Ok(false),
            Next::Ask(request) => {
                self.ask(asker.handle(), request, asker.arrived, 0);
                Ok(true)
            }
            Next::Set(requests) => {
                let connection = asker.handle();
                for (place, request) in requests {
                    self.ask(connection, request, asker.arrived, place);
                }
                Ok(true)
            }
            Next::Waits => Ok(true),
            Next::Whereabouts(inquiry) => Err(inquiry),
        }
    }

    /// Returns the ticket of another request.
    pub fn ticket(&mut self) -> u64 {
        self.asked += 1;
        self.asked
    }

    fn ask(&mut self, connection: Handle, request: Request, arrived: Time, place: usize) {
        let ticket = self.ticket();
        self.tickets.insert(ticket, (connection, arrived, place));
        self.asks.push((ticket, request, arrived));
    }

    /// Takes the answer to a request, and replaces it where those that wait take all room.
    pub fn answered(&mut self, ticket: u64, answer: Answer) {
        let Some((connection, ..)) = self.tickets.get(&ticket) else {
            return;
        };
        let leaves_nothing = |conversation: &Conversation| conversation.leaves_nothing();
        let leaves_nothing = self.conversations.get(&connection.id).is_none_or(leaves_nothing);
        let answer = self.kept(answer, REPLIES_MAX.saturating_sub(self.answers_bytes), leaves_nothing);
        self.answers_bytes += bytes(&answer);
        match answer {
            // Answers of sources go before those that other clients wait for.
            Answer::Done {
                output: Output::Sampled(_),
                ..
            } => self.answers.push_front((ticket, answer)),
            answer => self.answers.push_back((ticket, answer)),
        }
    }

    /// The answer, or another where it does not fit into `room` bytes.
    fn kept(&mut self, answer: Answer, room: usize, leaves_nothing: bool) -> Answer {
        let is_kept = bytes(&answer) <= room;
        self.unkept += u64::from(!is_kept);
        if is_kept { answer } else { unkept(leaves_nothing) }
    }

    /// Takes back the last requests, in their order, where the host's memory answers them.
    pub fn of_memory(&mut self) -> Vec<(u64, Request)> {
        let is_other = |(_, request, _): &(u64, Request, Time)| !request.work.is_of_memory();
        let others = self.asks.iter().rposition(is_other).map_or(0, |last| last + 1);
        let readings = self.asks.drain(others..);
        readings.map(|(ticket, request, _)| (ticket, request)).collect()
    }

    /// The reply to the requests from this ticket on, if all of their answers have come.
    pub fn reply_to(&mut self, first: u64, now: Time) -> Option<Vec<u8>> {
        let is_theirs = |answer: Option<&(u64, Answer)>| answer.is_some_and(|(ticket, _)| *ticket >= first);
        loop {
            let next = match is_theirs(self.answers.front()) {
                true => self.answers.pop_front(),
                false if is_theirs(self.answers.back()) => self.answers.pop_back(),
                false => None,
            };
            let (ticket, answer) = next?;
            self.answers_bytes -= bytes(&answer);
            let done = self.conclude(ticket, answer, SHORT_MAX, now);
            if done.is_some() {
                return done.map(|done| done.reply);
            }
        }
    }

    /// Whether answers or changes wait for the door.
    pub fn has_news(&self) -> bool {
        !self.answers.is_empty() || !self.done.is_empty() || !self.told.is_empty()
    }

    /// Returns the next result; an answer of more than `room` bytes is replaced.
    pub fn next_done(&mut self, room: usize, now: Time) -> Option<JobReply> {
        while let Some((ticket, answer)) = self.answers.pop_front() {
            self.answers_bytes -= bytes(&answer);
            let done = self.conclude(ticket, answer, room, now);
            if done.is_some() {
                return done;
            }
        }
        self.done.pop()
    }

    /// The result that an answer is; `None` where the client has gone, or its request goes on.
    fn conclude(&mut self, ticket: u64, answer: Answer, room: usize, now: Time) -> Option<JobReply> {
        let (connection, arrived, place) = self.tickets.remove(&ticket)?;
        let leaves_nothing = self.conversations.get(&connection.id)?.leaves_nothing();
        let answer = self.kept(answer, room, leaves_nothing);
        let mut done = JobReply::of(connection, Vec::new());
        let conversation = self.conversations.get_mut(&connection.id)?;
        match conversation.answered(place, answer, &mut done.watched, now, &mut done.reply) {
            Next::Ask(request) => {
                self.ask(connection, request, arrived, 0);
                None
            }
            Next::Waits => None,
            _ => Some(done),
        }
    }

    /// Forgets the session of connection `id`, as RESET does.
    pub fn resets(&mut self, id: u64) {
        self.of(id).reset();
    }

    /// Forgets connection `id`; its request may go on, and its answer is dropped.
    pub fn ends(&mut self, id: u64) {
        self.conversations.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use punctual_federation::ids::SessionId;
    use punctual_federation::message::Position;
    use punctual_server::commands;
    use punctual_server::resp::request::Request as Words;
    use punctual_server::session::{Call, Session};
    use punctual_units::Revision;

    use super::*;

    fn done(output: Output) -> Answer {
        Answer::Done {
            output,
            position: Position::default(),
            revision: Revision(1),
        }
    }

    /// Has the client of connection `id` ask.
    fn asks(clients: &mut Clients, id: u64, words: &str) {
        let words = Words::of(words.split(' '));
        let command = commands::find(words.argument(0)).unwrap();
        let work = Work::Run(vec![Call::new(command, words, Time(5), Time(1))]);
        match clients.of(id).take(work, &Session::new(id), Time(1), &mut Vec::new()) {
            Next::Ask(request) => clients.ask(Handle { place: 0, id }, request, Time(1), 0),
            next => panic!("{next:?}"),
        }
    }

    fn replies(clients: &mut Clients) -> Vec<String> {
        let next = std::iter::from_fn(|| clients.next_done(SHORT_MAX, Time(2)));
        next.map(|done| String::from_utf8(done.reply).unwrap()).collect()
    }

    #[test]
    fn a_reply_without_room_is_late_for_a_query_and_unknown_for_a_transaction() {
        let values = |bytes| done(Output::Values(vec![Some(vec![b'v'; bytes])]));
        let mut clients = Clients::new(0);
        for (id, words) in [(1, "GET a"), (2, "GET a"), (3, "SET a b"), (4, "GET a")] {
            asks(&mut clients, id, words);
        }
        clients.answered(3, done(Output::Session(SessionId(5))));
        assert!(replies(&mut clients).is_empty());
        let tickets: Vec<_> = clients.asks.iter().map(|(ticket, ..)| *ticket).collect();
        assert_eq!(tickets, [1, 2, 3, 4, 5], "the SET follows its session");
        // The client of 4 has gone.
        clients.ends(4);
        [1, 2, 5, 4]
            .into_iter()
            .for_each(|ticket| clients.answered(ticket, values(SHORT_MAX + usize::from(ticket > 1))));
        let told = replies(&mut clients);
        assert_eq!(told.len(), 3);
        assert_eq!(told[0].len(), SHORT_MAX);
        assert!(told[1].starts_with("-LATE reason=backlog"), "{}", told[1]);
        assert_eq!(told[2], "-UNKNOWN 5.1\r\n", "a transaction may not be called late");
        assert_eq!((clients.unkept, clients.has_news()), (2, false));
    }

    #[test]
    fn readings_sent_ahead_are_under_way_together_and_answered_in_their_order_before_others() {
        let mut clients = Clients::new(0);
        asks(&mut clients, 2, "GET a");
        let call = |words: &str| {
            let words = Words::of(words.split(' '));
            let command = commands::find(words.argument(0)).unwrap();
            Call::new(command, words, Time(5), Time(1))
        };
        let run = ["TSET a 1", "TSET b 1 old", "TSET c 1", "TSET a 2"].map(call);
        let taken = clients
            .of(1)
            .take(Work::Run(run.into()), &Session::new(1), Time(1), &mut Vec::new());
        let Next::Set(requests) = taken else {
            panic!("{taken:?}")
        };
        for (place, request) in requests {
            clients.ask(Handle { place: 0, id: 1 }, request, Time(1), place);
        }
        assert_eq!(clients.asks.len(), 4, "the wrong one is asked of no node");
        clients.answered(1, done(Output::Values(vec![Some(b"$1\r\nv\r\n".to_vec())])));
        for (ticket, is_newest) in [(4, true), (2, true), (3, false)] {
            assert!(!clients.answers.iter().any(|(of, _)| *of == ticket));
            clients.answered(ticket, done(Output::Sampled(is_newest)));
        }
        let told = replies(&mut clients);
        let [first, second] = told.as_slice() else {
            panic!("{told:?}")
        };
        assert!(
            first.starts_with("+OK\r\n-ERR ") && first.ends_with("\r\n$-1\r\n+OK\r\n"),
            "{first}"
        );
        assert_eq!(second, "$1\r\nv\r\n");
    }

    #[test]
    fn a_reading_is_answered_at_once_and_answers_that_wait_are_bounded() {
        let mut clients = Clients::new(0);
        asks(&mut clients, 1, "GETFRESH a 5");
        let (ticket, _) = clients.of_memory().remove(0);
        assert_eq!(clients.reply_to(ticket, Time(2)), None, "no answer yet");
        let reading = done(Output::Reading(Some((Nanos::from_millis(3), b"v".to_vec()))));
        clients.answered(ticket, reading);
        assert_eq!(
            clients.reply_to(ticket, Time(2)).as_deref(),
            Some(b"*2\r\n$1\r\nv\r\n:3\r\n".as_slice())
        );
        asks(&mut clients, 1, "GET a");
        assert!(clients.of_memory().is_empty() && !clients.has_news());
        let values = || done(Output::Values(vec![Some(vec![b'v'; REPLIES_MAX / 2])]));
        (2..4).for_each(|id| asks(&mut clients, id, "GET a"));
        (2..=4).for_each(|ticket| clients.answered(ticket, values()));
        assert_eq!((clients.answers_bytes, clients.unkept), (REPLIES_MAX, 1));
        assert!(replies(&mut clients).len() == 3 && clients.answers_bytes == 0);
    }
}
