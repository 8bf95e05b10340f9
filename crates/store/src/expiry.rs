//! Plain records that a write transaction removes after their life has ended.
//!
//! **Problem.** A lease, a cache, a list of neighbours: records that nothing deletes fill a store that is left alone. A
//! thread of the store that deletes them would run beside deadlines that it does not know.
//!
//! **Method.** [`WriteTransaction::put_for`] records when a record is due. Every read of a transaction compares that
//! with the clock, and leaves out what is due. Write transactions remove due records as part of themselves; if one is
//! undone, a later one finds them again.
//!
//! **Cost of a read.** One load where no record expires. Otherwise the clock is compared with the instant before which
//! no record is due; only beyond it the entry of the record that is read is looked up.
//!
//! **Cost of a write.** A transaction that gives a record a life removes [`SWEPT_FOR_ONE`] due ones, so that they
//! are removed faster than they are made. Of all others, one in [`SWEPT_EVERY`] removes one. A transaction that the
//! engine has refused for want of room has the next one remove [`SWEPT_WHEN_FULL`] in a commit of their own. A store
//! that is seldom written needs a call of [`Store::sweep_expired`] at intervals.
//!
//! **Promises.** A record stays for its whole life, and no read finds it afterwards, even in a transaction that
//! began before. Watches get a note when it is removed, which may be later. Setting or removing the record in any other
//! way cancels its expiry.
//!
//! **Clock.** Instants are those of the clock of ages, which goes on while the machine is suspended. After a restart of
//! the machine, or after any restart where [`clock_origin`](crate::StoreOptions::clock_origin) is unknown, no clock
//! tells how much of a life has passed. Then its whole life begins anew when the store is opened: a record stays
//! longer, never shorter. The records of a replicated store do not expire: its log has no clock.
//!
//! ```
//! use punctual_os::Os;
//! use punctual_store::{Deadline, Store, StoreOptions};
//! use punctual_units::Nanos;
//! # use {punctual_engines::Memory, punctual_testing::VirtualOs};
//!
//! let os = VirtualOs::new(1); // on Linux: `LinuxOs`
//! let store = Store::open(Memory::default(), os.clone(), StoreOptions::default())?;
//! let mut transaction = store.write_transaction(Deadline::NONE)?;
//! transaction.put_for(b"lease", b"mine", Nanos::from_secs(30))?;
//! transaction.commit()?;
//! os.sleep(Nanos::from_secs(31));
//! assert_eq!(store.get(b"lease")?, None);
//! assert_eq!(store.sweep_expired()?, 1); // as write transactions would
//! # Ok::<(), punctual_store::StoreError>(())
//! ```

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use punctual_os::Os;
use punctual_units::{Nanos, Time};

use crate::engine::{Engine, EngineError, KEY_MAX_LEN, Read, Table, Write, prefix_range};
use crate::store::Store;
use crate::temporal::ClockOrigin;
use crate::transaction::WriteTransaction;
use crate::watch::ChangeKind;
use crate::{Deadline, StoreError};

/// Most due records that one transaction of [`Store::sweep_expired`] removes: they take about a tenth of a millisecond.
pub const SWEPT_MAX: usize = 8;
/// Due records that a transaction removes for each record to which it gives a life.
pub const SWEPT_FOR_ONE: usize = 2;
/// One in this many write transactions removes a due record as it begins.
pub const SWEPT_EVERY: u64 = 4;
/// Due records that are removed in a commit of their own after the engine has refused a change for want of room.
pub const SWEPT_WHEN_FULL: usize = 256;

/// Index by due time, after this prefix: clock origin, instant, key; the value is the record's life in nanoseconds.
const DUE: &[u8] = b"\0punctual/due/";
/// From a record's key to its entry in that index: clock origin and instant.
const TERM: &[u8] = b"\0punctual/term/";
/// Number of runs whose clock had no known origin.
const RUNS: &[u8] = b"\0punctual/runs";
/// Value of `next`: the next transaction sweeps again, at whatever instant.
const MORE: u64 = 0;
/// Bytes of an origin and an instant.
const TERM_LEN: usize = 16;

