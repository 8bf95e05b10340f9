//! A store that was opened without a check: each page is checked before LMDB first follows it.
//!
//! **Problem.** LMDB follows numbers in its map without a check, so that a damaged page ends the program. To check all
//! pages takes as long as reading the file.
//!
//! **Method.** Before a call of LMDB's, the way that it will take is taken here, from the root of the same commit: each
//! page on it is read and checked once in this process, by a bit for each page. What LMDB writes it has made of checked
//! pages, so pages that are new since need no check; one that is looked at all the same passes.
//!
//! **Which way.** A get descends to one leaf. A step of a scan goes on to the leaf beside it, at any level. A delete
//! may merge a page with the one beside it, under the same branch, and asks for the first or last key below that. So
//! steps and changes also check, at each level, the pages beside the way, and their outer ways down. A write
//! transaction meets pages of the commit that it began from, and its own, which are none of the file's: of those that
//! were joined away, the neighbours were checked as that happened.
//!
//! The trees of tables and of free pages are small, and checked as a whole when the store is opened.

use std::fs::File;
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

/// Which way down.
#[derive(Clone, Copy)]
enum Way<'k> {
    To(&'k [u8]),
    First,
    Last,
}

impl Guard {
    /// Of a store whose file is mapped at `map` as long as the guard is used.
    pub(super) fn new(file: File, map: Range<usize>, page_size: usize) -> Guard {
        let words = map.len() / page_size / 64 + 1;
        Guard {
            file,
            map,
            page_size,
            checked: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Checks the way to `key` in `tree`, and what a change there or a step from there may meet if `beside`.
    #[inline]
    pub(super) fn check(&self, tree: Tree, key: &[u8], beside: bool) -> Result<(), Damage> {
        self.down(tree, tree.root, 1, Way::To(key), beside)
    }

    fn down(&self, tree: Tree, from: u64, from_depth: u16, way: Way<'_>, beside: bool) -> Result<(), Damage> {
        if tree.root == NO_PAGE {
            return Ok(());
        }
        let (mut number, mut low, mut high) = (from, None, None);
        for depth in from_depth..tree.depth {
            let page = self.page(number, P_BRANCH)?;
            let count = nodes(page);
            self.lies(number, page, 1..count, low, high)?;
            let at = match way {
                Way::First => 0,
                Way::Last => count.saturating_sub(1),
                Way::To(key) => child_for(page, count, key),
            };
            let child = |at: usize| child_at(page, offset_of(page, at));
            if beside {
                let others = [Some(0), at.checked_sub(1), Some(at + 1).filter(|at| *at < count)];
                for other in others.into_iter().flatten().filter(|other| *other != at || at == 0) {
                    self.down(tree, child(other), depth + 1, Way::First, false)?;
                    self.down(tree, child(other), depth + 1, Way::Last, false)?;
                }
            }
            if at > 0 {
                low = Some(key_of(page, at));
            }
            if at + 1 < count {
                high = Some(key_of(page, at + 1));
            }
            number = child(at);
        }
        let page = self.page(number, P_LEAF)?;
        self.lies(number, page, 0..nodes(page), low, high)
    }

    /// Whether the keys of these nodes lie between two keys.
    #[inline]
    fn lies(
        &self,
        number: u64,
        page: &[u8],
        nodes: Range<usize>,
        low: Option<&[u8]>,
        high: Option<&[u8]>,
    ) -> Result<(), Damage> {
        if nodes.is_empty() {
            return Err(damaged(number, "has no keys"));
        }
        let above = low.is_none_or(|low| low <= key_of(page, nodes.start));
        let below = high.is_none_or(|high| key_of(page, nodes.end - 1) < high);
        match above && below {
            true => Ok(()),
            false => Err(damaged(number, "has keys of another page")),
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
        // that one, and none is a page of its own.
        for number in first + needed..first + pages {
            self.read(number, &mut header)?;
            if u64_at(&header, 0) == number {
                return Err(damaged(first, "is a large value that reaches into another page"));
            }
        }
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

/// Which child of a branch holds `key`: the last one whose key is not above it.
fn child_for(page: &[u8], count: usize, key: &[u8]) -> usize {
    let (mut low, mut high) = (1, count.max(1));
    while low < high {
        let middle = (low + high) / 2;
        if key_of(page, middle) <= key {
            low = middle + 1
        } else {
            high = middle
        }
    }
    low - 1
}

/// The tree in the record of a table's name.
pub(super) fn tree_of(record: &[u8]) -> Option<Tree> {
    (record.len() == super::check::TREE_LEN).then(|| Tree::read(record, 0, Content::Records))?
}
