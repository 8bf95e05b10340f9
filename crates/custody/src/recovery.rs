//! Finds changes that dead processes have left on the machine, in the ledger, and restores them.
//!
//! A process and its guardian may be killed together, so that neither can restore the machine. So every process that
//! opens a journal, and `punctual doctor --restore`, looks for dead holders in the ledger, by number and start time,
//! and undoes their changes as they would have. Values that living holders want stay.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use punctual_units::CoreId;
use serde::{Deserialize, Serialize};

use super::core_mask::CoreMask;
use super::journal::left_changed;
use super::ledger::{self, Kind, LEFT, Ledger, NOT_OURS, Table};
use super::stat;
use super::undo::Patience;
use super::{heirs, last_error};
use crate::Refusal;

pub use super::ledger::{AnnouncedTask, FOLDER, folder};

/// Folder of the superuser's ledger (file-hierarchy(7)).
pub const SYSTEM: &str = ledger::SYSTEM;

/// Name of the socket in [`folder`] at which a process reports on its run, around the number of the process. The
/// guardian removes that of a process that was killed.
pub const RUN_SOCKET: [&str; 2] = ["run-", ".socket"];

/// Name of a socket in the file system, with which a forked child makes plain system calls only.
#[derive(Clone, Copy, Debug)]
pub struct SocketName(libc::sockaddr_un);

impl SocketName {
    /// Takes `path` as a socket's name.
    ///
    /// # Errors
    /// The path is too long for a socket.
    pub fn of(path: &Path) -> io::Result<SocketName> {
        // SAFETY: all zeros are a valid address.
        let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        let bytes = path.as_os_str().as_bytes();
        if bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
            return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        { address.sun_path.iter_mut().zip(bytes) }.for_each(|(to, from)| *to = *from as libc::c_char);
        Ok(SocketName(address))
    }

    /// Connects without waiting: a process that is stopped accepts no connection, until there is no room for another
    /// one (`WouldBlock`).
    ///
    /// # Errors
    /// The error of the system.
    pub fn connect(&self) -> io::Result<OwnedFd> {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: plain numbers; a new descriptor is ours; the address has that size.
        unsafe {
            let socket = libc::socket(libc::AF_UNIX, kind, 0);
            if socket < 0 {
                return Err(last_error());
            }
            let socket = OwnedFd::from_raw_fd(socket);
            let size = size_of_val(&self.0) as libc::socklen_t;
            match libc::connect(socket.as_raw_fd(), (&raw const self.0).cast(), size) {
                0 => Ok(socket),
                _ => Err(last_error()),
            }
        }
    }

    /// Removes the socket if no process listens there any more.
    pub fn remove_left_over(&self) {
        if self
            .connect()
            .is_err_and(|why| why.kind() == ErrorKind::ConnectionRefused)
        {
            // SAFETY: the path ends in NUL. Another process may have removed it.
            unsafe { libc::unlink(self.0.sun_path.as_ptr()) };
        }
    }
}

/// A process in the ledger, with its cores and changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// The process's name, as in `ps -o comm`.
    pub name: String,
    /// Process id, which may have been reused if the process is dead.
    pub process: i32,
    /// Whether the process still runs.
    pub alive: bool,
    /// Cores that the process claims for itself alone.
    pub exclusive: Vec<CoreId>,
    /// Cores on which the process has announced real-time work that does not keep others off.
    pub shared: Vec<CoreId>,
    /// Number of things that the process has changed.
    pub changes: usize,
}

/// Dead processes that were found, and the outcome of restoring their changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecoveryReport {
    /// Dead processes in the ledger.
    pub dead: Vec<Holding>,
    /// Restored things: paths, and threads whose affinity was restored.
    pub undone: Vec<String>,
    /// Things that another program has changed since, left as they are, and how to restore them by hand.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed_since: Vec<Refusal>,
    /// Failures, and how to restore by hand. They stay in the ledger.
    pub left: Vec<Refusal>,
}

/// Content of the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledgered {
    /// Every process that holds something, or died holding it.
    pub holders: Vec<Holding>,
    /// Things that could not be restored when their last holder left: paths, and threads whose affinity it is.
    pub left: Vec<String>,
}

/// Restores the changes of dead processes in the ledger in `folder`.
///
/// # Errors
/// [`Refusal`] if the ledger cannot be opened or locked.
pub fn restore(folder: &Path) -> Result<RecoveryReport, Refusal> {
    let ledger = Ledger::open(folder)?;
    let mut table = ledger.lock()?;
    Ok(recover(&mut table, Patience::Waits))
}

/// Reads the ledger in `folder`; changes nothing.
///
/// # Errors
/// [`Refusal`] if the ledger cannot be read.
pub fn look(folder: &Path) -> Result<Ledgered, Refusal> {
    let Some(table) = Ledger::read(folder)? else {
        return Ok(Ledgered::default());
    };
    let holders = table.holders().map(|(id, _)| holding(&table, id.place));
    let left = table.changes_of(LEFT).map(|change| shown(&table, change));
    Ok(Ledgered {
        holders: holders.collect(),
        left: left.collect(),
    })
}