/// The longest key of a record that expires, in bytes.
pub const EXPIRING_KEY_MAX_LEN: usize = KEY_MAX_LEN - TERM.len() - TERM_LEN;

/// State of expiry in this run.
#[derive(Debug)]
pub(crate) struct Expiry {
    /// Origin of this run's instants: the clock's, or the number of the run.
    origin: u64,
    /// Whether `origin` is the number of a run that is not recorded in the store yet.
    unwritten: AtomicBool,
    /// Whether any record may expire: only then writers look for an expiry of each record.
    any: AtomicBool,
    /// No record is due before this instant of the clock of ages, in nanoseconds. Lowered before a commit with an
    /// earlier one, raised after a commit that has removed the earliest.
    next: AtomicU64,
    /// Number of times that `next` was raised: after that it tells nothing about older snapshots.
    raised: AtomicU64,
    /// Number of write transactions that have begun since records expire.
    writes: AtomicU64,
    /// Number of due records that were removed since the store was opened.
    removed: AtomicU64,
    /// Whether the engine has refused a change for want of room since due records were last removed for that.
    starved: AtomicBool,
    /// Whether the index may have entries of other origins.
    foreign: AtomicBool,
    /// Opening of the store on the clock of ages: lives of other origins begin anew here.
    opened: Time,
}

/// What a transaction needs to know to tell due records from others.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub enum TermView {
    /// The transaction reads all records, due or not: in a batch, a store without lives, or to delete a range.
    All,
    /// A snapshot that was taken after `next` had been raised this many times.
    Snapshot(u64),
    /// A write transaction, in which no record is due before this instant, in nanoseconds.
    Writing(u64),
}

/// Changes of a transaction to the state of expiry, which take effect when it has committed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sweep {
    /// Number of records that were removed.
    pub records: usize,
    /// Number of index entries that were removed or renewed.
    entries: usize,
    /// No other record is due before this instant; `None` if the transaction did not sweep.
    next: Option<u64>,
    /// Earliest due time of the records that the transaction itself wrote.
    own: Option<u64>,
    /// Whether the index may still have entries of other origins, where the transaction swept.
    foreign: bool,
}

impl Sweep {
    /// Whether the transaction has given a record an expiry.
    pub fn has_own(&self) -> bool {
        self.own.is_some()
    }
}

impl Expiry {
    /// Reads the entries of earlier runs, at `now` on the clock of ages.
    pub fn new(read: &impl Read, origin: ClockOrigin, replicated: bool, now: Time) -> Result<Expiry, EngineError> {
        let runs = read.get(Table::Data, RUNS)?;
        let runs = runs.and_then(|runs| Some(u64::from_be_bytes((*runs).try_into().ok()?)));
        let own = origin.known().unwrap_or(runs.unwrap_or(0) + 1);
        let mut end = Vec::new();
        let index = prefix_range(DUE, &mut end);
        let ends = [
            read.scan(Table::Data, index)?.next(),
            read.scan_back(Table::Data, index)?.next(),
        ];
        let mut terms = [None; 2];
        for (term, end) in terms.iter_mut().zip(ends) {
            *term = end
                .transpose()?
                .and_then(|(key, _)| origin_and_instant(&key[DUE.len()..]));
        }
        // Entries are sorted by origin, so those of others come first or last.
        let foreign = terms.iter().flatten().any(|(origin, _)| *origin != own);
        let first = terms[0].filter(|_| !foreign).map_or(MORE, |(_, at)| at);
        Ok(Expiry {
            origin: own,
            unwritten: AtomicBool::new(origin.known().is_none()),
            any: AtomicBool::new(terms[0].is_some() && !replicated),
            next: AtomicU64::new(first),
            raised: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            removed: AtomicU64::new(0),
            starved: AtomicBool::new(false),
            foreign: AtomicBool::new(foreign),
            opened: now,
        })
    }

    /// Looks for an expiry at each read: another process gives lives, and announces none here.
    pub fn look_always(&mut self) {
        (self.any, self.next) = (AtomicBool::new(true), AtomicU64::new(0));
    }

