//! The runtime's side: one listener in each folder, and the rings that it was handed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use punctual_custody::journal::Journal;
use punctual_custody::tree::field;
use punctual_os::linux::mapping::allocate;
use punctual_os::linux::{last_error, refused};
use punctual_os::{LinuxOs, Refusal, Tid};
use punctual_units::{Clock, Nanos, Time};

use crate::shared::{Message, SharedPage, address, is_sealed, own_user, receive, socket, user_of};
use crate::wire::{BYTES, HELLO, MAGIC, NAME_BYTES, PAGE, Page, RECORDS, Ring, SOCKET, VERSION};

/// Messages taken at a time: the kernel keeps at most some hundred.
const MESSAGES_MAX: usize = 256;

/// Attempts to lock the page, which the guardian of a dead listener or a child of it may have for a moment...
const LOCK_TRIES: u32 = 20;
/// ...and the pause between them: 0.2 s in all.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Receives the reports of a folder's programs. Dropping it tells them that none listens any more.
#[derive(Debug)]
pub struct Listener {
    page: PageFile,
    socket: OwnedFd,
    path: PathBuf,
    /// The folder's user: beside the superuser and the user of this process, its programs are heard.
    user: u32,
    refused: u64,
    /// The journal that clears the page if this process is killed, or why it does not.
    journal: Option<Result<Journal, Refusal>>,
}

/// News of a folder's programs.
#[derive(Debug)]
pub enum Arrival {
    /// A thread hands over its ring.
    Reporter(Reporter),
    /// A script says that a job begins or ends.
    Note {
        /// Name of the task.
        name: String,
        /// Process of the script, which may have ended.
        process: i32,
        /// Whether the job begins; else it ends.
        begins: bool,
        /// When it did, at the latest now.
        at: Time,
    },
}

/// The jobs of one task, as one thread of a program does them.
#[derive(Debug)]
pub struct Reporter {
    /// The jobs, as the program reports them or as the kernel tells them.
    pub source: Box<dyn JobSource>,
    /// Name of the task.
    pub name: String,
    /// Process of the thread, as the kernel says.
    pub process: i32,
    /// The thread, one of the process; `None` where it numbers itself otherwise, in another PID namespace.
    pub thread: Option<Tid>,
    /// Whether the process has no thread as the ring says: it has ended, or belongs to another program.
    pub thread_is_missing: bool,
    /// Time from a release to the deadline, if the program states it.
    pub deadline: Option<Nanos>,
    /// Least time between two releases, if the program states it.
    pub period: Option<Nanos>,
}

/// Tells of the jobs of one thread.
pub trait JobSource: std::fmt::Debug + Send {
    /// The jobs that were not taken yet, the oldest first. As many as a ring holds at a time: its program may go on.
    fn jobs(&mut self) -> Vec<ReportedJob>;

    /// Release, if stated, and begin of the job under way.
    fn open_job(&self) -> Option<(Option<Time>, Time)>;

    /// Whether no more jobs will come, and the one under way will not end.
    fn is_closed(&self) -> bool;

    /// Whether the thread has ended, as far as the source knows: one executed by another thread has its number.
    fn has_ended(&self) -> bool {
        false
    }

    /// Number of jobs, or records of them, that found no room in a ring.
    fn dropped(&self) -> u64;

    /// Number of begins within a job, and of ends without one.
    fn misused(&self) -> u64 {
        0
    }
}

/// The ring of a program that reports, since its handover.
#[derive(Debug)]
struct ReportRing {
    ring: SharedPage<Ring>,
    /// Number of records read.
    tail: u64,
}

/// A job that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedJob {
    /// When it was released, if its program says so; not after its begin.
    pub released: Option<Time>,
    /// Instant of its begin.
    pub begun: Time,
    /// Instant of its end, at the latest that of reading it.
    pub ended: Time,
}

