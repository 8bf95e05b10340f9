//! Checks each page before LMDB first follows it, in a store that was opened without a check.
//!
//! **Problem.** LMDB follows page numbers in its map without a check, so that a damaged page kills the program.
//! Checking all pages takes as long as reading the file.
//!
//! **Method.** Before a call of LMDB's, this module takes the same path from the root of the same commit, and reads and
//! checks each page on it, once per process: a bit for each page remembers that. New pages need no check, because LMDB
//! has made them from checked pages; if one is looked at anyway, it passes.
//!
//! **Paths.** A get descends to one leaf. A step of a scan moves on to the adjacent leaf, at any level, and so do the
//! two lookups by which a put finds its need of pages (`room`). Each page is checked against the key bounds that the
//! branches above give it.
//!
//! **A delete** may join a page with an adjacent one, or take a node from there, and looks for the first key below both
//! (`mdb_rebalance` in mdb.c). The next delete then meets the neighbours of the joined page. So for each level a write
//! transaction notes the key ranges of pages that it may have joined ([`JoinedRanges`]). A delete extends that range by
//! one page on each side, and the next page beyond is checked, too: a scan of the transaction steps to it. A branch is
//! joined only when all below it was, so that other levels are seldom touched. Each delete checks at most five pages of
//! a level and the first and last paths below them, most of which were checked before.
//!
//! All paths are those of the commit that the transaction began from. The transaction's own pages are copies of checked
//! pages, or hold records that it has put.
//!
//! **Checks of a page** when it is met: its number is right, its nodes lie in it, its keys ascend, and each record in
//! it matches its checksum, if it has one: a flipped bit of a key would hide the record from every search. The page
//! must not be free, because it would then be an older state of the wanted page. The free pages are read anew for each
//! commit that a transaction follows, and checked anew when they are met again. A snapshot of an older commit takes a
//! free page for sound. Nor may the page be a leaf of the other table, whose keys may well fit: the path to its first
//! key in that table must lead elsewhere.
//!
//! The trees of tables and of free pages are small, and checked as a whole when the store is opened.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use punctual_store::engine::Table;

use super::check::{
    Damage, F_BIGDATA, Meta, NO_PAGE, NODE_HEADER, P_BRANCH, P_LEAF, PAGE_HEADER, Tree, check_small, child_at, damaged,
    key_at, node_fits, node_offsets, pages_of_large, u16_at, u64_at,
};
use super::sum::{self, Sums};

/// Remembers which pages were checked, and checks the others.
#[derive(Debug)]
pub(super) struct Guard {
    file: File,
    map: Range<usize>,
    page_size: usize,
    /// For each table, a bit for each page: whether it was checked.
    checked: [Box<[AtomicU64]>; 2],
    sums: Sums,
    free: Mutex<Free>,
}

/// A bit for each page: whether it belongs to no table in a commit.
#[derive(Debug)]
pub(super) struct Free {
    pub commit: u64,
    pub pages: Vec<u64>,
}

/// The commit whose pages a transaction follows, and its tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct BaseCommit {
    pub commit: u64,
    pub trees: [Tree; 2],
}

/// A table of a commit.
#[derive(Clone, Copy)]
struct CommitTable {
    table: Table,
    tree: Tree,
    /// The tree of the other table.
    other: Tree,
    commit: u64,
    /// Whether the table's records have checksums.
    sums: bool,
}

/// Pages that a call may meet beside the leaf of its key.
pub(super) enum Reach<'j> {
    /// No other page, for a get.
    Leaf,
    /// The adjacent leaves, for a step of a scan or a put.
    Beside,
    /// The pages that it joins, and those adjacent to them, for a delete.
    Joins(&'j mut JoinedRanges),
}

/// Key ranges of a table in which a write transaction may have joined pages. For each level, from the leaves upwards:
/// the first key of each range (empty: the beginning of the table), and the key before which it ends.
#[derive(Debug, Default)]
pub(super) struct JoinedRanges(Vec<BTreeMap<Vec<u8>, Option<Vec<u8>>>>);

impl JoinedRanges {
    /// The range that contains `key`, if there is one.
    fn around(&self, level: usize, key: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let (low, high) = self
            .0
            .get(level)?
            .range::<[u8], _>((Unbounded, Included(key)))
            .next_back()?;
        is_below(key, high.as_deref()).then(|| (low.clone(), high.clone()))
    }

