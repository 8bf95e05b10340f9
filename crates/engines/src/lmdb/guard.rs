//! A store that was opened without a check: each page is checked before LMDB first follows it.
//!
//! **Problem.** LMDB follows numbers in its map without a check, so that a damaged page ends the program. To check all
//! pages takes as long as reading the file.
//!
//! **Method.** Before a call of LMDB's, the way that it will take is taken here, from the root of the same commit: each
//! page on it is read and checked once in this process, by a bit for each page. What LMDB writes it has made of checked
//! pages, so pages that are new since need no check; one that is looked at all the same passes.
//!
//! **Which way.** A get descends to one leaf. A step of a scan goes on to the leaf beside it, at any level, and so do
//! the two looks by which a put finds out what it takes (`room`). All of these are checked with the keys between which
//! they lie by the branches above them.
//!
//! **A delete** may join a page with the one beside it, or take a node from there, and asks for the first key below
//! both (`mdb_rebalance` in mdb.c). The next delete then stands in a page whose neighbours are those of all that was
//! joined. So a write transaction notes between which keys it may have joined pages, for each level ([`Joined`]). A
//! delete takes in one more page on each side of that, and the next one beyond it is checked, too: what a scan of the
//! transaction steps to. A branch is joined only when all below it was, so that other levels are seldom touched. Each
//! delete checks at most five pages of a level and their outer ways down, most of which were checked before.
//!
//! All ways are those of the commit that the transaction began from. Its own pages are copies of pages that were
//! checked, or what it has put there.
//!
//! The trees of tables and of free pages are small, and checked as a whole when the store is opened.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::check::{
    Content, Damage, F_BIGDATA, NO_PAGE, NODE_HEADER, P_BRANCH, P_LEAF, PAGE_HEADER, Tree, child_at, damaged, key_at,
    node_fits, node_offsets, pages_of_large, u16_at, u64_at,
};

/// Which pages were checked.
#[derive(Debug)]
pub(super) struct Guard {
    file: File,
    map: Range<usize>,
    page_size: usize,
    checked: Box<[AtomicU64]>,
}

/// What a call may meet beside what it looks for.
pub(super) enum Reach<'j> {
    /// Nothing: a get.
    Leaf,
    /// The leaves beside it: a step of a scan, a put.
    Beside,
    /// What it joins, and the pages beside that: a delete.
    Joins(&'j mut Joined),
}

/// Between which keys of a table a write transaction may have joined pages. For each level from the leaves upwards:
/// where each such span begins, empty for the first one of all, and before which key it ends.
#[derive(Debug, Default)]
pub(super) struct Joined(Vec<BTreeMap<Vec<u8>, Option<Vec<u8>>>>);

impl Joined {
    /// The span around `key`, if there is one.
    fn around(&self, level: usize, key: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let (low, high) = self.0.get(level)?.range::<[u8], _>((Unbounded, Included(key))).next_back()?;
        is_below(key, high.as_deref()).then(|| (low.clone(), high.clone()))
    }

