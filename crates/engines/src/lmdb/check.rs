//! Is this file a whole LMDB store? Asked before it is mapped.
//!
//! **Problem.** LMDB trusts its file: a truncated one ends in SIGBUS at the first touch of a missing page, a damaged one in
//! an assertion or a wild pointer. Both kill the program that embeds it.
//!
//! **Method.** Walk, with plain reads, every page that the newest commit can reach, and check what LMDB relies on without
//! checking it: that the page lies within the file, is the page it should be, is reached once, and that its nodes lie within it. The
//! file's length alone does not tell: LMDB counts pages at the end that were allocated and freed within one transaction, and
//! never writes them (`mm_last_pg` in mdb.c), so an intact file may be shorter than its last page. The walk reads each
//! page once, which also brings it into memory, where the store wants it anyway. Values carry no checksum: a flipped bit in
//! one is not seen.
//!
//! Layouts are those of LMDB's data version 1 in mdb.c (`MDB_page`, `MDB_node`, `MDB_meta`, `MDB_db`), in host byte order.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("LMDB's layout follows the machine word: the check of store files knows the 64-bit layout only");

const PAGE_HEADER: usize = 16;
const NODE_HEADER: usize = 8;
const META_LEN: usize = PAGE_HEADER + 136;
const MAGIC: u32 = 0xBEEF_C0DE;
/// LMDB's own format number.
pub(super) const DATA_VERSION: u32 = 1;
const NO_PAGE: u64 = u64::MAX;
/// `CURSOR_STACK`: LMDB cannot descend further.
const DEPTH_MAX: usize = 32;

const P_BRANCH: u16 = 0x01;
const P_LEAF: u16 = 0x02;
const P_OVERFLOW: u16 = 0x04;
const P_META: u16 = 0x08;
const F_BIGDATA: u16 = 0x01;
const F_SUBDATA: u16 = 0x02;

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

/// The meta page of a commit: what is needed to walk it.
#[derive(Debug)]
struct Meta {
    page_size: usize,
    free_root: u64,
    main_root: u64,
    last_page: u64,
    transaction: u64,
}

/// Checks the newest commit in `file`. An empty file is a store that has not begun, and passes.
pub(super) fn check(file: &File) -> Result<(), Damage> {
    let len = file.metadata().map_err(Damage::Io)?.len();
    if len == 0 {
        return Ok(());
    }
    let first = Meta::read(file, 0)?;
    let second = Meta::read(file, first.page_size as u64)?;
    if second.page_size != first.page_size {
        return Err(Damage::Corrupt("its two meta pages differ in page size".to_owned()));
    }
    let newest = if second.transaction > first.transaction {
        second
    } else {
        first
    };
    Walk::new(file, len, &newest)?.run(&newest)
}

impl Meta {
    fn read(file: &File, offset: u64) -> Result<Meta, Damage> {
        let corrupt = |reason: &str| Err(Damage::Corrupt(format!("its meta page at byte {offset} {reason}")));
        let mut bytes = [0; META_LEN];
        match file.read_exact_at(&mut bytes, offset) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return corrupt("is cut off"),
            answer => answer.map_err(Damage::Io)?,
        }
        if u16_at(&bytes, 10) & P_META == 0 || u32_at(&bytes, 16) != MAGIC {
            return corrupt("has no LMDB mark");
        }
        if u32_at(&bytes, 20) != DATA_VERSION {
            return Err(Damage::Version(u32_at(&bytes, 20)));
        }
        let meta = Meta {
            page_size: u32_at(&bytes, 40) as usize,
            free_root: u64_at(&bytes, 80),
            main_root: u64_at(&bytes, 128),
            last_page: u64_at(&bytes, 136),
            transaction: u64_at(&bytes, 144),
        };
        if !meta.page_size.is_power_of_two() || !(512..=0x8000).contains(&meta.page_size) {
            return corrupt("names an impossible page size");
        }
        if meta.last_page < 1 || meta.last_page >= 1 << 48 {
            return corrupt("names an impossible last page");
        }
        Ok(meta)
    }
}

/// A page still to be visited, and how deep it lies in its tree.
struct Todo {
    page: u64,
    depth: usize,
}

/// One pass over all reachable pages. Ends because no page is visited twice.
struct Walk<'f> {
    file: &'f File,
    page_size: usize,
    last_page: u64,
    /// Pages of which at least the first byte is in the file.
    pages_in_file: u64,
    seen: Vec<u64>,
    todo: Vec<Todo>,
}

