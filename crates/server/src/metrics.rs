//! Figures for Prometheus: a page of text on a port of this machine alone, of a server or of any other program.
//!
//! A thread of its own serves one reader at a time, so that no reader costs the event loop anything. Values that only
//! the event loop knows (connections, bytes) it stores in `Gauges` a few times a second.

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

use crate::pool::PoolState;
use crate::work::{Counts, LateStage};

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
pub(crate) struct Gauges {
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

/// Writes figures without labels: name, type, help and value of each.
fn plain(page: &mut String, figures: &[(&str, &str, &str, f64)]) {
    for (name, kind, help, value) in figures {
        figure(page, name, kind, help, &[(String::new(), *value)]);
    }
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
    let stages = LateStage::ALL.map(|(name, stage)| (format!("{{stage=\"{name}\"}}"), stage));
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

/// The page of a server.
pub(crate) fn text<E: Engine + 'static, O: Os>(shared: &PoolState<E, O>, figures: &Gauges, limits: &Limits) -> String {
    let mut page = String::new();
    requests(&mut page, &shared.counts);
    queue(&mut page, shared, limits);
    connections(&mut page, figures, limits);
    objects(&mut page, shared);
    page
}

fn queue<E: Engine + 'static, O: Os>(page: &mut String, shared: &PoolState<E, O>, limits: &Limits) {
    let commits = load(&shared.counts.commits) as f64;
    let (waiting, max) = (shared.waiting() as f64, limits.queue as f64);
    let waited = seconds(load(&shared.counts.waited));
    plain(
        page,
        &[
            (
                "commits_total",
                "counter",
                "Commits of the store for requests.",
                commits,
            ),
            (
                "queue_length",
                "gauge",
                "Pieces of work that wait for a thread.",
                waiting,
            ),
            ("queue_length_max", "gauge", "The most that may wait.", max),
            (
                "queue_wait_seconds",
                "gauge",
                "How long work has waited in the queue lately.",
                waited,
            ),
        ],
    );
}

fn connections(page: &mut String, figures: &Gauges, limits: &Limits) {
    let of = |figure: &AtomicU64| load(figure) as f64;
    let (max, bytes_max) = (limits.connections as f64, limits.bytes as f64);
    let begun = "Connections that there ever were.";
    plain(
        page,
        &[
            ("connections", "gauge", "Connections.", of(&figures.connections)),
            ("connections_max", "gauge", "The most there may be.", max),
            ("connections_total", "counter", begun, of(&figures.begun)),
        ],
    );
    let ended = [
        ("{why=\"too_many\"}".to_owned(), of(&figures.refused)),
        ("{why=\"slow\"}".to_owned(), of(&figures.dropped)),
    ];
    let help = "Connections that were refused, or ended because their clients did not read, stalled or took too much.";
    figure(page, "connections_ended_total", "counter", help, &ended);
    let wrong = of(&figures.wrong_passwords);
    let taken = "What connections take: requests, replies, what they watch and hear.";
    let orphans = "Pieces of work whose connections have ended.";
    plain(
        page,
        &[
            ("wrong_passwords_total", "counter", "Wrong passwords.", wrong),
            ("memory_bytes", "gauge", taken, of(&figures.bytes)),
            ("memory_bytes_max", "gauge", "The most that they may take.", bytes_max),
            ("orphans", "gauge", orphans, of(&figures.orphans)),
            ("channels", "gauge", "Channels that are heard.", of(&figures.channels)),
            ("patterns", "gauge", "Patterns that are heard.", of(&figures.patterns)),
        ],
    );
}

fn objects<E: Engine + 'static, O: Os>(page: &mut String, shared: &PoolState<E, O>) {
    let (mut ages, mut without, mut oldest) = (Vec::new(), 0_u32, Nanos::ZERO);
    let objects = shared.objects();
    let known = shared.store.objects() as f64;
    let now = shared.os.since_boot();
    for (key, object) in &objects {
        let sample = shared.store.sample(*object).ok().flatten();
        let age = sample.map(|sample| sample.age(now));
        let Some(age) = age.filter(|age| *age != Nanos::MAX) else {
            without += 1;
            continue;
        };
        oldest = oldest.max(age);
        if ages.len() < OBJECTS_SHOWN_MAX {
            ages.push((format!("{{key=\"{}\"}}", label(key)), seconds(age.0)));
        }
    }
    let (valueless, oldest) = (f64::from(without), seconds(oldest.0));
    let help = "Those without a value of a known age.";
    plain(
        page,
        &[
            ("objects", "gauge", "Temporal objects.", known),
            ("objects_without_value", "gauge", help, valueless),
            (
                "object_age_seconds_max",
                "gauge",
                "The age of the oldest value.",
                oldest,
            ),
        ],
    );
    let help = "The ages of the values of 100 objects.";
    figure(page, "object_age_seconds", "gauge", help, &ages);
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
