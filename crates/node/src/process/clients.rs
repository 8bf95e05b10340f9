//! One client's connection.

use std::collections::VecDeque;
use std::io;

use punctual_federation::message::{Answer, Request};
use punctual_server::login::{Claimed, Login};
use punctual_server::resp::request::{Request as Words, RequestParser};
use punctual_server::resp::{Bounds, Writer};
use punctual_server::stream::Stream;
use punctual_units::{Nanos, Time};

use super::link::{Link, Turn};
use crate::conversation::{Conversation, Step};

/// How much of one request is taken: what a transaction may have.
static BOUNDS: Bounds = Bounds {
    arguments: 1024,
    bulk: 1 << 20,
    request: 2 << 20,
    inline: 16 << 10,
    depth: 2,
};
/// The most requests of a client that are read and not begun.
const WAITING_MAX: usize = 1024;
/// The most bytes of them, but for one request.
const WAITING_BYTES: usize = 1 << 20;
/// While so many bytes of replies are not sent, no further request of the client is begun.
const REPLIES_PAUSE: usize = 1 << 20;
/// The most bytes of a stranger's requests that are read and not begun.
const STRANGER_KEPT: usize = 2 * Bounds::STRANGER.request;
/// A client that leaves replies for so long without taking any is dropped, as is one in the middle of a request.
pub(super) const STALLED_MAX: Nanos = Nanos::from_secs(10);

/// A client.
pub(super) struct Client {
    /// The number of its connection.
    pub number: u32,
    pub link: Link<Stream>,
    parser: RequestParser,
    waiting: VecDeque<(Words, Time)>,
    waiting_bytes: usize,
    conversation: Conversation,
    /// The request that the node has.
    pub ticket: Option<u64>,
    /// What was wrong with its bytes: said behind all replies.
    broken: Option<String>,
    is_ended: bool,
    is_closing: bool,
    began: Time,
    came: Time,
    taken: Time,
}

/// What a turn of a client came to.
#[derive(Debug)]
pub(super) enum Wanted {
    /// Nothing further now.
    Nothing,
    /// To ask the node.
    Ask(Request),
    /// To describe the node, in a reply.
    Info,
    /// To have a password checked.
    Check(Claimed),
    /// Its connection is over.
    Over,
}

impl Client {
    pub fn new(stream: Stream, login: Login, first: u64, number: u32, now: Time) -> Client {
        Client {
            number,
            link: Link::new(stream),
            parser: RequestParser::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            conversation: Conversation::new(login, first, number),
            ticket: None,
            broken: None,
            is_ended: false,
            is_closing: false,
            began: now,
            came: now,
            taken: now,
        }
    }

    fn reads(&self) -> bool {
        // A stranger has one request at a time: what follows may have other bounds.
        let is_stranger = self.conversation.login().is_stranger();
        let has_room = !is_stranger || self.parser.kept() <= STRANGER_KEPT;
        has_room
            && self.waiting.len() < WAITING_MAX
            && self.waiting_bytes < WAITING_BYTES
            && self.link.unsent() < REPLIES_PAUSE
            && self.broken.is_none()
            && !self.is_ended
            && !self.is_closing
    }

    /// Whether there is more to do without an event: something to read, or a request that waited for replies to be sent
    /// and need not any more.
    pub fn has_more(&self) -> bool {
        let begins = !self.waiting.is_empty() || self.broken.is_some();
        let may_begin = !self.conversation.is_waiting() && self.link.unsent() <= REPLIES_PAUSE;
        self.link.is_readable && self.reads() || begins && may_begin && !self.is_closing
    }

    /// Whether it stalls, in the middle of a request or of replies.
    pub fn is_stalled(&self, now: Time) -> bool {
        let half = self.parser.is_inside() && self.waiting.is_empty() && self.ticket.is_none() && self.reads();
        let is_stranger = self.conversation.login().is_stranger() || self.link.stream.is_handshaking();
        let is_silent = is_stranger && !self.conversation.is_waiting() && now.since(self.began) > STALLED_MAX;
        is_silent
            || half && now.since(self.came) > STALLED_MAX
            || self.link.unsent() > 0 && now.since(self.taken) > STALLED_MAX
    }

    /// Does all that can be done now, up to the next thing that is wanted.
    pub fn turn(&mut self, scratch: &mut Vec<u8>, now: Time) -> Wanted {
        self.try_turn(scratch, now).unwrap_or(Wanted::Over)
    }