impl<'f> Walk<'f> {
    fn new(file: &'f File, len: u64, meta: &Meta) -> Result<Walk<'f>, Damage> {
        let pages_in_file = len / meta.page_size as u64;
        // No page beyond the end of the file can be reached, so the set of seen pages is never larger than the file.
        let words = pages_in_file.min(meta.last_page + 1).div_ceil(64) as usize;
        let todo = Vec::with_capacity(DEPTH_MAX);
        Ok(Walk {
            file,
            page_size: meta.page_size,
            last_page: meta.last_page,
            pages_in_file,
            seen: vec![0; words],
            todo,
        })
    }

    fn run(mut self, meta: &Meta) -> Result<(), Damage> {
        for root in [meta.free_root, meta.main_root] {
            self.add_tree(root);
        }
        let mut page = vec![0; self.page_size];
        while let Some(Todo { page: number, depth }) = self.todo.pop() {
            self.load(number, &mut page)?;
            match u16_at(&page, 10) {
                P_BRANCH => self.branch(number, depth, &page)?,
                P_LEAF => self.leaf(number, &page)?,
                flags => return Err(damaged(number, &format!("is of kind {flags:#x}, not part of a tree"))),
            }
        }
        Ok(())
    }

    fn add_tree(&mut self, root: u64) {
        if root != NO_PAGE {
            self.todo.push(Todo { page: root, depth: 1 });
        }
    }

    /// Reads page `number` and checks that it is that page.
    fn load(&mut self, number: u64, page: &mut [u8]) -> Result<(), Damage> {
        self.claim(number)?;
        self.file
            .read_exact_at(page, number * self.page_size as u64)
            .map_err(Damage::Io)?;
        if u64_at(page, 0) != number {
            return Err(damaged(number, &format!("says it is page {}", u64_at(page, 0))));
        }
        Ok(())
    }

    /// Notes that page `number` is in use.
    fn claim(&mut self, number: u64) -> Result<(), Damage> {
        if number < 2 || number > self.last_page {
            return Err(damaged(number, "is referred to, and is none of the store's pages"));
        }
        if number >= self.pages_in_file {
            return Err(damaged(number, "lies beyond the end of the file: it was truncated"));
        }
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if self.seen[word] & bit != 0 {
            return Err(damaged(number, "is referred to twice"));
        }
        self.seen[word] |= bit;
        Ok(())
    }

    fn branch(&mut self, number: u64, depth: usize, page: &[u8]) -> Result<(), Damage> {
        if depth == DEPTH_MAX {
            return Err(damaged(number, "lies deeper than any tree can be"));
        }
        for offset in node_offsets(number, page)? {
            let child = u64::from(u16_at(page, offset))
                | u64::from(u16_at(page, offset + 2)) << 16
                | u64::from(u16_at(page, offset + 4)) << 32;
            node_fits(number, page, offset, 0)?;
            self.todo.push(Todo {
                page: child,
                depth: depth + 1,
            });
        }
        Ok(())
    }

    fn leaf(&mut self, number: u64, page: &[u8]) -> Result<(), Damage> {
        for offset in node_offsets(number, page)? {
            let flags = u16_at(page, offset + 4);
            let value_len = u64::from(u16_at(page, offset)) | u64::from(u16_at(page, offset + 2)) << 16;
            let inline_len = if flags & F_BIGDATA != 0 { 8 } else { value_len as usize };
            let value = node_fits(number, page, offset, inline_len)?;
            match flags {
                0 => {}
                F_BIGDATA => self.overflow(u64_at(page, value), value_len)?,
                F_SUBDATA if value_len == 48 => self.add_tree(u64_at(page, value + 40)),
                _ => return Err(damaged(number, &format!("has a node of kind {flags:#x}"))),
            }
        }
        Ok(())
    }

    /// A value of `len` bytes on consecutive pages from `first`.
    fn overflow(&mut self, first: u64, len: u64) -> Result<(), Damage> {
        let mut header = [0; PAGE_HEADER];
        let pages = (PAGE_HEADER as u64 + len).div_ceil(self.page_size as u64);
        for number in first..first.saturating_add(pages) {
            self.claim(number)?;
        }
        self.file
            .read_exact_at(&mut header, first * self.page_size as u64)
            .map_err(Damage::Io)?;
        let as_promised =
            u64_at(&header, 0) == first && u16_at(&header, 10) == P_OVERFLOW && u64::from(u32_at(&header, 12)) >= pages;
        if as_promised {
            Ok(())
        } else {
            Err(damaged(first, "is not the large value it should be"))
        }
    }
}

/// Where the nodes of a page begin; checked to lie within it, header included.
fn node_offsets(number: u64, page: &[u8]) -> Result<impl Iterator<Item = usize> + use<'_>, Damage> {
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
fn node_fits(number: u64, page: &[u8], offset: usize, len: usize) -> Result<usize, Damage> {
    let value = offset + NODE_HEADER + u16_at(page, offset + 6) as usize;
    if value + len <= page.len() {
        Ok(value)
    } else {
        Err(damaged(number, "has a node that leaves the page"))
    }
}

fn damaged(page: u64, what: &str) -> Damage {
    Damage::Corrupt(format!("page {page} {what}"))
}

/// The field of `N` bytes at `at`. All callers pass offsets that were checked against the page before.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(field(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(field(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(field(bytes, at))
}
