//! Clients' connections, of a node or of a balancer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use mio::net::{TcpListener, TcpStream};
use mio::{Registry, Token};
use punctual_federation::message::{Answer, Reason, Request};
use punctual_server::client::{ClientConnection, REPLIES_PAUSE};
use punctual_server::cursors::Cursors;
use punctual_server::link::Bytes;
use punctual_server::login::LoginClaim;
use punctual_server::prover::{PasswordCheck, PasswordClaim, Prover};
use punctual_server::resp::request::Request as Words;
use punctual_server::resp::{Reply, Writer};
use punctual_server::session::{self, ServerSettings, Session, late};
use punctual_server::slots::Slots;
use punctual_server::stream::{Ready, Stream};
use punctual_server::subscribers::{KeyNotice, Subscribers, messages};
use punctual_server::work::{Handle, Work};
use punctual_units::{Nanos, Revision, Time};

use super::{Access, CLIENTS_MAX, FIRST_CLIENT, HANDSHAKES_TURN};
use crate::conversation::{self, Conversation};
use crate::whereabouts::Inquiry;

/// The most bytes of requests of all clients together that are read but not begun, beside [`SHORT_MAX`] of each client
/// (64 MiB in all): endless input of some clients does not keep other clients' short requests from being read. While
/// there is no room, a client that has as much is not read further, and one in the middle of a request is dropped as
/// stalled.
const REQUESTS_MAX: usize = 128 << 20;
/// The most unsent bytes of replies of all clients together, beside one short reply for each client (64 MiB in all):
/// long replies that some clients do not read keep no other client from short ones. A long reply that does not fit is
/// dropped: its client gets `LATE` for a query, `UNKNOWN` for a transaction. While there is no room, a client's next
/// request waits until all of its replies are sent.
pub(super) const REPLIES_MAX: usize = 192 << 20;
/// The longest replies and requests that count as short, in bytes.
pub(super) const SHORT_MAX: usize = 64 << 10;
/// Time after which a client is dropped that takes no replies, or stops in the middle of a request.
pub(super) const STALLED_MAX: Nanos = Nanos::from_secs(10);

/// The longest wait of a subscription until changes can be reported, whatever its client's deadline.
const HEARING_MAX: Nanos = Nanos::from_secs(1);
/// A subscriber that leaves more than this many bytes unread is dropped.
const HEARD_MAX: usize = 8 << 20;
/// Limit of matching and delivering changes in one turn of the loop, in bytes compared and bytes copied.
const STEPS_TURN: usize = 4 << 20;
/// The most changes that wait to be delivered; those beyond are counted as missed.
const TELLING_MAX: usize = 65_536;

/// Whether an answer still fits beside `unsent` bytes.
pub(super) fn fits(answer: &Answer, unsent: usize) -> bool {
    let Answer::Done { output, .. } = answer else {
        return true;
    };
    let bytes = output.bytes();
    bytes <= SHORT_MAX || unsent + bytes <= REPLIES_MAX
}

/// The answer in place of one that does not fit.
pub(super) fn unkept(leaves_nothing: bool) -> Answer {
    match leaves_nothing {
        true => Answer::late(Reason::Backlog, None),
        false => Answer::Unknown,
    }
}

/// All clients' connections of a process.
pub(super) struct Clients {
    listener: TcpListener,
    places: Slots<Box<Client>>,
    /// Slot of the client of each request without an answer.
    tickets: BTreeMap<u64, usize>,
    /// Slots of clients that have something to do without an event.
    again: Vec<usize>,
    /// First number of requests outside of a session.
    first: u64,
    /// Bytes read from and written to clients' connections.
    pub bytes: Bytes,
    access: Access,
    /// Checks passwords, if there are users.
    prover: Option<Prover>,
    /// Cursors of all clients' scans.
    cursors: Arc<Cursors>,
    settings: ServerSettings,
    subscribers: Subscribers,
    /// Changes that wait to be delivered.
    telling: VecDeque<KeyNotice>,
    /// Unsent bytes of all replies.
    unsent: usize,
    /// Number of replies that were dropped for lack of room.
    pub unkept: u64,
    /// Bytes of all requests that are read but not begun.
    kept: usize,
    /// Slots of clients that wait for room to be read.
    short_of_room: BTreeSet<usize>,
}

impl Clients {
    /// Makes the clients of a listener. `first` is drawn at random when the process starts ([`Conversation::new`]);
    /// `wake` has the event loop look for results of password checks.
    ///
    /// # Errors
    /// The system refuses the thread that checks passwords.
    pub fn new(
        listener: TcpListener,
        first: u64,
        access: Access,
        wake: impl Fn() + Send + 'static,
    ) -> io::Result<Clients> {
        let users = &access.users;
        let prover = (!users.is_empty()).then(|| Prover::start(Arc::clone(users), wake));
        Ok(Clients {
            listener,
            places: Slots::new(CLIENTS_MAX, FIRST_CLIENT),
            tickets: BTreeMap::new(),
            again: Vec::new(),
            first,
            prover: prover.transpose()?,
            access,
            cursors: Arc::default(),
            settings: conversation::settings(CLIENTS_MAX),
            subscribers: Subscribers::default(),
            telling: VecDeque::new(),
            unsent: 0,
            unkept: 0,
            kept: 0,
            short_of_room: BTreeSet::new(),
            bytes: Bytes::default(),
        })
    }