    /// Announces the expiries that a transaction is about to commit: a snapshot that has them must find them announced.
    pub fn announce(&self, swept: &Sweep) {
        if let Some(own) = swept.own {
            self.next.fetch_min(own, Ordering::Release);
            self.any.store(true, Ordering::Release);
        }
    }

    /// Applies the changes of a transaction after its commit; the write lock must still be held.
    pub fn committed(&self, swept: Sweep) {
        self.removed.fetch_add(swept.records as u64, Ordering::Relaxed);
        if let Some(next) = swept.next {
            let next = swept.own.map_or(next, |own| own.min(next));
            // A reader that sees the new number takes its snapshot afterwards: that must have the commit.
            self.raised.fetch_add(1, Ordering::Release);
            self.next.store(next, Ordering::Release);
            self.foreign.store(swept.foreign, Ordering::Relaxed);
        }
        if swept.own.is_some() {
            self.unwritten.store(false, Ordering::Relaxed);
        }
    }

    /// The number for the [view](TermView::Snapshot) of a snapshot that is taken after this call.
    #[inline]
    pub fn raised(&self) -> u64 {
        self.raised.load(Ordering::Acquire)
    }

    /// Whether the engine has refused a change for want of room since this was last asked.
    #[inline]
    pub fn is_starved(&self) -> bool {
        self.starved.load(Ordering::Relaxed) && self.starved.swap(false, Ordering::Relaxed)
    }

    /// The view of a write transaction with these changes.
    #[inline]
    pub fn writing(&self, swept: &Sweep) -> TermView {
        if swept.own.is_none() && !self.any.load(Ordering::Relaxed) {
            return TermView::All;
        }
        let next = swept.next.unwrap_or_else(|| self.next.load(Ordering::Relaxed));
        TermView::Writing(swept.own.map_or(next, |own| own.min(next)))
    }

    /// Whether a record that this view shows may be due now. One load where no record expires.
    #[inline(always)]
    fn may_be_due(&self, view: TermView, os: &impl Os) -> bool {
        match view {
            TermView::All => false,
            TermView::Writing(next) => next <= os.since_boot().0,
            TermView::Snapshot(raised) => self.any.load(Ordering::Relaxed) && self.snapshot_may_be_due(raised, os),
        }
    }

    #[inline(never)]
    fn snapshot_may_be_due(&self, raised: u64, os: &impl Os) -> bool {
        let next = self.next.load(Ordering::Acquire);
        self.raised.load(Ordering::Relaxed) != raised || next <= os.since_boot().0
    }

    /// Number of due records that the write transaction which begins now removes first.
    #[inline]
    fn share(&self) -> usize {
        if !self.any.load(Ordering::Relaxed) {
            return 0;
        }
        usize::from(self.writes.fetch_add(1, Ordering::Relaxed).is_multiple_of(SWEPT_EVERY))
    }

    /// Notes that the engine has refused a change for want of room.
    pub fn starve(&self) {
        self.starved.store(true, Ordering::Relaxed);
    }
}

/// An origin and an instant, encoded so that bytes sort by origin, then by instant.
fn term(origin: u64, at: u64) -> [u8; TERM_LEN] {
    let mut term = [0; TERM_LEN];
    term[..8].copy_from_slice(&origin.to_be_bytes());
    term[8..].copy_from_slice(&at.to_be_bytes());
    term
}

/// Decodes a [`term`], whatever follows it.
fn origin_and_instant(bytes: &[u8]) -> Option<(u64, u64)> {
    Some((number(bytes)?, number(bytes.get(8..)?)?))
}

fn number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.first_chunk::<8>().copied()?))
}

/// Removes both entries of the expiry of `key`, if it has one.
fn forget(engine: &mut impl Write, key: &[u8]) -> Result<(), EngineError> {
    let place = [TERM, key].concat();
    let Some(term) = engine.get(Table::Data, &place)?.map(|term| term.to_vec()) else {
        return Ok(());
    };
    engine.delete(Table::Data, &[DUE, &term, key].concat())?;
    engine.delete(Table::Data, &place).map(drop)
}

