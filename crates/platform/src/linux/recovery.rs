//! What dead processes have left changed on the machine: found in the ledger, and put back.
//!
//! A process and its guardian may be killed together, and then no process is left that knows. So every process that
//! opens a journal, and `punctual restore`, looks for holders in the ledger that are dead by number and start time, and
//! gives their changes back as they would have. What living holders want stays.

use std::ffi::CString;
use std::fmt;
use std::fs;
use std::path::Path;

use punctual_units::CoreId;
use serde::{Deserialize, Serialize};

use super::heirs;
use super::journal::left_changed;
use super::ledger::{self, Kind, LEFT, Ledger, Table};
use super::undo::{self, Patience, STAT_BYTES, read_file};
use crate::Refusal;

pub use super::ledger::{FOLDER, folder};

/// Where the ledger of the superuser is (file-hierarchy(7)).
pub const SYSTEM: &str = ledger::SYSTEM;

/// A process in the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// As `ps -o comm` shows it.
    pub name: String,
    /// Its number.
    pub process: i32,
    /// Whether it lives.
    pub alive: bool,
    /// The cores that it claims for itself alone.
    pub exclusive: Vec<CoreId>,
    /// The cores on which it has real-time work beside that of others.
    pub shared: Vec<CoreId>,
    /// How many things it has changed.
    pub changes: usize,
}

/// What was found of dead processes, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recovered {
    /// The dead processes.
    pub dead: Vec<Holding>,
    /// What was put back: paths, and threads whose affinity it was.
    pub undone: Vec<String>,
    /// What could not be put back, and how to do it by hand. It stays in the ledger.
    pub left: Vec<Refusal>,
}

/// What the ledger tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledgered {
    /// Every process that holds something, or died holding it.
    pub holders: Vec<Holding>,
    /// What could not be put back when its last holder was gone, likewise.
    pub left: Vec<String>,
}

/// Puts back what dead processes have left according to the ledger in `folder`.
///
/// # Errors
/// [`Refusal`] where the ledger cannot be read.
pub fn restore(folder: &Path) -> Result<Recovered, Refusal> {
    let ledger = Ledger::open(folder)?;
    let mut table = ledger.lock()?;
    Ok(recover(&mut table, Patience::Waits))
}

/// Which processes hold what according to the ledger in `folder`; changes nothing.
///
/// # Errors
/// [`Refusal`] where the ledger cannot be read.
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

/// Whether this process is the superuser's, which may put back what any user's programs have left.
pub fn is_superuser() -> bool {
    // SAFETY: takes nothing.
    unsafe { libc::geteuid() == 0 }
}

impl Ledgered {
    /// Whether a dead process has left something changed.
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

/// Gives back what dead holders have changed, and tries again what could not be put back before.
pub(super) fn recover(table: &mut Table, patience: Patience) -> Recovered {
    let holders = table.holders().map(|(id, _)| holding(table, id.place));
    let places = table.holders().map(|(id, _)| id.place);
    let dead: Vec<(usize, Holding)> = places.zip(holders).filter(|(_, it)| !it.alive).collect();
    let mut recovered = Recovered::default();
    if dead.is_empty() && table.changes_of(LEFT).next().is_none() {
        return recovered;
    }
    for place in dead.iter().map(|(place, _)| *place).chain([LEFT]) {
        // What a dead process changed waits for its own last threads; what was left before is only tried again.
        let patience = if place == LEFT { patience } else { Patience::Waits };
        let wanted: Vec<(usize, String)> = table.changes_of(place).map(|it| (it, shown(table, it))).collect();
        let mut failed = |table: &Table, change, errno| {
            if place == LEFT {
                recovered.left.push(left_changed(table, change, errno));
            }
        };
        heirs::give_back(table, place, true, &|_, _| true, patience, &mut failed);
        let undone = wanted.into_iter().filter(|(change, _)| !table.wants(*change, place));
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
    let cores = |cores: fn(&ledger::Holder) -> &super::core_mask::CoreMask| {
        holder.map(|holder| cores(holder).cores()).unwrap_or_default()
    };
    Holding {
        name: holder.map_or_else(String::new, |holder| holder.name().to_string_lossy().into_owned()),
        process: holder.map_or(0, ledger::Holder::pid),
        alive: holder.is_some_and(|holder| lives(holder.pid(), holder.started())),
        exclusive: cores(ledger::Holder::exclusive),
        shared: cores(ledger::Holder::shared),
        changes: table.changes_of(place).count(),
    }
}

/// What was changed: a path, or where a thread may run.
fn shown(table: &Table, change: usize) -> String {
    let path = table.path(change).to_string_lossy();
    let thread = path.strip_prefix("/proc/").and_then(|rest| rest.strip_suffix("/stat"));
    match (table.kind(change), thread) {
        (Some(Kind::Affinity), Some(thread)) => format!("affinity of thread {thread}"),
        _ => path.into_owned(),
    }
}

/// Whether process `pid`, which started at `started` (ticks since boot), lives. One that has ended and is still to be
/// waited for does not.
fn lives(pid: i32, started: u64) -> bool {
    let path = CString::new(format!("/proc/{pid}/stat")).unwrap_or_default();
    let mut stat = [0u8; STAT_BYTES];
    let Ok(stat) = read_file(&path, &mut stat) else {
        return false;
    };
    // The first thread may have ended before the others.
    let ended = undo::ended(stat) && fs::read_dir(format!("/proc/{pid}/task")).map_or(true, |tasks| tasks.count() <= 1);
    self::started(stat) == Some(started) && !ended
}

/// When the process of this `stat` started, in ticks since boot.
pub(super) fn started(stat: &[u8]) -> Option<u64> {
    std::str::from_utf8(undo::start_time(stat)?).ok()?.parse().ok()
}
