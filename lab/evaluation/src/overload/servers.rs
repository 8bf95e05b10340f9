//! The servers of a comparison, as child processes, and their records.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use punctual_os::LinuxOs;
use punctual_server::resp::reply::ReplyParser;
use punctual_server::resp::{Bounds, Reply, Resp, Writer};
use punctual_units::{Clock, Nanos, percentile};

/// Limit of the time until a server listens: far longer than that takes on a busy machine.
const START_MAX: Duration = Duration::from_secs(60);
/// Limit of the time of an answer: far longer than any takes here.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// The request: keys that match a pattern that none matches. Each server checks each of its keys.
pub const COMMAND: [&str; 2] = ["KEYS", "none*"];
/// Limit of the number of records: `punctual serve` answers `KEYS` up to this number.
const RECORDS_MAX: usize = 90_000;
/// Number of records that one request sets.
const SET_TOGETHER: usize = 500;
/// Number of requests in one measurement of the execution time.
const TIMED: usize = 400;
/// Limit of corrections of the number of records.
const CORRECTIONS: usize = 6;

punctual_units::named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ServerKind by name {
        Ours = "punctual serve",
        Redis = "Redis",
        /// `haproxy`, in front of the Redis server.
        Haproxy = "HAProxy before Redis",
    }
}

impl ServerKind {
    /// The program that must be installed, and the argument with which it prints its version.
    pub fn program(self) -> Option<(&'static str, &'static str)> {
        match self {
            ServerKind::Ours => None,
            ServerKind::Redis => Some(("redis-server", "--version")),
            ServerKind::Haproxy => Some(("haproxy", "-v")),
        }
    }
}

/// First line of the output of `program` with `argument`; `None` where it is not installed. Debian installs some
/// programs in a folder that only the superuser's PATH has.
pub fn version(program: &str, argument: &str) -> Option<String> {
    let output = Command::new(found(program)).arg(argument).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .next()
        .filter(|_| output.status.success())
        .map(str::to_owned)
}

fn found(program: &str) -> PathBuf {
    let beside = Path::new("/usr/sbin").join(program);
    if beside.exists() { beside } else { program.into() }
}

/// A running server; dropping it ends the process.
pub struct Server {
    pub kind: ServerKind,
    pub address: SocketAddr,
    child: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Server {
    /// Starts `punctual serve` from the path of its program.
    pub fn ours(program: &Path, folder: &Path, connections: usize) -> io::Result<Server> {
        let file = folder.join("node.toml");
        let room = connections + 64;
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nconnections_max = {room}\nqueue_max = {room}\n\
             [store]\npath = \"overload.store\"\ndurability = \"volatile\"\n"
        );
        std::fs::write(&file, text)?;
        let mut command = Command::new(program);
        command.arg("serve").arg(&file).stdout(Stdio::piped());
        let mut child = command.stdin(Stdio::null()).spawn()?;
        let said = child.stdout.take();
        let address = said.and_then(|said| {
            let mut lines = BufReader::new(said).lines().map_while(Result::ok);
            let line = lines.find(|line| line.starts_with("serving "))?;
            line.split(" on ").nth(1)?.split(';').next()?.parse().ok()
        });
        let mut server = Server {
            kind: ServerKind::Ours,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            child,
        };
        server.address = address.ok_or_else(|| io::Error::other("punctual serve has not said where it listens"))?;
        Ok(server)
    }

    /// Starts a Redis without persistence.
    pub fn redis(folder: &Path, connections: usize) -> io::Result<Server> {
        let address = free()?;
        let room = (connections + 64).to_string();
        let port = address.port().to_string();
        let arguments = [
            "--port",
            &port,
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ];
        let mut command = Command::new(found("redis-server"));
        command
            .args(arguments)
            .args(["--maxclients", &room, "--tcp-backlog", "4096"]);
        Server::started(ServerKind::Redis, command.current_dir(folder), address)
    }

    /// Starts an HAProxy in front of a Redis. It balances connections, because it does not parse requests of this
    /// protocol.
    pub fn haproxy(folder: &Path, redis: SocketAddr, connections: usize) -> io::Result<Server> {
        let address = free()?;
        let room = connections + 64;
        let file = folder.join("haproxy.cfg");
        let text = format!(
            "global\n  maxconn {room}\ndefaults\n  mode tcp\n  maxconn {room}\n  timeout connect 10s\n  timeout client \
             5m\n  timeout server 5m\nfrontend clients\n  bind {address} backlog 4096\n  default_backend \
             stores\nbackend stores\n  balance leastconn\n  server redis {redis} maxconn {room}\n"
        );
        std::fs::write(&file, text)?;
        let mut command = Command::new(found("haproxy"));
        command.arg("-db").arg("-f").arg(&file);
        Server::started(ServerKind::Haproxy, &mut command, address)
    }

