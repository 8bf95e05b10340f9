//! Checks that a file is a whole LMDB store, before it is mapped.
//!
//! **Problem.** LMDB trusts its file: a truncated file raises SIGBUS at the first touch of a missing page, a damaged
//! one leads to a failed assertion or a wild pointer. Both kill the program that embeds LMDB. And a check that follows
//! the trees jumps about in the file, which takes many times as long as reading it from front to end.
//!
//! **Checks**, with plain reads: everything that LMDB relies on without checking it, in every page that the newest
//! commit can reach. The page lies within the file, is the page it should be, is reached once, and its nodes lie within
//! it; each tree has as many pages and records as it says, and its keys ascend, from page to page, too: a key in the
//! wrong page would never be found. The file's length alone does not show damage: LMDB counts pages at the end that
//! were allocated and freed within one transaction, and never writes them (`mm_last_pg` in mdb.c), so that an intact
//! file may be shorter than its last page.
//!
//! **Order.** Level by level, each level in the order of the file. Branches are some hundredth of the pages. They give
//! each leaf's number and its key bounds, so that all leaves and large values, which are nearly the whole file, are
//! checked in one pass over the file from front to end. The header of a large value's first page is noted as the pass
//! meets it, and compared with the leaf that refers to it as soon as both were seen. Pages that the commit does not
//! reach are not judged, so pages of a concurrent writer are no damage.
//!
//! **Memory**: for each leaf 24 bytes and one key with its length, for each large value 4 bytes, and 24
//! more where checksums are compared, for each page a bit.
//!
//! **Checksums** of records are compared during the pass, if the caller asks for it. Those of large values come last,
//! in the order of the file.
//!
//! The layouts are those of LMDB's data version 1 in mdb.c (`MDB_page`, `MDB_node`, `MDB_meta`, `MDB_db`), in host byte
//! order.

use std::cmp::Ordering;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use punctual_store::engine::KEY_MAX_LEN;

use super::meta::{DATA_NAME, Main};
use super::pages::is_page;
use super::sum;
use super::verify::{Callback, VerifyProgress};

#[cfg(not(target_pointer_width = "64"))]
compile_error!("LMDB's layout follows the machine word: the check of store files knows the 64-bit layout only");

pub(super) const PAGE_HEADER: usize = 16;
pub(super) const NODE_HEADER: usize = 8;
const META_LEN: usize = PAGE_HEADER + 136;
const MAGIC: u32 = 0xBEEF_C0DE;
/// LMDB's own number for its file format.
pub(super) const DATA_VERSION: u32 = 1;
pub(super) const NO_PAGE: u64 = u64::MAX;
/// `CURSOR_STACK`: LMDB's deepest tree, in levels.
const DEPTH_MAX: u16 = 32;
/// `sizeof(MDB_db)`, in bytes.
pub(super) const TREE_LEN: usize = 48;

pub(super) const P_BRANCH: u16 = 0x01;
pub(super) const P_LEAF: u16 = 0x02;
const P_OVERFLOW: u16 = 0x04;
const P_META: u16 = 0x08;
const MDB_INTEGERKEY: u16 = 0x08;
pub(super) const F_BIGDATA: u16 = 0x01;
pub(super) const F_SUBDATA: u16 = 0x02;

/// The reason to refuse a file.
#[derive(Debug)]
pub(super) enum Damage {
    /// The file is no LMDB file of this layout, or a damaged one; the text says why.
    Corrupt(String),
    /// The file is an LMDB file of this other data version.
    Version(u32),
    /// Reading the file failed.
    Io(io::Error),
}

/// The part of a meta page that a walk through its commit needs.
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

/// Content of a tree's leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Lists of pages that are free for reuse.
    FreePages,
    /// Other trees, and a few plain records.
    Tables,
    Records,
}

/// Tables whose checksums are to be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SumTables {
    pub data: bool,
    pub temporal: bool,
}