    /// Adds a range, merged with all that overlap it; returns the merged range.
    fn add(&mut self, level: usize, mut low: Vec<u8>, mut high: Option<Vec<u8>>) -> (Vec<u8>, Option<Vec<u8>>) {
        if self.0.len() <= level {
            self.0.resize_with(level + 1, BTreeMap::new);
        }
        let spans = &mut self.0[level];
        let overlap = |low: &[u8], high: &Option<Vec<u8>>, spans: &BTreeMap<Vec<u8>, Option<Vec<u8>>>| {
            let below = match high {
                Some(high) => spans
                    .range::<[u8], _>((Unbounded, Excluded(high.as_slice())))
                    .next_back(),
                None => spans.iter().next_back(),
            };
            below
                .filter(|(_, end)| is_below(low, end.as_deref()))
                .map(|(begin, _)| begin.clone())
        };
        while let Some(begin) = overlap(&low, &high, spans) {
            let end = spans.remove(&begin).flatten();
            low = low.min(begin);
            high = high.zip(end).map(|(one, other)| one.max(other));
        }
        spans.insert(low.clone(), high.clone());
        (low, high)
    }
}

/// Whether a key lies below the end of a range.
fn is_below(key: &[u8], end: Option<&[u8]>) -> bool {
    end.is_none_or(|end| key < end)
}

/// The path to take down the tree.
#[derive(Clone, Copy)]
enum Way<'k> {
    To(&'k [u8]),
    /// Towards the keys just below this one.
    Below(&'k [u8]),
    First,
    Last,
}

/// A page of a tree, and its key bounds: no key below `low`, all below `high`.
#[derive(Clone, Copy)]
struct PageBounds<'g> {
    number: u64,
    depth: u16,
    /// Empty: no lower bound.
    low: &'g [u8],
    high: Option<&'g [u8]>,
}

impl Guard {
    /// For a store whose file stays mapped at `map` while the guard is used.
    pub(super) fn new(file: File, map: Range<usize>, page_size: usize, sums: Sums, free: Free) -> Guard {
        let bits = || {
            // Untouched zeros take no memory; the map may be much larger than the file.
            let words = vec![0_u64; map.len() / page_size / 64 + 1].into_boxed_slice();
            // SAFETY: an atomic word has the size and the alignment of a word of 64 bits (`check` is built for these
            // only), and each value of one is a value of the other.
            unsafe { Box::from_raw(Box::into_raw(words) as *mut [AtomicU64]) }
        };
        let checked = [bits(), bits()];
        Guard {
            file,
            map,
            page_size,
            checked,
            sums,
            free: Mutex::new(free),
        }
    }

    /// Checks the path to `key` in a table, and the pages beside it that a call of this reach may meet.
    #[inline]
    pub(super) fn check(&self, base: BaseCommit, table: Table, key: &[u8], reach: Reach<'_>) -> Result<(), Damage> {
        let [data, temporal] = base.trees;
        let (tree, other) = match table {
            Table::Data => (data, temporal),
            Table::Temporal => (temporal, data),
        };
        if tree.root == NO_PAGE {
            return Ok(());
        }
        let of = CommitTable {
            table,
            tree,
            other,
            commit: base.commit,
            sums: self.sums.has(table),
        };
        let leaf = self.down(of, Way::To(key), of.tree.depth)?;
        match reach {
            Reach::Leaf => Ok(()),
            Reach::Beside => {
                self.before(of, leaf.depth, leaf.low)?;
                self.after(of, leaf.depth, leaf.high)?;
                Ok(())
            }
            Reach::Joins(joined) => self.joins(of, key, joined),
        }
    }

