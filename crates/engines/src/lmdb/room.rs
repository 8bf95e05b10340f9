//! Decides which write may still take pages, so that a delete and a group commit always find some.
//!
//! **Problem.** LMDB copies each page that it changes. In a full map even a delete fails: there is no page for the
//! copy, and the pages that it frees are usable only two commits later.
//!
//! **Method.** A part of the quota is the *reserve*, for deletes and for temporal objects. A put of a plain record is
//! refused where it might leave less than the reserve; the refused put changes nothing, and its transaction may go on.
//! One transaction may delete from every leaf of the store, and copy each: no reserve covers that. So the map is larger
//! than the quota ([`LmdbOptions::map_len`](super::LmdbOptions)), and the file outgrows it by such a transaction; what
//! it has freed is used again, because the room of puts is counted by the pages in use, not by the file's length.
//!
//! **Pages freed by the last commit** are usable only after another one. Where a put needs them, an empty commit is
//! made first ([`LmdbWrite::turn_over`]): at once if its transaction has not changed anything yet, otherwise before the
//! next one. A store whose records were all deleted by one transaction would refuse each put otherwise.
//!
//! **Counting.** LMDB does not report how many pages a transaction has taken, and the tree of its free pages is read
//! only when needed, not for each transaction. So both sides are bounded: `spare` is a lower bound on the pages beyond
//! the reserve, `taken` an upper bound on the pages taken. Each change copies the pages from the root to its leaf and
//! may split them ([`CHANGE_PAGES`]), and a large value takes pages of its own. Only where `taken` meets `spare` are
//! both made tight: `spare` by a look at the free pages, and `taken` by the pages that a transaction holds at any time:
//! the largest growth of its trees, a copy of each branch, a copy of each leaf that it has changed, and all large
//! values that it has put. After that, and once [`LEAVES_UNSEEN`] leaves are counted, the address of a record shows
//! whether a change copies its leaf: a leaf not yet copied lies in the map, a copy does not. Leaves that are counted
//! twice before may refuse a put that many pages early, also on a disk that is full.
//!
//! **Pages kept by readers** count as used. Once half of the reserve itself is used up, the store ends readers
//! ([`is_tight`](punctual_store::engine::Engine::is_tight)).

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use heed::MdbError;
use punctual_store::engine::{Engine, EngineError, Holder, Table};

use super::check::{Damage, PAGE_HEADER};
use super::space::Survey;
use super::{Lmdb, LmdbWrite, damaged};

/// Upper bound on the pages that one change takes, without large values: the copied path, and its splits.
pub(super) const CHANGE_PAGES: i64 = 10;
/// Upper bound on the pages that a commit takes for itself: the table of tables, and the lists of free pages.
pub(super) const COMMIT_PAGES: i64 = 16;
/// Leaves beside its own that a delete may copy, to merge it with one.
const MERGED: i64 = 1;
/// Leaves counted as copied without a search for the record, which took a third of the instructions of 100 puts; at
/// most a sixteenth of the spare pages.
const LEAVES_UNSEEN: i64 = 128;
/// The reserve is the quota divided by this, at most `RESERVE_MAX` bytes.
const RESERVE_SHARE: u64 = 8;
const RESERVE_MAX: u64 = 16 << 20;
/// Longest value stored inside a leaf, in bytes; longer ones may lie on pages of their own. LMDB's limit is not
/// smaller.
pub(super) const INLINE_MAX: usize = 1_024;

/// The reserve of a quota for deletes and group commits: an eighth of it, at most 16 MiB.
pub fn reserve_of(quota: u64) -> u64 {
    (quota / RESERVE_SHARE).min(RESERVE_MAX)
}

/// The room of an open store; changed by its writer.
#[derive(Debug)]
pub(super) struct Room {
    page_size: usize,
    quota_pages: AtomicI64,
    /// The quota in the store's main table, as noted for visitors, in pages.
    noted_pages: AtomicI64,
    reserve: AtomicI64,
    /// Lower bound on the free pages beyond the reserve; negative once the reserve is in use.
    spare: AtomicI64,
    /// Whether the next transaction begins with an empty commit, so that it may use what the last one has freed.
    turn_over: AtomicBool,
}

