//! Figures for Prometheus: a page of text on a port of this machine alone, of a server or of any other program.
//!
//! A thread of its own serves one reader at a time, so that no reader costs the event loop anything. Values that only
//! the event loop knows (connections, bytes) it stores in `Figures` a few times a second.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use punctual_os::Os;
use punctual_store::engine::Engine;
use punctual_units::Nanos;

use crate::pool::Shared;
use crate::work::{Counts, Stage};

/// Time limit for a reader's request, and for each part of the page.
const PATIENCE: Duration = Duration::from_millis(500);
/// The longest request that is read, in bytes.
const REQUEST_MAX: usize = 8 << 10;
/// The most objects with an age of their own on the page; the greatest age of all is always shown.
pub const OBJECTS_SHOWN_MAX: usize = 100;
/// How often the thread looks for readers, and whether the server ends.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Values of the event loop, which it stores a few times a second.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub connections: AtomicU64,
    pub begun: AtomicU64,
    pub refused: AtomicU64,
    pub dropped: AtomicU64,
    pub wrong_passwords: AtomicU64,
    pub bytes: AtomicU64,
    pub orphans: AtomicU64,
    pub channels: AtomicU64,
    pub patterns: AtomicU64,
}

/// Limits of a server, which do not change while it runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub connections: usize,
    pub queue: usize,
    pub bytes: usize,
}

/// A port that is bound but not served yet.
#[derive(Debug)]
pub struct Page {
    listener: TcpListener,
}

impl Page {
    /// Binds a port of this machine.
    ///
    /// # Errors
    /// The error of the system.
    pub fn bind(address: SocketAddr) -> io::Result<Page> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Page { listener })
    }

    /// The address that was bound.
    ///
    /// # Errors
    /// The error of the system.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves `text` on a thread of its own until `stop`.
    ///
    /// # Errors
    /// The system refuses to start a thread.
    pub fn serve(
        self,
        text: impl Fn() -> String + Send + 'static,
        stop: Arc<AtomicBool>,
    ) -> io::Result<JoinHandle<()>> {
        let serve = move || {
            while !stop.load(Ordering::SeqCst) {
                match self.listener.accept() {
                    // A reader that leaves or is too slow is no fault of the server.
                    Ok((stream, _)) => drop(answer(stream, &text)),
                    Err(_) => std::thread::sleep(LOOK_EVERY),
                }
            }
        };
        std::thread::Builder::new().name("serve-metrics".into()).spawn(serve)
    }
}