/// Adds both entries of an expiry of `key`, which must have none yet.
fn remember(engine: &mut impl Write, key: &[u8], term: [u8; TERM_LEN], life: u64) -> Result<(), EngineError> {
    engine.put(Table::Data, &[DUE, &term, key].concat(), &life.to_be_bytes())?;
    engine.put(Table::Data, &[TERM, key].concat(), &term)
}

/// Removes a record that is over, with both entries of its expiry. An `entry` to which no record's key leads is left of
/// an expiry that met a full quota, and is removed alone: the record may have been put anew, without one.
fn remove(
    engine: &mut impl Write,
    entry: Entry,
    swept: &mut Sweep,
    removed: &mut impl FnMut(Vec<u8>),
) -> Result<(), EngineError> {
    swept.entries += 1;
    let is_its_records = entry.is_its_records(engine)?;
    engine.delete(Table::Data, &entry.place())?;
    if is_its_records {
        engine.delete(Table::Data, &entry.key)?;
        engine.delete(Table::Data, &[TERM, &entry.key].concat())?;
        swept.records += 1;
        removed(entry.key);
    }
    Ok(())
}

/// An entry of the index by due time.
struct Entry {
    origin: u64,
    at: u64,
    key: Vec<u8>,
    life: u64,
}

impl Entry {
    /// Key of the entry in the store.
    fn place(&self) -> Vec<u8> {
        [DUE, &term(self.origin, self.at), &self.key].concat()
    }

    /// Whether the record's key leads to this entry.
    fn is_its_records(&self, read: &impl Read) -> Result<bool, EngineError> {
        let found = read.get(Table::Data, &[TERM, &self.key].concat())?;
        Ok(found.is_some_and(|found| *found == term(self.origin, self.at)))
    }
}

/// The first entries from `low` up to `high`, at most `limit`, while they are `wanted`.
fn entries(
    engine: &impl Read,
    low: &[u8],
    high: &[u8],
    limit: usize,
    wanted: impl Fn(&Entry) -> bool,
) -> Result<Vec<Entry>, EngineError> {
    let range = (Bound::Included(low), Bound::Excluded(high));
    let mut found = Vec::new();
    for record in engine.scan(Table::Data, range)? {
        let (key, life) = record?;
        let entry = key.strip_prefix(DUE).and_then(|rest| {
            let (origin, at) = origin_and_instant(rest)?;
            Some(Entry {
                origin,
                at,
                key: rest.get(TERM_LEN..)?.to_vec(),
                life: number(&life)?,
            })
        });
        match entry {
            Some(entry) if found.len() < limit && wanted(&entry) => found.push(entry),
            _ => break,
        }
    }
    Ok(found)
}

impl<E: Engine, O: Os> Store<E, O> {
    /// Removes all due records, [`SWEPT_MAX`] per write transaction; returns their number. Write transactions remove
    /// some by themselves. May leave some at a full quota after a restart of the machine: a later call removes them.
    ///
    /// # Errors
    /// Those of a [write transaction](Store::write_transaction).
    pub fn sweep_expired(&self) -> Result<usize, StoreError> {
        let mut swept = 0;
        if !self.expiry.any.load(Ordering::Relaxed) || self.os.since_boot().0 < self.expiry.next.load(Ordering::Relaxed)
        {
            return Ok(swept); // nothing is due: no commit for it
        }
        loop {
            let transaction = WriteTransaction::begin(self, Deadline::NONE, Some(SWEPT_MAX))?;
            let now = transaction.state.swept;
            transaction.commit()?;
            swept += now.records;
            // At a full quota, what is left may be entries that cannot be renewed.
            if now.next != Some(MORE) || now.entries == 0 {
                return Ok(swept);
            }
        }
    }

    /// Number of due records that were removed since the store was opened.
    pub fn expired(&self) -> u64 {
        self.expiry.removed.load(Ordering::Relaxed)
    }