    /// Unsent bytes of all clients' replies.
    pub fn unsent(&self) -> usize {
        self.unsent
    }

    /// Updates the counts of a client's unsent replies and unbegun requests.
    fn count(&mut self, place: usize) {
        if let Some(client) = self.places.get_mut(place) {
            let (unsent, kept) = (client.connection.link.unsent(), client.connection.kept());
            self.unsent = self.unsent - client.counted + unsent;
            self.kept = self.kept - client.counted_kept + kept;
            (client.counted, client.counted_kept) = (unsent, kept);
        }
    }

    /// The answer itself, or its replacement if it does not fit.
    fn fitted(&mut self, place: usize, answer: Answer) -> Answer {
        if fits(&answer, self.unsent) {
            return answer;
        }
        self.unkept += 1;
        let client = self.places.get_mut(place);
        unkept(client.is_some_and(|client| client.conversation.leaves_nothing()))
    }

    pub fn len(&self) -> usize {
        self.places.taken()
    }

    /// Number of connections that ever began.
    pub fn begun(&self) -> u32 {
        self.places.begun()
    }

    pub fn accept(&mut self, registry: &Registry, now: Time) {
        let (first, access, cursors) = (self.first, &self.access, &self.cursors);
        let take = |stream, number| {
            let session = Session::of(u64::from(number), Arc::clone(&access.users));
            let stream = access.accept(stream, true)?;
            let conversation = Conversation::new(Arc::clone(cursors), first, number);
            Some(Box::new(Client::new(stream, session, conversation, now)))
        };
        let refuse = |mut stream: TcpStream| {
            // As far as the socket takes it at once.
            drop(io::Write::write(&mut stream, b"-ERR max number of clients reached\r\n"));
        };
        self.places.accept(&self.listener, registry, take, refuse);
    }

    /// Takes note that a client's socket can be read or written.
    pub fn ready(&mut self, token: Token, ready: Ready) {
        let place = self.places.of(token);
        if let Some(client) = self.places.get_mut(place) {
            client.connection.link.ready(ready);
            self.again.push(place);
        }
    }

    /// Answers the clients whose passwords were checked.
    fn take_judged(&mut self) {
        for PasswordCheck { connection, user } in self.prover.iter().flat_map(Prover::take) {
            let client = self.places.get_mut(connection.place);
            if let Some(client) = client.filter(|client| client.connection.session.id == connection.id) {
                client.judged(user);
                self.again.push(connection.place);
            }
        }
    }

    /// Whether a client has something to do without an event.
    pub fn has_more(&self) -> bool {
        let has_room = !self.short_of_room.is_empty() && self.kept < REQUESTS_MAX;
        !self.again.is_empty() || !self.telling.is_empty() || has_room
    }

    /// Whether any client subscribes to a channel or a pattern.
    pub fn hear(&self) -> bool {
        self.subscribers.counts() != (0, 0)
    }

    /// Subscribes a client to channels or patterns.
    pub fn subscribe(&mut self, place: usize, words: &Words, patterns: bool) {
        if let Some(client) = self.places.get_mut(place) {
            let (session, out) = (&mut client.connection.session, &mut client.connection.link.out);
            self.subscribers.subscribe(place, session, words, patterns, out);
        }
    }

    /// Removes subscriptions of a client; all, if it names none.
    fn unsubscribe(&mut self, place: usize, words: &Words, patterns: bool) {
        if let Some(client) = self.places.get_mut(place) {
            let (session, out) = (&mut client.connection.session, &mut client.connection.link.out);
            self.subscribers.unsubscribe(place, session, words, patterns, out);
        }
    }

    /// Makes a client's subscription wait until changes can be reported. Returns the number of its connection, and the
    /// end of the wait.
    pub fn waits_to_hear(&mut self, place: usize, now: Time) -> Option<(u64, Time)> {
        let client = self.places.get_mut(place)?;
        client.is_subscribing = true;
        let wait = client
            .connection
            .session
            .time_left
            .unwrap_or(HEARING_MAX)
            .min(HEARING_MAX);
        Some((client.connection.session.id, now + wait))
    }