impl Listener {
    /// Listens in `folder`, which is made if it is missing.
    ///
    /// # Errors
    /// [`Refusal`] if another process listens there, or the folder cannot be used.
    pub fn start(folder: &Path) -> Result<Listener, Refusal> {
        let refusal = |why: &dyn std::fmt::Display, remedy: &str| {
            refused(
                format!("listening to reports of jobs in {}", folder.display()),
                why,
                remedy,
            )
        };
        let cannot = |why: io::Error| {
            refusal(
                &why,
                "set PUNCTUAL_RUN_DIR to a folder of this user that can be written",
            )
        };
        if folder.symlink_metadata().is_err() {
            if own_user() == 0 && folder != crate::folder() {
                // Made by the superuser, it would be closed to its user.
                let remedy = "start a program that reports there first, or make the folder as its user";
                return Err(refusal(&"there is no such folder", remedy));
            }
            let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(folder);
            made.map_err(cannot)?;
        }
        let user = user_of(folder, own_user() == 0).map_err(cannot)?;
        let _rights = FileRights::of(user);
        let file = { OpenOptions::new() }
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(folder.join(PAGE));
        let page = PageFile(file.map_err(cannot)?);
        if !page.0.metadata().map_err(cannot)?.is_file() {
            return Err(cannot(io::Error::other(format!("{PAGE} is no file"))));
        }
        allocate(&page.0, BYTES).map_err(cannot)?;
        let is_locked = |tries: u32| {
            std::thread::sleep(LOCK_PAUSE * tries.min(1));
            // SAFETY: the descriptor is open.
            unsafe { libc::flock(page.0.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
        };
        if !(0..LOCK_TRIES).any(is_locked) {
            let by = page.number(offset_of!(Page, listener)).map_err(cannot)?;
            return Err(refusal(
                &format!("process {by} listens there already"),
                "end that one first (`punctual attach`)",
            ));
        }
        let path = folder.join(SOCKET);
        let socket = bind(&path).map_err(cannot)?;
        page.announce().map_err(cannot)?;
        Ok(Listener {
            page,
            socket,
            path,
            user,
            refused: 0,
            journal: None,
        })
    }

    /// Lets `journal` say in the page that none listens any more if this process is killed.
    pub fn recorded_in(&mut self, journal: &Journal) {
        let page = self.path.with_file_name(PAGE);
        let recorded = journal.clears_word(&page, self.user, offset_of!(Page, epoch));
        self.journal = Some(recorded.map(|()| journal.clone()));
    }

    /// Why the page would stay as it is if this process was killed; `None` if it would not, or no journal was asked.
    pub fn unrecorded(&self) -> Option<&Refusal> {
        self.journal.as_ref()?.as_ref().err()
    }

    /// News since the last call, but for tasks that are not `wanted`.
    pub fn arrivals(&mut self, wanted: &dyn Fn(&str) -> bool) -> Vec<Arrival> {
        let mut arrived = Vec::new();
        for message in std::iter::from_fn(|| receive(&self.socket)).take(MESSAGES_MAX) {
            let heard = [0, own_user(), self.user].contains(&message.user);
            match heard.then(|| arrival(message)).flatten() {
                Some(arrival) if wanted(arrival.name()) => arrived.push(arrival),
                Some(_) => {}
                None => self.refused += 1,
            }
        }
        arrived
    }

    /// Number of messages that were refused: of other users, of another version, or none of ours.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _rights = FileRights::of(self.user);
        // Fails on a folder that was taken away, whose programs read nothing there either.
        let cleared = self.page.set_epoch(0);
        // While the page is locked: the next listener's word is not this one's.
        if let (Ok(()), Some(Ok(journal))) = (cleared, &self.journal) {
            journal.word_is_clear(&self.path.with_file_name(PAGE));
        }
        // A socket that stays is replaced by the next listener.
        let _ = fs::remove_file(&self.path);
        // A program that another thread starts has a copy of the lock until execve(2), unless it is released.
        let _ = self.page.0.unlock();
    }
}

/// The folder's page, written by system calls: its user may cut a file of theirs off at any time, which ends a process
/// that writes to a mapping of it. Locked for as long as this lives; the kernel unlocks it when the process dies.
#[derive(Debug)]
struct PageFile(File);

impl PageFile {
    fn number(&self, at: usize) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.0.read_exact_at(&mut bytes, at as u64)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    fn write(&self, at: usize, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, at as u64)
    }

