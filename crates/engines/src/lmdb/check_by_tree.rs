//! Is this file a whole LMDB store? Asked before it is mapped.
//!
//! **Problem.** LMDB trusts its file: a truncated one ends in SIGBUS at the first touch of a missing page, a damaged
//! one in an assertion or a wild pointer. Both kill the program that embeds it.
//!
//! **Method.** Walk, with plain reads, every page that the newest commit can reach. Check what LMDB relies on without
//! checking it: the page lies within the file, is the page it should be, is reached once, and its nodes lie within it;
//! each tree has as many pages and records as it says, and its keys ascend, from page to page, too: a key in the wrong
//! page would never be found. The file's length alone does not tell: LMDB counts pages at the
//! end that were allocated and freed within one transaction, and never writes them (`mm_last_pg` in mdb.c), so that an
//! intact file may be shorter than its last page. The walk reads each page once, which also brings it into memory,
//! where the store wants it anyway. Values carry no checksum: a flipped bit in one is not seen.
//!
//! Layouts are those of LMDB's data version 1 in mdb.c (`MDB_page`, `MDB_node`, `MDB_meta`, `MDB_db`), in host byte
//! order.

use std::cmp::Ordering;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use punctual_store::engine::KEY_MAX_LEN;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("LMDB's layout follows the machine word: the check of store files knows the 64-bit layout only");

pub(super) const PAGE_HEADER: usize = 16;
pub(super) const NODE_HEADER: usize = 8;
const META_LEN: usize = PAGE_HEADER + 136;
const MAGIC: u32 = 0xBEEF_C0DE;
/// LMDB's own format number.
pub(super) const DATA_VERSION: u32 = 1;
pub(super) const NO_PAGE: u64 = u64::MAX;
/// `CURSOR_STACK`: LMDB cannot descend further.
const DEPTH_MAX: u16 = 32;
/// `sizeof(MDB_db)`.
pub(super) const TREE_LEN: usize = 48;

pub(super) const P_BRANCH: u16 = 0x01;
pub(super) const P_LEAF: u16 = 0x02;
const P_OVERFLOW: u16 = 0x04;
const P_META: u16 = 0x08;
const MDB_INTEGERKEY: u16 = 0x08;
pub(super) const F_BIGDATA: u16 = 0x01;
pub(super) const F_SUBDATA: u16 = 0x02;

/// What is wrong with a file.
#[derive(Debug)]
pub(super) enum Damage {
    /// It is no LMDB file of this layout, or a damaged one.
    Corrupt(String),
    /// It is an LMDB file of another data version.
    Version(u32),
    /// It could not be read.
    Io(io::Error),
}

/// What is needed of a meta page to walk its commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub page_size: usize,
    /// The length of the map that the commit was made with, in bytes.
    pub map_len: u64,
    pub free: Tree,
    pub main: Tree,
    pub last_page: u64,
    pub transaction: u64,
}

/// What a tree's leaves hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Pages free for reuse.
    FreePages,
    /// Other trees, and a few plain records.
    Tables,
    /// Plain records.
    Records,
}

/// A B+ tree (`MDB_db`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tree {
    pub content: Content,
    pub root: u64,
    pub depth: u16,
    /// What it says of itself: branch, leaf and overflow pages, and records.
    pub branches: u64,
    pub leaves: u64,
    pub overflows: u64,
    pub records: u64,
}

/// Checks the length of `file`, for a store that is opened without a check: a page beyond the end would end the
/// program.
pub(super) fn check_length(file: &File) -> Result<(), Damage> {
    let len = file.metadata().map_err(Damage::Io)?.len();
    if len == 0 {
        return Ok(());
    }
    let newest = Meta::newest(file)?;
    if len / newest.page_size as u64 > newest.last_page {
        return Ok(());
    }
    let reason =
        "it is shorter than its last page: open it with verify structure, which tells whether that page is used";
    Err(Damage::Corrupt(reason.to_owned()))
}

/// Checks the newest commit in `file`. An empty file is a store that has not begun, and passes.
pub(super) fn check(file: &File) -> Result<(), Damage> {
    let len = file.metadata().map_err(Damage::Io)?.len();
    if len == 0 {
        return Ok(());
    }
    check_at(file, &Meta::newest(file)?)
}

/// Checks the commit of `meta` in `file`.
pub(super) fn check_at(file: &File, meta: &Meta) -> Result<(), Damage> {
    let len = file.metadata().map_err(Damage::Io)?.len();
    Walk::new(file, len, meta).run(meta.free, meta.main)
}

/// The page that the node at `offset` of a branch leads to.
pub(super) fn child_at(page: &[u8], offset: usize) -> u64 {
    let [low, middle, high] = [0, 2, 4].map(|at| u64::from(u16_at(page, offset + at)));
    low | middle << 16 | high << 32
}