    /// Adds a span, and all that overlap it; what they are together.
    fn add(&mut self, level: usize, mut low: Vec<u8>, mut high: Option<Vec<u8>>) -> (Vec<u8>, Option<Vec<u8>>) {
        if self.0.len() <= level {
            self.0.resize_with(level + 1, BTreeMap::new);
        }
        let spans = &mut self.0[level];
        let overlap = |low: &[u8], high: &Option<Vec<u8>>, spans: &BTreeMap<Vec<u8>, Option<Vec<u8>>>| {
            let below = match high {
                Some(high) => spans.range::<[u8], _>((Unbounded, Excluded(high.as_slice()))).next_back(),
                None => spans.iter().next_back(),
            };
            below.filter(|(_, end)| is_below(low, end.as_deref())).map(|(begin, _)| begin.clone())
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

/// Whether a key lies below the end of a span.
fn is_below(key: &[u8], end: Option<&[u8]>) -> bool {
    end.is_none_or(|end| key < end)
}

/// Which way down.
#[derive(Clone, Copy)]
enum Way<'k> {
    To(&'k [u8]),
    /// To what lies just below a key.
    Below(&'k [u8]),
    First,
    Last,
}

/// A page of a tree, and the keys between which its keys are to lie: not below `low`, below `high`.
#[derive(Clone, Copy)]
struct Place<'g> {
    number: u64,
    depth: u16,
    /// Empty where there is no bound.
    low: &'g [u8],
    high: Option<&'g [u8]>,
}

impl Guard {
    /// Of a store whose file is mapped at `map` as long as the guard is used.
    pub(super) fn new(file: File, map: Range<usize>, page_size: usize) -> Guard {
        // Zeros that are not touched take no memory; the map may be much larger than the file.
        let words = vec![0_u64; map.len() / page_size / 64 + 1].into_boxed_slice();
        // SAFETY: an atomic word has the size and the alignment of a word of 64 bits (`check` is built for these only),
        // and each value of one is a value of the other.
        let checked = unsafe { Box::from_raw(Box::into_raw(words) as *mut [AtomicU64]) };
        Guard {
            file,
            map,
            page_size,
            checked,
        }
    }

    /// Checks the way to `key` in `tree`, and what a call of this reach may meet beside it.
    #[inline]
    pub(super) fn check(&self, tree: Tree, key: &[u8], reach: Reach<'_>) -> Result<(), Damage> {
        if tree.root == NO_PAGE {
            return Ok(());
        }
        let leaf = self.down(tree, Way::To(key), tree.depth)?;
        match reach {
            Reach::Leaf => Ok(()),
            Reach::Beside => {
                self.before(tree, leaf.depth, leaf.low)?;
                self.after(tree, leaf.depth, leaf.high)?;
                Ok(())
            }
            Reach::Joins(joined) => self.joins(tree, key, joined),
        }
    }

    /// Checks what a delete of `key` may meet, and notes what it may join.
    #[inline(never)]
    fn joins(&self, tree: Tree, key: &[u8], joined: &mut Joined) -> Result<(), Damage> {
        for depth in (1..=tree.depth).rev() {
            let level = usize::from(tree.depth - depth);
            let own = self.down(tree, Way::To(key), depth)?;
            self.ends(tree, own)?;
            let (mut low, mut high) = match joined.around(level, key) {
                Some(span) => span,
                None => (own.low.to_vec(), own.high.map(<[u8]>::to_vec)),
            };
            if let Some(before) = self.before(tree, depth, &low)? {
                self.before(tree, depth, before.low)?;
                low = before.low.to_vec();
            }
            if let Some(after) = self.after(tree, depth, high.as_deref())? {
                self.after(tree, depth, after.high)?;
                high = after.high.map(<[u8]>::to_vec);
            }
            let (low, high) = joined.add(level, low, high);
            // A branch that keeps two children is left as it is.
            let Some(above) = depth.checked_sub(1).filter(|above| *above > 0) else {
                break;
            };
            let above = self.down(tree, Way::To(key), above)?;
            let all_joined = low.as_slice() <= above.low
                && high.is_none_or(|high| above.high.is_some_and(|end| end <= high.as_slice()));
            if !all_joined {
                break;
            }
        }
        Ok(())
    }

    /// The page before those that begin at `low`, with its outer ways down.
    fn before(&self, tree: Tree, depth: u16, low: &[u8]) -> Result<Option<Place<'_>>, Damage> {
        if low.is_empty() {
            return Ok(None);
        }
        let place = self.down(tree, Way::Below(low), depth)?;
        self.ends(tree, place)?;
        Ok(Some(place))
    }

    /// The page after those that end before `high`, with its outer ways down.
    fn after(&self, tree: Tree, depth: u16, high: Option<&[u8]>) -> Result<Option<Place<'_>>, Damage> {
        let Some(high) = high else { return Ok(None) };
        let place = self.down(tree, Way::To(high), depth)?;
        self.ends(tree, place)?;
        Ok(Some(place))
    }

    /// Checks the ways to the first and the last leaf below a page.
    fn ends(&self, tree: Tree, place: Place<'_>) -> Result<(), Damage> {
        if place.depth < tree.depth {
            self.down_from(tree, place, Way::First, tree.depth)?;
            self.down_from(tree, place, Way::Last, tree.depth)?;
        }
        Ok(())
    }

    /// The page at `depth` on a way from the root, where each page was checked.
    #[inline]
    fn down(&self, tree: Tree, way: Way<'_>, depth: u16) -> Result<Place<'_>, Damage> {
        let root = Place {
            number: tree.root,
            depth: 1,
            low: &[],
            high: None,
        };
        self.down_from(tree, root, way, depth)
    }

    #[inline]
    fn down_from<'g>(
        &'g self,
        tree: Tree,
        mut at: Place<'g>,
        way: Way<'_>,
        depth: u16,
    ) -> Result<Place<'g>, Damage> {
        loop {
            let is_leaf = at.depth == tree.depth;
            let page = self.page(at.number, if is_leaf { P_LEAF } else { P_BRANCH })?;
            let count = nodes(page);
            // The first key of a branch stands for all that is smaller.
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

    /// Page `number`, which is of this kind, and checked.
    #[inline]
    fn page(&self, number: u64, kind: u16) -> Result<&[u8], Damage> {
        let (word, bit) = (usize::try_from(number / 64).unwrap_or(usize::MAX), 1 << (number % 64));
        let known = self
            .checked
            .get(word)
            .is_some_and(|word| word.load(Ordering::Acquire) & bit != 0);
        if !known {
            self.look(number, kind)?;
            self.checked[word].fetch_or(bit, Ordering::Release);
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

    /// Checks a page by itself, and the first pages of the large values that it refers to.
    #[cold]
    fn look(&self, number: u64, kind: u16) -> Result<(), Damage> {
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
            // The first key of a branch stands for all that is smaller.
            if kind == P_LEAF || at > 0 {
                if key.is_empty() || before.is_some_and(|before| before >= key) {
                    return Err(damaged(number, "has keys that do not ascend"));
                }
                before = Some(key);
            }
            if kind == P_LEAF && flags == F_BIGDATA {
                self.look_at_large(u64_at(&page, value), len)?;
            }
        }
        // Nodes lie without gaps up to the end: none is there twice, or of an earlier state of the page.
        match used == self.page_size - usize::from(u16_at(&page, 14)) {
            true => Ok(()),
            false => Err(damaged(number, "has nodes of another length than they take")),
        }
    }

    fn look_at_large(&self, first: u64, len: usize) -> Result<(), Damage> {
        let mut header = [0; PAGE_HEADER];
        self.read(first, &mut header)?;
        let needed = (PAGE_HEADER + len).div_ceil(self.page_size) as u64;
        let pages = pages_of_large(first, &header).map_or(0, u64::from);
        if pages < needed {
            return Err(damaged(first, "is not the large value it should be"));
        }
        // Its end is in the file.
        self.read(first + pages - 1, &mut header)?;
        // There may be more pages than it needs, after a shorter value has replaced a longer one. These hold bytes of
        // that one, whatever they look like: that none is a page of its own is found by a check of all pages only.
        Ok(())
    }

    fn read(&self, number: u64, bytes: &mut [u8]) -> Result<(), Damage> {
        let at = number
            .checked_mul(self.page_size as u64)
            .filter(|at| *at < self.map.len() as u64);
        let Some(at) = at.filter(|_| number >= 2) else {
            return Err(damaged(number, "is referred to, and is none of the store's pages"));
        };
        // The whole page, or the map would end in it.
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

// A damaged number may lead to a page that a writer uses again while it is looked at. So nothing below relies on what
// was checked.

fn nodes(page: &[u8]) -> usize {
    usize::from(u16_at(page, 12))
        .saturating_sub(PAGE_HEADER)
        .min(page.len() - PAGE_HEADER)
        / 2
}

/// Where a node begins; its header lies in the page.
fn offset_of(page: &[u8], at: usize) -> usize {
    usize::from(u16_at(page, PAGE_HEADER + 2 * at)).min(page.len() - NODE_HEADER)
}

fn key_of(page: &[u8], at: usize) -> &[u8] {
    let offset = offset_of(page, at);
    let begin = offset + NODE_HEADER;
    page.get(begin..begin + usize::from(u16_at(page, offset + 6)))
        .unwrap_or_default()
}

/// The last child of a branch whose key passes, and the first one where none does.
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

/// Whether the keys of these nodes of a page lie where they should.
#[inline]
fn lies(at: Place<'_>, page: &[u8], nodes: Range<usize>) -> Result<(), Damage> {
    if nodes.is_empty() {
        return Err(damaged(at.number, "has no keys"));
    }
    match at.low <= key_of(page, nodes.start) && is_below(key_of(page, nodes.end - 1), at.high) {
        true => Ok(()),
        false => Err(damaged(at.number, "has keys of another page")),
    }
}

/// The tree in the record of a table's name.
pub(super) fn tree_of(record: &[u8]) -> Option<Tree> {
    (record.len() == super::check::TREE_LEN).then(|| Tree::read(record, 0, Content::Records))?
}