    /// Sets the epoch, with the version before it: eight aligned bytes, which the kernel copies at once.
    fn set_epoch(&self, epoch: u32) -> io::Result<()> {
        let both = [VERSION.to_ne_bytes(), epoch.to_ne_bytes()];
        self.write(offset_of!(Page, version), both.as_flattened())
    }

    /// Says that this process listens.
    fn announce(&self) -> io::Result<()> {
        let last = offset_of!(Page, last_epoch);
        let epoch = self.number(last)?.checked_add(1).unwrap_or(1);
        self.write(offset_of!(Page, magic), &MAGIC)?;
        self.write(last, &epoch.to_ne_bytes())?;
        self.write(offset_of!(Page, listener), &std::process::id().to_ne_bytes())?;
        self.set_epoch(epoch)
    }
}

/// Lets the superuser's calling thread act on files with the rights of a folder's user only, until this is dropped.
/// A link that this user puts into the folder meanwhile leads to no file that the user could not change without it.
/// Files that are made belong to the user.
struct FileRights;

impl FileRights {
    /// `None`, and no change, for other users and for folders of the superuser.
    fn of(user: u32) -> Option<FileRights> {
        (own_user() == 0 && user != 0).then(|| {
            // SAFETY: takes a number, and concerns the calling thread only (setfsuid(2)).
            unsafe { libc::setfsuid(user) };
            FileRights
        })
    }
}

impl Drop for FileRights {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::setfsuid(own_user()) };
    }
}

fn bind(path: &Path) -> io::Result<OwnedFd> {
    // Of a listener that was killed: this process has the lock.
    match fs::remove_file(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    let (socket, address, on): (_, _, libc::c_int) = (socket()?, address(path)?, 1);
    // SAFETY: the descriptor is open, and the arguments live until the calls return, which read them only. The name
    // gets the mode of the socket.
    let bound = unsafe {
        let credentials = libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PASSCRED,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        );
        credentials == 0
            && libc::fchmod(socket.as_raw_fd(), 0o700) == 0
            && libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as libc::socklen_t,
            ) == 0
    };
    if bound { Ok(socket) } else { Err(last_error()) }
}

fn arrival(message: Message) -> Option<Arrival> {
    match message.file {
        Some(file) if message.text == HELLO => {
            Reporter::of(&file, (message.process, message.user)).map(Arrival::Reporter)
        }
        Some(_) => None,
        None => note(&message.text, message.process),
    }
}

/// `begin NAME` or `end NAME`, with the instant if it is not now.
fn note(text: &[u8], process: i32) -> Option<Arrival> {
    let mut words = std::str::from_utf8(text).ok()?.split_whitespace();
    let begins = match words.next()? {
        "begin" => true,
        "end" => false,
        _ => return None,
    };
    let name = words.next().filter(|name| name.len() < NAME_BYTES)?.to_owned();
    let (now, at) = (LinuxOs.now(), words.next());
    let at = at.map_or(Some(now), |at| at.parse().ok().map(Time))?.min(now);
    words.next().is_none().then_some(Arrival::Note {
        name,
        process,
        begins,
        at,
    })
}

impl Arrival {
    fn name(&self) -> &str {
        match self {
            Arrival::Reporter(reporter) => &reporter.name,
            Arrival::Note { name, .. } => name,
        }
    }
}