/// A B+ tree (`MDB_db`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tree {
    pub content: Content,
    pub root: u64,
    pub depth: u16,
    /// `branches`, `leaves` and `overflows` count pages, as the tree's descriptor claims; `records` counts records.
    pub branches: u64,
    pub leaves: u64,
    pub overflows: u64,
    pub records: u64,
}

/// Checks the length of `file`, for a store that is opened without a check: a page beyond the end would raise SIGBUS.
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

/// Checks the tables and the lists of free pages of a commit, for a store whose other pages are checked when they are
/// first met. Returns a bit for each page: whether it is part of these trees, or free.
pub(super) fn check_small(file: &File, meta: &Meta) -> Result<Vec<u64>, Damage> {
    let len = file.metadata().map_err(Damage::Io)?.len();
    let mut untold = |_| ();
    let mut check = Check::new(file, len, meta, SumTables::default(), &mut untold);
    check.small(meta.free, meta.main)?;
    // LMDB follows the roots of the tables as it opens them.
    for TreeCount { tree, .. } in check.trees.iter().skip(2).filter(|table| table.tree.root != NO_PAGE) {
        check.bounded(tree.root)?;
    }
    Ok(check.claimed)
}

/// Checks the newest commit in `file`, and with `records` the checksums of its records. An empty file is a store that
/// has not begun, and passes.
pub(super) fn check(file: &File, records: bool, progress: Callback<'_>) -> Result<(), Damage> {
    if file.metadata().map_err(Damage::Io)?.len() == 0 {
        return Ok(());
    }
    let meta = Meta::newest(file)?;
    let summed = if records {
        Main::read(file, &meta)?.summed()
    } else {
        SumTables::default()
    };
    check_at(file, &meta, summed, progress)
}

/// Checks the commit of `meta` in `file`, and the checksums of the tables in `summed`.
pub(super) fn check_at(file: &File, meta: &Meta, summed: SumTables, progress: Callback<'_>) -> Result<(), Damage> {
    let len = file.metadata().map_err(Damage::Io)?.len();
    Check::new(file, len, meta, summed, progress).run(meta.free, meta.main)
}

/// The page to which the branch node at `offset` points.
pub(super) fn child_at(page: &[u8], offset: usize) -> u64 {
    let [low, middle, high] = [0, 2, 4].map(|at| u64::from(u16_at(page, offset + at)));
    low | middle << 16 | high << 32
}

impl Meta {
    /// The meta page of the newest commit.
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
    /// `None` if LMDB would take the tree for a kind that this crate never writes.
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

/// Bytes per read of the pass: a multiple of every page size.
const CHUNK: usize = 1 << 20;
/// Bytes that the kernel is asked to read ahead of the pass, so that the medium works while pages are checked.
const AHEAD: u64 = 8 << 20;
/// Number of branches that the kernel is asked to read ahead.
const BRANCHES_AHEAD: usize = 64;
/// Maximum number of trees in a file: of free pages, of tables, and the tables themselves; this crate writes two
/// tables.
const TREES_MAX: usize = 16;
/// Bits in `heads` for the least number of pages of a large value (4 GiB need fewer); the bits above name its tree.
const TREE_SHIFT: u32 = 24;
/// Key position that means "no bound".
const OPEN: u64 = u64::MAX;

/// A check of all pages that a commit reaches. Terminates, because no page is claimed twice.
struct Check<'f> {
    file: &'f File,
    page_size: usize,
    last_page: u64,
    /// Pages that lie wholly in the file, up to the last one.
    pages_in_file: u64,
    /// For each page in the file, a bit: whether a tree or a free list has claimed it.
    claimed: Vec<u64>,
    trees: Vec<TreeCount>,
    summed: SumTables,
    /// For a page that the pass has seen: the number of pages of the large value that it claims to begin. For the
    /// others: the number of pages that a leaf expects there, with the leaf's tree; 0: none.
    heads: Vec<u32>,
    /// Number of the first page that the pass has not seen yet.
    passed: u64,
    /// Large values whose checksums are still to be compared.
    large: Vec<Large>,
    offsets: Vec<usize>,
    progress: Callback<'f>,
}