impl Room {
    pub(super) fn new(quota: usize, page_size: usize) -> Room {
        let pages = |bytes: usize| (bytes / page_size) as i64;
        Room {
            page_size,
            quota_pages: AtomicI64::new(pages(quota)),
            noted_pages: AtomicI64::new(pages(quota)),
            reserve: AtomicI64::new(pages(reserve_of(quota as u64) as usize)),
            spare: AtomicI64::new(0),
            turn_over: AtomicBool::new(false),
        }
    }

    /// Whether half of the reserve is used up, so that readers must be ended.
    pub(super) fn is_tight(&self) -> bool {
        self.spare.load(Ordering::Relaxed) < -(self.reserve.load(Ordering::Relaxed) / 2)
    }

    pub(super) fn quota(&self) -> usize {
        self.quota_pages.load(Ordering::Relaxed) as usize * self.page_size
    }

    /// The quota in bytes, if it differs from the noted one; counts as noted from then on.
    pub(super) fn to_note(&self) -> Option<u64> {
        let quota = self.quota_pages.load(Ordering::Relaxed);
        let noted = self.noted_pages.swap(quota, Ordering::Relaxed);
        (noted != quota).then(|| quota as u64 * self.page_size as u64)
    }

    /// Raises the quota. A transaction in progress keeps its own bounds.
    pub(super) fn grow(&self, quota: usize) {
        let reserve = (reserve_of(quota as u64) as usize / self.page_size) as i64;
        self.quota_pages
            .store((quota / self.page_size) as i64, Ordering::Relaxed);
        self.reserve.store(reserve, Ordering::Relaxed);
        // The new pages are not yet counted as spare: the next transaction that needs more surveys the file.
    }

    /// Whether the transaction that begins now must turn over first; asked once.
    #[inline]
    pub(super) fn is_to_turn_over(&self) -> bool {
        self.turn_over.load(Ordering::Relaxed) && self.turn_over.swap(false, Ordering::Relaxed)
    }

    /// Pages beyond the reserve, with `free` pages that are usable.
    fn spare(&self, survey: &Survey, free: i64) -> i64 {
        let [quota, reserve] = [&self.quota_pages, &self.reserve].map(|pages| pages.load(Ordering::Relaxed));
        quota - survey.pages as i64 + free - reserve
    }
}

/// Bounds on the pages that a write transaction may take and has taken.
#[derive(Debug, Default)]
pub(super) struct Allowance {
    spare: i64,
    /// Pages that the last commit has freed, and that no older snapshot keeps; 0 until `before` is known.
    just_freed: i64,
    /// Upper bound on the pages taken so far.
    taken: i64,
    /// Upper bound on the leaves copied so far.
    leaves: i64,
    /// Pages of the large values that were put.
    large: i64,
    /// Largest number of branches and leaves at any time: joined pages stay taken, and serve as single pages.
    most: i64,
    /// Sizes of the trees when the transaction began, once they were looked up.
    before: Option<Before>,
    /// Free pages that are usable, once `before` is known.
    free: i64,
    /// Pages for which the medium has blocks, if each that is taken counts twice; `None` before the first change.
    covered: Option<i64>,
}

/// Sizes of the trees when a transaction began, in pages.
#[derive(Clone, Copy, Debug)]
struct Before {
    branches: i64,
    leaves: i64,
    /// Upper bound on the pages for the lists of freed and of already free pages.
    lists: i64,
}

impl Before {
    fn of(survey: &Survey) -> Before {
        let [branches, leaves] = survey.nodes.map(|pages| pages as i64);
        let free: u64 = survey.freed.iter().map(|(_, pages)| pages).sum();
        let words = survey.page_size / size_of::<u64>() as u64;
        Before {
            branches,
            leaves,
            lists: ((survey.data + free) / words.max(1)) as i64,
        }
    }
}

