//! A server that runs, and a client of its.

use std::io::{BufRead, BufReader, ErrorKind, Lines, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};

use punctual_server::resp::reply::ReplyParser;
use punctual_server::resp::{Bounds, Reply, Resp, Writer};
use punctual_testing::TestChild;

use super::BOUND;

/// A server that runs, and its address.
pub struct TestServer {
    pub child: TestChild,
    pub address: String,
    /// What it has said.
    pub lines: Vec<String>,
    said: Lines<BufReader<ChildStdout>>,
}

pub fn serve(folder: &Path, arguments: &[&str]) -> TestServer {
    serve_telling(folder, arguments, Stdio::inherit())
}

/// The same, with its errors as `errors` says.
pub fn serve_telling(folder: &Path, arguments: &[&str], errors: Stdio) -> TestServer {
    try_serve(folder, arguments, errors).expect("it serves")
}

/// The same; none where it ends in place of serving.
pub fn try_serve(folder: &Path, arguments: &[&str], errors: Stdio) -> Option<TestServer> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    command.arg("serve").args(arguments);
    if !arguments.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    command.current_dir(folder).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(errors);
    let mut child = punctual_testing::start(&mut command, BOUND).expect("the program starts");
    let mut said = BufReader::new(child.stdout().expect("its output")).lines();
    let line = said.find_map(|line| line.ok().filter(|line| line.starts_with("serving")));
    let line = line?;
    let address = line.split(" on ").nth(1).and_then(|rest| rest.split(';').next());
    let address = address.unwrap_or_else(|| panic!("it serves: {line:?}")).to_owned();
    Some(TestServer {
        child,
        address,
        lines: vec![line],
        said,
    })
}

impl TestServer {
    /// All that it has printed, and prints until it ends; its errors too, where they are piped.
    pub fn rest(&mut self) -> String {
        let mut all = self.lines.join("\n");
        self.said.by_ref().for_each(|line| all += &line.expect("text"));
        if let Some(mut errors) = self.child.stderr() {
            errors.read_to_string(&mut all).expect("text");
        }
        all
    }

    /// The next line that it says.
    pub fn next_line(&mut self) -> String {
        self.said.next().expect("a line").expect("text")
    }

    pub fn client(&self) -> Client {
        Client::of(TcpStream::connect(&self.address).expect("it listens"))
    }
}

pub struct Client<S = TcpStream> {
    pub stream: S,
    parser: ReplyParser,
}

pub fn encoded(request: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Writer::new(&mut bytes, Resp::Two).value(&Reply::Array(request.iter().map(Reply::bulk).collect()));
    bytes
}

impl Client {
    pub fn of(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(BOUND)).expect("a bound");
        Client::over(stream)
    }
}

impl<S: Read + Write> Client<S> {
    /// Over a connection whose reads have a bound.
    pub fn over(stream: S) -> Client<S> {
        Client {
            stream,
            parser: ReplyParser::default(),
        }
    }

    pub fn send(&mut self, request: &str) {
        let words: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
        self.stream.write_all(&encoded(&words)).expect("it takes a request");
    }

    /// The next reply; none where the server has closed the connection.
    pub fn try_reply(&mut self) -> Option<Reply> {
        loop {
            if let Some(value) = self.parser.next(&Bounds::ADMITTED).expect("RESP") {
                return Some(value);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                // A read with a bound, of a process that was stopped and goes on.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => self.parser.feed(&bytes[..read.expect("a reply in time")]),
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
}

/// As a service manager ends it.
pub fn end(child: &TestChild) {
    // SAFETY: a plain number, of a child that has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGTERM) }, 0);
}

pub fn bulk(text: &str) -> Reply {
    Reply::bulk(text)
}