    /// Ends the wait of a subscription: confirms it, or (`late`) answers that it took too long.
    pub fn ends_to_wait(&mut self, place: usize, number: u64, words: &Words, patterns: bool, late: bool) {
        let client = self
            .places
            .get_mut(place)
            .filter(|client| client.connection.session.id == number);
        let Some(client) = client.filter(|client| client.is_subscribing) else {
            return; // the client has gone
        };
        client.is_subscribing = false;
        self.again.push(place);
        if late {
            let version = client.connection.session.version;
            Writer::new(&mut client.connection.link.out, version).error("LATE reason=backlog retry-after-ms=50");
        } else {
            self.subscribe(place, words, patterns);
        }
    }

    /// Replies with a line for each client (`all`), or for the one at `place`.
    fn list(&mut self, place: usize, all: bool, now: Time) {
        let listed = self.places.iter_mut().filter(|(at, _)| all || *at == place);
        let mut lines: Vec<_> = listed
            .map(|(_, client)| (client.connection.session.id, client.connection.line(now)))
            .collect();
        lines.sort();
        let text = Reply::Verbatim(lines.into_iter().map(|(_, line)| line).collect());
        self.described(place, |out| out.value(&text));
    }

    /// Makes a client's session as new.
    fn reset(&mut self, place: usize, now: Time) {
        if let Some(client) = self.places.get_mut(place) {
            self.subscribers.forget(place, &client.connection.session);
            client.connection.reset(now);
            client.conversation.reset();
        }
    }

    /// Queues changes for the subscribers; none if there are no subscribers.
    pub fn tell(&mut self, told: impl IntoIterator<Item = KeyNotice>) {
        if !self.hear() {
            return;
        }
        for told in told {
            let is_full = self.telling.len() >= TELLING_MAX;
            let lost = match &told {
                KeyNotice::Missed(missed) => *missed,
                _ => 1,
            };
            match self.telling.back_mut() {
                Some(KeyNotice::Missed(missed)) if is_full => *missed += lost,
                _ if is_full => self.telling.push_back(KeyNotice::Missed(lost)),
                _ => self.telling.push_back(told),
            }
        }
    }

    /// Delivers changes, as many as fit into one turn of the loop.
    pub fn tell_some(&mut self, now: Time) {
        let mut spent = 0;
        while spent < STEPS_TURN
            && let Some(told) = self.telling.pop_front()
        {
            for (channel, message) in messages(&told) {
                spent += self.subscribers.steps(channel.len());
                for (place, pattern) in self.subscribers.hearing(&channel) {
                    let Some(client) = self.places.get_mut(place) else {
                        continue;
                    };
                    let most = if self.unsent > REPLIES_MAX {
                        SHORT_MAX
                    } else {
                        HEARD_MAX
                    };
                    let pattern = pattern.as_deref();
                    let bytes = client.connection.deliver(pattern, &channel, &message, most, now);
                    spent += bytes;
                    client.counted += bytes;
                    self.unsent += bytes;
                    self.again.push(place);
                }
            }
        }
    }

    /// Returns the slots of clients that have something to do; the caller gives each a [`turn`](Clients::turn) after
    /// the other until it wants nothing.
    pub fn due(&mut self) -> Vec<usize> {
        self.take_judged();
        if self.kept < REQUESTS_MAX {
            self.again.extend(std::mem::take(&mut self.short_of_room));
        }
        let mut due = std::mem::take(&mut self.again);
        due.sort_unstable();
        due.dedup();
        let mut handshakes = 0;
        due.retain(|place| {
            let link = self.places.get_mut(*place).map(|client| &client.connection.link);
            let is_handshaking = link.is_some_and(|link| link.stream.is_handshaking());
            handshakes += usize::from(is_handshaking);
            let has_turn = !is_handshaking || handshakes <= HANDSHAKES_TURN;
            if !has_turn {
                self.again.push(*place);
            }
            has_turn
        });
        due
    }

    /// Reads, answers and sends for a client, up to the next thing that it wants from the loop.
    pub fn turn(&mut self, place: usize, scratch: &mut Vec<u8>, now: Time) -> Intent {
        loop {
            match self.turn_once(place, scratch, now) {
                Intent::Door(session::Next::Unsubscribe(words, patterns)) => self.unsubscribe(place, &words, patterns),
                Intent::Door(session::Next::List(all)) => self.list(place, all, now),
                Intent::Door(session::Next::Claim(claimed)) => self.claim(place, claimed),
                Intent::Door(session::Next::Reset) => self.reset(place, now),
                // The client's own turn has carried out the others.
                Intent::Door(_) => {}
                wanted => return wanted,
            }
        }
    }