    /// Checks the pages that a delete of `key` may meet, and notes those that it may join.
    #[inline(never)]
    fn joins(&self, of: CommitTable, key: &[u8], joined: &mut JoinedRanges) -> Result<(), Damage> {
        for depth in (1..=of.tree.depth).rev() {
            let level = usize::from(of.tree.depth - depth);
            let own = self.down(of, Way::To(key), depth)?;
            self.ends(of, own)?;
            let (mut low, mut high) = match joined.around(level, key) {
                Some(span) => span,
                None => (own.low.to_vec(), own.high.map(<[u8]>::to_vec)),
            };
            if let Some(before) = self.before(of, depth, &low)? {
                self.before(of, depth, before.low)?;
                low = before.low.to_vec();
            }
            if let Some(after) = self.after(of, depth, high.as_deref())? {
                self.after(of, depth, after.high)?;
                high = after.high.map(<[u8]>::to_vec);
            }
            let (low, high) = joined.add(level, low, high);
            // A branch that keeps two children is not joined.
            let Some(above) = depth.checked_sub(1).filter(|above| *above > 0) else {
                break;
            };
            let above = self.down(of, Way::To(key), above)?;
            let all_joined = low.as_slice() <= above.low
                && high.is_none_or(|high| above.high.is_some_and(|end| end <= high.as_slice()));
            if !all_joined {
                break;
            }
        }
        Ok(())
    }

