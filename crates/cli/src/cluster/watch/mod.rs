//! `punctual top ADDRESS`: the nodes' own figures (INFO), four times a second, as a live view, as lines, as a page
//! and as JSON. `cluster run` shows its nodes by the same means.

mod columns;
mod look;
mod page;
mod past;
mod view;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use punctual_server::resp::reply::ReplyParser;
use punctual_server::resp::{Bounds, Reply};
use punctual_server::stream::Stream;
use signal_hook::consts::SIGINT;
use signal_hook::low_level::raise;

use self::look::Look;
pub use self::page::page;
pub use self::past::Past;
use super::dial::Dial;
use crate::args::{ServerAddress, Top};
use crate::commands::print;
use punctual_files::failure::Failure;
use punctual_report::output::{OutputFile, apart};
use punctual_report::terminal::{Live, Stop, TICK, is_interrupt, is_live};
use punctual_report::view::keys::Keys;

/// Interval between questions to a node.
const EVERY: Duration = Duration::from_millis(250);
/// Time without an answer after which a node counts as silent.
const PATIENCE: Duration = Duration::from_millis(500);
/// The same for a login: a wrong password is answered half a second later at least, on a busy machine seconds.
const LOGIN_PATIENCE: Duration = Duration::from_secs(3);
/// Time after which a watch that prints lines ends if nothing has ever answered. A live view stays until it is ended.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Interval between printed lines without a live view.
const LINES_EVERY: Duration = Duration::from_secs(1);
/// Capacity of the queue of answers to be shown.
const TOLD_MAX: usize = 1024;

/// Number of a node, and its answer or the error.
type NodeAnswer = (usize, Instant, Result<Look, String>);

/// Watch over nodes, until it is ended.
pub struct Watching {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Past>,
}

impl Watching {
    /// Starts to ask the nodes, and to draw their figures if `live` is given; `hint` is the effect of `q`. If the user
    /// presses `q` or Ctrl-C, this process gets SIGINT, as from any terminal.
    pub fn start(addresses: &[SocketAddr], live: Option<Live>, hint: String) -> Watching {
        let over = Arc::new(AtomicBool::new(false));
        let (addresses, ends) = (addresses.to_vec(), Arc::clone(&over));
        let thread = thread::spawn(move || {
            let places: Vec<ServerAddress> = addresses.iter().copied().map(ServerAddress::of).collect();
            let told = ask_all(&places, &Dial::default(), &ends);
            let (mut past, mut keys) = (Past::new(&addresses), Keys::default());
            let mut live = live;
            while !ends.load(Ordering::SeqCst) {
                take(&told, &mut past);
                if let Some(live) = &mut live {
                    for key in live.keys() {
                        keys.press(&key, past.nodes.len(), &past, &[]);
                        if is_interrupt(&key) || std::mem::take(&mut keys.quits) {
                            // A process may always signal itself.
                            drop(raise(SIGINT));
                        }
                    }
                    live.draw(|frame| view::draw(frame, &past, &keys, &hint));
                }
            }
            if let Some(live) = live {
                live.leave();
            }
            past
        });
        Watching { over, thread }
    }

    /// Ends the watch, restores the terminal, and returns all figures.
    ///
    /// # Errors
    /// [`Failure::Internal`] if its thread has panicked.
    pub fn end(self) -> Result<Past, Failure> {
        self.over.store(true, Ordering::SeqCst);
        let joined = self.thread.join();
        joined.map_err(|_| Failure::Internal("the thread that watches the nodes has panicked".into()))
    }
}

/// Asks each node by a separate thread, so that a silent one does not delay the others.
fn ask_all(places: &[ServerAddress], dial: &Dial, over: &Arc<AtomicBool>) -> Receiver<NodeAnswer> {
    let (tell, told) = sync_channel(TOLD_MAX);
    for (number, place) in places.iter().enumerate() {
        let (tell, over, place, dial) = (tell.clone(), Arc::clone(over), place.clone(), dial.clone());
        thread::spawn(move || ask_on(number, &place, &dial, &tell, &over));
    }
    told
}