    fn turn_once(&mut self, place: usize, scratch: &mut Vec<u8>, now: Time) -> Intent {
        let Some(client) = self.places.get_mut(place) else {
            return Intent::Nothing;
        };
        client.pause = if self.unsent >= REPLIES_MAX { 0 } else { REPLIES_PAUSE };
        client.kept_max = if self.kept >= REQUESTS_MAX {
            SHORT_MAX
        } else {
            usize::MAX
        };
        let wanted = client.turn(&self.settings, scratch, now);
        let bytes = std::mem::take(&mut client.connection.link.bytes);
        self.bytes.read += bytes.read;
        self.bytes.written += bytes.written;
        self.count(place);
        let (mut has_more, mut is_short) = (false, false);
        if let Some(client) = self.places.get_mut(place) {
            (has_more, is_short) = (client.has_more(), client.is_short_of_room());
        }
        if is_short {
            self.short_of_room.insert(place);
        }
        match wanted {
            Intent::Over => self.close(place),
            Intent::Nothing if has_more => self.again.push(place),
            _ => {}
        }
        wanted
    }

    /// Has a password checked, or refuses that if too many wait.
    fn claim(&mut self, place: usize, claimed: LoginClaim) {
        let Some(client) = self.places.get_mut(place) else {
            return;
        };
        let claim = PasswordClaim {
            connection: Handle {
                place,
                id: client.connection.session.id,
            },
            user: claimed.user,
            password: claimed.password,
        };
        if !self.prover.as_ref().is_some_and(|prover| prover.ask(claim)) {
            client.connection.session.not_judged(&mut client.connection.link.out);
        }
    }

    /// Takes note of the ticket of a client's request.
    pub fn asked(&mut self, place: usize, ticket: u64) {
        if let Some(client) = self.places.get_mut(place) {
            client.ticket = Some(ticket);
            self.tickets.insert(ticket, place);
        }
    }

    /// Takes the answer to a request. Returns the client's slot, its next request, and when that was read, if there is
    /// one.
    pub fn answered(&mut self, ticket: u64, answer: Answer, now: Time) -> Option<(usize, Request, Time)> {
        // A ticket without a slot belongs to a client that has gone.
        let place = self.tickets.remove(&ticket)?;
        let answer = self.fitted(place, answer);
        let client = self.places.get_mut(place)?;
        let (next, arrived) = (client.answered(answer, now), client.arrived);
        self.count(place);
        self.again.push(place);
        next.map(|request| (place, request, arrived))
    }

    /// Writes a reply that describes the process.
    pub fn described(&mut self, place: usize, reply: impl FnOnce(&mut Writer<'_>)) {
        if let Some(client) = self.places.get_mut(place) {
            reply(&mut Writer::new(
                &mut client.connection.link.out,
                client.connection.session.version,
            ));
        }
    }

    /// The address of this process to which a client has connected.
    pub fn reached_at(&mut self, place: usize) -> Option<SocketAddr> {
        self.places
            .get_mut(place)?
            .connection
            .link
            .stream
            .socket()
            .local_addr()
            .ok()
    }

    /// The address at which clients connect.
    ///
    /// # Errors
    /// The error of the system.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    fn close(&mut self, place: usize) {
        if let Some(mut client) = self.places.remove(place) {
            self.unsent -= client.counted;
            self.kept -= client.counted_kept;
            self.short_of_room.remove(&place);
            client.connection.link.stream.end();
            self.subscribers.forget(place, &client.connection.session);
            if let Some(ticket) = client.ticket {
                self.tickets.remove(&ticket);
            }
        }
    }

    /// Ends stalled connections, and accepts waiting ones.
    pub fn look(&mut self, registry: &Registry, now: Time) {
        let stalled = self.places.iter_mut().filter(|(_, client)| client.is_stalled(now));
        let stalled: Vec<usize> = stalled.map(|(place, _)| place).collect();
        stalled.into_iter().for_each(|place| self.close(place));
        // A listener that had no descriptors sends no further event.
        self.accept(registry, now);
    }

    /// Sends replies as far as sockets take them at once, before the connections end.
    pub fn say_goodbye(&mut self) {
        for (_, client) in self.places.iter_mut() {
            client.connection.link.is_writable = true;
            // An error does not matter: the connection ends anyway.
            drop(client.connection.link.flush());
        }
    }
}

/// A client's connection and its side of the federation.
struct Client {
    connection: ClientConnection,
    /// Stops beginning requests while this many bytes of replies are unsent.
    pause: usize,
    /// This client's part of [`Clients::unsent`].
    counted: usize,
    /// Stops reading while this many bytes of requests wait to begin.
    kept_max: usize,
    /// This client's part of [`Clients::kept`].
    counted_kept: usize,
    conversation: Conversation,
    /// Whether a subscription waits until changes can be reported.
    is_subscribing: bool,
    /// Ticket of the request that the node has.
    pub ticket: Option<u64>,
    /// When that request was read.
    pub arrived: Time,
}