    fn try_turn(&mut self, scratch: &mut Vec<u8>, now: Time) -> io::Result<Wanted> {
        if self.reads() && self.link.is_readable {
            let (parser, came) = (&mut self.parser, &mut self.came);
            let turn = self.link.read(scratch, |bytes| {
                parser.feed(bytes);
                *came = now;
            })?;
            self.is_ended |= turn == Turn::Ended;
        }
        let wanted = self.advance(now);
        if self.link.unsent() == 0 || self.link.flush()? {
            self.taken = now;
        }
        let is_done = self.is_closing || self.is_ended && self.waiting.is_empty();
        if is_done && self.ticket.is_none() && self.link.unsent() == 0 && matches!(wanted, Wanted::Nothing) {
            return Ok(Wanted::Over);
        }
        Ok(wanted)
    }

    /// Takes requests as they come, one at a time: the next one after the answer to the one before.
    fn advance(&mut self, now: Time) -> Wanted {
        loop {
            let is_whole = self.broken.is_none() && !self.is_closing;
            let max = match self.conversation.login().is_stranger() {
                true => usize::from(!self.conversation.is_waiting()),
                false => WAITING_MAX,
            };
            while is_whole && self.waiting.len() < max && self.waiting_bytes < WAITING_BYTES {
                match self.parser.next(self.conversation.login().bounds(&BOUNDS)) {
                    Ok(None) => break,
                    Ok(Some(words)) => {
                        self.waiting_bytes += words.bytes();
                        self.waiting.push_back((words, self.came));
                    }
                    Err(error) => {
                        self.broken = Some(format!("ERR {error}"));
                        break;
                    }
                }
            }
            if self.conversation.is_waiting() || self.link.unsent() > REPLIES_PAUSE {
                return Wanted::Nothing;
            }
            let Some((words, arrived)) = self.waiting.pop_front() else {
                if let Some(error) = self.broken.take() {
                    Writer::new(&mut self.link.out, self.conversation.version()).error(&error);
                    self.is_closing = true;
                }
                return Wanted::Nothing;
            };
            self.waiting_bytes -= words.bytes();
            match self.conversation.take(&words, arrived, now, &mut self.link.out) {
                Step::Answered => {}
                Step::Close => {
                    self.is_closing = true;
                    self.waiting.clear();
                    self.waiting_bytes = 0;
                }
                Step::Ask(request) => return Wanted::Ask(request),
                Step::Info => return Wanted::Info,
                Step::Check(claimed) => return Wanted::Check(claimed),
            }
        }
    }

    /// The node's answer to its request; what it wants next.
    pub fn answered(&mut self, answer: Answer, now: Time) -> Option<Request> {
        self.ticket = None;
        match self.conversation.answered(answer, now, &mut self.link.out) {
            Step::Ask(request) => Some(request),
            _ => None,
        }
    }

    /// Its password was checked: it is the user's of that number, or wrong.
    pub fn judged(&mut self, user: Option<usize>) {
        self.conversation.judged(user, &mut self.link.out);
        self.is_closing |= self.conversation.login().is_guessing();
    }

    /// Its password cannot be checked now.
    pub fn not_checked(&mut self, why: &str) {
        self.conversation.not_checked(why, &mut self.link.out);
    }

    /// A reply that describes the node.
    pub fn described(&mut self, text: &str) {
        Writer::new(&mut self.link.out, self.conversation.version()).bulk(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net;

    use super::*;

    /// The socket takes long replies at once, and tells nothing further.
    #[test]
    fn a_request_behind_long_replies_is_answered() {
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut other = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut client = Client::new(
            Stream::Plain(mio::net::TcpStream::from_std(stream)),
            Login::default(),
            0,
            1,
            Time::ZERO,
        );
        other.write_all(b"INFO\r\nPING\r\n").unwrap();
        let reading = std::thread::spawn(move || {
            let mut all = Vec::new();
            other.read_to_end(&mut all).map(|_| all)
        });
        let mut scratch = Vec::new();
        loop {
            client.link.is_readable = true;
            if let Wanted::Info = client.turn(&mut scratch, Time::ZERO) {
                break;
            }
        }
        // PING came with it, or is read now.
        while client.waiting.is_empty() {
            client.link.is_readable = true;
            let (parser, link) = (&mut client.parser, &mut client.link);
            link.read(&mut scratch, |bytes| parser.feed(bytes)).unwrap();
            if let Ok(Some(words)) = client.parser.next(&BOUNDS) {
                client.waiting_bytes += words.bytes();
                client.waiting.push_back((words, Time::ZERO));
            }
        }
        client.described(&"x".repeat(REPLIES_PAUSE + (64 << 10)));
        (client.link.is_readable, client.link.is_writable) = (false, true);
        // As the loop does: a further turn where there is more to do, or an event, which comes while all is not sent.
        loop {
            assert!(matches!(client.turn(&mut scratch, Time::ZERO), Wanted::Nothing));
            match client.link.unsent() {
                0 if !client.has_more() => break,
                _ => client.link.is_writable = true,
            }
        }
        drop(client);
        let all = reading.join().unwrap().unwrap();
        assert!(all.ends_with(b"+PONG\r\n"), "{} bytes", all.len());
    }
}
