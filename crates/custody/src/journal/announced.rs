//! Real-time work that processes announce to each other.
//!
//! **Problem.** Two programs that choose a core each for their real-time threads, without exclusive cores, choose the
//! same one, and all jobs of both are late. **Method.** Each announces its tasks in the ledger, with their cores and
//! times. The choice is made while the ledger is locked ([`Journal::announce`]), so that the later of two programs sees
//! what the earlier one chose. Several runtimes of one process do not see each other.
//!
//! Limits: a user's program sees the tasks of the superuser's, but not the other way round, because no program relies
//! on a file that another user may write.

use std::path::Path;

use punctual_units::CoreId;

use super::super::ledger::{self, AnnouncedTask, Conflict, HolderId, Ledger, TASKS, Table};
use super::super::recovery;
use super::super::refused;
use super::super::undo::Patience;
use super::{Journal, named_at, refuse_claim};
use crate::Refusal;

/// Claims and announced tasks of other processes on the cores of this machine.
#[derive(Clone, Debug, Default)]
pub struct Others {
    /// Cores that a process claims for itself alone, each with a refusal that names the process.
    pub claims: Vec<(CoreId, Refusal)>,
    /// Announced tasks that go before this process's ones, each with its process in words.
    pub tasks: Vec<(AnnouncedTask, String)>,
    /// Likewise those that go after them: their process announced work on the core when this one had some there.
    pub later: Vec<(AnnouncedTask, String)>,
    /// Why tasks of some processes are not known.
    pub unseen: Option<Refusal>,
}

impl Journal {
    /// Calls `decide` with the claims and tasks of other processes, and announces the tasks that it returns, in place
    /// of those that this journal announced before. No other process announces or claims anything meanwhile; `decide`
    /// must not use this journal. Call it before the tasks run: no other process is said to be joined by work that is
    /// on its core no more.
    ///
    /// If the ledger cannot be locked, or is full, nothing is announced; the returned refusal says so.
    ///
    /// # Errors
    /// Those of `decide`; this journal has announced nothing then.
    pub fn announce<T, E>(
        &self,
        decide: impl FnOnce(&Others) -> Result<(Vec<AnnouncedTask>, T), E>,
    ) -> Result<(T, Option<Refusal>), E> {
        self.announce_beside(system(), decide)
    }

    /// Announces `tasks` in place of those that this journal announced before, while these run; returns whether there
    /// was room for all.
    ///
    /// # Errors
    /// [`Refusal`] if the ledger cannot be locked: others keep what they know of this process.
    pub fn announce_now(&self, tasks: &[AnnouncedTask]) -> Result<bool, Refusal> {
        Ok(self.0.ledger.lock()?.announce(self.0.holder, tasks))
    }

    /// The claims and tasks of other processes.
    pub fn others(&self) -> Others {
        let mut others = Others::of(system());
        match self.0.ledger.lock() {
            Ok(table) => others.add(&table, Some(self.0.holder)),
            Err(why) => others.unseen = Some(why),
        }
        others
    }

    /// As [`Journal::announce`], with the tasks in the ledger in `system`, too, which is only read.
    pub(super) fn announce_beside<T, E>(
        &self,
        system: Option<&Path>,
        decide: impl FnOnce(&Others) -> Result<(Vec<AnnouncedTask>, T), E>,
    ) -> Result<(T, Option<Refusal>), E> {
        let mut others = Others::of(system);
        let mut table = match self.0.ledger.lock() {
            Ok(table) => table,
            Err(why) => {
                others.unseen = Some(why.clone());
                return Ok((decide(&others)?.1, Some(why)));
            }
        };
        recovery::recover(&mut table, Patience::Tries);
        others.add(&table, Some(self.0.holder));
        let decided = decide(&others);
        let tasks = decided.as_ref().map_or(&[][..], |(tasks, _)| tasks);
        let room = table.announce(self.0.holder, tasks);
        table.unjoin(self.0.holder);
        let (_, value) = decided?;
        Ok((value, (!room).then(full)))
    }

    /// The program that last began real-time work on a core where this process has some, as a refusal.
    pub fn joined(&self) -> Option<Refusal> {
        let table = self.0.ledger.lock().ok()?;
        let (name, process, core) = table.holder_at(self.0.holder.place)?.joined()?;
        let name = name.to_string_lossy();
        Some(refused(
            format!("core {core} for the real-time work of this run only"),
            format!("{name} (process {process}) began real-time work there, after and below this one's"),
            "give each program cores of its own (taskset -c), or run one at a time",
        ))
    }

    /// The cores that other holders claim for themselves alone, each with a refusal that names the process.
    pub(super) fn claims(&self, table: &Table) -> Vec<(CoreId, Refusal)> {
        claims(table, |place| place != self.0.holder.place)
    }
}

/// Folder of the superuser's ledger, where that is another one than this process's.
fn system() -> Option<&'static Path> {
    let system = Path::new(ledger::SYSTEM);
    (!recovery::is_superuser() && ledger::folder() != system).then_some(system)
}

impl Others {
    /// The processes in the ledger in `system`, if there is one.
    fn of(system: Option<&Path>) -> Others {
        let mut others = Others::default();
        match system.map(Ledger::read) {
            Some(Ok(Some(table))) => others.add(&table, None),
            Some(Err(why)) => others.unseen = Some(why),
            Some(Ok(None)) | None => {}
        }
        others
    }

    /// Adds the claims and tasks in `table` of processes other than this one, which is its holder `own`.
    fn add(&mut self, table: &Table, own: Option<HolderId>) {
        let pid = std::process::id() as i32;
        let holder = |place| table.holder_at(place);
        let lives = |place| holder(place).is_some_and(|it| recovery::lives(it.pid(), it.started()));
        let other = |place| holder(place).is_some_and(|it| it.pid() != pid);
        self.claims.extend(claims(table, |place| other(place) && lives(place)));
        for (place, task) in table.tasks_of_others(pid).filter(|(place, _)| lives(*place)) {
            let is_later = own.is_some_and(|own| table.came_later(place, own, task.core));
            let list = if is_later { &mut self.later } else { &mut self.tasks };
            list.push((task, named_at(table, place)));
        }
    }
}

fn claims(table: &Table, meant: impl Fn(usize) -> bool) -> Vec<(CoreId, Refusal)> {
    let holders = table.holders().filter(|(id, _)| meant(id.place));
    let claims = holders.flat_map(|(id, holder)| holder.exclusive().cores().into_iter().map(move |it| (it, id.place)));
    let refusal = |(core, by)| (core, refuse_claim(table, &[core], Conflict::Claimed { core, by }));
    claims.map(refusal).collect()
}

fn full() -> Refusal {
    let what = "announcing the real-time work of this run to other programs";
    let remedy = "end some of the programs that `punctual doctor` lists";
    refused(what, format!("the ledger holds {TASKS} announced tasks"), remedy)
}