    /// Removes due records as a write transaction begins: `limit` of them, or the transaction's share. After a refusal
    /// for want of room, many are removed first, in a commit of their own.
    #[inline]
    pub(crate) fn sweep_first(
        &self,
        engine: &mut E::Write<'_>,
        limit: Option<usize>,
        removed: impl FnMut(Vec<u8>),
    ) -> Result<Sweep, EngineError> {
        let mut swept = Sweep::default();
        let limit = limit.unwrap_or_else(|| self.expiry.share());
        if limit > 0 {
            self.sweep(engine, limit, &mut swept, removed)?;
        }
        Ok(swept)
    }

    /// Removes many due records in a commit of their own, after a refusal for want of room. The write lock is held.
    #[cold]
    pub(crate) fn sweep_apart(&self) -> Result<(), EngineError> {
        let mut engine = self.engine.write()?;
        let (mut swept, mut changes) = (Sweep::default(), Vec::new());
        self.sweep(&mut engine, SWEPT_WHEN_FULL, &mut swept, |key| {
            changes.push((key, ChangeKind::Expired));
        })?;
        if swept.next.is_some() {
            engine.commit()?;
            self.expiry.committed(swept);
            self.watches.wake(self.watches.note_all(&changes));
        }
        Ok(())
    }

    /// Removes due records, `limit` at most; calls `removed` with the key of each.
    pub(crate) fn sweep(
        &self,
        engine: &mut E::Write<'_>,
        limit: usize,
        swept: &mut Sweep,
        mut removed: impl FnMut(Vec<u8>),
    ) -> Result<(), EngineError> {
        let expiry = &self.expiry;
        if !expiry.may_be_due(expiry.writing(swept), &self.os) {
            return Ok(());
        }
        let now = self.os.since_boot();
        let mut end = Vec::new();
        let (_, Bound::Excluded(end)) = prefix_range(DUE, &mut end) else {
            unreachable!("there is a key behind those of the index");
        };
        let begin = |origin: u64| [DUE, &term(origin, 0)].concat();
        // One more than are removed: the next one says when the next sweep is due.
        let mut own = entries(engine, &begin(expiry.origin), end, limit + 1, |entry| {
            entry.origin == expiry.origin
        })?;
        let due = own.iter().take(limit).filter(|entry| entry.at <= now.0).count();
        let mut next = own.get(due).map_or(u64::MAX, |entry| entry.at);
        own.truncate(due);
        for entry in own {
            remove(engine, entry, swept, &mut removed)?;
        }
        if expiry.foreign.load(Ordering::Relaxed) {
            let renewed = self.renew_terms(engine, limit - due, (now, end), swept, &mut removed)?;
            next = renewed.map_or(MORE, |first| first.min(next));
        }
        swept.foreign = next == MORE;
        swept.next = Some(if next <= now.0 { MORE } else { next });
        Ok(())
    }