impl Allowance {
    pub(super) fn begin(room: &Room) -> Allowance {
        Allowance {
            spare: room.spare.load(Ordering::Relaxed),
            taken: COMMIT_PAGES,
            ..Allowance::default()
        }
    }

    /// Subtracts the taken pages from the spare ones, after the commit.
    pub(super) fn commit(&self, room: &Room) {
        room.spare.store(self.spare - self.taken, Ordering::Relaxed);
    }
}

impl LmdbWrite<'_> {
    /// Takes pages for a change of the record of `key`: for a put of `put` bytes, or for a delete (`None`).
    ///
    /// # Errors
    /// [`EngineError::QuotaFull`] for a plain record whose pages might be those of the reserve.
    #[inline]
    pub(super) fn take(&mut self, table: Table, key: &[u8], put: Option<usize>) -> Result<(), EngineError> {
        let large = match put {
            Some(len) if len > INLINE_MAX => (PAGE_HEADER + len).div_ceil(self.engine.room.page_size) as i64,
            _ => 0,
        };
        let pages = CHANGE_PAGES + large;
        if self.allowance.covered.is_none() {
            self.allowance.covered = Some(self.hold_for_one()?);
        }
        let mut leaves = if put.is_some() { 1 } else { 1 + MERGED };
        if put.is_none() {
            // Only deletes shrink the trees.
            self.allowance.most = self.allowance.most.max(self.nodes()?);
        }
        if self.allowance.taken + pages > self.allowance.spare {
            let fits = self.tighten(pages)?;
            if !fits && put.is_some() && table == Table::Data && !self.fits_turned_over(pages)? {
                self.allowance.before = None; // a reader may be ended before the next attempt
                return Err(self.engine.quota_full());
            }
        }
        let covers = |allowance: &Allowance| 2 * (allowance.taken + pages) <= allowance.covered.unwrap_or(0);
        if put.is_some() && table == Table::Data && !covers(&self.allowance) {
            let left = self.hold_for_put(pages)?;
            self.allowance.covered = Some(left.saturating_add(2 * (self.allowance.taken + pages)));
        }
        let counts_exactly =
            self.allowance.before.is_some() && self.allowance.leaves >= LEAVES_UNSEEN.min(self.allowance.spare / 16);
        if counts_exactly && self.is_copied(table, key)? {
            leaves -= 1;
        }
        self.allowance.taken += pages;
        self.allowance.large += large;
        self.allowance.leaves += leaves;
        Ok(())
    }

    /// Whether `pages` fit with those that the last commit has freed. They become usable at once if nothing was changed
    /// yet, otherwise with the next transaction.
    #[cold]
    fn fits_turned_over(&mut self, pages: i64) -> Result<bool, EngineError> {
        let Allowance {
            taken,
            spare,
            just_freed,
            ..
        } = self.allowance;
        if taken + pages > spare + just_freed {
            return Ok(false);
        }
        if self.changed {
            self.engine.room.turn_over.store(true, Ordering::Relaxed);
            return Ok(false);
        }
        self.turn_over()?;
        self.tighten(pages)
    }

    /// Makes both bounds tight; returns whether `pages` fit then.
    #[cold]
    fn tighten(&mut self, pages: i64) -> Result<bool, EngineError> {
        let before = match self.allowance.before {
            Some(before) => before,
            None => {
                let survey = self.engine.survey()?;
                let oldest = self.engine.oldest(survey.commit);
                self.allowance.free = survey.usable(oldest) as i64;
                self.allowance.spare = self.engine.room.spare(&survey, self.allowance.free);
                self.allowance.just_freed = survey.just_freed(oldest) as i64;
                self.engine.room.spare.store(self.allowance.spare, Ordering::Relaxed);
                *self.allowance.before.insert(Before::of(&survey))
            }
        };
        let allowance = &self.allowance;
        let copied = before.branches + allowance.leaves.min(before.leaves);
        let grown = self.nodes()?.max(allowance.most) - before.branches - before.leaves;
        let held = copied + grown + allowance.large + before.lists + COMMIT_PAGES;
        self.allowance.taken = self.allowance.taken.min(held);
        Ok(self.allowance.taken + pages <= self.allowance.spare)
    }

    /// Close upper bound on the pages taken that are not among the free ones; negative if free ones are left.
    #[cold]
    pub(super) fn tight_need(&mut self) -> Result<i64, EngineError> {
        self.tighten(0)?;
        Ok(self.allowance.taken - self.allowance.free)
    }

    /// Whether this transaction has surely copied the leaf of `key`: the records on both sides of the key lie in that
    /// leaf, or in others that are copies.
    #[cold]
    fn is_copied(&self, table: Table, key: &[u8]) -> Result<bool, EngineError> {
        let fail = super::error::engine(self.engine.place(), "look for a record");
        if key.is_empty() {
            return Ok(false);
        }
        let (records, transaction) = (self.engine.table(table), self.open()?);
        let copied = |found: Option<(&[u8], &[u8])>| found.is_none_or(|(key, _)| !self.engine.is_in_map(key));
        let after = records.get_greater_than_or_equal_to(transaction, key).map_err(fail)?;
        if after.is_some_and(|(found, _)| found == key) {
            return Ok(copied(after));
        }
        let before = records.get_lower_than(transaction, key).map_err(fail)?;
        Ok(copied(after) && copied(before))
    }

    /// Branches and leaves of both tables in this transaction's present state.
    pub(super) fn nodes(&self) -> Result<i64, EngineError> {
        let (mut pages, transaction) = (0, self.open()?);
        for table in [Table::Data, Table::Temporal] {
            let stat = self.engine.table(table).stat(transaction);
            let stat = stat.map_err(super::error::engine(self.engine.place(), "count pages"))?;
            pages += stat.branch_pages + stat.leaf_pages;
        }
        Ok(pages as i64)
    }
}

