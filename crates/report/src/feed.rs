//! News of a run for other processes: each run has a Unix socket from which `punctual top` reads them.
//!
//! **Problem.** Terminals and browsers want to see a run that was started without an option for it, and none of them
//! may delay it. **Method.** A thread of ordinary priority keeps the state of a view. A reader that connects gets a
//! line with a greeting, the state so far, then the news: one JSON value a line. No write waits: a reader that has not
//! taken `UNSENT_MAX` bytes misses samples and figures of tasks until it has. The next ones are complete again, so a
//! gap in the curves is all that it loses. A line back is a request to the run; one that is refused is answered by a
//! warning.
//!
//! **Bounds.** `READERS_MAX` readers, the next one waits; the size of a state does not depend on the run's length.
//! A request has `REQUEST_MAX` bytes, and no more are read in one turn. Sockets are open to their user and to the
//! superuser. The socket of a process that was killed is removed by its guardian, or by the next run.

use std::fmt;
use std::fs::{self, DirBuilder, DirEntry, Permissions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use punctual_platform::linux::recovery::{self, RUN_SOCKET, SocketName};
use punctual_runtime::report::UserRequest;
use punctual_workload::Problems;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::view::{News, ViewState};
use crate::watch::NEWS_MAX;

/// Version of the lines after the greeting: raised with every change of [`News`], which a snapshot shows.
const VERSION: u32 = 4;
/// Most readers of one run.
const READERS_MAX: usize = 8;
/// Unsent bytes of a reader from which samples and figures are left out.
const UNSENT_MAX: usize = 256 << 10;
/// Longest request, in bytes: the longest name of a task and the longest text of a mark fit.
const REQUEST_MAX: usize = 4096;
/// Longest line that a reader takes: a state of 2000 samples on 1000 cores.
const LINE_MAX: usize = 64 << 20;
/// Interval between looks for readers.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time limit for a greeting: a process that is stopped gives none. A busy machine may put off a test for longer.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 2 });
/// Longest wait at the end of a run for readers that have not taken all.
const END_WAIT_MAX: Duration = Duration::from_millis(500);
/// Begin of a socket's name before it listens.
const UNREADY: &str = "new-run-";
/// Most entries of a folder that are looked at.
const FILES_MAX: usize = 4096;

/// First line of a feed; every version can read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Greeting {
    /// Version of the lines that follow.
    version: u32,
    /// Version of the program.
    program: String,
    /// Name of the scenario or of the file.
    name: String,
}

/// Publishes the news of a run until it is dropped.
#[derive(Debug)]
pub struct RunFeed {
    news: Option<Sender<News>>,
    /// Number of news that the thread has not taken.
    queued: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
    /// Whether the folder was made for this socket.
    is_made: bool,
}