    /// Gives records with entries of other origins their whole life once more, from the opening of the store on,
    /// `limit` at most; removes those whose life has ended since. Returns the first instant at which one of them is
    /// due; `None` if there may be other entries.
    fn renew_terms(
        &self,
        engine: &mut E::Write<'_>,
        limit: usize,
        (now, end): (Time, &[u8]),
        swept: &mut Sweep,
        removed: &mut impl FnMut(Vec<u8>),
    ) -> Result<Option<u64>, EngineError> {
        let expiry = &self.expiry;
        let behind = [DUE, &term(expiry.origin.saturating_add(1), 0)].concat();
        let (mut rest, mut first, mut is_full) = (limit, u64::MAX, false);
        if rest == 0 {
            return Ok(None);
        }
        for low in [DUE.to_vec(), behind] {
            let others = entries(engine, &low, end, rest, |entry| entry.origin != expiry.origin)?;
            rest -= others.len();
            for entry in others {
                let due = expiry.opened.0.saturating_add(entry.life);
                if due <= now.0 || !entry.is_its_records(engine)? {
                    remove(engine, entry, swept, removed)?;
                    continue;
                }
                if is_full {
                    continue;
                }
                match remember(engine, &entry.key, term(expiry.origin, due), entry.life) {
                    Ok(()) => {
                        engine.delete(Table::Data, &entry.place())?;
                        first = first.min(due);
                        swept.entries += 1;
                    }
                    // At a full quota a record keeps its old entry: a later transaction tries again.
                    Err(EngineError::QuotaFull { .. }) => is_full = true,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok((rest > 0 && !is_full).then_some(first))
    }

    /// Removes the record `key` if it is due, in a commit of its own; true if it was. The write lock is held.
    #[cold]
    pub(crate) fn remove_due(&self, key: &[u8]) -> Result<bool, EngineError> {
        let mut engine = self.engine.write()?;
        if !self.expiry.any.load(Ordering::Relaxed) || !self.is_over(&engine, key)? {
            return Ok(false);
        }
        engine.delete(Table::Data, key)?;
        forget(&mut engine, key)?;
        engine.commit()?;
        self.watches.wake(self.watches.note_plain(key, ChangeKind::Expired));
        Ok(true)
    }

    /// Whether the record `key` is due, as this view shows it.
    #[inline(always)]
    pub(crate) fn is_due(&self, view: TermView, read: &impl Read, key: &[u8]) -> Result<bool, EngineError> {
        if self.expiry.may_be_due(view, &self.os) {
            return self.is_over(read, key);
        }
        Ok(false)
    }

    #[inline(never)]
    fn is_over(&self, read: &impl Read, key: &[u8]) -> Result<bool, EngineError> {
        Ok(self.term_of(read, key)? == Some(Nanos::ZERO))
    }

    /// Cancels the expiry of a record that is set or removed, if it has one.
    #[inline]
    pub(crate) fn end_term(&self, engine: &mut E::Write<'_>, key: &[u8], swept: &Sweep) -> Result<(), EngineError> {
        if self.expiry.any.load(Ordering::Relaxed) || swept.own.is_some() {
            return forget(engine, key);
        }
        Ok(())
    }

    /// Time until the record `key` is due, zero if it is; `None` if it does not expire. `own`: the transaction has
    /// itself given records an expiry.
    #[inline]
    pub(crate) fn term_left(&self, read: &impl Read, key: &[u8], own: bool) -> Result<Option<Nanos>, EngineError> {
        if !own && !self.expiry.any.load(Ordering::Relaxed) {
            return Ok(None);
        }
        self.term_of(read, key)
    }

    fn term_of(&self, read: &impl Read, key: &[u8]) -> Result<Option<Nanos>, EngineError> {
        let Some(term) = read.get(Table::Data, &[TERM, key].concat())? else {
            return Ok(None);
        };
        let Some((origin, mut at)) = origin_and_instant(&term) else {
            return Ok(None);
        };
        if origin != self.expiry.origin {
            // The entry is of another clock: its whole life began anew when the store was opened.
            let life = read.get(Table::Data, &[DUE, &*term, key].concat())?;
            let Some(life) = life.and_then(|life| number(&life)) else {
                return Ok(None);
            };
            at = self.expiry.opened.0.saturating_add(life);
        }
        Ok(Some(Nanos(at.saturating_sub(self.os.since_boot().0))))
    }

    /// Gives a record an expiry after `life`.
    pub(crate) fn begin_term(
        &self,
        engine: &mut E::Write<'_>,
        key: &[u8],
        life: Nanos,
        swept: &mut Sweep,
    ) -> Result<(), EngineError> {
        let expiry = &self.expiry;
        let at = self.os.since_boot().0.saturating_add(life.0);
        if expiry.unwritten.load(Ordering::Relaxed) && swept.own.is_none() {
            engine.put(Table::Data, RUNS, &expiry.origin.to_be_bytes())?;
        }
        remember(engine, key, term(expiry.origin, at), life.0)?;
        swept.own = Some(swept.own.map_or(at, |own| own.min(at)));
        Ok(())
    }
}

impl<E: Engine, O: Os> WriteTransaction<'_, E, O> {
    /// Number of due records that this transaction has removed so far.
    pub fn swept(&self) -> usize {
        self.state.swept.records
    }
}

pub(crate) fn check_expiring(key: &[u8]) -> Result<(), StoreError> {
    let (len, max) = (key.len(), EXPIRING_KEY_MAX_LEN);
    if (1..=max).contains(&len) {
        return Ok(());
    }
    Err(StoreError::ExpiringKey { len, max })
}
