//! Plain records that a write transaction removes after their life has ended.
//!
//! **Problem.** A lease, a cache, a list of neighbours: records that nothing deletes fill a store that is left alone. A
//! thread of the store that deletes them would run beside deadlines that it does not know.
//!
//! **Method.** [`WriteTransaction::put_for`] records when a record is due. A write transaction begins by removing due
//! records, [`SWEPT_MAX`] at most, as part of itself: no transaction takes long over it, and if it is undone the next
//! one finds them again. A store that is seldom written needs a call of [`Store::sweep_expired`] at intervals.
//!
//! **Promises.** A record stays for its whole life. Afterwards it may still be read until it is swept: the first write
//! transaction removes it if no more than [`SWEPT_MAX`] others have been due for longer. Setting or removing the record
//! in any other way cancels its expiry.
//!
//! **Clock.** Instants are those of the clock of ages, which goes on while the machine is suspended. After a restart of
//! the machine, or after any restart where [`clock_origin`](crate::StoreOptions::clock_origin) is unknown, no clock
//! tells how much of a life has passed. Then its whole life begins anew: a record stays longer, never shorter.
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
//! assert_eq!(store.sweep_expired()?, 1); // as any write transaction would
//! assert_eq!(store.get(b"lease")?, None);
//! # Ok::<(), punctual_store::StoreError>(())
//! ```

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use punctual_os::Os;
use punctual_units::Nanos;

use crate::engine::{Engine, EngineError, KEY_MAX_LEN, Read, Table, Write, prefix_range};
use crate::store::Store;
use crate::temporal::ClockOrigin;
use crate::transaction::WriteTransaction;
use crate::{Deadline, StoreError};

/// Most due records that one write transaction removes: they take about a tenth of a millisecond.
pub const SWEPT_MAX: usize = 8;

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
    /// No record is due before this instant of the clock of ages, in nanoseconds.
    next: AtomicU64,
}

/// Changes of a transaction to the state of expiry, which take effect when it has committed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sweep {
    /// Number of records that were removed.
    pub records: usize,
    /// No other record is due before this instant; `None` if the transaction did not sweep.
    next: Option<u64>,
    /// Earliest due time of the records that the transaction itself wrote.
    own: Option<u64>,
}

impl Sweep {
    /// Whether the transaction has given a record an expiry.
    pub fn has_own(&self) -> bool {
        self.own.is_some()
    }
}

impl Expiry {
    /// Reads the entries of earlier runs.
    pub fn new(read: &impl Read, origin: ClockOrigin) -> Result<Expiry, EngineError> {
        let runs = read.get(Table::Data, RUNS)?;
        let runs = runs.and_then(|runs| Some(u64::from_be_bytes((*runs).try_into().ok()?)));
        let any = read.scan(Table::Data, prefix_range(DUE, &mut Vec::new()))?.next();
        Ok(Expiry {
            origin: origin.known().unwrap_or(runs.unwrap_or(0) + 1),
            unwritten: AtomicBool::new(origin.known().is_none()),
            any: AtomicBool::new(any.transpose()?.is_some()),
            next: AtomicU64::new(MORE),
        })
    }

    /// Applies the changes of a transaction after its commit; the write lock must still be held.
    pub fn committed(&self, swept: Sweep) {
        if let Some(next) = swept.next {
            self.next.store(next, Ordering::Relaxed);
        }
        if let Some(own) = swept.own {
            self.any.store(true, Ordering::Relaxed);
            self.unwritten.store(false, Ordering::Relaxed);
            self.next.fetch_min(own, Ordering::Relaxed);
        }
    }
}