/// The next thing that a client wants from the loop.
#[derive(Debug)]
pub(super) enum Intent {
    /// Nothing until another event.
    Nothing,
    /// Ask the node; the request was read at that instant.
    Ask(Request, Time),
    /// Reply with these sections of INFO.
    Info(Vec<String>),
    /// Reply with the number of other nodes that have applied this revision.
    Wait(Revision),
    /// Reply with the addresses of nodes.
    Whereabouts(Inquiry),
    /// Subscribe to channels (`true`: patterns).
    Subscribe(Words, bool),
    /// A step for all clients together, which [`Clients::turn`] carries out.
    Door(session::Next),
    /// Nothing more: the connection is closed.
    Over,
}

impl Client {
    pub fn new(stream: Stream, session: Session, conversation: Conversation, now: Time) -> Client {
        Client {
            connection: ClientConnection::new(stream, session, now),
            pause: REPLIES_PAUSE,
            counted: 0,
            kept_max: usize::MAX,
            counted_kept: 0,
            conversation,
            is_subscribing: false,
            ticket: None,
            arrived: now,
        }
    }

    /// Whether a request waits for the node, the prover or the loop; the next one begins after it.
    fn is_waiting(&self) -> bool {
        self.conversation.is_waiting() || self.connection.session.is_claiming() || self.is_subscribing
    }

    /// Whether reading pauses, because all clients' requests take too much.
    fn is_short_of_room(&self) -> bool {
        self.connection.kept() >= self.kept_max
    }

    fn reads(&self) -> bool {
        let unsent = self.connection.link.unsent();
        let may_read = !self.is_short_of_room() && (unsent < self.pause || unsent == 0);
        may_read && self.connection.reads(self.is_waiting())
    }

    /// Whether there is something to do without an event: bytes to read, or a request whose wait for unsent replies is
    /// over.
    pub fn has_more(&self) -> bool {
        let connection = &self.connection;
        let begins = connection.waiting() > 0 || connection.broken.is_some();
        let may_begin = !self.is_waiting() && connection.link.unsent() <= self.pause;
        connection.link.is_readable && self.reads() || begins && may_begin && !connection.is_closing
    }

    /// Whether the client has stopped for too long, in the middle of a request or of replies.
    pub fn is_stalled(&self, now: Time) -> bool {
        let connection = &self.connection;
        let may_send = self.ticket.is_none() && (self.reads() || self.is_short_of_room());
        connection.is_behind
            || connection.is_silent(now, STALLED_MAX) && !self.is_waiting()
            || connection.is_half(now, STALLED_MAX) && may_send
            || connection.is_slow(now, STALLED_MAX)
    }

    /// Reads, answers and sends, up to the next thing that the client wants.
    pub fn turn(&mut self, settings: &ServerSettings, scratch: &mut Vec<u8>, now: Time) -> Intent {
        self.try_turn(settings, scratch, now).unwrap_or(Intent::Over)
    }

    fn try_turn(&mut self, settings: &ServerSettings, scratch: &mut Vec<u8>, now: Time) -> io::Result<Intent> {
        if self.reads() {
            let is_waiting = self.is_waiting();
            self.connection.read(settings, is_waiting, scratch, || now)?;
        }
        let wanted = self.advance(settings, now);
        let (is_waiting, connection) = (self.is_waiting(), &mut self.connection);
        // A request may be answered at once, and replies that come together are sent together: by the turn that wants
        // nothing, which follows.
        if connection.link.unsent() == 0 {
            connection.times.taken = now;
        } else if matches!(wanted, Intent::Nothing) {
            connection.flush(|| now)?;
        }
        let is_done = connection.is_closing || connection.is_ended && connection.waiting() == 0;
        if is_done && !is_waiting && connection.link.unsent() == 0 && matches!(wanted, Intent::Nothing) {
            return Ok(Intent::Over);
        }
        Ok(wanted)
    }

    /// Takes requests one at a time: the next one after the answer to the one before.
    fn advance(&mut self, settings: &ServerSettings, now: Time) -> Intent {
        loop {
            let is_waiting = self.is_waiting();
            let connection = &mut self.connection;
            connection.parse(settings, is_waiting);
            if is_waiting || connection.link.unsent() > self.pause {
                return Intent::Nothing;
            }
            let Some((words, arrived)) = connection.next_request() else {
                connection.end_broken(now);
                return Intent::Nothing;
            };
            let (session, out) = (&mut connection.session, &mut connection.link.out);
            let work = match session.step(words, arrived, now, settings, out) {
                session::Next::Call(call) => Work::Run(vec![call]),
                session::Next::Ask(work) => work,
                session::Next::Wait => return Intent::Wait(self.conversation.seen()),
                session::Next::Answered => continue,
                session::Next::Late(_) => {
                    Writer::new(out, session.version).error(&late("expired", Nanos::ZERO));
                    continue;
                }
                session::Next::Close => {
                    connection.is_closing = true;
                    connection.drop_requests();
                    continue;
                }
                session::Next::Info(sections) => return Intent::Info(sections),
                session::Next::Subscribe(words, patterns) => return Intent::Subscribe(words, patterns),
                step => return Intent::Door(step),
            };
            match self.conversation.take(work, session, now, out) {
                conversation::Next::Answered => {}
                conversation::Next::Ask(request) => {
                    self.arrived = arrived;
                    return Intent::Ask(request, arrived);
                }
                conversation::Next::Whereabouts(inquiry) => return Intent::Whereabouts(inquiry),
            }
        }
    }