impl Meta {
    /// That of the newest commit.
    pub(super) fn newest(file: &File) -> Result<Meta, Damage> {
        let first = Meta::read(file, 0)?;
        let second = Meta::read(file, first.page_size as u64)?;
        if second.page_size != first.page_size {
            return Err(Damage::Corrupt("its two meta pages differ in page size".to_owned()));
        }
        Ok(if second.transaction > first.transaction {
            second
        } else {
            first
        })
    }

    pub(super) fn read(file: &File, offset: u64) -> Result<Meta, Damage> {
        let corrupt = |reason: &str| Damage::Corrupt(format!("its meta page at byte {offset} {reason}"));
        let mut bytes = [0; META_LEN];
        match file.read_exact_at(&mut bytes, offset) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(corrupt("is cut off")),
            answer => answer.map_err(Damage::Io)?,
        }
        if u16_at(&bytes, 10) & P_META == 0 || u32_at(&bytes, 16) != MAGIC {
            return Err(corrupt("has no LMDB mark"));
        }
        if u32_at(&bytes, 20) != DATA_VERSION {
            return Err(Damage::Version(u32_at(&bytes, 20)));
        }
        let tree = |at, flags, content| {
            Tree::read(&bytes[at..at + TREE_LEN], flags, content).ok_or_else(|| corrupt("names an impossible tree"))
        };
        let meta = Meta {
            page_size: u32_at(&bytes, 40) as usize, // `mm_psize`, in the padding of the first tree
            map_len: u64_at(&bytes, 32),
            free: tree(40, MDB_INTEGERKEY, Content::FreePages)?,
            main: tree(88, 0, Content::Tables)?,
            last_page: u64_at(&bytes, 136),
            transaction: u64_at(&bytes, 144),
        };
        if !meta.page_size.is_power_of_two() || !(512..=0x8000).contains(&meta.page_size) {
            return Err(corrupt("names an impossible page size"));
        }
        // `mm_mapsize`: no page lies beyond the map that the newest commit was made with.
        let pages_max = meta.map_len / meta.page_size as u64;
        if meta.last_page < 1 || meta.last_page >= pages_max.min(1 << 48) {
            return Err(corrupt("names an impossible last page"));
        }
        Ok(meta)
    }
}

impl Tree {
    /// `None` where LMDB would take the tree for something that this crate never writes.
    pub(super) fn read(bytes: &[u8], flags: u16, content: Content) -> Option<Tree> {
        let tree = Tree {
            content,
            root: u64_at(bytes, 40),
            depth: u16_at(bytes, 6),
            branches: u64_at(bytes, 8),
            leaves: u64_at(bytes, 16),
            overflows: u64_at(bytes, 24),
            records: u64_at(bytes, 32),
        };
        let sensible =
            u16_at(bytes, 4) == flags && tree.depth <= DEPTH_MAX && (tree.depth == 0) == (tree.root == NO_PAGE);
        sensible.then_some(tree)
    }
}

/// One pass over all reachable pages. Ends because no page is visited twice.
struct Walk<'f> {
    file: &'f File,
    page_size: usize,
    last_page: u64,
    /// Pages that are wholly in the file.
    pages_in_file: u64,
    /// A bit for each page in the file: is it spoken for?
    seen: Vec<u64>,
    trees: Vec<Tree>,
    /// Pages of the current tree still to be visited.
    pages: Vec<Pending>,
    /// What the current tree has, so far: branch, leaf and overflow pages, and records.
    counted: [u64; 4],
}

/// A page to be visited, and what its keys must be: not below `low`, and below `high`.
#[derive(Debug)]
struct Pending {
    number: u64,
    depth: u16,
    low: Option<Rc<[u8]>>,
    high: Option<Rc<[u8]>>,
}

impl Pending {
    /// Whether a page's keys ascend within its bounds. The first key of a branch stands for all that is smaller.
    fn in_order(&self, content: Content, page: &[u8], keys: impl Iterator<Item = usize>) -> bool {
        let mut before = self.low.as_deref();
        let mut first = true;
        for offset in keys {
            let key = key_at(page, offset);
            let order = before.map_or(Ordering::Less, |before| compare(content, before, key));
            // The first may be the bound itself.
            if order == Ordering::Greater || order == Ordering::Equal && !first {
                return false;
            }
            (before, first) = (Some(key), false);
        }
        match (before, self.high.as_deref()) {
            (Some(last), Some(high)) if !first => compare(content, last, high).is_lt(),
            _ => true,
        }
    }
}

/// Free pages stand under the number of a transaction, all else under bytes.
fn compare(content: Content, one: &[u8], other: &[u8]) -> Ordering {
    let number = |key: &[u8]| key.try_into().map(u64::from_ne_bytes);
    match (content, number(one), number(other)) {
        (Content::FreePages, Ok(one), Ok(other)) => one.cmp(&other),
        _ => one.cmp(other),
    }
}