    fn started(kind: ServerKind, command: &mut Command, address: SocketAddr) -> io::Result<Server> {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = Server {
            kind,
            address,
            child: quiet.spawn()?,
        };
        let begin = Instant::now();
        loop {
            let answered = Asker::connect(address).and_then(|mut asker| asker.ask(&["PING"]));
            if answered.is_ok_and(|answer| answer == Reply::Simple("PONG".into())) {
                return Ok(server);
            }
            let ended = server.child.try_wait()?;
            if ended.is_some() || begin.elapsed() > START_MAX {
                return Err(io::Error::other(format!("{} does not listen", kind.name())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// An address with a port that is free now.
fn free() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr())
}

/// A connection with one request at a time.
pub struct Asker {
    stream: TcpStream,
    parser: ReplyParser,
}

impl Asker {
    /// Connects to a server.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn connect(address: SocketAddr) -> io::Result<Asker> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        Ok(Asker {
            stream,
            parser: ReplyParser::default(),
        })
    }

    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    /// Errors of the socket; an answer that is an error.
    pub fn ask<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<Reply> {
        let mut out = Vec::new();
        Writer::new(&mut out, Resp::Two).value(&Reply::Array(words.iter().map(Reply::bulk).collect()));
        self.stream.write_all(&out)?;
        let mut bytes = [0; 4096];
        loop {
            let reply = self.parser.next(&Bounds::ADMITTED);
            match reply.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
                Some(Reply::Error(error)) => return Err(io::Error::other(error)),
                Some(reply) => return Ok(reply),
                None => {}
            }
            match self.stream.read(&mut bytes)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.parser.feed(&bytes[..count]),
            }
        }
    }

    /// Replaces all records with `records` new ones.
    fn fill(&mut self, records: usize) -> io::Result<()> {
        self.ask(&["FLUSHDB"])?;
        let names: Vec<String> = (0..records).map(|record| format!("record:{record:08}")).collect();
        for names in names.chunks(SET_TOGETHER) {
            let pairs = names.iter().flat_map(|name| [name.as_str(), "value"]);
            let words: Vec<&str> = std::iter::once("MSET").chain(pairs).collect();
            self.ask(&words)?;
        }
        Ok(())
    }

    /// Time of a request: the lower quartile, which other load of the machine disturbs least.
    fn time(&mut self) -> io::Result<Nanos> {
        let mut taken = Vec::with_capacity(TIMED);
        for _ in 0..TIMED {
            let begin = LinuxOs.now();
            self.ask(&COMMAND)?;
            taken.push(LinuxOs.now().since(begin).0 as f64);
        }
        Ok(Nanos(percentile(taken, 0.25).unwrap_or(0.0) as u64))
    }

    /// Finds a number of records with which a request takes `work` longer than with none. Returns that number, and the
    /// time by which a request with it is longer.
    pub fn work(&mut self, work: Nanos) -> io::Result<(usize, Nanos)> {
        self.fill(0)?;
        let empty = self.time()?;
        let mut records = 2_000;
        let mut best: Option<(usize, Nanos)> = None;
        for _ in 0..CORRECTIONS {
            self.fill(records)?;
            let found = self.time()?.saturating_sub(empty).max(Nanos(1));
            let off = |taken: Nanos| taken.0.abs_diff(work.0);
            if best.is_none_or(|(_, best)| off(found) < off(best)) {
                best = Some((records, found));
            }
            if off(found) * 20 < work.0 {
                break;
            }
            let next = records as f64 * work.0 as f64 / found.0 as f64;
            records = (next as usize).clamp(10, RECORDS_MAX);
        }
        let (records, found) = best.unwrap_or((records, empty));
        self.fill(records)?;
        Ok((records, found))
    }
}

/// Runs redis-benchmark with one connection: requests per second, and the median in milliseconds. `None` where it is
/// not installed, or prints another format.
pub fn redis_benchmark(address: SocketAddr, requests: u32) -> Option<(f64, f64)> {
    let (port, requests) = (address.port().to_string(), requests.to_string());
    let mut command = Command::new("redis-benchmark");
    command
        .args(["-p", &port, "-c", "1", "-n", &requests, "--csv"])
        .args(COMMAND);
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    of_csv(&String::from_utf8_lossy(&output.stdout))
}

/// Parses the CSV output of redis-benchmark: the test, requests per second, and delays in milliseconds (average, least,
/// median, ..).
fn of_csv(text: &str) -> Option<(f64, f64)> {
    let mut columns = text.lines().last()?.split("\",\"").skip(1);
    let per_second = columns.next()?.parse().ok()?;
    let median = columns.nth(2)?.parse().ok()?;
    Some((per_second, median))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_redis_benchmark_prints_is_read() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\"\n\
                    \"KEYS none*\",\"3048.78\",\"0.325\",\"0.296\",\"0.319\",\"0.359\"\n";
        assert_eq!(of_csv(text), Some((3048.78, 0.319)));
        assert_eq!(of_csv("ERROR"), None);
        assert_eq!(of_csv(""), None);
    }
}