impl Reporter {
    /// Maps a ring; `None` for a file that is none, or has another version.
    fn of(file: &OwnedFd, (process, user): (i32, u32)) -> Option<Reporter> {
        let ring: SharedPage<Ring> = SharedPage::of(file, true).ok().filter(|_| is_sealed(file))?;
        // SAFETY: the mapping is valid. The program may change these bytes while they are copied; any bytes are fine.
        let (magic, version, bytes, name) = unsafe {
            let ring = ring.pointer();
            let name = (&raw const (*ring).name).read_volatile();
            let read = |field: *const u32| field.read_volatile();
            (
                (&raw const (*ring).magic).read_volatile(),
                read(&raw const (*ring).version),
                read(&raw const (*ring).bytes),
                name,
            )
        };
        let end = name.iter().position(|byte| *byte == 0)?;
        let name = String::from_utf8_lossy(&name[..end]).into_owned();
        if (magic, version, bytes) != (MAGIC, VERSION, BYTES as u32) || name.is_empty() {
            return None;
        }
        let is_here = process > 0 && ring.get().process.load(Relaxed) == process;
        let named = Some(Tid(ring.get().thread.load(Relaxed))).filter(|_| is_here);
        // The program says so itself, and might name a thread of another one.
        let thread = named.filter(|thread| has_thread(process, *thread, user));
        let tail = ring.get().tail.load(Acquire);
        let [deadline, period] = [&ring.get().deadline, &ring.get().period].map(|time| Nanos(time.load(Relaxed)));
        Some(Reporter {
            source: Box::new(ReportRing { ring, tail }),
            name,
            process,
            thread,
            thread_is_missing: named.is_some() && thread.is_none(),
            deadline: Some(deadline).filter(|time| *time > Nanos::ZERO),
            period: Some(period).filter(|time| *time > Nanos::ZERO),
        })
    }
}

impl ReportRing {
    fn next_job(&mut self) -> Option<ReportedJob> {
        let ring = self.ring.get();
        let head = ring.head.load(Acquire);
        if head.wrapping_sub(self.tail) > RECORDS as u64 {
            self.tail = head; // the program has written anything there
        }
        if head == self.tail {
            return None;
        }
        let record = &ring.records[(self.tail % RECORDS as u64) as usize];
        let [released, begun, ended] =
            [&record.released, &record.begun, &record.ended].map(|at| Time(at.load(Relaxed)));
        self.tail += 1;
        ring.tail.store(self.tail, Release);
        let ended = ended.min(LinuxOs.now());
        let begun = begun.min(ended);
        let released = Some(released.min(begun)).filter(|at| *at > Time::ZERO);
        Some(ReportedJob { released, begun, ended })
    }
}

impl JobSource for ReportRing {
    fn jobs(&mut self) -> Vec<ReportedJob> {
        std::iter::from_fn(|| self.next_job()).take(RECORDS).collect()
    }

    fn open_job(&self) -> Option<(Option<Time>, Time)> {
        let begun = Time(self.ring.get().open_begun.load(Acquire));
        let released = Time(self.ring.get().open_released.load(Relaxed)).min(begun);
        (begun > Time::ZERO).then_some((Some(released).filter(|at| *at > Time::ZERO), begun))
    }

    fn is_closed(&self) -> bool {
        self.ring.get().closed.load(Acquire) != 0
    }

    fn dropped(&self) -> u64 {
        self.ring.get().dropped.load(Relaxed)
    }

    fn misused(&self) -> u64 {
        self.ring.get().misused.load(Relaxed)
    }
}

/// Whether `thread` belongs to `process`, and that to `user`.
fn has_thread(process: i32, thread: Tid, user: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/task/{thread}/status")).unwrap_or_default();
    let users = field(&status, "Uid");
    // The first is the real one, as in the message's credentials.
    users.and_then(|users| users.split_whitespace().next()?.parse().ok()) == Some(user)
}