impl RunFeed {
    /// Starts to publish news of the run called `name` in `folder`, which is made if it is missing; requests of readers
    /// go to `asks`.
    ///
    /// # Errors
    /// The error of the system; the folder belongs to another user.
    pub fn start(folder: &Path, name: &str, asks: SyncSender<UserRequest>) -> io::Result<RunFeed> {
        let named = |begin| folder.join(format!("{begin}{}{}", std::process::id(), RUN_SOCKET[1]));
        let (path, unready) = (named(RUN_SOCKET[0]), named(UNREADY));
        // Before a folder is made: the path may be too long for a socket.
        let address = SocketAddr::from_pathname(&unready)?;
        let is_made = !folder.exists();
        DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
        punctual_jobs::user_of(folder, false)?;
        { sockets(folder).filter_map(|(_, path)| SocketName::of(&path).ok()) }.for_each(|name| name.remove_left_over());
        // A process that had the same number may have been killed here.
        let _ = fs::remove_file(&unready);
        let listener = UnixListener::bind_addr(&address)?;
        fs::set_permissions(&unready, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        // Readers that connected before the permissions were set may be other users.
        while listener.accept().is_ok() {}
        // Under this name it listens already: one that refuses is left over.
        fs::rename(&unready, &path)?;
        let greeting = Greeting {
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").into(),
            name: name.into(),
        };
        let (news, inbox) = channel();
        let queued = Arc::new(AtomicUsize::new(0));
        let untaken = Arc::clone(&queued);
        let thread = std::thread::Builder::new().name("feed".into());
        let thread = thread.spawn(move || publish(&listener, &greeting, &inbox, &untaken, &asks))?;
        Ok(RunFeed {
            news: Some(news),
            queued,
            thread: Some(thread),
            path,
            is_made,
        })
    }

    /// Hands news over without waiting; frequent ones are dropped while `NEWS_MAX` are queued.
    pub fn publish(&self, news: News) {
        if !news.is_frequent() || self.queued.load(Ordering::Relaxed) < NEWS_MAX {
            self.queued.fetch_add(1, Ordering::Relaxed);
            let _ = self.news.as_ref().map(|to| to.send(news));
        }
    }
}

impl Drop for RunFeed {
    fn drop(&mut self) {
        // First, so that a reader at the end knows that it came in order; a folder that was taken away has none either.
        let _ = fs::remove_file(&self.path);
        if self.is_made {
            // Stays where others have something in it.
            let _ = self.path.parent().map(fs::remove_dir);
        }
        self.news = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = DirEntry> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().take(FILES_MAX)
}

/// Numbers of processes, and their sockets in `folder`; for the superuser those of the folder's user and its own.
fn sockets(folder: &Path) -> impl Iterator<Item = (u32, PathBuf)> + use<> {
    let owner = folder.symlink_metadata().map_or(0, |found| found.uid());
    let owners = recovery::is_superuser().then_some([0, owner]);
    let is_ours = move |uid| owners.is_none_or(|owners| owners.contains(&uid));
    let found = entries(folder).filter(move |entry| {
        let found = entry.metadata();
        found.is_ok_and(|found| found.file_type().is_socket() && is_ours(found.uid()))
    });
    found.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let process = name.strip_prefix(RUN_SOCKET[0])?.strip_suffix(RUN_SOCKET[1])?;
        Some((process.parse().ok()?, entry.path()))
    })
}

fn connect(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::from(SocketName::of(path)?.connect()?);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// A connection of another process, and the bytes that it has not taken.
struct FeedReader {
    stream: UnixStream,
    unsent: Vec<u8>,
    /// Bytes of a request whose line has not ended.
    heard: Vec<u8>,
}

impl FeedReader {
    fn add(&mut self, line: &impl Serialize) {
        // News have no keys but text, so that each has a JSON form.
        let _ = serde_json::to_writer(&mut self.unsent, line);
        self.unsent.push(b'\n');
    }

    /// Writes what the connection takes now; false once the reader has gone.
    fn flush(&mut self) -> bool {
        match self.stream.write(&self.unsent) {
            Ok(count) => {
                self.unsent.drain(..count);
                true
            }
            Err(why) => [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&why.kind()),
        }
    }

    /// Hands over the requests that have come; false if one is too long, or too much is unsent.
    /// Requests of a reader that takes no answers are not read.
    fn hear(&mut self, asks: &SyncSender<UserRequest>) -> bool {
        let mut piece = [0; REQUEST_MAX];
        if self.unsent.len() < UNSENT_MAX
            && let Ok(count) = self.stream.read(&mut piece)
        {
            self.heard.extend_from_slice(&piece[..count]);
        }
        while let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.heard.drain(..=end).collect();
            let busy = |_| "the requests before it wait".to_owned();
            if let Err(why) = request_of(&line).and_then(|request| asks.try_send(request).map_err(busy)) {
                self.add(&News::Warning(format!("request refused: {why}")));
            }
        }
        self.heard.len() < REQUEST_MAX && self.unsent.len() < LINE_MAX
    }
}

