//! A client of a door in virtual time; its calls have the world go on until they can return.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;

use mio::Token;
use punctual_server::net::{FIRST, Net, Remote, Socket};
use punctual_server::resp::reply::ReplyParser;
use punctual_server::resp::{Bounds, Reply, Resp, Writer};

use super::net::{Host, HostNet};
use super::world::Sim;

pub fn encoded(request: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Writer::new(&mut bytes, Resp::Two).value(&Reply::Array(request.iter().map(Reply::bulk).collect()));
    bytes
}

pub fn bulk(text: &str) -> Reply {
    Reply::bulk(text)
}

/// A connection whose reads and writes take time, and return once they are done.
pub struct Connection {
    sim: Sim,
    pub host: Host,
    net: HostNet,
    socket: Option<Box<dyn Socket>>,
}

impl Connection {
    pub fn to(sim: &Sim, address: SocketAddr) -> Connection {
        let (host, _, mut net) = sim.host();
        let socket = net
            .connect(Remote::Address(address), Token(FIRST))
            .expect("a connection");
        Connection {
            sim: sim.clone(),
            host,
            net,
            socket: Some(socket),
        }
    }

    fn until_ready<R>(&mut self, mut act: impl FnMut(&mut dyn Socket) -> io::Result<R>) -> io::Result<R> {
        let Connection { sim, net, socket, .. } = self;
        let socket = socket.as_mut().ok_or(ErrorKind::NotConnected)?;
        sim.wait_for("a client goes on", || {
            let mut ready = Vec::new();
            net.poll(&mut ready, punctual_units::Nanos::ZERO).expect("events");
            match act(&mut **socket) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                done => Some(done),
            }
        })
    }

    /// Has the other side read an end, and goes on reading.
    pub fn sends_no_more(&mut self) {
        if let Some(socket) = &self.socket {
            let end = socket.descriptor();
            self.sim.with(|world| world.network.ends(end));
        }
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.until_ready(|socket| socket.read(buffer))
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.until_ready(|socket| socket.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub struct Client {
    pub stream: Connection,
    parser: ReplyParser,
}

impl Client {
    pub fn to(sim: &Sim, address: SocketAddr) -> Client {
        Client {
            stream: Connection::to(sim, address),
            parser: ReplyParser::default(),
        }
    }

    pub fn send(&mut self, request: &str) {
        let words: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
        self.stream.write_all(&encoded(&words)).expect("it takes a request");
    }

    /// The next reply; none where the other side has closed the connection.
    pub fn try_reply(&mut self) -> Option<Reply> {
        loop {
            if let Some(value) = self.parser.next(&Bounds::ADMITTED).expect("RESP") {
                return Some(value);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.parser.feed(&bytes[..count]),
            }
        }
    }

    pub fn reply(&mut self) -> Reply {
        self.try_reply().expect("a reply")
    }

    pub fn ask(&mut self, request: &str) -> Reply {
        self.send(request);
        self.reply()
    }

    /// The text of an error.
    pub fn error(&mut self, request: &str) -> String {
        match self.ask(request) {
            Reply::Error(error) => error,
            other => panic!("{request}: {other:?}"),
        }
    }

    /// The text of INFO or CLIENT LIST.
    pub fn text(&mut self, request: &str) -> String {
        match self.ask(request) {
            Reply::Bulk(text) => String::from_utf8(text).expect("text"),
            Reply::Verbatim(text) => text,
            other => panic!("{request}: {other:?}"),
        }
    }
}

/// A connection that an actor has, which never waits.
pub struct Line {
    socket: Box<dyn Socket>,
    parser: ReplyParser,
    unsent: VecDeque<u8>,
}

impl Line {
    pub fn to(net: &mut HostNet, address: SocketAddr) -> Line {
        Line {
            socket: net
                .connect(Remote::Address(address), Token(FIRST))
                .expect("a connection"),
            parser: ReplyParser::default(),
            unsent: VecDeque::new(),
        }
    }

    pub fn send(&mut self, request: &[&[u8]]) {
        self.unsent.extend(encoded(request));
    }

    /// Sends and reads as far as that is possible; returns the replies, `None` once the connection has ended.
    pub fn turn(&mut self) -> Option<Vec<Reply>> {
        while !self.unsent.is_empty() {
            let bytes: Vec<u8> = self.unsent.iter().copied().collect();
            match self.socket.write(&bytes) {
                Ok(count) => _ = self.unsent.drain(..count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return None,
            }
        }
        let mut bytes = [0; 4096];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.parser.feed(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return None,
            }
        }
        let next = || self.parser.next(&Bounds::ADMITTED).expect("RESP");
        Some(std::iter::from_fn(next).collect())
    }
}
