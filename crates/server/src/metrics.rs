//! The page for Prometheus: figures as text on a port of this machine alone, of a server or of any other program.
//!
//! A thread of its own serves one reader at a time, so that no reader costs the event loop anything. Values that only
//! the event loop knows (connections, bytes) it leaves for that thread a few times a second.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time limit for a reader's request, and for each part of the page.
const PATIENCE: Duration = Duration::from_millis(500);
/// The longest request that is read, in bytes.
const REQUEST_MAX: usize = 8 << 10;
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

    /// Serves `text` until `stop`.
    fn serve(&self, text: impl Fn() -> String, stop: &AtomicBool) {
        while !stop.load(Ordering::SeqCst) {
            match self.listener.accept() {
                // A reader that leaves or is too slow is no fault of the server.
                Ok((stream, _)) => drop(answer(stream, &text)),
                Err(_) => std::thread::sleep(LOOK_EVERY),
            }
        }
    }
}

/// Figures that an event loop leaves for a page, if there is one. The page's thread ends when this is dropped.
pub struct PublishedFigures<F> {
    figures: Arc<Mutex<Option<F>>>,
    /// Address of the page; `None`: there is no page, and figures are dropped.
    pub address: Option<SocketAddr>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl<F: Send + 'static> PublishedFigures<F> {
    /// Serves figures as `text` renders them, on a thread of its own; an empty page until some are there.
    ///
    /// # Errors
    /// The system refuses to start a thread, or does not tell the page's address.
    pub fn serve(page: Option<Page>, text: impl Fn(&F) -> String + Send + 'static) -> io::Result<PublishedFigures<F>> {
        let (figures, stop) = (Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
        let address = page.as_ref().map(Page::address).transpose()?;
        let thread = page.map(|page| {
            let (left, ends) = (Arc::clone(&figures), Arc::clone(&stop));
            let text = move || {
                let figures = left.lock().unwrap_or_else(PoisonError::into_inner);
                figures.as_ref().map(&text).unwrap_or_default()
            };
            let thread = std::thread::Builder::new().name("serve-metrics".into());
            thread.spawn(move || page.serve(text, &ends))
        });
        Ok(PublishedFigures {
            figures,
            address,
            stop,
            thread: thread.transpose()?,
        })
    }

    /// Leaves figures for the page.
    pub fn publish(&self, figures: impl FnOnce() -> F) {
        if self.address.is_some() {
            *self.figures.lock().unwrap_or_else(PoisonError::into_inner) = Some(figures());
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