    /// Checks the page before the range that begins at `low`, and the first and last paths below it.
    fn before(&self, of: CommitTable, depth: u16, low: &[u8]) -> Result<Option<PageBounds<'_>>, Damage> {
        if low.is_empty() {
            return Ok(None);
        }
        let place = self.down(of, Way::Below(low), depth)?;
        self.ends(of, place)?;
        Ok(Some(place))
    }

    /// Checks the page after the range that ends before `high`, and the first and last paths below it.
    fn after(&self, of: CommitTable, depth: u16, high: Option<&[u8]>) -> Result<Option<PageBounds<'_>>, Damage> {
        let Some(high) = high else { return Ok(None) };
        let place = self.down(of, Way::To(high), depth)?;
        self.ends(of, place)?;
        Ok(Some(place))
    }

    /// Checks the paths to the first and the last leaf below a page.
    fn ends(&self, of: CommitTable, place: PageBounds<'_>) -> Result<(), Damage> {
        if place.depth < of.tree.depth {
            self.down_from(of, place, Way::First, of.tree.depth)?;
            self.down_from(of, place, Way::Last, of.tree.depth)?;
        }
        Ok(())
    }

    /// The page at `depth` on a path from the root; checks each page on it.
    #[inline]
    fn down(&self, of: CommitTable, way: Way<'_>, depth: u16) -> Result<PageBounds<'_>, Damage> {
        let root = PageBounds {
            number: of.tree.root,
            depth: 1,
            low: &[],
            high: None,
        };
        self.down_from(of, root, way, depth)
    }

    #[inline]
    fn down_from<'g>(
        &'g self,
        of: CommitTable,
        mut at: PageBounds<'g>,
        way: Way<'_>,
        depth: u16,
    ) -> Result<PageBounds<'g>, Damage> {
        loop {
            let is_leaf = at.depth == of.tree.depth;
            let page = self.page(of, at.number, if is_leaf { P_LEAF } else { P_BRANCH })?;
            let count = nodes(page);
            // The first key of a branch stands for all smaller keys.
            lies(at, page, usize::from(!is_leaf)..count)?;
            if at.depth == depth {
                return Ok(at);
            }
            let child = match way {
                Way::First => 0,
                Way::Last => count.saturating_sub(1),
                Way::To(key) => child_where(page, count, |low| low <= key),
                Way::Below(key) => child_where(page, count, |low| low < key),
            };
            if child > 0 {
                at.low = key_of(page, child);
            }
            if child + 1 < count {
                at.high = Some(key_of(page, child + 1));
            }
            at.number = child_at(page, offset_of(page, child));
            at.depth += 1;
        }
    }

    /// Page `number`, checked, if it is of this kind.
    #[inline]
    fn page(&self, of: CommitTable, number: u64, kind: u16) -> Result<&[u8], Damage> {
        let (word, bit) = (usize::try_from(number / 64).unwrap_or(usize::MAX), 1 << (number % 64));
        let [checked, by_other] = match of.table {
            Table::Data => [0, 1].map(|table| self.checked[table].get(word)),
            Table::Temporal => [1, 0].map(|table| self.checked[table].get(word)),
        };
        if checked.is_none_or(|word| word.load(Ordering::Acquire) & bit == 0) {
            self.look(of, number, kind)?;
            // A page that moves to the other table is checked anew.
            if let (Some(checked), Some(by_other)) = (checked, by_other) {
                by_other.fetch_and(!bit, Ordering::Release);
                checked.fetch_or(bit, Ordering::Release);
            }
        }
        let begin = self.map.start + number as usize * self.page_size;
        // SAFETY: the page was read from the file, which never shrinks, so that it lies in the map and is backed. It is
        // a page of a commit that is kept from reuse, so that it does not change.
        let page = unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(begin), self.page_size) };
        match u16_at(page, 10) {
            found if found == kind => Ok(page),
            found => Err(damaged(number, &format!("of kind {found:#x} is no part of its tree"))),
        }
    }

    /// Checks a page by itself, and the first pages of its large values.
    #[cold]
    fn look(&self, of: CommitTable, number: u64, kind: u16) -> Result<(), Damage> {
        let mut page = vec![0; self.page_size];
        self.read(number, &mut page)?;
        if u64_at(&page, 0) != number || u16_at(&page, 10) != kind {
            return Err(damaged(number, "is not the page that it should be"));
        }
        let offsets: Vec<usize> = node_offsets(number, &page)?.collect();
        if kind == P_BRANCH && offsets.len() < 2 {
            return Err(damaged(number, "is a branch with one child"));
        }
        let (mut before, mut used): (Option<&[u8]>, usize) = (None, 0);
        for (at, offset) in offsets.into_iter().enumerate() {
            let flags = u16_at(&page, offset + 4);
            let len = usize::from(u16_at(&page, offset)) | usize::from(u16_at(&page, offset + 2)) << 16;
            let inline = match (kind, flags) {
                (P_BRANCH, _) => 0,
                (_, 0) => len,
                (_, F_BIGDATA) => 8,
                _ => return Err(damaged(number, &format!("has a node of kind {flags:#x}"))),
            };
            let value = node_fits(number, &page, offset, inline)?;
            let key = key_at(&page, offset);
            used += (value - offset + inline).next_multiple_of(2);
            // The first key of a branch stands for all smaller keys.
            if kind == P_LEAF || at > 0 {
                if key.is_empty() || before.is_some_and(|before| before >= key) {
                    return Err(damaged(number, "has keys that do not ascend"));
                }
                before = Some(key);
            }
            if kind == P_LEAF && flags == F_BIGDATA {
                self.look_at_large(of, u64_at(&page, value), len)?;
            } else if kind == P_LEAF && of.sums && sum::checked(key, &page[value..value + len]).is_none() {
                let what = format!("has the record {}, which is not what was written", key.escape_ascii());
                return Err(damaged(number, &what));
            }
        }
        // Nodes lie without gaps up to the end: none is there twice, or left from an earlier state of the page.
        if used != self.page_size - usize::from(u16_at(&page, 14)) {
            return Err(damaged(number, "has nodes of another length than they take"));
        }
        if kind == P_LEAF && self.leaf_of(of.other, key_of(&page, 0)) == Some(number) {
            return Err(damaged(number, "is used by two tables"));
        }
        self.in_use(of, number..number + 1)
    }

    /// Number of the leaf for `key`; `None` if damage stops the search: the call that meets the damage reports it.
    fn leaf_of(&self, tree: Tree, key: &[u8]) -> Option<u64> {
        let mut page = vec![0; self.page_size];
        let mut number = tree.root;
        for _ in 1..tree.depth {
            if self.read(number, &mut page).is_err() || u16_at(&page, 10) != P_BRANCH {
                return None;
            }
            let child = child_where(&page, nodes(&page), |low| low <= key);
            number = child_at(&page, offset_of(&page, child));
        }
        Some(number)
    }

    /// Refuses if one of `pages` is free in the followed commit; passes if the list of free pages is of another commit.
    fn in_use(&self, of: CommitTable, pages: Range<u64>) -> Result<(), Damage> {
        let free = self.free();
        match pages
            .into_iter()
            .find(|page| free.commit == of.commit && free.has(*page))
        {
            Some(page) => Err(damaged(page, "is free, and is referred to")),
            None => Ok(()),
        }
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        // The list is replaced as a whole, so a panic elsewhere leaves it usable.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the free pages when a transaction begins to follow `commit`, and forgets their checks: each page is listed
    /// as free before it is reused.
    pub(super) fn follow(&self, commit: u64) -> Result<(), Damage> {
        let mut free = self.free();
        if free.commit == commit {
            return Ok(());
        }
        let newest = Meta::newest(&self.file).ok();
        let Some(meta) = newest.filter(|newest| newest.transaction == commit) else {
            return Ok(());
        };
        *free = Free::of(&self.file, &meta)?;
        for (at, word) in free.pages.iter().enumerate().filter(|(_, word)| **word != 0) {
            for checked in self.checked.iter().filter_map(|checked| checked.get(at)) {
                checked.fetch_and(!word, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn look_at_large(&self, of: CommitTable, first: u64, len: usize) -> Result<(), Damage> {
        let mut header = [0; PAGE_HEADER];
        self.read(first, &mut header)?;
        let needed = (PAGE_HEADER + len).div_ceil(self.page_size) as u64;
        let pages = pages_of_large(first, &header).map_or(0, u64::from);
        if pages < needed {
            return Err(damaged(first, "is not the large value it should be"));
        }
        // The value's last page must be in the file.
        self.read(first + pages - 1, &mut header)?;
        // There may be more pages than the value needs, after a shorter value has replaced a longer one. Those hold
        // arbitrary bytes of the longer one: only a check of all pages shows that they belong to no other record.
        self.in_use(of, first..first + pages)
    }

    fn read(&self, number: u64, bytes: &mut [u8]) -> Result<(), Damage> {
        let at = number
            .checked_mul(self.page_size as u64)
            .filter(|at| *at < self.map.len() as u64);
        let Some(at) = at.filter(|_| number >= 2) else {
            return Err(damaged(number, "is referred to, and is none of the store's pages"));
        };
        // The whole page must be in the file, or the map would end in it.
        let mut last = [0];
        self.file
            .read_exact_at(bytes, at)
            .and_then(|()| self.file.read_exact_at(&mut last, at + self.page_size as u64 - 1))
            .map_err(|_| {
                damaged(
                    number,
                    "cannot be read: it lies beyond the end of the file, or the medium fails",
                )
            })
    }
}

impl Free {
    /// The free pages of the commit of `meta`; checks the trees of tables and of free pages.
    pub(super) fn of(file: &File, meta: &Meta) -> Result<Free, Damage> {
        Ok(Free {
            commit: meta.transaction,
            pages: check_small(file, meta)?,
        })
    }

    fn has(&self, page: u64) -> bool {
        let word = self.pages.get((page / 64) as usize);
        word.is_some_and(|word| word & 1 << (page % 64) != 0)
    }
}

// A damaged number may lead to a page that a writer reuses during the look. So the functions below rely on no earlier
// check.

fn nodes(page: &[u8]) -> usize {
    usize::from(u16_at(page, 12))
        .saturating_sub(PAGE_HEADER)
        .min(page.len() - PAGE_HEADER)
        / 2
}

/// Offset of a node in the page, clamped so that its header lies in the page.
fn offset_of(page: &[u8], at: usize) -> usize {
    usize::from(u16_at(page, PAGE_HEADER + 2 * at)).min(page.len() - NODE_HEADER)
}

fn key_of(page: &[u8], at: usize) -> &[u8] {
    let offset = offset_of(page, at);
    let begin = offset + NODE_HEADER;
    page.get(begin..begin + usize::from(u16_at(page, offset + 6)))
        .unwrap_or_default()
}

/// Index of the last child of a branch whose key passes; the first child if none does.
fn child_where(page: &[u8], count: usize, passes: impl Fn(&[u8]) -> bool) -> usize {
    let (mut low, mut high) = (1, count.max(1));
    while low < high {
        let middle = (low + high) / 2;
        if passes(key_of(page, middle)) {
            low = middle + 1
        } else {
            high = middle
        }
    }
    low - 1
}

/// Whether the keys of these nodes of a page lie within its bounds.
#[inline]
fn lies(at: PageBounds<'_>, page: &[u8], nodes: Range<usize>) -> Result<(), Damage> {
    if nodes.is_empty() {
        return Err(damaged(at.number, "has no keys"));
    }
    match at.low <= key_of(page, nodes.start) && is_below(key_of(page, nodes.end - 1), at.high) {
        true => Ok(()),
        false => Err(damaged(at.number, "has keys of another page")),
    }
}