/// The key of a node that [fits](node_fits).
fn key_at(page: &[u8], offset: usize) -> &[u8] {
    let begin = offset + NODE_HEADER;
    &page[begin..begin + usize::from(u16_at(page, offset + 6))]
}

impl<'f> Walk<'f> {
    fn new(file: &'f File, len: u64, meta: &Meta) -> Walk<'f> {
        let pages_in_file = len / meta.page_size as u64;
        Walk {
            file,
            page_size: meta.page_size,
            last_page: meta.last_page,
            pages_in_file,
            seen: vec![0; pages_in_file.div_ceil(64) as usize],
            trees: Vec::new(),
            pages: Vec::new(),
            counted: [0; 4],
        }
    }

    fn run(mut self, free: Tree, main: Tree) -> Result<(), Damage> {
        self.trees.extend([free, main]);
        let mut page = vec![0; self.page_size];
        while let Some(tree) = self.trees.pop() {
            if tree.root != NO_PAGE {
                self.pages.push(Pending {
                    number: tree.root,
                    depth: 1,
                    low: None,
                    high: None,
                });
            }
            self.counted = [0; 4];
            while let Some(pending) = self.pages.pop() {
                let number = pending.number;
                self.load(number, &mut page)?;
                match (u16_at(&page, 10), pending.depth == tree.depth) {
                    (P_BRANCH, false) => self.branch(&pending, tree, &page)?,
                    (P_LEAF, true) => self.leaf(&pending, tree, &page)?,
                    (flags, _) => return Err(damaged(number, &format!("of kind {flags:#x} is no part of its tree"))),
                }
            }
            let told = [tree.branches, tree.leaves, tree.overflows, tree.records];
            if self.counted != told {
                let what = format!(
                    "has {:?} branches, leaves, large pages and records, not {told:?}",
                    self.counted
                );
                return Err(damaged(tree.root, &what));
            }
        }
        Ok(())
    }

    /// Reads page `number` and checks that it is that page.
    fn load(&mut self, number: u64, page: &mut [u8]) -> Result<(), Damage> {
        self.claim(number)?;
        self.read_at(number, page)?;
        if u64_at(page, 0) != number {
            return Err(damaged(number, &format!("says it is page {}", u64_at(page, 0))));
        }
        Ok(())
    }

    fn read_at(&self, page: u64, bytes: &mut [u8]) -> Result<(), Damage> {
        self.file
            .read_exact_at(bytes, page * self.page_size as u64)
            .map_err(Damage::Io)
    }

    /// Notes that page `number` is in use.
    fn claim(&mut self, number: u64) -> Result<(), Damage> {
        self.bounded(number)?;
        if number >= self.pages_in_file {
            return Err(damaged(number, "lies beyond the end of the file: it was truncated"));
        }
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if self.seen[word] & bit != 0 {
            return Err(damaged(number, "is used twice"));
        }
        self.seen[word] |= bit;
        Ok(())
    }

    fn bounded(&self, number: u64) -> Result<(), Damage> {
        if (2..=self.last_page).contains(&number) {
            return Ok(());
        }
        Err(damaged(number, "is referred to, and is none of the store's pages"))
    }

    fn branch(&mut self, pending: &Pending, tree: Tree, page: &[u8]) -> Result<(), Damage> {
        let number = pending.number;
        let offsets = node_offsets(number, page)?;
        // LMDB asserts this when it descends (`mdb_page_search_root`).
        if offsets.len() < 2 && tree.content != Content::FreePages {
            return Err(damaged(number, "is a branch with one child"));
        }
        self.counted[0] += 1;
        let offsets: Vec<usize> = offsets.collect();
        offsets
            .iter()
            .try_for_each(|offset| node_fits(number, page, *offset, 0).map(drop))?;
        if !pending.in_order(tree.content, page, offsets[1..].iter().copied()) {
            return Err(damaged(number, "has keys that do not ascend"));
        }
        let mut low = pending.low.clone();
        for (at, offset) in offsets.iter().enumerate() {
            let next = offsets.get(at + 1).map(|next| Rc::from(key_at(page, *next)));
            let high = next.clone().or_else(|| pending.high.clone());
            if pending.depth < tree.depth {
                self.pages.push(Pending {
                    number: child_at(page, *offset),
                    depth: pending.depth + 1,
                    low,
                    high,
                });
            }
            low = next;
        }
        Ok(())
    }

    fn leaf(&mut self, pending: &Pending, tree: Tree, page: &[u8]) -> Result<(), Damage> {
        let number = pending.number;
        let offsets = node_offsets(number, page)?;
        self.counted[1] += 1;
        self.counted[3] += offsets.len() as u64;
        let offsets: Vec<usize> = offsets.collect();
        for &offset in &offsets {
            let flags = u16_at(page, offset + 4);
            let len = usize::from(u16_at(page, offset)) | usize::from(u16_at(page, offset + 2)) << 16;
            let inline_len = if flags & F_BIGDATA != 0 { 8 } else { len };
            let value = node_fits(number, page, offset, inline_len)?;
            if !(1..=KEY_MAX_LEN).contains(&usize::from(u16_at(page, offset + 6))) {
                return Err(damaged(number, "has a key of impossible length"));
            }
            match (flags, tree.content) {
                (F_BIGDATA, content) => {
                    let first = u64_at(page, value);
                    self.overflow(first, len)?;
                    if content == Content::FreePages {
                        let mut list = vec![0; PAGE_HEADER + len];
                        self.read_at(first, &mut list)?;
                        self.free_pages(number, &list[PAGE_HEADER..])?;
                    }
                }
                (0, Content::FreePages) => self.free_pages(number, &page[value..value + len])?,
                (0, Content::Records | Content::Tables) => {}
                (F_SUBDATA, Content::Tables) if len == TREE_LEN => {
                    let tree = Tree::read(&page[value..value + len], 0, Content::Records);
                    self.trees
                        .push(tree.ok_or_else(|| damaged(number, "names an impossible tree"))?);
                }
                _ => return Err(damaged(number, &format!("has a node of kind {flags:#x}"))),
            }
        }
        if !pending.in_order(tree.content, page, offsets.into_iter()) {
            return Err(damaged(number, "has keys that do not ascend"));
        }
        Ok(())
    }

    /// A value of `len` bytes on consecutive pages from `first`; there may be more of them than it needs, after a
    /// shorter value has replaced a longer one (`_mdb_cursor_put`).
    fn overflow(&mut self, first: u64, len: usize) -> Result<(), Damage> {
        self.claim(first)?;
        let mut header = [0; PAGE_HEADER];
        self.read_at(first, &mut header)?;
        let pages = u32_at(&header, 12) as usize;
        let needed = (PAGE_HEADER + len).div_ceil(self.page_size);
        if u64_at(&header, 0) != first || u16_at(&header, 10) != P_OVERFLOW || pages < needed {
            return Err(damaged(first, "is not the large value it should be"));
        }
        self.counted[2] += pages as u64;
        // Ends at the first page that is not in the file, whatever a damaged header says.
        (first + 1..first + pages as u64).try_for_each(|number| self.claim(number))
    }

    /// A list of pages that later transactions will write to (`MDB_IDL`): its length, then the numbers.
    fn free_pages(&mut self, number: u64, list: &[u8]) -> Result<(), Damage> {
        let (words, _) = list.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_ne_bytes(*word));
        let count = words.next().unwrap_or(0);
        if count > words.len() as u64 {
            return Err(damaged(number, "lists more free pages than it has room for"));
        }
        for page in words.take(count as usize) {
            self.bounded(page)?;
            // At the end of the file there may be free pages that were never written.
            if page < self.pages_in_file {
                self.claim(page)?;
            }
        }
        Ok(())
    }
}