/// Whether this process runs as the superuser, which may restore the changes of any user's programs.
pub fn is_superuser() -> bool {
    // SAFETY: takes nothing.
    unsafe { libc::geteuid() == 0 }
}

impl Ledgered {
    /// Whether a dead process has left a change.
    pub fn has_leftovers(&self) -> bool {
        !self.left.is_empty() || self.holders.iter().any(|holder| !holder.alive && holder.changes > 0)
    }
}

impl fmt::Display for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ended = if self.alive { "" } else { ", ended" };
        write!(f, "{} (process {}{ended})", self.name, self.process)?;
        let list = |cores: &[CoreId]| cores.iter().map(CoreId::to_string).collect::<Vec<_>>().join(",");
        if !self.exclusive.is_empty() {
            write!(f, ", exclusive core {}", list(&self.exclusive))?;
        }
        if !self.shared.is_empty() {
            write!(f, ", real-time work on core {}", list(&self.shared))?;
        }
        match self.changes {
            1 => f.write_str(", 1 change"),
            changes => write!(f, ", {changes} changes"),
        }
    }
}

/// Undoes the changes of dead holders, and tries again those that failed before.
pub(crate) fn recover(table: &mut Table, patience: Patience) -> RecoveryReport {
    let holders = table.holders().map(|(id, _)| holding(table, id.place));
    let places = table.holders().map(|(id, _)| id.place);
    let dead: Vec<(usize, Holding)> = places.zip(holders).filter(|(_, it)| !it.alive).collect();
    let mut recovered = RecoveryReport::default();
    if dead.is_empty() && table.changes_of(LEFT).next().is_none() {
        return recovered;
    }
    for place in dead.iter().map(|(place, _)| *place).chain([LEFT]) {
        // Undoing a dead process's changes waits for its last threads; earlier failures are tried with the caller's
        // patience.
        let patience = if place == LEFT { patience } else { Patience::Waits };
        let wanted: Vec<(usize, String)> = table.changes_of(place).map(|it| (it, shown(table, it))).collect();
        let mut kept = Vec::new();
        let mut failed = |table: &Table, change, errno| {
            if errno == NOT_OURS {
                recovered.changed_since.push(left_changed(table, change, errno));
            } else if place == LEFT {
                recovered.left.push(left_changed(table, change, errno));
            }
            kept.push(change);
        };
        heirs::give_back(table, place, true, &|_, _| true, patience, &mut failed);
        let undone = wanted.into_iter().filter(|(change, _)| !kept.contains(change));
        recovered.undone.extend(undone.map(|(_, path)| path));
        if place != LEFT {
            table.strike(place);
        }
    }
    recovered.dead = dead.into_iter().map(|(_, holding)| holding).collect();
    recovered
}

fn holding(table: &Table, place: usize) -> Holding {
    let holder = table.holder_at(place);
    let its = table.tasks().filter(|(of, _)| *of == place);
    let shared: CoreMask = its.map(|(_, task)| task.core).collect();
    Holding {
        name: holder.map_or_else(String::new, |holder| holder.name().to_string_lossy().into_owned()),
        process: holder.map_or(0, ledger::Holder::pid),
        alive: holder.is_some_and(|holder| lives(holder.pid(), holder.started())),
        exclusive: holder.map(|holder| holder.exclusive().cores()).unwrap_or_default(),
        shared: shared.cores(),
        changes: table.changes_of(place).count(),
    }
}

/// The changed thing: a path, or the affinity of a thread.
fn shown(table: &Table, change: usize) -> String {
    let path = table.path(change).to_string_lossy();
    let thread = path.strip_prefix("/proc/").and_then(|rest| rest.strip_suffix("/stat"));
    match (table.kind(change), thread) {
        (Some(Kind::Affinity), Some(thread)) => format!("affinity of thread {thread}"),
        (Some(Kind::Scheduling), Some(thread)) => format!("scheduling of thread {thread}"),
        _ => path.into_owned(),
    }
}

/// Whether process `pid`, which started at `started` (ticks since boot), still runs. A zombie does not.
pub(crate) fn lives(pid: i32, started: u64) -> bool {
    // The first thread may end before the others.
    let is_alone = || fs::read_dir(format!("/proc/{pid}/task")).map_or(true, |tasks| tasks.count() <= 1);
    stat::of(pid).is_some_and(|(ended, since)| since == started && !(ended && is_alone()))
}

/// Leftovers of root's programs, which need root to be restored; `None` for root itself.
///
/// # Errors
/// The ledger cannot be read.
pub fn out_of_reach() -> Result<Option<Refusal>, Refusal> {
    if is_superuser() {
        return Ok(None);
    }
    let found = look(Path::new(SYSTEM))?;
    let dead = found.holders.iter().find(|holder| !holder.alive);
    Ok(found.has_leftovers().then(|| Refusal {
        what: "restoring what programs of the superuser have left".into(),
        why: dead.map_or_else(|| found.left.join(", "), ToString::to_string),
        remedy: "run as root: punctual doctor --restore".into(),
    }))
}