fn ask_on(number: usize, place: &ServerAddress, dial: &Dial, tell: &SyncSender<NodeAnswer>, over: &AtomicBool) {
    let mut connection = None;
    while !over.load(Ordering::SeqCst) {
        let next = Instant::now() + EVERY;
        let looked = look(&mut connection, place, dial);
        if looked.is_err() {
            connection = None;
        }
        let looked = looked.map_err(|error| reason(&error));
        // With a full queue, this answer is dropped.
        drop(tell.try_send((number, Instant::now(), looked)));
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

fn look(connection: &mut Option<Stream<mio::net::TcpStream>>, place: &ServerAddress, dial: &Dial) -> io::Result<Look> {
    let stream = match connection {
        Some(stream) => stream,
        None => {
            let socket = TcpStream::connect_timeout(&place.socket, PATIENCE)?;
            let limit = socket.try_clone()?;
            limit.set_read_timeout(Some(if dial.login().is_some() {
                LOGIN_PATIENCE
            } else {
                PATIENCE
            }))?;
            socket.set_write_timeout(Some(PATIENCE))?;
            // The socket blocks, up to that limit: this thread does not poll.
            let mut stream = dial.begin(mio::net::TcpStream::from_std(socket), &place.host)?;
            if let Some(login) = dial.login() {
                match ask(&mut stream, login)? {
                    Reply::Simple(_) => {}
                    refused => return Err(no_node(format!("AUTH was answered {refused:?}"))),
                }
            }
            limit.set_read_timeout(Some(PATIENCE))?;
            connection.insert(stream)
        }
    };
    match ask(stream, b"INFO\r\n")? {
        Reply::Bulk(text) => Look::of(&String::from_utf8_lossy(&text))
            .ok_or_else(|| no_node("this is no node of a cluster: name its address for clients".into())),
        other => Err(no_node(format!("INFO was answered {other:?}"))),
    }
}

/// Why a node did not answer, in words.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => format!("no answer within {} ms", PATIENCE.as_millis()),
        io::ErrorKind::UnexpectedEof => "the connection was closed without an answer".into(),
        _ => error.to_string(),
    }
}

fn no_node(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn ask(stream: &mut Stream<mio::net::TcpStream>, request: &[u8]) -> io::Result<Reply> {
    stream.write_all(request)?;
    stream.flush()?;
    let (mut parser, mut bytes) = (ReplyParser::default(), [0; 16 << 10]);
    loop {
        let reply = parser.next(&Bounds::ADMITTED);
        if let Some(reply) = reply.map_err(|error| no_node(error.to_string()))? {
            return Ok(reply);
        }
        match stream.read(&mut bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => parser.feed(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Takes pending answers; waits up to `TICK` for the first.
fn take(told: &Receiver<NodeAnswer>, past: &mut Past) {
    match told.recv_timeout(TICK) {
        Ok(first) => [first]
            .into_iter()
            .chain(told.try_iter())
            .for_each(|told| past.take(told)),
        Err(RecvTimeoutError::Timeout) => {}
        Err(RecvTimeoutError::Disconnected) => thread::sleep(TICK),
    }
}

/// Carries out `punctual top` for nodes and balancers.
pub fn watch(places: &[ServerAddress], arguments: &Top, command: &str) -> Result<(), Failure> {
    apart(&[
        ("--json", arguments.json.as_deref()),
        ("--html", arguments.html.as_deref()),
    ])?;
    let dial = Dial::load(&arguments.dialling)?;
    let json = OutputFile::report(arguments.json.as_ref())?;
    let html = OutputFile::page(arguments.html.as_ref())?;
    let over = Arc::new(AtomicBool::new(false));
    let mut stop = Stop::listen(Arc::clone(&over))?;
    let mut live = is_live(arguments.plain).then(Live::take).transpose()?;
    let told = ask_all(places, &dial, &over);
    let addresses: Vec<SocketAddr> = places.iter().map(|place| place.socket).collect();
    let (mut past, mut keys) = (Past::new(&addresses), Keys::default());
    let began = Instant::now();
    let (mut printed, mut failure) = (began, None);
    let prints_lines = live.is_none();
    let is_over = |elapsed: Duration, past: &Past| {
        let most = arguments.duration.map(Duration::from);
        most.is_some_and(|most| elapsed >= most) || prints_lines && past.is_silent(elapsed)
    };
    loop {
        take(&told, &mut past);
        let (asked, pressed) = stop.hear(&mut live);
        for key in &pressed {
            keys.press(key, past.nodes.len(), &past, &[]);
        }
        if asked || keys.quits || is_over(began.elapsed(), &past) || failure.is_some() {
            break;
        }
        match &mut live {
            Some(live) => live.draw(|frame| view::draw(frame, &past, &keys, "end this view")),
            None if printed.elapsed() >= LINES_EVERY => {
                printed = Instant::now();
                failure = print(&past.lines()).err();
            }
            None => {}
        }
    }
    over.store(true, Ordering::SeqCst);
    if let Some(live) = live {
        live.leave();
    }
    let written = [
        failure.map_or(Ok(()), Err),
        json.map_or(Ok(()), |file| file.json(&past.document())),
        html.map_or(Ok(()), |file| file.text(&page(&past, command))),
    ];
    Failure::all(written)?;
    match past.was_told() {
        true => Ok(()),
        false => Err(Failure::input(past.complaints())),
    }
}