/// A tree, and the branch, leaf and overflow pages and the records counted so far.
struct TreeCount {
    tree: Tree,
    counted: [u64; 4],
    /// Whether the checksums of its records are to be compared.
    sums: bool,
}

/// A large value, on pages of its own from `first` on.
#[derive(Clone, Copy)]
struct Large {
    first: u64,
    /// Length of the value with its checksum, in bytes.
    len: u32,
    /// The checksum of the value's key.
    key: u32,
    leaf: u64,
}

/// Pages of one level, and their key bounds.
#[derive(Default)]
struct Level {
    pages: Vec<Pending>,
    /// Each key's length (2 bytes) and its bytes.
    keys: Vec<u8>,
}

/// A page to check; its keys must be at least `low`, and below `high` (positions in `Level::keys`).
#[derive(Clone, Copy)]
struct Pending {
    /// The page's number above its tree's index: sorting yields the order of the file.
    place: u64,
    low: u64,
    high: u64,
}

impl Pending {
    fn number(self) -> u64 {
        self.place >> 16
    }

    fn tree(self) -> usize {
        (self.place & 0xFFFF) as usize
    }
}

impl Level {
    fn note(&mut self, key: Option<&[u8]>) -> u64 {
        let Some(key) = key else { return OPEN };
        let at = self.keys.len() as u64;
        self.keys.extend((key.len() as u16).to_ne_bytes());
        self.keys.extend(key);
        at
    }

    fn bound(&self, at: u64) -> Option<&[u8]> {
        let at = at as usize;
        let begin = at.checked_add(2).filter(|begin| *begin <= self.keys.len())?;
        Some(&self.keys[begin..begin + usize::from(u16_at(&self.keys, at))])
    }

    fn push(&mut self, number: u64, tree: usize, low: u64, high: u64) {
        let place = number << 16 | tree as u64;
        self.pages.push(Pending { place, low, high });
    }

    /// Whether a page's keys ascend within its bounds. The first key of a branch stands for all smaller keys.
    fn in_order(&self, pending: Pending, content: Content, page: &[u8], keys: &[usize]) -> bool {
        let mut before = self.bound(pending.low);
        let mut first = true;
        for offset in keys {
            let key = key_at(page, *offset);
            let order = before.map_or(Ordering::Less, |before| compare(content, before, key));
            // The first key may equal the lower bound.
            if order == Ordering::Greater || order == Ordering::Equal && !first {
                return false;
            }
            (before, first) = (Some(key), false);
        }
        match (before, self.bound(pending.high)) {
            (Some(last), Some(high)) if !first => compare(content, last, high).is_lt(),
            _ => true,
        }
    }
}

/// Keys of free lists are transaction numbers, all others are bytes.
fn compare(content: Content, one: &[u8], other: &[u8]) -> Ordering {
    let number = |key: &[u8]| key.try_into().map(u64::from_ne_bytes);
    match content {
        Content::FreePages => match (number(one), number(other)) {
            (Ok(one), Ok(other)) => one.cmp(&other),
            _ => one.cmp(other),
        },
        Content::Tables | Content::Records => one.cmp(other),
    }
}

/// The key of a node that passed `node_fits`.
pub(super) fn key_at(page: &[u8], offset: usize) -> &[u8] {
    let begin = offset + NODE_HEADER;
    &page[begin..begin + usize::from(u16_at(page, offset + 6))]
}