impl Lmdb {
    /// Surveys the newest commit.
    pub(super) fn survey(&self) -> Result<Survey, EngineError> {
        let path = self.file();
        let survey = File::open(&path).map_err(Damage::Io).and_then(|file| Survey::of(&file));
        survey.map_err(damaged(&path))
    }

    /// The oldest commit with a snapshot: pages freed before it can be reused.
    fn oldest(&self, newest: u64) -> u64 {
        let open = self.snapshots();
        open.iter().map(|snapshot| snapshot.commit).fold(newest, u64::min)
    }

    /// The error for a transaction that cannot go on.
    #[cold]
    pub(super) fn transaction_lost(&self) -> EngineError {
        EngineError::TransactionLost {
            path: self.directory.clone(),
        }
    }

    /// The store's error for a refused change.
    #[cold]
    pub(super) fn change_refused(&self, refused: heed::Error, action: &'static str) -> EngineError {
        match refused {
            heed::Error::Mdb(MdbError::MapFull) => self.quota_full(),
            refused => super::error::engine(self.place(), action)(refused),
        }
    }

    /// The error for a full quota; names the reader that keeps the most bytes, if one does.
    pub(super) fn quota_full(&self) -> EngineError {
        let survey = self.survey().ok();
        let held = |commit: u64| {
            let freed = survey.iter().flat_map(|survey| &survey.freed);
            let pages: u64 = freed.filter(|(by, _)| *by > commit).map(|(_, pages)| pages).sum();
            pages * self.room.page_size as u64
        };
        let open = self.snapshots().into_iter();
        let most = open.map(|snapshot| Holder {
            held: held(snapshot.commit),
            reader: snapshot.reader,
            age: None,
        });
        EngineError::QuotaFull {
            path: self.directory.clone(),
            quota: self.room.quota() as u64,
            holder: most.max_by_key(|holder| holder.held).filter(|holder| holder.held > 0),
        }
    }
}
