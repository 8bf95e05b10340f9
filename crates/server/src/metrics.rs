//! Pages of this machine alone: figures as text for Prometheus, or a document that a browser keeps up to date.
//!
//! A thread of its own answers one reader at a time, so that no reader costs the event loop anything. Values that only
//! the event loop knows (connections, bytes) it leaves for that thread a few times a second. Readers of events stay
//! connected ([`STREAMS_MAX`]); the thread never waits for them, and one that reads slowly misses events.
//!
//! A site may give its own name the address of this machine, so that its script may read pages there (DNS rebinding).
//! So a page at a loopback address answers no request for another host.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::figures::open_metrics;

/// Time limit for a reader's request, and for each part of the page. A busy machine may put off a test for longer.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 60_000 } else { 500 });
/// The longest request that is read, in bytes.
const REQUEST_MAX: usize = 8 << 10;
/// Most readers of events at a time.
pub const STREAMS_MAX: usize = 16;
/// How often the thread looks for readers, and whether the server ends.
const LOOK_EVERY: Duration = Duration::from_millis(50);

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

    /// Answers readers until `stop`, and once more after it.
    fn serve<F>(&self, left: &Mutex<Edition<F>>, answers: &impl Fn(&str, Option<&F>) -> PageAnswer, stop: &AtomicBool) {
        let (mut streams, mut edition) = (Vec::<EventStream>::new(), 0);
        let left = || left.lock().unwrap_or_else(PoisonError::into_inner);
        let answer_of = |path: &str| answers(path, left().1.as_ref());
        let is_local = self.address().is_ok_and(|address| address.ip().is_loopback());
        loop {
            let stops = stop.load(Ordering::SeqCst);
            let accepted = self.listener.accept();
            let is_idle = accepted.is_err();
            // A reader that leaves or is too slow is no fault of the server.
            let has_room = streams.len() < STREAMS_MAX;
            let stays = accepted.and_then(|(stream, _)| answer(stream, &answer_of, is_local, has_room));
            streams.extend(stays.ok().flatten());
            let now = left().0;
            if std::mem::replace(&mut edition, now) != now {
                streams.iter_mut().for_each(|stream| stream.renew(&answer_of));
            }
            streams.retain_mut(EventStream::flush);
            if stops {
                break;
            }
            if is_idle {
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }
}

/// Answer to a request.
#[derive(Clone, Debug)]
pub enum PageAnswer {
    /// A document: its media type, and its text.
    Document(&'static str, String),
    /// Figures as [`prometheus`](crate::figures::prometheus) renders them; as OpenMetrics for readers that prefer it.
    Figures(String),
    /// Events (the browser's `EventSource`): this text now, and that of each later edition.
    Events(String),
    /// There is none.
    Missing,
}

/// How many figures were left so far, and the last ones.
type Edition<F> = (u64, Option<F>);

/// A reader of events.
struct EventStream {
    stream: TcpStream,
    path: String,
    unsent: Vec<u8>,
}

impl EventStream {
    /// Takes the next event, unless the one before is still to be sent.
    fn renew(&mut self, answers: &impl Fn(&str) -> PageAnswer) {
        if self.unsent.is_empty()
            && let PageAnswer::Events(text) = answers(&self.path)
        {
            self.unsent = event(&text);
        }
    }

    /// Sends what the connection takes now; false once the reader has gone.
    fn flush(&mut self) -> bool {
        match self.stream.write(&self.unsent) {
            Ok(count) => {
                self.unsent.drain(..count);
                true
            }
            Err(error) => [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted].contains(&error.kind()),
        }
    }
}

/// An event as a stream has it.
fn event(text: &str) -> Vec<u8> {
    format!("data: {}\n\n", text.replace('\n', "\ndata: ")).into_bytes()
}

/// Figures that an event loop leaves for a page, if there is one. The page's thread ends when this is dropped.
pub struct PublishedFigures<F> {
    left: Arc<Mutex<Edition<F>>>,
    /// Address of the page; `None`: there is no page, and figures are dropped.
    pub address: Option<SocketAddr>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl<F: Send + 'static> PublishedFigures<F> {
    /// Serves figures for Prometheus as `text` renders them; an empty page until some are there.
    ///
    /// # Errors
    /// As of [`PublishedFigures::serve_pages`].
    pub fn serve(page: Option<Page>, text: impl Fn(&F) -> String + Send + 'static) -> io::Result<PublishedFigures<F>> {
        PublishedFigures::serve_pages(page, move |path, figures| match path {
            "/metrics" => PageAnswer::Figures(figures.map(&text).unwrap_or_default()),
            _ => PageAnswer::Missing,
        })
    }

    /// Serves `answers` to paths, from the figures if there are some, on a thread of its own.
    ///
    /// # Errors
    /// The system refuses to start a thread, or does not tell the page's address.
    pub fn serve_pages(
        page: Option<Page>,
        answers: impl Fn(&str, Option<&F>) -> PageAnswer + Send + 'static,
    ) -> io::Result<PublishedFigures<F>> {
        let (left, stop) = (Arc::new(Mutex::new((0, None))), Arc::new(AtomicBool::new(false)));
        let address = page.as_ref().map(Page::address).transpose()?;
        let thread = page.map(|page| {
            let (left, ends) = (Arc::clone(&left), Arc::clone(&stop));
            let thread = std::thread::Builder::new().name("serve-metrics".into());
            thread.spawn(move || page.serve(&left, &answers, &ends))
        });
        Ok(PublishedFigures {
            left,
            address,
            stop,
            thread: thread.transpose()?,
        })
    }

    /// Leaves figures for the page.
    pub fn publish(&self, figures: impl FnOnce() -> F) {
        if self.address.is_some() {
            let figures = Some(figures());
            let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
            *left = (left.0 + 1, figures);
        }
    }
}

impl<F> Drop for PublishedFigures<F> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // The thread ends at its next look; its result does not matter.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// Reads a request and answers it; HTTP/1.0, so that the connection ends with the document. Returns a reader of events
/// that is to stay; without `has_room` there is none. `is_local`: whether the page is at a loopback address.
fn answer(
    mut stream: TcpStream,
    answers: &impl Fn(&str) -> PageAnswer,
    is_local: bool,
    has_room: bool,
) -> io::Result<Option<EventStream>> {
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
    let (method, path) = (
        words.next(),
        words.next().map(String::from_utf8_lossy).unwrap_or_default(),
    );
    let (status, kind, body) = match (method, answers(&path)) {
        _ if is_local && !is_for_this_machine(&request) => (
            "403 Forbidden",
            "text/plain",
            "this page is for this machine alone: ask for it at localhost, or at a loopback address\n".into(),
        ),
        (Some(b"GET"), PageAnswer::Document(kind, text)) => ("200 OK", kind, text),
        (Some(b"GET"), PageAnswer::Figures(text)) if field(&request, "accept").is_some_and(prefers_open_metrics) => (
            "200 OK",
            "application/openmetrics-text; version=1.0.0",
            open_metrics(&text),
        ),
        (Some(b"GET"), PageAnswer::Figures(text)) => ("200 OK", "text/plain; version=0.0.4", text),
        (Some(b"GET"), PageAnswer::Events(text)) if has_room => {
            let head = head("200 OK", "text/event-stream", "Cache-Control: no-store");
            let unsent = [head.into_bytes(), event(&text)].concat();
            stream.set_nonblocking(true)?;
            let path = path.into_owned();
            return Ok(Some(EventStream { stream, path, unsent }));
        }
        (Some(b"GET"), PageAnswer::Events(_)) => {
            let text = format!("{STREAMS_MAX} browsers are here already\n");
            ("503 Service Unavailable", "text/plain", text)
        }
        (Some(b"GET"), PageAnswer::Missing) => (
            "404 Not Found",
            "text/plain",
            "the figures are at /metrics, a run's view is at /\n".into(),
        ),
        _ => ("405 Method Not Allowed", "text/plain", "only GET is answered\n".into()),
    };
    let head = head(status, kind, &format!("Content-Length: {}", body.len()));
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    Ok(None)
}

/// Whether a request names this machine as its host, by a loopback address or as localhost, or no host.
fn is_for_this_machine(request: &[u8]) -> bool {
    field(request, "host").is_none_or(|host| {
        let address = host.parse().map(|address: SocketAddr| address.ip());
        let address = address.or_else(|_| host.trim_matches(['[', ']']).parse::<IpAddr>());
        let is_named = || { host.split(':').next() }.is_some_and(|name| name.eq_ignore_ascii_case("localhost"));
        address.map_or_else(|_| is_named(), |address| address.is_loopback())
    })
}

/// Values of the request's header fields of this name, as one list (RFC 9110, section 5.3); `None` if there are none.
fn field(request: &[u8], name: &str) -> Option<String> {
    let request = String::from_utf8_lossy(request);
    let fields = request.lines().filter_map(|line| line.split_once(':'));
    let values = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
    let values: Vec<_> = values.map(|(_, value)| value.trim()).collect();
    (!values.is_empty()).then(|| values.join(","))
}

/// Whether a reader with this Accept field wants OpenMetrics 1.0.0 at least as much as the older text: by their weights
/// (RFC 9110, section 12.5.1). A range with `*` is for the older text, which every reader can parse.
fn prefers_open_metrics(accept: String) -> bool {
    let weight = |kinds: &[&str], version: &str| {
        let weights = accept.split(',').filter_map(|range| {
            let (mut parts, mut weight) = (range.split(';').map(str::trim), 1.0);
            let range = parts.next()?;
            let is_kind = kinds.iter().any(|kind| range.eq_ignore_ascii_case(kind));
            for (name, value) in parts.filter_map(|part| part.split_once('=')) {
                match name.to_ascii_lowercase().as_str() {
                    "q" => weight = value.parse().unwrap_or(0.0),
                    "version" if value != version => return None,
                    _ => {}
                }
            }
            is_kind.then_some(weight)
        });
        weights.fold(0.0, f64::max)
    };
    let open = weight(&["application/openmetrics-text"], "1.0.0");
    open > 0.0 && open >= weight(&["text/plain", "text/*", "*/*"], "0.0.4")
}

/// Head of an answer. A document may ask this server alone for more.
fn head(status: &str, kind: &str, more: &str) -> String {
    format!(
        "HTTP/1.0 {status}\r\nContent-Type: {kind}; charset=utf-8\r\n{more}\r\nConnection: close\r\n\
         Content-Security-Policy: default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src \
         'unsafe-inline'\r\n\r\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

    /// Head of the answer to a request for `path`, and the rest of the connection.
    fn asked(address: SocketAddr, path: &str, host: &str) -> (String, BufReader<TcpStream>) {
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())
            .unwrap();
        let mut stream = BufReader::new(stream);
        (until(&mut stream, "\r\n\r\n"), stream)
    }

    fn until(stream: &mut BufReader<TcpStream>, end: &str) -> String {
        let mut text = Vec::new();
        while !text.ends_with(end.as_bytes()) {
            assert!(
                stream.read_until(b'\n', &mut text).unwrap() > 0,
                "the end of the stream"
            );
        }
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_page_of_this_machine_answers_requests_for_this_machine() {
        let is_answered = |host: &str| is_for_this_machine(format!("GET / HTTP/1.1\r\nhost:{host}\r\n\r\n").as_bytes());
        for host in [
            "localhost",
            " LocalHost:80",
            " 127.0.0.1",
            " 127.3.2.1:9121 ",
            "[::1]",
            " [::1]:80",
        ] {
            assert!(is_answered(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            " evil.example:80",
            "localhost.evil.example",
            " 10.0.0.1:80",
        ] {
            assert!(!is_answered(host), "{host}");
        }
        assert!(is_for_this_machine(b"GET /metrics HTTP/1.0\r\n\r\n"));
    }

    #[test]
    fn a_reader_gets_open_metrics_if_it_prefers_that() {
        for accept in [
            "application/openmetrics-text",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            "text/html, Application/OpenMetrics-Text;version=1.0.0;q=0.1",
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
             text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
        ] {
            assert!(prefers_open_metrics(accept.into()), "{accept}");
        }
        for accept in [
            "",
            "*/*",
            ";,=;q",
            "text/plain",
            "application/openmetrics-text;version=2.0.0",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=nan",
            "application/openmetrics-text;q=0.5, */*",
            "application/openmetrics-text;Q=0.5, text/*;Q=0.6",
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.6",
        ] {
            assert!(!prefers_open_metrics(accept.into()), "{accept}");
        }
        let page = Page::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let figures =
            PublishedFigures::serve(Some(page), |(): &()| "# TYPE a_total counter\na_total 1\n".into()).unwrap();
        figures.publish(|| ());
        let asked = |host: &str| {
            let (head, mut rest) = asked(figures.address.unwrap(), "/metrics", host);
            let mut text = String::new();
            rest.read_to_string(&mut text).unwrap();
            (head, text)
        };
        let (head, text) = asked("localhost");
        assert!(
            head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"),
            "{head}"
        );
        assert_eq!(text, "# TYPE a_total counter\na_total 1\n");
        let (head, text) = asked("localhost\r\naccept: application/openmetrics-text; version=1.0.0");
        let kind = "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
        assert!(head.contains(kind), "{head}");
        assert_eq!(text, "# TYPE a counter\na_total 1\n# EOF\n");
    }

    #[test]
    fn events_reach_each_browser_and_one_that_does_not_read_holds_up_none() {
        let page = Page::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let pages = PublishedFigures::serve_pages(Some(page), |path, figures: Option<&String>| match path {
            "/events" => PageAnswer::Events(figures.cloned().unwrap_or_default()),
            "/others" => PageAnswer::Events("first\nline".into()),
            _ => PageAnswer::Missing,
        });
        let pages = pages.unwrap();
        let address = pages.address.unwrap();
        pages.publish(|| "first\nline".into());
        assert!(asked(address, "/events", "evil.example").0.starts_with("HTTP/1.0 403"));
        let path = |number| {
            if [0, STREAMS_MAX - 1].contains(&number) {
                "/events"
            } else {
                "/others"
            }
        };
        let asked = |path| asked(address, path, "localhost");
        let mut browsers: Vec<_> = (0..STREAMS_MAX).map(|number| asked(path(number))).collect();
        for (head, stream) in &mut browsers {
            assert!(
                head.contains("text/event-stream") && head.contains("default-src 'none'"),
                "{head}"
            );
            assert_eq!(until(stream, "\n\n"), "data: first\ndata: line\n\n");
        }
        assert!(asked("/events").0.starts_with("HTTP/1.0 503"));
        assert!(asked("/").0.starts_with("HTTP/1.0 404"));
        // More than the kernel keeps for a reader, which the first one does not take.
        pages.publish(|| "x".repeat(16 << 20));
        let (_, last) = browsers.last_mut().unwrap();
        until(last, "\n\n");
        pages.publish(|| "second".into());
        assert_eq!(until(last, "\n\n"), "data: second\n\n");
        drop(browsers.remove(0));
        drop(pages);
        assert_eq!(browsers[0].1.read(&mut [0]).unwrap(), 1, "what was sent is there");
    }
}
