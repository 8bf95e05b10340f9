//! One client's connection.

use std::collections::VecDeque;
use std::io;

use mio::net::TcpStream;
use punctual_federation::message::{Answer, Request};
use punctual_server::resp::request::{Request as Words, RequestParser};
use punctual_server::resp::{Bounds, Writer};
use punctual_units::{Nanos, Time};

use super::link::{Link, Turn};
use crate::conversation::{Conversation, Local, Step};

/// How much of one request is taken: what a transaction may have.
const BOUNDS: Bounds = Bounds {
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
/// A client that leaves replies for so long without taking any is dropped, as is one in the middle of a request.
pub(super) const STALLED_MAX: Nanos = Nanos::from_secs(10);

/// A client.
pub(super) struct Client {
    pub link: Link<TcpStream>,
    parser: RequestParser,
    waiting: VecDeque<(Words, Time)>,
    waiting_bytes: usize,
    conversation: Conversation,
    /// The request that the node has.
    pub ticket: Option<u64>,
    /// When that was read.
    pub arrived: Time,
    /// What was wrong with its bytes: said behind all replies.
    broken: Option<String>,
    is_ended: bool,
    is_closing: bool,
    came: Time,
    taken: Time,
}

/// What answers a request about temporal objects, of the connection with that number; false where the reply comes later.
pub(super) type Here<'h> = dyn FnMut(u32, Local, &mut Writer<'_>) -> bool + 'h;

/// What a turn of a client came to.
#[derive(Debug)]
pub(super) enum Wanted {
    /// Nothing further now.
    Nothing,
    /// To ask the node, what was read at that instant.
    Ask(Request, Time),
    /// To describe the node, in a reply with these sections.
    Info(Vec<String>),
    /// Its connection is over.
    Over,
}

impl Client {
    pub fn new(stream: TcpStream, first: u64, number: u32, now: Time) -> Client {
        Client {
            link: Link::new(stream),
            parser: RequestParser::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            conversation: Conversation::new(first, number),
            ticket: None,
            arrived: now,
            broken: None,
            is_ended: false,
            is_closing: false,
            came: now,
            taken: now,
        }
    }

    fn reads(&self) -> bool {
        self.waiting.len() < WAITING_MAX
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
        half && now.since(self.came) > STALLED_MAX || self.link.unsent() > 0 && now.since(self.taken) > STALLED_MAX
    }

    /// Does all that can be done now, up to the next thing that is wanted. What is about temporal objects `here` answers
    /// at once, or says that the reply comes later.
    pub fn turn(&mut self, scratch: &mut Vec<u8>, now: Time, here: &mut Here<'_>) -> Wanted {
        self.try_turn(scratch, now, here).unwrap_or(Wanted::Over)
    }

    fn try_turn(&mut self, scratch: &mut Vec<u8>, now: Time, here: &mut Here<'_>) -> io::Result<Wanted> {
        if self.reads() && self.link.is_readable {
            let (parser, came) = (&mut self.parser, &mut self.came);
            let turn = self.link.read(scratch, |bytes| {
                parser.feed(bytes);
                *came = now;
            })?;
            self.is_ended |= turn == Turn::Ended;
        }
        let wanted = self.advance(now, here);
        if self.link.unsent() == 0 || self.link.flush()? {
            self.taken = now;
        }
        let is_done = self.is_closing || self.is_ended && self.waiting.is_empty();
        if is_done && !self.conversation.is_waiting() && self.link.unsent() == 0 && matches!(wanted, Wanted::Nothing) {
            return Ok(Wanted::Over);
        }
        Ok(wanted)
    }

    /// Takes requests as they come, one at a time: the next one after the answer to the one before.
    fn advance(&mut self, now: Time, here: &mut Here<'_>) -> Wanted {
        loop {
            let is_whole = self.broken.is_none() && !self.is_closing;
            while is_whole && self.waiting.len() < WAITING_MAX && self.waiting_bytes < WAITING_BYTES {
                match self.parser.next(&BOUNDS) {
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
                Step::Ask(request) => return Wanted::Ask(request, arrived),
                Step::Info(sections) => return Wanted::Info(sections),
                Step::Local(local) => {
                    let (number, version) = (self.conversation.connection(), self.conversation.version());
                    if !here(number, local, &mut Writer::new(&mut self.link.out, version)) {
                        self.conversation.sets();
                        return Wanted::Nothing;
                    }
                }
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

    /// The number of its connection.
    pub fn number(&self) -> u32 {
        self.conversation.connection()
    }

    /// The reply to a reading whose object had to be made.
    pub fn has_set(&mut self, reply: impl FnOnce(&mut Writer<'_>)) {
        reply(&mut Writer::new(&mut self.link.out, self.conversation.version()));
        self.conversation.has_set();
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
        let mut client = Client::new(TcpStream::from_std(stream), 0, 1, Time::ZERO);
        other.write_all(b"INFO\r\nPING\r\n").unwrap();
        let reading = std::thread::spawn(move || {
            let mut all = Vec::new();
            other.read_to_end(&mut all).map(|_| all)
        });
        let mut scratch = Vec::new();
        loop {
            client.link.is_readable = true;
            if let Wanted::Info(_) = client.turn(&mut scratch, Time::ZERO, &mut |_, _, _| true) {
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
            let wanted = client.turn(&mut scratch, Time::ZERO, &mut |_, _, _| true);
            assert!(matches!(wanted, Wanted::Nothing));
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