/// The request in a line of another process.
fn request_of(line: &[u8]) -> Result<UserRequest, String> {
    let wrong = |why| format!("it is neither a mark nor a goal: {why}");
    let mut request = serde_json::from_slice(line).map_err(wrong)?;
    match &mut request {
        UserRequest::Mark(mark) if mark.t_s < 0.0 => return Err("a mark before the run".into()),
        UserRequest::Mark(mark) => mark.text = mark.text.replace(char::is_control, "?"),
        UserRequest::Goal(task, goal) => {
            let mut problems = Problems::default();
            problems.goal(*goal, "jobs", |key| format!("{task}.{key}"));
            if let Some(problem) = problems.0.first() {
                return Err(problem.to_string());
            }
        }
    }
    Ok(request)
}

fn publish(
    listener: &UnixListener,
    greeting: &Greeting,
    inbox: &Receiver<News>,
    untaken: &AtomicUsize,
    asks: &SyncSender<UserRequest>,
) {
    let (mut state, mut readers) = (ViewState::default(), Vec::<FeedReader>::new());
    loop {
        let first = inbox.recv_timeout(LOOK_EVERY);
        let has_ended = matches!(first, Err(RecvTimeoutError::Disconnected));
        let ended = has_ended.then_some(News::Ended);
        let taken = first.into_iter().chain(inbox.try_iter().take(NEWS_MAX));
        let counted = taken.inspect(|_| {
            untaken.fetch_sub(1, Ordering::Relaxed);
        });
        for news in counted.chain(ended) {
            let is_wanted = |reader: &&mut FeedReader| !news.is_frequent() || reader.unsent.len() < UNSENT_MAX;
            let wanted = readers.iter_mut().filter(is_wanted);
            wanted.for_each(|reader| reader.add(&news));
            state.update(news);
        }
        // Readers without a place wait.
        while readers.len() < READERS_MAX
            && let Ok((stream, _)) = listener.accept()
        {
            let (unsent, heard) = Default::default();
            let mut reader = FeedReader { stream, unsent, heard };
            reader.add(greeting);
            state.so_far().iter().for_each(|news| reader.add(news));
            readers.extend(reader.stream.set_nonblocking(true).map(|()| reader));
        }
        readers.retain_mut(|reader| reader.hear(asks) && reader.flush());
        if has_ended {
            break;
        }
    }
    let end = Instant::now() + END_WAIT_MAX;
    while readers.iter().any(|reader| !reader.unsent.is_empty()) && Instant::now() < end {
        std::thread::sleep(LOOK_EVERY / 10);
        readers.retain_mut(FeedReader::flush);
    }
}

/// A feed that is read.
#[derive(Debug)]
pub struct FeedView {
    stream: BufReader<UnixStream>,
    /// Bytes of a line that is not complete yet.
    line: Vec<u8>,
    path: PathBuf,
    /// Process of the run.
    pub process: u32,
    /// Name of the scenario or of the file.
    pub name: String,
}

impl FeedView {
    /// `None` where no process listens any more, or one of another user. Waits for a greeting for `patience`.
    fn open(process: u32, path: PathBuf, patience: Duration) -> Option<Result<FeedView, String>> {
        let connected = match connect(&path) {
            Err(why) if why.kind() != ErrorKind::WouldBlock => return None,
            connected => connected,
        };
        let opened = connected.and_then(|stream| {
            stream.set_read_timeout(Some(LOOK_EVERY))?;
            stream.set_write_timeout(Some(LOOK_EVERY))?;
            let (mut stream, mut line) = (BufReader::new(stream), Vec::new());
            let greeting: Greeting = next_line(&mut stream, &mut line, patience)?.ok_or(ErrorKind::TimedOut)?;
            Ok((stream, line, greeting))
        });
        let silent = |why| {
            format!("process {process}, which does not answer ({why}): it is stopped, or has {READERS_MAX} views")
        };
        Some(
            opened
                .map_err(silent)
                .and_then(|(stream, line, Greeting { version, program, name })| {
                    // No escape of another process reaches this terminal.
                    let name = name.replace(char::is_control, "?");
                    let view = FeedView {
                        stream,
                        line,
                        path,
                        process,
                        name,
                    };
                    match version {
                        VERSION => Ok(view),
                        _ => Err(format!("{view} of punctual {program}, whose own `top` shows it")),
                    }
                }),
        )
    }

