//! A connection of a client that waits for its answers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use punctual_server::resp::reply::ReplyParser;
use punctual_server::resp::{Bounds, Reply, Resp, Writer};

/// Time limit of a connection.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// A connection, or the address of the next attempt.
pub struct Line {
    address: SocketAddr,
    stream: Option<TcpStream>,
    parser: ReplyParser,
}

impl Line {
    /// Connects; a failed attempt is repeated with the next request.
    pub fn connect(address: SocketAddr) -> Line {
        let mut line = Line {
            address,
            stream: None,
            parser: ReplyParser::default(),
        };
        line.open();
        line
    }

    fn open(&mut self) {
        self.parser = ReplyParser::default();
        self.stream = TcpStream::connect_timeout(&self.address, CONNECT_MAX).ok();
        if let Some(stream) = &self.stream {
            // Without it, answers are only later.
            let _ = stream.set_nodelay(true);
        }
    }

    /// Goes to the next of these addresses.
    pub fn again(&mut self, addresses: &[SocketAddr]) {
        let place = addresses.iter().position(|address| *address == self.address);
        self.address = addresses[(place.unwrap_or(0) + 1) % addresses.len()];
        self.open();
    }

    /// Sends a request and waits for its reply. `None` if there was none in time: the connection is closed then.
    pub fn ask(&mut self, request: &[String], wait: Duration) -> Option<Reply> {
        self.exchange(&[request.to_vec()], wait)?.pop()
    }

    /// Sends requests together, and waits for all of their replies, as [`Line::ask`] does.
    pub fn exchange(&mut self, requests: &[Vec<String>], wait: Duration) -> Option<Vec<Reply>> {
        if self.stream.is_none() {
            self.open();
        }
        let replies = self.attempt(requests, Instant::now() + wait);
        if replies.is_none() {
            self.stream = None;
        }
        replies
    }

    fn attempt(&mut self, requests: &[Vec<String>], until: Instant) -> Option<Vec<Reply>> {
        let stream = self.stream.as_mut()?;
        let mut out = Vec::new();
        for request in requests {
            let words = Reply::Array(request.iter().map(Reply::bulk).collect());
            Writer::new(&mut out, Resp::Two).value(&words);
        }
        stream.write_all(&out).ok()?;
        let mut replies = Vec::with_capacity(requests.len());
        let mut scratch = [0; 16 << 10];
        while replies.len() < requests.len() {
            match self.parser.next(&Bounds::ADMITTED).ok()? {
                Some(reply) => replies.push(reply),
                None => {
                    let left = until.checked_duration_since(Instant::now())?;
                    stream.set_read_timeout(Some(left.max(Duration::from_millis(1)))).ok()?;
                    let bytes = stream.read(&mut scratch).ok().filter(|bytes| *bytes > 0)?;
                    self.parser.feed(&scratch[..bytes]);
                }
            }
        }
        Some(replies)
    }
}

/// The number that a record is, if it is one.
pub fn number(reply: &Reply) -> Option<i64> {
    match reply {
        Reply::Bulk(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
        _ => None,
    }
}