/// An origin and an instant, encoded so that bytes sort by origin, then by instant.
fn term(origin: u64, at: u64) -> [u8; TERM_LEN] {
    let mut term = [0; TERM_LEN];
    term[..8].copy_from_slice(&origin.to_be_bytes());
    term[8..].copy_from_slice(&at.to_be_bytes());
    term
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

/// An entry of the index by due time.
struct Entry {
    origin: u64,
    at: u64,
    key: Vec<u8>,
    life: u64,
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
            Some(Entry {
                origin: number(rest)?,
                at: number(rest.get(8..)?)?,
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
    /// Removes all due records, [`SWEPT_MAX`] per write transaction; returns their number. Write transactions do so by
    /// themselves.
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
            let transaction = self.write_transaction(Deadline::NONE)?;
            let now = transaction.swept;
            transaction.commit()?;
            swept += now.records;
            if now.next != Some(MORE) {
                return Ok(swept);
            }
        }
    }

    /// Removes due records at the beginning of a write transaction; calls `removed` with the key of each.
    pub(crate) fn sweep(
        &self,
        engine: &mut E::Write<'_>,
        mut removed: impl FnMut(Vec<u8>),
    ) -> Result<Sweep, EngineError> {
        let expiry = &self.expiry;
        if !expiry.any.load(Ordering::Relaxed) {
            return Ok(Sweep::default());
        }
        let now = self.os.since_boot();
        if now.0 < expiry.next.load(Ordering::Relaxed) {
            return Ok(Sweep::default());
        }
        let mut end = Vec::new();
        let (_, Bound::Excluded(end)) = prefix_range(DUE, &mut end) else {
            unreachable!("there is a key behind those of the index");
        };
        let begin = |origin: u64| [DUE, &term(origin, 0)].concat();
        let own = entries(engine, &begin(expiry.origin), end, SWEPT_MAX, |entry| {
            entry.origin == expiry.origin && entry.at <= now.0
        })?;
        for entry in &own {
            engine.delete(Table::Data, &entry.key)?;
            forget(engine, &entry.key)?;
        }
        // Entries of other origins, before and behind this run's, get their whole life once more.
        let mut rest = SWEPT_MAX - own.len();
        for low in [DUE.to_vec(), begin(expiry.origin.saturating_add(1))] {
            let others = entries(engine, &low, end, rest, |entry| entry.origin != expiry.origin)?;
            rest -= others.len();
            for Entry { origin, at, key, life } in others {
                let new = term(expiry.origin, now.0.saturating_add(life));
                // At a full quota a record keeps its old entry: the next transaction tries again.
                match remember(engine, &key, new, life) {
                    Ok(()) => engine.delete(Table::Data, &[DUE, &term(origin, at), &key].concat())?,
                    Err(EngineError::QuotaFull { .. }) => break,
                    Err(error) => return Err(error),
                };
            }
        }
        let next = if rest == 0 {
            MORE
        } else {
            let first = entries(engine, &begin(expiry.origin), end, 1, |entry| {
                entry.origin == expiry.origin
            })?;
            first.first().map_or(u64::MAX, |entry| entry.at)
        };
        let records = own.len();
        own.into_iter().for_each(|entry| removed(entry.key));
        Ok(Sweep {
            records,
            next: Some(next),
            own: None,
        })
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
        let Some(term) = read.get(Table::Data, &[TERM, key].concat())? else {
            return Ok(None);
        };
        let (Some(origin), Some(at)) = (number(&term), term.get(8..).and_then(number)) else {
            return Ok(None);
        };
        if origin == self.expiry.origin {
            return Ok(Some(Nanos(at.saturating_sub(self.os.since_boot().0))));
        }
        // The entry is of another clock: the whole life begins anew when the record is swept.
        let life = read.get(Table::Data, &[DUE, &*term, key].concat())?;
        Ok(life.and_then(|life| number(&life)).map(Nanos))
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
    /// Number of due records that this transaction removed when it began.
    pub fn swept(&self) -> usize {
        self.swept.records
    }
}

pub(crate) fn check_expiring(key: &[u8]) -> Result<(), StoreError> {
    let (len, max) = (key.len(), EXPIRING_KEY_MAX_LEN);
    if (1..=max).contains(&len) {
        return Ok(());
    }
    Err(StoreError::ExpiringKey { len, max })
}