    /// The next news; `None` if there are none within 100 ms.
    ///
    /// # Errors
    /// The process has died, or wrote something else than news.
    pub fn news(&mut self) -> io::Result<Option<News>> {
        match next_line(&mut self.stream, &mut self.line, LOOK_EVERY) {
            // The end of a run in order, whose last line does not reach a reader that lags.
            Err(why) if why.kind() == ErrorKind::UnexpectedEof && !self.path.exists() => Ok(Some(News::Ended)),
            news => news,
        }
    }
}

impl FeedView {
    /// Hands a request of this view's user to the run.
    ///
    /// # Errors
    /// The process does not read, or has died.
    pub fn ask(&self, request: &UserRequest) -> io::Result<()> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.stream.get_ref().write_all(&line)
    }
}

impl fmt::Display for FeedView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.name, self.process)
    }
}

/// The next line, if it is complete within `patience`; else its begin stays in `line`. A writer of single bytes gets no
/// more time.
fn next_line<T: DeserializeOwned>(
    stream: &mut BufReader<UnixStream>,
    line: &mut Vec<u8>,
    patience: Duration,
) -> io::Result<Option<T>> {
    let begin = Instant::now();
    loop {
        let piece = match stream.fill_buf() {
            Ok([]) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(piece) => piece,
            Err(why) if [ErrorKind::WouldBlock, ErrorKind::TimedOut, ErrorKind::Interrupted].contains(&why.kind()) => {
                &[]
            }
            Err(why) => return Err(why),
        };
        let end = piece.iter().position(|byte| *byte == b'\n');
        let count = end.map_or(piece.len(), |end| end + 1);
        line.extend_from_slice(&piece[..count]);
        stream.consume(count);
        match end {
            Some(_) => {
                let line = std::mem::take(line);
                return serde_json::from_slice(&line).map(Some).map_err(io::Error::other);
            }
            None if line.len() > LINE_MAX => return Err(ErrorKind::InvalidData.into()),
            None if begin.elapsed() >= patience => return Ok(None),
            None => {}
        }
    }
}

/// Folders in which runs of this user have sockets; for the superuser those of all users, unless the environment names
/// one.
fn folders() -> Vec<PathBuf> {
    let mut folders = vec![recovery::folder()];
    let is_named = std::env::var_os(recovery::FOLDER).is_some_and(|named| !named.is_empty());
    if recovery::is_superuser() && !is_named {
        let of_users = |above: &Path| entries(above).map(|entry| entry.path());
        folders.push(recovery::SYSTEM.into());
        folders.extend(of_users(Path::new("/run/user")).map(|of_user| of_user.join("punctual")));
        let is_ours = |path: &PathBuf| path.to_string_lossy().contains("/punctual-");
        folders.extend(of_users(&std::env::temp_dir()).filter(is_ours));
        folders.sort_unstable();
        folders.dedup();
    }
    folders
}

/// Opens the feeds of all runs of this user, for the superuser of all users; those that fail with the reason.
pub fn running() -> Vec<Result<FeedView, String>> {
    running_in(&folders())
}