    /// Takes the node's answer to the present request; returns the next request.
    pub fn answered(&mut self, answer: Answer, now: Time) -> Option<Request> {
        self.ticket = None;
        let (mut watched, out) = (Vec::new(), &mut self.connection.link.out);
        let next = self.conversation.answered(answer, &mut watched, now, out);
        self.connection.session.watch(watched);
        match next {
            conversation::Next::Ask(request) => Some(request),
            _ => None,
        }
    }

    /// Takes the result of a password check: the user's index, or `None` for a wrong password.
    pub fn judged(&mut self, user: Option<usize>) {
        let connection = &mut self.connection;
        connection.session.judged(user, &mut connection.link.out);
        connection.is_closing |= connection.session.login.is_guessing();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net;

    use mio::Poll;
    use punctual_federation::message::{FOUND_BYTES_MAX, Output, Position};

    use punctual_server::resp::Bounds;

    use super::*;

    const BOUNDS: &Bounds = conversation::LIMITS.request;

    /// Clients of a listener, their sockets' other ends, and the places that they have.
    fn connected(count: usize) -> (Clients, Poll, Vec<net::TcpStream>) {
        let poll = Poll::new().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let at = listener.local_addr().unwrap();
        let mut clients = Clients::new(listener, 0, Access::default(), || {}).unwrap();
        // One at a time: no more wait than a listener keeps.
        let connect = |number| {
            let other = net::TcpStream::connect(at).unwrap();
            while clients.len() <= number {
                clients.accept(poll.registry(), Time::ZERO);
            }
            other
        };
        let others = (0..count).map(connect).collect();
        (clients, poll, others)
    }

    /// A round of the loop, in which sockets may have something to read, or room: what is asked, by places.
    fn round(clients: &mut Clients, count: usize, is_readable: bool) -> Vec<(usize, Request)> {
        let ready = Ready {
            reads: is_readable,
            writes: !is_readable,
            ..Ready::default()
        };
        (0..count).for_each(|place| clients.ready(Token(FIRST_CLIENT + place), ready));
        let mut asked = Vec::new();
        for place in clients.due() {
            loop {
                match clients.turn(place, &mut Vec::new(), Time::ZERO) {
                    Intent::Ask(request, _) => asked.push((place, request)),
                    Intent::Nothing | Intent::Over => break,
                    other => panic!("{other:?}"),
                }
            }
        }
        asked
    }

    fn done(bytes: usize) -> Answer {
        Answer::Done {
            output: Output::Values(vec![Some(vec![b'v'; bytes])]),
            position: Position::default(),
            revision: Revision(1),
        }
    }

    #[test]
    fn replies_that_are_not_read_are_bounded_in_all_and_short_ones_are_given() {
        const LONG: usize = REPLIES_MAX / FOUND_BYTES_MAX;
        let count = LONG + 4;
        let (mut clients, _poll, mut others) = connected(count);
        for (at, other) in others.iter_mut().enumerate() {
            other
                .write_all(if at == count - 1 { b"SET a b\r\n" } else { b"GET a\r\n" })
                .unwrap();
        }
        let mut ticket = 0;
        let mut begun = Vec::new();
        while begun.len() < count {
            for (place, _) in round(&mut clients, count, true) {
                ticket += 1;
                clients.asked(place, ticket);
                begun.push((place, ticket));
            }
        }
        begun.sort_unstable();
        let opened = Answer::Done {
            output: Output::Session(punctual_federation::ids::SessionId(5)),
            position: Position::default(),
            revision: Revision(1),
        };
        let (place, number) = begun[count - 1];
        let (again, ..) = clients
            .answered(number, opened, Time::ZERO)
            .expect("its session is open: the SET follows");
        assert_eq!(again, place);
        clients.asked(place, number);
        for (place, number) in &begun {
            // One of them is short, and comes when there is no more room.
            let bytes = if *place == LONG { SHORT_MAX } else { FOUND_BYTES_MAX };
            clients.answered(*number, done(bytes), Time::ZERO);
            let unsent: usize = clients
                .places
                .iter_mut()
                .map(|(_, client)| client.connection.link.unsent())
                .sum();
            assert_eq!(unsent, clients.unsent(), "what waits is counted");
            assert!(unsent <= REPLIES_MAX + CLIENTS_MAX * SHORT_MAX, "{unsent} bytes wait");
        }
        assert_eq!(clients.unkept, 3);
        let reading = others.into_iter().enumerate().map(|(at, mut other)| {
            std::thread::spawn(move || {
                let (mut first, mut rest) = ([0; 4], Vec::new());
                other.read_exact(&mut first).unwrap();
                if first == *b"vvvv" {
                    let bytes = if at == LONG { SHORT_MAX } else { FOUND_BYTES_MAX };
                    rest.resize(bytes - 4, 0);
                    other.read_exact(&mut rest).unwrap();
                    assert!(rest.iter().all(|byte| *byte == b'v'));
                }
                first
            })
        });
        let reading: Vec<_> = reading.collect();
        while clients.unsent() > 0 {
            round(&mut clients, count, false);
        }
        let told: Vec<[u8; 4]> = reading.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(
            told.iter().filter(|first| **first == *b"vvvv").count(),
            LONG + 1,
            "{told:?}"
        );
        assert_eq!(
            told[LONG + 1..],
            [*b"-LAT", *b"-LAT", *b"-UNK"],
            "a transaction may not be called late"
        );
    }

    #[test]
    fn requests_that_are_not_whole_are_bounded_in_all_and_short_ones_are_read() {
        const HALF: usize = REQUESTS_MAX / BOUNDS.bulk + 8;
        let (slow, short) = (HALF, HALF + 1);
        let count = HALF + 2;
        let (mut clients, poll, others) = connected(count);
        let head = format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n${}\r\n", BOUNDS.bulk);
        let others: Vec<_> = others.into_iter().map(Arc::new).collect();
        let sends = |at: usize, bytes: usize| {
            let (other, head) = (Arc::clone(&others[at]), head.clone());
            std::thread::spawn(move || {
                let mut other: &net::TcpStream = &other;
                // Connections that end meanwhile take no more.
                drop(
                    other
                        .write_all(head.as_bytes())
                        .and_then(|()| other.write_all(&vec![b'v'; bytes])),
                );
            })
        };
        // Nearly all of a value each, and nothing further.
        let sending: Vec<_> = (0..HALF).map(|at| sends(at, BOUNDS.bulk - 1)).collect();
        while clients.kept < REQUESTS_MAX {
            round(&mut clients, count, true);
            let kept: usize = clients
                .places
                .iter_mut()
                .map(|(_, client)| client.connection.kept())
                .sum();
            assert_eq!(kept, clients.kept, "what waits is counted");
        }
        let at_last = sends(slow, BOUNDS.bulk);
        (&*others[short]).write_all(b"GET a\r\n").unwrap();
        let asked = loop {
            if let Some((place, _)) = round(&mut clients, count, true).pop() {
                break place;
            }
        };
        assert_eq!(asked, short, "a short request is read all the same");
        while !clients.short_of_room.contains(&slow) {
            round(&mut clients, count, true);
            assert!(
                clients.kept <= REQUESTS_MAX + CLIENTS_MAX * SHORT_MAX,
                "{} bytes",
                clients.kept
            );
        }
        // Those that send nothing further make room; one whose bytes came later is read on.
        let later = Time::ZERO + STALLED_MAX;
        clients.places.get_mut(slow).unwrap().connection.times.came = later;
        clients.look(poll.registry(), later + Nanos(1));
        assert_eq!((clients.len(), clients.short_of_room.len()), (2, 1));
        while !at_last.is_finished() {
            assert!(round(&mut clients, count, true).is_empty(), "it is not whole yet");
        }
        drop(sending);
        (&*others[slow]).write_all(b"\r\n").unwrap();
        while round(&mut clients, count, true).is_empty() {}
        assert_eq!(clients.kept, 0);
    }

    #[test]
    fn more_clients_than_the_bound_are_told() {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: a place for two numbers. Where fewer descriptors are allowed, the test fails as it opens them.
        unsafe {
            libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
        let (mut clients, poll, others) = connected(CLIENTS_MAX);
        let mut more = net::TcpStream::connect(clients.address().unwrap()).unwrap();
        let mut told = Vec::new();
        let reading = std::thread::spawn(move || more.read_to_end(&mut told).map(|_| told));
        while !reading.is_finished() {
            clients.accept(poll.registry(), Time::ZERO);
        }
        assert_eq!(
            reading.join().unwrap().unwrap(),
            b"-ERR max number of clients reached\r\n"
        );
        assert_eq!(clients.len(), CLIENTS_MAX);
        // One that goes makes room.
        drop(others);
        while clients.len() > 0 {
            round(&mut clients, CLIENTS_MAX, true);
        }
    }

    /// Each gets an answer to what came before, and one word; then its connection ends. Nothing is kept for a length
    /// that was only claimed, nor of what has no end.
    #[test]
    fn what_is_no_request_ends_its_connection_alone() {
        let endless = "a".repeat(BOUNDS.inline + 1);
        let many = format!("*2\r\n$3\r\nGET\r\n${}\r\n", BOUNDS.bulk + 1);
        let wrong = [
            "*1000000\r\n",
            "*-99999999999999999999\r\n",
            "*1\r\n+PING\r\n",
            "*1\r\n$4\r\nPINGxx",
            "SET \"a\r\n",
            "*1\r\n$-5\r\n",
            &many,
            &endless,
        ];
        let count = wrong.len() + 1;
        let (mut clients, _poll, mut others) = connected(count);
        for (other, wrong) in others.iter_mut().zip(wrong) {
            other.write_all(format!("PING\r\n{wrong}").as_bytes()).unwrap();
        }
        while clients.len() > 1 {
            round(&mut clients, count, true);
            round(&mut clients, count, false);
            let kept = clients
                .places
                .iter_mut()
                .map(|(_, client)| client.connection.kept())
                .max();
            assert!(kept < Some(BOUNDS.inline + 1024), "{kept:?} bytes are kept");
        }
        for (mut other, wrong) in others.into_iter().zip(wrong) {
            let mut told = Vec::new();
            // What the other side has not read resets the connection.
            drop(other.read_to_end(&mut told));
            assert!(
                told.starts_with(b"+PONG\r\n-ERR Protocol error"),
                "{wrong}: {}",
                told.escape_ascii()
            );
        }
    }

    /// What is silent for longer than the bound is ended, and nothing before; by the clock that the test gives.
    #[test]
    fn a_client_in_the_middle_of_a_request_is_ended_after_its_bound() {
        let (mut clients, poll, mut others) = connected(2);
        others[0].write_all(b"*2\r\n$3\r\nGET\r\n$5\r\nab").unwrap();
        while !clients
            .places
            .iter_mut()
            .any(|(_, client)| client.connection.kept() > 0)
        {
            round(&mut clients, 2, true);
        }
        clients.look(poll.registry(), Time::ZERO + STALLED_MAX);
        assert_eq!(clients.len(), 2);
        clients.look(poll.registry(), Time::ZERO + STALLED_MAX + Nanos(1));
        assert_eq!(clients.len(), 1, "one that is idle stays");
        assert_eq!(
            others[0].read(&mut [0; 8]).unwrap(),
            0,
            "it is told by the end of its connection"
        );
        // Nor does one stay that leaves a reply.
        others[1].write_all(b"GET a\r\n").unwrap();
        let asked = loop {
            if let Some((place, _)) = round(&mut clients, 2, true).pop() {
                break place;
            }
        };
        clients.asked(asked, 1);
        clients.answered(1, done(FOUND_BYTES_MAX), Time::ZERO);
        clients.look(poll.registry(), Time::ZERO + STALLED_MAX);
        assert_eq!((clients.len(), clients.unsent()), (1, FOUND_BYTES_MAX));
        clients.look(poll.registry(), Time::ZERO + STALLED_MAX + Nanos(1));
        assert_eq!((clients.len(), clients.unsent()), (0, 0));
    }

    /// The socket takes long replies at once, and tells nothing further.
    #[test]
    fn a_request_behind_long_replies_is_answered() {
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut other = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut client = Client::new(
            Stream::Plain(mio::net::TcpStream::from_std(stream)),
            Session::new(1),
            Conversation::new(Arc::default(), 0, 1),
            Time::ZERO,
        );
        other.write_all(b"INFO\r\nPING\r\n").unwrap();
        let reading = std::thread::spawn(move || {
            let mut all = Vec::new();
            other.read_to_end(&mut all).map(|_| all)
        });
        let (settings, mut scratch) = (conversation::settings(1), Vec::new());
        loop {
            client.connection.link.is_readable = true;
            if let Intent::Info(_) = client.turn(&settings, &mut scratch, Time::ZERO) {
                break;
            }
        }
        // PING came with it, or is read now.
        while client.connection.waiting() == 0 {
            client.connection.link.is_readable = true;
            let connection = &mut client.connection;
            connection.read(&settings, false, &mut scratch, || Time::ZERO).unwrap();
        }
        let long = "x".repeat(REPLIES_PAUSE + (64 << 10));
        Writer::new(&mut client.connection.link.out, client.connection.session.version).bulk(long.as_bytes());
        (client.connection.link.is_readable, client.connection.link.is_writable) = (false, true);
        // As the loop does: a further turn where there is more to do, or an event, which comes while all is not sent.
        loop {
            let wanted = client.turn(&settings, &mut scratch, Time::ZERO);
            assert!(matches!(wanted, Intent::Nothing));
            match client.connection.link.unsent() {
                0 if !client.has_more() => break,
                _ => client.connection.link.is_writable = true,
            }
        }
        drop(client);
        let all = reading.join().unwrap().unwrap();
        assert!(all.ends_with(b"+PONG\r\n"), "{} bytes", all.len());
    }
}
