//! How much of the file holds records, and which commits have freed the rest.
//!
//! LMDB keeps the pages that each transaction has freed as a list under that transaction's number, in a tree of its
//! own. A writer takes pages from the lists of transactions that are older than every snapshot (`mdb_page_alloc` in
//! mdb.c). The binding does not expose that tree, so it is read from the file, as in `check`.

use std::fs::File;
use std::os::unix::fs::FileExt;

use punctual_store::engine::{EngineError, Space};

use super::check::{
    Content, Damage, F_BIGDATA, F_SUBDATA, Meta, NO_PAGE, NODE_HEADER, P_BRANCH, P_LEAF, PAGE_HEADER, TREE_LEN, Tree,
    child_at, damaged, node_fits, node_offsets, u16_at, u64_at,
};
use super::pages::load;
use super::{Lmdb, LmdbSnapshot};

/// The room of an open store, in bytes.
pub(super) fn space(engine: &Lmdb) -> Result<Space, EngineError> {
    // A snapshot of the newest commit keeps the trees from being overwritten while they are read.
    let _kept = LmdbSnapshot::begin_own(engine)?;
    Ok(engine.survey()?.space(Some(engine.room.quota() as u64)))
}

/// Use of the file by its newest commit, in pages.
#[derive(Debug)]
pub(super) struct Survey {
    /// The size of a page, in bytes.
    pub page_size: u64,
    /// The number of the newest commit.
    pub commit: u64,
    /// All pages up to the last one.
    pub pages: u64,
    /// Pages of trees that hold records.
    pub data: u64,
    /// Branches and leaves of the tables.
    pub nodes: [u64; 2],
    /// For each transaction, in ascending order, the number of pages that it has freed.
    pub freed: Vec<(u64, u64)>,
}

impl Survey {
    /// Surveys the newest commit in `file`.
    pub(super) fn of(file: &File) -> Result<Survey, Damage> {
        Survey::at(file, &Meta::newest(file)?)
    }

    /// Pages that are in no list of free pages.
    pub(super) fn in_use(&self) -> u64 {
        self.pages - self.freed.iter().map(|(_, pages)| pages).sum::<u64>()
    }

    /// Pages that a transaction may use again, if no snapshot is older than `oldest`.
    pub(super) fn usable(&self, oldest: u64) -> u64 {
        let usable = self.freed.iter().filter(|(freed_by, _)| *freed_by < oldest);
        usable.map(|(_, pages)| pages).sum()
    }

    /// Pages that the newest commit has freed, if no snapshot is older than it; `oldest` is the oldest one.
    pub(super) fn just_freed(&self, oldest: u64) -> u64 {
        let newest = self.freed.iter().filter(|(by, _)| *by == self.commit && *by == oldest);
        newest.map(|(_, pages)| pages).sum()
    }

    /// Converts to bytes, for a store of `quota` bytes, if that is known.
    pub(super) fn space(&self, quota: Option<u64>) -> Space {
        let bytes = |pages: u64| pages * self.page_size;
        let freed = self.freed.iter().map(|(commit, pages)| (*commit, bytes(*pages)));
        Space {
            quota,
            taken: bytes(self.pages),
            data: bytes(self.data),
            freed: freed.collect(),
        }
    }

    /// Surveys the commit of `meta`.
    pub(super) fn at(file: &File, meta: &Meta) -> Result<Survey, Damage> {
        let mut survey = Survey {
            page_size: meta.page_size as u64,
            commit: meta.transaction,
            pages: meta.last_page + 1,
            data: pages_of(&meta.main),
            nodes: [0; 2],
            freed: Vec::new(),
        };
        let trees = Trees { file, meta };
        trees.leaves(meta.main, |page, value, flags, _| {
            if flags == F_SUBDATA
                && let Some(tree) = Tree::read(page.get(value..value + TREE_LEN)?, 0, Content::Records)
            {
                survey.data = survey.data.saturating_add(pages_of(&tree));
                let [branches, leaves] = &mut survey.nodes;
                *branches = branches.saturating_add(tree.branches);
                *leaves = leaves.saturating_add(tree.leaves);
            }
            Some(())
        })?;
        let mut free = survey.pages;
        trees.leaves(meta.free, |page, value, flags, key| {
            let transaction = u64_at(page.get(key..key + 8)?, 0);
            let list = u64_at(page.get(value..value + 8)?, 0);
            // A long list lies on pages of its own, behind their header.
            let pages = if flags & F_BIGDATA != 0 {
                trees.word_of(list)?
            } else {
                list
            };
            // Each free page is in one list, once.
            free = free.checked_sub(pages)?;
            survey.freed.push((transaction, pages));
            Some(())
        })?;
        if survey.data > survey.pages {
            return Err(damaged(meta.main.root, "tells of more pages than there are"));
        }
        survey.freed.sort_unstable();
        Ok(survey)
    }
}

fn pages_of(tree: &Tree) -> u64 {
    tree.branches.saturating_add(tree.leaves).saturating_add(tree.overflows)
}

struct Trees<'f> {
    file: &'f File,
    meta: &'f Meta,
}

impl Trees<'_> {
    /// Calls `visit` for each leaf node with its page, the offset of its value, its flags, and the offset of its key.
    /// `visit` returns `None` for an invalid node.
    fn leaves(&self, tree: Tree, mut visit: impl FnMut(&[u8], usize, u16, usize) -> Option<()>) -> Result<(), Damage> {
        let mut page = vec![0; self.meta.page_size];
        let mut pages: Vec<(u64, u16)> = Vec::from_iter((tree.root != NO_PAGE).then_some((tree.root, 1)));
        let mut visited = 0;
        while let Some((number, depth)) = pages.pop() {
            visited += 1;
            if visited > self.meta.last_page {
                return Err(damaged(number, "is part of a tree without an end"));
            }
            load(self.file, self.meta, number, &mut page)?;
            for offset in node_offsets(number, &page)? {
                match (u16_at(&page, 10), depth == tree.depth) {
                    (P_BRANCH, false) => {
                        node_fits(number, &page, offset, 0)?;
                        pages.push((child_at(&page, offset), depth + 1));
                    }
                    (P_LEAF, true) => {
                        let value = node_fits(number, &page, offset, 0)?;
                        let seen = visit(&page, value, u16_at(&page, offset + 4), offset + NODE_HEADER);
                        seen.ok_or_else(|| {
                            damaged(
                                number,
                                "has a node that leaves the page, or lists more pages than there are",
                            )
                        })?;
                    }
                    (flags, _) => return Err(damaged(number, &format!("of kind {flags:#x} is no part of its tree"))),
                }
            }
        }
        Ok(())
    }

    /// The first word of a large value.
    fn word_of(&self, first: u64) -> Option<u64> {
        let mut word = [0; 8];
        let at = first
            .checked_mul(self.meta.page_size as u64)?
            .checked_add(PAGE_HEADER as u64)?;
        self.file.read_exact_at(&mut word, at).ok()?;
        Some(u64::from_ne_bytes(word))
    }
}