fn running_in(folders: &[PathBuf]) -> Vec<Result<FeedView, String>> {
    let found = folders.iter().flat_map(|folder| sockets(folder));
    let opened = found.filter_map(|(process, path)| FeedView::open(process, path, PATIENCE));
    opened.collect()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::fixture;
    use proptest::prelude::*;
    use punctual_runtime::report::RunMark;
    use punctual_units::Share;
    use punctual_workload::TaskGoal;
    use std::sync::mpsc::sync_channel;

    fn start(folder: &Path) -> io::Result<RunFeed> {
        RunFeed::start(folder, "robot", sync_channel(1).0)
    }

    fn only(folder: &tempfile::TempDir) -> FeedView {
        let mut found = running_in(&[folder.path().to_path_buf()]);
        assert_eq!(found.len(), 1);
        found.remove(0).unwrap()
    }

    fn next(view: &mut FeedView) -> News {
        loop {
            if let Some(news) = view.news().unwrap() {
                return news;
            }
        }
    }

    fn sample(k: u64) -> News {
        News::Sample(Box::new(fixture::sample(k)))
    }

    #[test]
    fn views_that_come_late_get_the_state_then_the_news_and_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join("run-1.socket");
        drop(UnixListener::bind(&left).unwrap());
        let feed = start(folder.path()).unwrap();
        assert!(!left.exists(), "the socket of a dead process is removed");
        feed.publish(News::Run(60.0));
        feed.publish(News::Started(Box::new(fixture::header())));
        (0..3).for_each(|k| feed.publish(sample(k)));
        let mut views = [only(&folder), only(&folder)];
        for view in &mut views {
            assert_eq!(view.name, "robot");
            let mut state = ViewState::default();
            while state.samples.len() < 3 {
                state.update(next(view));
            }
            assert_eq!((state.duration_s, state.header), (60.0, Some(fixture::header())));
        }
        feed.publish(sample(3));
        drop(feed);
        for view in &mut views {
            while !matches!(next(view), News::Sample(it) if it.k == 3) {}
            assert!(matches!(next(view), News::Ended));
            assert!(matches!(view.news(), Ok(Some(News::Ended))), "nothing follows");
        }
        assert_eq!(sockets(folder.path()).count(), 0);
    }

    #[test]
    fn a_view_that_does_not_read_misses_samples_alone() {
        let folder = tempfile::tempdir().unwrap();
        let feed = start(folder.path()).unwrap();
        let mut view = only(&folder);
        let all = 4 * UNSENT_MAX / 100;
        // Each is longer than 100 bytes, and the kernel takes less than these together; they are more than are queued.
        (0..all as u64).for_each(|k| feed.publish(sample(k)));
        feed.publish(News::Stage("told".into()));
        let mut samples = 0;
        while !matches!(next(&mut view), News::Stage(_)) {
            samples += 1;
        }
        assert!(samples < all, "{samples} of {all}");
    }

    #[test]
    fn a_view_asks_for_a_goal_and_a_mark_and_a_request_that_is_refused_is_answered() {
        let (folder, (asks, asked)) = (tempfile::tempdir().unwrap(), sync_channel(2));
        let _feed = RunFeed::start(folder.path(), "robot", asks).unwrap();
        let mut view = only(&folder);
        let mut refused = |request: &UserRequest| {
            view.ask(request).unwrap();
            loop {
                if let News::Warning(why) = next(&mut view) {
                    return why;
                }
            }
        };
        let goal = |share| UserRequest::Goal("steer".into(), TaskGoal::Late(Share::clamped(share)));
        let why = refused(&goal(1.0));
        assert!(why.contains("steer.late: 100.0 % of jobs late is no goal"), "{why}");
        let mark = |t_s| {
            UserRequest::Mark(RunMark {
                t_s,
                text: "a\u{1b}".into(),
            })
        };
        refused(&mark(-1.0));
        view.ask(&goal(0.02)).unwrap();
        view.ask(&mark(1.0)).unwrap();
        assert_eq!(asked.recv(), Ok(goal(0.02)));
        assert_eq!(
            asked.recv(),
            Ok(UserRequest::Mark(RunMark {
                t_s: 1.0,
                text: "a?".into()
            }))
        );
        // Without an end of a line: the reader is dropped, and the next one served.
        view.stream.get_ref().write_all(&[b'{'; 2 * REQUEST_MAX]).unwrap();
        while view.news().is_ok() {}
        only(&folder).ask(&mark(2.0)).unwrap();
        assert!(matches!(asked.recv(), Ok(UserRequest::Mark(it)) if it.t_s == 2.0));
    }

    proptest! {
        #[test]
        fn any_line_is_a_sound_request_or_refused(
            noise in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..60, value in any::<f64>(),
        ) {
            let goal = UserRequest::Goal("steer".into(), TaskGoal::Tardiness(value));
            let mut line = serde_json::to_vec(&goal).unwrap();
            let at = at.min(line.len());
            for line in [line.clone(), noise.clone(), { line.splice(at.., noise); line }] {
                match request_of(&line) {
                    Ok(UserRequest::Goal(_, TaskGoal::Tardiness(mean))) => prop_assert!(mean > 0.0 && mean <= 10.0),
                    Ok(UserRequest::Goal(_, TaskGoal::Late(share))) => prop_assert!((0.0..1.0).contains(&share.get())),
                    Ok(UserRequest::Mark(mark)) => prop_assert!(mark.t_s.is_finite() && mark.t_s >= 0.0),
                    Err(why) => prop_assert!(!why.is_empty()),
                }
            }
        }
    }

    #[test]
    fn one_of_another_version_and_one_that_says_nothing_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let other = UnixListener::bind(folder.path().join("run-2.socket")).unwrap();
        let answer = std::thread::spawn(move || {
            let line = b"{\"version\":9,\"program\":\"9.0\",\"name\":\"a\\u001b\",\"more\":1}\n";
            other.accept().unwrap().0.write_all(line).unwrap();
            other
        });
        let told = |patience| {
            let path = folder.path().join("run-2.socket");
            FeedView::open(2, path, patience).unwrap().unwrap_err()
        };
        assert_eq!(
            told(PATIENCE),
            "a? (process 2) of punctual 9.0, whose own `top` shows it"
        );
        let _silent = answer.join().unwrap();
        assert!(told(Duration::ZERO).starts_with("process 2, which does not answer"));
    }

    #[test]
    fn a_process_that_accepts_no_reader_holds_up_none_and_keeps_its_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run-3.socket");
        let stopped = UnixListener::bind(&path).unwrap();
        // SAFETY: the descriptor is open; a second call changes the number of readers that wait.
        assert_eq!(unsafe { libc::listen(stopped.as_raw_fd(), 0) }, 0);
        let _waiting: Vec<UnixStream> = std::iter::from_fn(|| connect(&path).ok()).collect();
        let _feed = start(folder.path()).unwrap();
        assert!(path.exists());
        let (seen, silent): (Vec<_>, Vec<_>) =
            { running_in(&[folder.path().into()]).into_iter() }.partition(Result::is_ok);
        assert_eq!(seen[0].as_ref().unwrap().name, "robot");
        let told = silent[0].as_ref().unwrap_err();
        assert!(told.starts_with("process 3, which does not answer"), "{told}");
    }

    #[test]
    fn a_folder_that_is_a_link_is_refused_and_none_is_made_for_a_path_that_is_too_long() {
        let folder = tempfile::tempdir().unwrap();
        let (link, long) = (folder.path().join("link"), folder.path().join("x".repeat(100)));
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        assert!(start(&link).is_err());
        assert!(start(&long).is_err() && !long.exists());
    }

    #[test]
    fn a_line_in_pieces_waits_for_its_end() {
        let (mut writer, reader) = UnixStream::pair().unwrap();
        let (mut reader, mut line) = (BufReader::new(reader), Vec::new());
        let mut next = || next_line::<u32>(&mut reader, &mut line, Duration::ZERO).unwrap();
        writer.write_all(b"12").unwrap();
        assert_eq!(next(), None);
        writer.write_all(b"3\n4\n").unwrap();
        assert_eq!((next(), next()), (Some(123), Some(4)));
    }

    /// A change of these lines needs another version, by which the snapshot is named.
    #[test]
    fn lines_are_those_of_the_version() {
        let mut state = ViewState::new(60.0);
        state.update(News::Started(Box::new(fixture::header())));
        state.update(News::Stage("calibrating".into()));
        state.update(sample(0));
        state.update(News::Tasks(fixture::tasks()));
        state.update(News::Settings(fixture::settings()));
        state.update(News::Sinks("sink 1".into()));
        let (t_s, text) = (0.2, "door".to_string());
        state.update(News::Mark(RunMark { t_s, text }));
        let news =
            state
                .so_far()
                .into_iter()
                .chain([sample(1), News::Warning("refused".into()), News::Learning, News::Ended]);
        let lines: Vec<String> = news.map(|news| serde_json::to_string(&news).unwrap()).collect();
        insta::assert_snapshot!(format!("version_{VERSION}"), lines.join("\n"));
    }
}