/// Where the nodes of a page begin; checked to lie within it, header included.
pub(super) fn node_offsets(number: u64, page: &[u8]) -> Result<impl ExactSizeIterator<Item = usize> + use<'_>, Damage> {
    let (lower, upper) = (u16_at(page, 12) as usize, u16_at(page, 14) as usize);
    let nodes = PAGE_HEADER..lower;
    if lower <= PAGE_HEADER || lower % 2 != 0 || lower > upper || upper > page.len() {
        return Err(damaged(number, "has an impossible size of its node table"));
    }
    let offset = |at: usize| u16_at(page, at) as usize;
    if nodes
        .clone()
        .step_by(2)
        .any(|at| offset(at) < upper || offset(at) + NODE_HEADER > page.len())
    {
        return Err(damaged(number, "has a node outside of the page"));
    }
    Ok(nodes.step_by(2).map(offset))
}

/// Where the value of the node at `offset` begins, if key and `len` bytes of value fit into the page.
pub(super) fn node_fits(number: u64, page: &[u8], offset: usize, len: usize) -> Result<usize, Damage> {
    let value = offset + NODE_HEADER + u16_at(page, offset + 6) as usize;
    if value + len <= page.len() {
        Ok(value)
    } else {
        Err(damaged(number, "has a node that leaves the page"))
    }
}

pub(super) fn damaged(page: u64, what: &str) -> Damage {
    Damage::Corrupt(format!("page {page} {what}"))
}

/// The field of `N` bytes at `at`. All callers pass offsets that were checked against the page before.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(field(bytes, at))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(field(bytes, at))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(field(bytes, at))
}