impl<'f> Check<'f> {
    fn new(file: &'f File, len: u64, meta: &Meta, summed: SumTables, progress: Callback<'f>) -> Check<'f> {
        // A file may be much longer than its used part.
        let pages_in_file = (len / meta.page_size as u64).min(meta.last_page + 1);
        Check {
            file,
            page_size: meta.page_size,
            last_page: meta.last_page,
            pages_in_file,
            claimed: vec![0; pages_in_file.div_ceil(64) as usize],
            trees: Vec::new(),
            summed,
            // Untouched zeros take no memory.
            heads: vec![0; pages_in_file as usize],
            passed: 0,
            large: Vec::new(),
            offsets: Vec::new(),
            progress,
        }
    }

    fn run(mut self, free: Tree, main: Tree) -> Result<(), Damage> {
        self.small(free, main)?;
        let tables = 2..self.trees.len();
        let leaves = self.branches(tables)?;
        self.front_to_end(&leaves)?;
        drop(leaves);
        self.counted(0..self.trees.len())?;
        self.large_values()
    }

    /// Checks the trees of tables and of free pages.
    fn small(&mut self, free: Tree, main: Tree) -> Result<(), Damage> {
        for tree in [main, free] {
            self.add(tree, false);
        }
        let leaves = self.branches(0..2)?;
        self.page_by_page(leaves)?;
        self.counted(0..2)
    }

    /// Whether these trees have the pages and records that they claim.
    fn counted(&self, trees: Range<usize>) -> Result<(), Damage> {
        for TreeCount { tree, counted, .. } in &self.trees[trees] {
            let told = [tree.branches, tree.leaves, tree.overflows, tree.records];
            if *counted != told {
                let what = format!("has {counted:?} branches, leaves, large pages and records, not {told:?}");
                return Err(damaged(tree.root, &what));
            }
        }
        Ok(())
    }

    fn add(&mut self, tree: Tree, sums: bool) {
        let counted = [0; 4];
        self.trees.push(TreeCount { tree, counted, sums });
    }

    /// Checks all branches of `trees`; returns their leaves.
    fn branches(&mut self, trees: Range<usize>) -> Result<Level, Damage> {
        let (mut branches, mut leaves) = (Level::default(), Level::default());
        let told = trees
            .clone()
            .map(|tree| self.trees[tree].tree.leaves.min(self.pages_in_file));
        leaves.pages.reserve(told.sum::<u64>().min(self.pages_in_file) as usize);
        for tree in trees {
            let Tree { root, depth, .. } = self.trees[tree].tree;
            if root != NO_PAGE {
                self.claim(root)?;
                let level = if depth == 1 { &mut leaves } else { &mut branches };
                level.push(root, tree, OPEN, OPEN);
            }
        }
        let mut page = vec![0; self.page_size];
        let mut depth = 1;
        while !branches.pages.is_empty() {
            branches.pages.sort_unstable_by_key(|page| page.place);
            let mut below = Level::default();
            for (at, pending) in branches.pages.iter().enumerate() {
                if let Some(later) = branches.pages.get(at + BRANCHES_AHEAD) {
                    self.ask_for(later.number() * self.page_size as u64, self.page_size as u64);
                }
                self.load(pending.number(), &mut page)?;
                let leaf_level = depth + 1 == self.trees[pending.tree()].tree.depth;
                let children = if leaf_level { &mut leaves } else { &mut below };
                self.branch(*pending, &page, &branches, children)?;
            }
            (branches, depth) = (below, depth + 1);
        }
        leaves.pages.sort_unstable_by_key(|page| page.place);
        Ok(leaves)
    }

    /// Checks leaves of small trees one by one, without reading the whole file.
    fn page_by_page(&mut self, leaves: Level) -> Result<(), Damage> {
        let mut page = vec![0; self.page_size];
        for pending in &leaves.pages {
            self.load(pending.number(), &mut page)?;
            self.leaf(*pending, &page, &leaves)?;
        }
        Ok(())
    }

    /// Reads the file once, and checks the leaves and the large values in it.
    fn front_to_end(&mut self, leaves: &Level) -> Result<(), Damage> {
        let end = self.pages_in_file;
        let size = self.page_size as u64;
        let mut pending = leaves.pages.iter().peekable();
        let mut chunk = vec![0; CHUNK];
        self.ask_for(0, AHEAD);
        while self.passed < end {
            let begin = self.passed * size;
            self.ask_for(begin + AHEAD, CHUNK as u64);
            let len = CHUNK.min(((end - self.passed) * size) as usize);
            self.read_at(self.passed, &mut chunk[..len])?;
            for page in chunk[..len].chunks_exact(self.page_size) {
                let number = self.passed;
                self.passed += 1;
                match pending.next_if(|pending| pending.number() == number) {
                    Some(pending) => {
                        is_page(number, page)?;
                        self.leaf(*pending, page, leaves)?;
                    }
                    None => self.head(number, page)?,
                }
            }
            (self.progress)(VerifyProgress {
                read: self.passed * size,
                all: end * size,
            });
        }
        Ok(())
    }

    /// Compares the checksums of large values.
    fn large_values(&mut self) -> Result<(), Damage> {
        let mut all = std::mem::take(&mut self.large);
        all.sort_unstable_by_key(|large| large.first);
        let mut chunk = vec![0; CHUNK];
        for Large { first, len, key, leaf } in all {
            let mut at = first * self.page_size as u64 + PAGE_HEADER as u64;
            let (mut left, mut sum, mut stored) = (len as usize, key, [0; sum::LEN]);
            while left > 0 {
                // The checksum is the last part.
                let part = if left > sum::LEN {
                    CHUNK.min(left - sum::LEN)
                } else {
                    left
                };
                let part = &mut chunk[..part];
                self.file.read_exact_at(part, at).map_err(Damage::Io)?;
                match left > sum::LEN {
                    true => sum = crc32c::crc32c_append(sum, part),
                    false => stored[..part.len()].copy_from_slice(part),
                }
                (at, left) = (at + part.len() as u64, left - part.len());
            }
            if stored != sum.to_le_bytes() {
                let what = format!("refers to a large value at page {first} that is not what was written");
                return Err(damaged(leaf, &what));
            }
        }
        Ok(())
    }

    /// Asks the kernel to read `len` bytes soon.
    fn ask_for(&self, at: u64, len: u64) {
        // SAFETY: the descriptor is open. The call is only advice, and may be refused.
        unsafe { libc::posix_fadvise(self.file.as_raw_fd(), at as i64, len as i64, libc::POSIX_FADV_WILLNEED) };
    }

    /// Reads the claimed page `number`, and checks that its header has that number.
    fn load(&mut self, number: u64, page: &mut [u8]) -> Result<(), Damage> {
        self.read_at(number, page)?;
        is_page(number, page)
    }

    fn read_at(&self, page: u64, bytes: &mut [u8]) -> Result<(), Damage> {
        self.file
            .read_exact_at(bytes, page * self.page_size as u64)
            .map_err(Damage::Io)
    }

    /// Claims page `number`; refuses a second claim.
    fn claim(&mut self, number: u64) -> Result<(), Damage> {
        self.bounded(number)?;
        if number >= self.pages_in_file {
            return Err(damaged(number, "lies beyond the end of the file: it was truncated"));
        }
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if self.claimed[word] & bit != 0 {
            return Err(damaged(number, "is used twice"));
        }
        self.claimed[word] |= bit;
        Ok(())
    }

    fn bounded(&self, number: u64) -> Result<(), Damage> {
        if (2..=self.last_page).contains(&number) {
            return Ok(());
        }
        Err(damaged(number, "is referred to, and is none of the store's pages"))
    }

    /// Checks a branch of the level `above`, and notes its children in `below`.
    fn branch(&mut self, pending: Pending, page: &[u8], above: &Level, below: &mut Level) -> Result<(), Damage> {
        let number = pending.number();
        let TreeCount { tree, counted, .. } = &mut self.trees[pending.tree()];
        let content = tree.content;
        counted[0] += 1;
        of_kind(number, page, P_BRANCH)?;
        let offsets: Vec<usize> = node_offsets(number, page)?.collect();
        // LMDB asserts this when it descends (`mdb_page_search_root`).
        if offsets.len() < 2 && content != Content::FreePages {
            return Err(damaged(number, "is a branch with one child"));
        }
        offsets
            .iter()
            .try_for_each(|offset| node_fits(number, page, *offset, 0).map(drop))?;
        if !above.in_order(pending, content, page, &offsets[1..]) {
            return Err(damaged(number, "has keys that do not ascend"));
        }
        let mut low = below.note(above.bound(pending.low));
        for (at, offset) in offsets.iter().enumerate() {
            let high = match offsets.get(at + 1) {
                Some(next) => Some(key_at(page, *next)),
                None => above.bound(pending.high),
            };
            let high = below.note(high);
            let child = child_at(page, *offset);
            self.claim(child)?;
            below.push(child, pending.tree(), low, high);
            low = high;
        }
        Ok(())
    }

    /// Checks a leaf of `level`, and its nodes.
    fn leaf(&mut self, pending: Pending, page: &[u8], level: &Level) -> Result<(), Damage> {
        let number = pending.number();
        of_kind(number, page, P_LEAF)?;
        let mut offsets = std::mem::take(&mut self.offsets);
        offsets.clear();
        offsets.extend(node_offsets(number, page)?);
        let TreeCount { tree, counted, .. } = &mut self.trees[pending.tree()];
        let content = tree.content;
        counted[1] += 1;
        counted[3] += offsets.len() as u64;
        offsets
            .iter()
            .try_for_each(|offset| self.node(pending, content, page, *offset))?;
        if !level.in_order(pending, content, page, &offsets) {
            return Err(damaged(number, "has keys that do not ascend"));
        }
        self.offsets = offsets;
        Ok(())
    }

    fn node(&mut self, pending: Pending, content: Content, page: &[u8], offset: usize) -> Result<(), Damage> {
        let (number, tree) = (pending.number(), pending.tree());
        let flags = u16_at(page, offset + 4);
        let len = usize::from(u16_at(page, offset)) | usize::from(u16_at(page, offset + 2)) << 16;
        let inline_len = if flags & F_BIGDATA != 0 { 8 } else { len };
        let begin = node_fits(number, page, offset, inline_len)?;
        let key = &page[offset + NODE_HEADER..begin];
        if !(1..=KEY_MAX_LEN).contains(&key.len()) {
            return Err(damaged(number, "has a key of impossible length"));
        }
        let value = &page[begin..begin + inline_len];
        match (flags, content) {
            (F_BIGDATA, Content::Records) => self.wanted(pending, key, u64_at(value, 0), len),
            (F_BIGDATA, content) => {
                let first = u64_at(value, 0);
                let mut list = self.large_now(tree, first, len)?;
                match content {
                    Content::FreePages => self.free_pages(number, &list.split_off(PAGE_HEADER)),
                    _ => Ok(()),
                }
            }
            (0, Content::FreePages) => self.free_pages(number, value),
            (0, Content::Records) if self.trees[tree].sums && sum::checked(key, value).is_none() => {
                let what = format!("the record {} is not what was written", key.escape_ascii());
                Err(Damage::Corrupt(what))
            }
            (0, Content::Records | Content::Tables) => Ok(()),
            (F_SUBDATA, Content::Tables) if len == TREE_LEN && self.trees.len() < TREES_MAX => {
                let table = Tree::read(value, 0, Content::Records);
                let table = table.ok_or_else(|| damaged(number, "names an impossible tree"))?;
                let sums = if key == DATA_NAME {
                    self.summed.data
                } else {
                    self.summed.temporal
                };
                self.add(table, sums);
                Ok(())
            }
            _ => Err(damaged(number, &format!("has a node of kind {flags:#x}"))),
        }
    }

    /// Notes that a leaf refers to a large value of `len` bytes from page `first` on.
    fn wanted(&mut self, pending: Pending, key: &[u8], first: u64, len: usize) -> Result<(), Damage> {
        self.claim(first)?;
        let tree = pending.tree();
        let needed = self.pages_for(len);
        if self.trees[tree].sums {
            self.large.push(Large {
                first,
                len: len as u32,
                key: crc32c::crc32c(key),
                leaf: pending.number(),
            });
        }
        if first < self.passed {
            return self.run_of(tree, first, needed, self.heads[first as usize]);
        }
        self.heads[first as usize] = (tree as u32) << TREE_SHIFT | needed;
        Ok(())
    }

    /// Notes or compares the header of a page in the pass that is no leaf.
    fn head(&mut self, number: u64, page: &[u8]) -> Result<(), Damage> {
        let head = pages_of_large(number, page);
        let pages = head.unwrap_or(0);
        let wanted = self.heads[number as usize];
        if wanted != 0 {
            let tree = (wanted >> TREE_SHIFT) as usize;
            return self.run_of(tree, number, wanted & ((1 << TREE_SHIFT) - 1), pages);
        }
        if head.is_some() {
            self.heads[number as usize] = pages;
        }
        Ok(())
    }

    /// Claims the pages of a large value from `first`, which was claimed. There may be more pages than it needs, after
    /// a shorter value has replaced a longer one (`_mdb_cursor_put`).
    fn run_of(&mut self, tree: usize, first: u64, needed: u32, pages: u32) -> Result<(), Damage> {
        if pages < needed {
            return Err(damaged(first, "is not the large value it should be"));
        }
        self.trees[tree].counted[2] += u64::from(pages);
        // Ends at the first page that is not in the file, whatever a damaged header says.
        (first + 1..first + u64::from(pages)).try_for_each(|number| self.claim(number))
    }

    /// Checks and reads a large value of a small tree at once, with its header.
    fn large_now(&mut self, tree: usize, first: u64, len: usize) -> Result<Vec<u8>, Damage> {
        self.claim(first)?;
        let mut header = [0; PAGE_HEADER];
        self.read_at(first, &mut header)?;
        let pages = pages_of_large(first, &header).unwrap_or(0);
        self.run_of(tree, first, self.pages_for(len), pages)?;
        let mut value = vec![0; PAGE_HEADER + len];
        self.read_at(first, &mut value)?;
        Ok(value)
    }

    fn pages_for(&self, len: usize) -> u32 {
        (PAGE_HEADER + len).div_ceil(self.page_size) as u32
    }

    /// Claims the pages of a list (`MDB_IDL`) that later transactions may reuse: its length, then the page numbers.
    fn free_pages(&mut self, number: u64, list: &[u8]) -> Result<(), Damage> {
        let (words, _) = list.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_ne_bytes(*word));
        let count = words.next().unwrap_or(0);
        if count > words.len() as u64 {
            return Err(damaged(number, "lists more free pages than it has room for"));
        }
        for page in words.take(count as usize) {
            self.bounded(page)?;
            // Free pages at the end may never have been written to the file.
            if page < self.pages_in_file {
                self.claim(page)?;
            }
        }
        Ok(())
    }
}

/// The number of pages of a large value, if `page` is its first page.
pub(super) fn pages_of_large(number: u64, page: &[u8]) -> Option<u32> {
    let is_first = u64_at(page, 0) == number && u16_at(page, 10) == P_OVERFLOW;
    is_first.then(|| u32_at(page, 12))
}

fn of_kind(number: u64, page: &[u8], kind: u16) -> Result<(), Damage> {
    match u16_at(page, 10) {
        flags if flags == kind => Ok(()),
        flags => Err(damaged(number, &format!("of kind {flags:#x} is no part of its tree"))),
    }
}

/// Offsets of the nodes of a page; checked to lie within it, header included.
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

/// Offset of the value of the node at `offset`, if the key and `len` bytes of value fit into the page.
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