/// Reads a request and answers it; HTTP/1.0, so that the connection ends with the page.
fn answer(mut stream: TcpStream, page: impl FnOnce() -> String) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    let mut piece = [0; 1024];
    let begin = Instant::now();
    // Bounded as a whole: a reader that sends a byte now and then would hold the port without limit.
    while begin.elapsed() < PATIENCE {
        let count = match stream.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        request.extend_from_slice(&piece[..count]);
        if count == 0 || request.windows(4).any(|end| end == b"\r\n\r\n") || request.len() > REQUEST_MAX {
            break;
        }
    }
    let mut words = request.split(|byte| byte.is_ascii_whitespace());
    let (status, body) = match (words.next(), words.next()) {
        (Some(b"GET"), Some(b"/metrics")) => ("200 OK", page()),
        (Some(b"GET"), _) => ("404 Not Found", "the figures are at /metrics\n".into()),
        _ => ("405 Method Not Allowed", "GET /metrics\n".into()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.0 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

fn load(figure: &AtomicU64) -> u64 {
    figure.load(Ordering::Relaxed)
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Writes one figure with its help and type; a sample is its labels in braces, or nothing, and a value.
pub fn figure(page: &mut String, name: &str, kind: &str, help: &str, samples: &[(String, f64)]) {
    let _ = writeln!(page, "# HELP punctual_{name} {help}\n# TYPE punctual_{name} {kind}");
    for (labels, value) in samples {
        let _ = writeln!(page, "punctual_{name}{labels} {value}");
    }
}

fn plain(value: u64) -> Vec<(String, f64)> {
    vec![(String::new(), value as f64)]
}

/// Writes the figures of requests, from the counters.
pub(crate) fn requests(page: &mut String, counts: &Counts) {
    let outcome = |outcome: &str, count: &AtomicU64| (format!("{{outcome=\"{outcome}\"}}"), load(count) as f64);
    figure(
        page,
        "requests_total",
        "counter",
        "Commands that asked the store: carried out (timely: those of them with a deadline), or not because no time \
         was left (expired) or no room in the queue (backlog).",
        &[
            outcome("carried_out", &counts.carried_out),
            outcome("timely", &counts.timely),
            outcome("expired", &counts.expired),
            outcome("backlog", &counts.backlog),
        ],
    );
    let stages = Stage::ALL.map(|(name, stage)| (format!("{{stage=\"{name}\"}}"), stage));
    let found = stages
        .clone()
        .map(|(labels, stage)| (labels, load(counts.late_at(stage)) as f64));
    figure(
        page,
        "late_requests_total",
        "counter",
        "Requests that expired, by where the deadline passed: before the queue, in it, at the write lock, in the \
         store.",
        &found,
    );
    let spent = stages.map(|(labels, stage)| (labels, seconds(load(counts.late_spent(stage)))));
    figure(
        page,
        "late_requests_seconds_total",
        "counter",
        "Where the time of requests went that expired, from when they were read.",
        &spent,
    );
}

pub(crate) fn text<E: Engine + 'static, O: Os>(shared: &Shared<E, O>, figures: &Figures, limits: &Limits) -> String {
    let mut page = String::new();
    let counts = &shared.counts;
    requests(&mut page, counts);
    let to = &mut page;
    figure(
        to,
        "commits_total",
        "counter",
        "Commits of the store for requests.",
        &plain(load(&counts.commits)),
    );
    figure(
        to,
        "queue_length",
        "gauge",
        "Pieces of work that wait for a thread.",
        &plain(shared.waiting() as u64),
    );
    figure(
        to,
        "queue_length_max",
        "gauge",
        "The most that may wait.",
        &plain(limits.queue as u64),
    );
    let waited = [(String::new(), seconds(load(&counts.waited)))];
    figure(
        to,
        "queue_wait_seconds",
        "gauge",
        "How long work has waited in the queue lately.",
        &waited,
    );
    figure(
        to,
        "connections",
        "gauge",
        "Connections.",
        &plain(load(&figures.connections)),
    );
    figure(
        to,
        "connections_max",
        "gauge",
        "The most there may be.",
        &plain(limits.connections as u64),
    );
    figure(
        to,
        "connections_total",
        "counter",
        "Connections that there ever were.",
        &plain(load(&figures.begun)),
    );
    let ended = [
        ("{why=\"too_many\"}".to_owned(), load(&figures.refused) as f64),
        ("{why=\"slow\"}".to_owned(), load(&figures.dropped) as f64),
    ];
    let help = "Connections that were refused, or ended because their clients did not read, stalled or took too much.";
    figure(to, "connections_ended_total", "counter", help, &ended);
    figure(
        to,
        "wrong_passwords_total",
        "counter",
        "Wrong passwords.",
        &plain(load(&figures.wrong_passwords)),
    );
    let help = "What connections take: requests, replies, what they watch and hear.";
    figure(to, "memory_bytes", "gauge", help, &plain(load(&figures.bytes)));
    figure(
        to,
        "memory_bytes_max",
        "gauge",
        "The most that they may take.",
        &plain(limits.bytes as u64),
    );
    let help = "Pieces of work whose connections have ended.";
    figure(to, "orphans", "gauge", help, &plain(load(&figures.orphans)));
    figure(
        to,
        "channels",
        "gauge",
        "Channels that are heard.",
        &plain(load(&figures.channels)),
    );
    figure(
        to,
        "patterns",
        "gauge",
        "Patterns that are heard.",
        &plain(load(&figures.patterns)),
    );
    let objects = shared.objects();
    figure(
        to,
        "objects",
        "gauge",
        "Temporal objects.",
        &plain(shared.store.objects() as u64),
    );
    let now = shared.os.since_boot();
    let (mut ages, mut without, mut oldest) = (Vec::new(), 0, Nanos::ZERO);
    for (key, object) in &objects {
        let age = shared
            .store
            .sample(*object)
            .ok()
            .flatten()
            .map(|sample| sample.age(now));
        let Some(age) = age.filter(|age| *age != Nanos::MAX) else {
            without += 1;
            continue;
        };
        oldest = oldest.max(age);
        if ages.len() < OBJECTS_SHOWN_MAX {
            ages.push((format!("{{key=\"{}\"}}", label(key)), seconds(age.0)));
        }
    }
    figure(
        to,
        "objects_without_value",
        "gauge",
        "Those without a value of a known age.",
        &plain(without),
    );
    let oldest = [(String::new(), seconds(oldest.0))];
    figure(
        to,
        "object_age_seconds_max",
        "gauge",
        "The age of the oldest value.",
        &oldest,
    );
    figure(
        to,
        "object_age_seconds",
        "gauge",
        "The ages of the values of 100 objects.",
        &ages,
    );
    page
}

/// Escapes a key for use between the quotes of a label.
pub fn label(key: &[u8]) -> String {
    let text = String::from_utf8_lossy(key);
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_stays_between_its_quotes() {
        assert_eq!(label(b"pose"), "pose");
        assert_eq!(label(b"a\"b\\c\nd\xff"), "a\\\"b\\\\c\\nd\u{fffd}");
    }
}
