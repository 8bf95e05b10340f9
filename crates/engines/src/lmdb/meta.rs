//! Checks that the two meta pages are those of the last two commits.
//!
//! **Problem.** LMDB takes the meta page with the higher transaction number for the newest, and neither has a checksum:
//! one flipped bit in a number silently rolls back a commit.
//!
//! **Method.** Commit n writes the meta page n mod 2, so the two numbers follow each other, whatever a power cut
//! leaves: a commit's page is synced before the next one's is written. And each commit names itself in its main table
//! (see `sum`), which says whether the newest meta page leads to the tree that belongs to it. The older meta page is
//! not checked for that: without a sync of meta pages, a power cut may leave it with a tree whose pages are reused.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

use super::FORMAT;
use super::check::{
    Content, Damage, Meta, NO_PAGE, NODE_HEADER, SumTables, TREE_LEN, Tree, node_fits, node_offsets, u16_at,
};
use super::sum::{COMMIT_KEY, FORMAT_KEY, QUOTA_KEY, SUMS_KEY};

/// The name of the table of temporal records.
pub(super) const TEMPORAL_NAME: &[u8] = b"temporal";
/// The name of the table of plain records.
pub(super) const DATA_NAME: &[u8] = b"records";

/// Checks both meta pages of a file that has passed [`check`](super::check::check).
pub(super) fn check(file: &File) -> Result<(), Damage> {
    if file.metadata().map_err(Damage::Io)?.len() == 0 {
        return Ok(());
    }
    let first = Meta::read(file, 0)?;
    let second = Meta::read(file, first.page_size as u64)?;
    let (even, odd) = (first.transaction, second.transaction);
    if (even, odd) == (0, 0) {
        return Ok(()); // no commit yet
    }
    if even.abs_diff(odd) != 1 || even % 2 != 0 {
        return Err(damaged(&format!(
            "are of transactions {even} and {odd}, which do not follow each other"
        )));
    }
    let newest = if odd > even { second } else { first };
    let main = Main::read(file, &newest)?;
    main.is_complete(&newest)?;
    // Formats before 2 do not name their commit; a newer version's store is refused for its format.
    if main.format == Some(FORMAT) && main.commit != Some(newest.transaction) {
        return Err(damaged(&format!(
            "lead to another commit than transaction {}",
            newest.transaction
        )));
    }
    Ok(())
}

/// Contents of the main table of a commit: facts about the commit and the two tables.
#[derive(Debug, Default)]
pub(super) struct Main {
    pub format: Option<u32>,
    pub commit: Option<u64>,
    /// Whether plain records have checksums, as a number.
    pub sums: Option<u8>,
    /// The quota in bytes; `None` if no version that notes it has opened the store.
    pub quota: Option<u64>,
    pub data: Option<Tree>,
    pub temporal: Option<Tree>,
}

impl Main {
    /// Checks that no name is missing. LMDB makes a table that it does not find, so that a table with a damaged name
    /// would be empty; and a store that lost its format would count as new.
    fn is_complete(&self, meta: &Meta) -> Result<(), Damage> {
        if meta.main.root == NO_PAGE || self.format.is_some_and(|format| format > FORMAT) {
            return Ok(());
        }
        let (Some(data), Some(temporal)) = (self.data, self.temporal) else {
            return Err(damaged("lead to a commit without tables: their names are damaged"));
        };
        // A new store gets its tables before its format.
        if self.format.is_none() && data.records + temporal.records > 0 {
            return Err(damaged("lead to a commit without a format: its name is damaged"));
        }
        Ok(())
    }

    /// Which tables have checksums to compare.
    pub(super) fn summed(&self) -> SumTables {
        let has_sums = self.format.is_some_and(|format| format > 1);
        SumTables {
            data: has_sums && self.sums == Some(1),
            temporal: has_sums,
        }
    }

    pub(super) fn read(file: &File, meta: &Meta) -> Result<Main, Damage> {
        let mut found = Main::default();
        // The main table has six records, in one page; an empty store has none.
        let root = meta.main.root;
        if root == NO_PAGE || meta.main.depth != 1 {
            return Ok(found);
        }
        if root > meta.last_page {
            return Err(damaged("lead to a page that is none of the store's"));
        }
        let mut page = vec![0; meta.page_size];
        match file.read_exact_at(&mut page, root * meta.page_size as u64) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                return Err(damaged("lead to a page that is not in the file"));
            }
            answer => answer.map_err(Damage::Io)?,
        }
        for node in node_offsets(root, &page)? {
            let len = usize::from(u16_at(&page, node));
            let value = node_fits(root, &page, node, len)?;
            let (key, value) = (&page[node + NODE_HEADER..value], &page[value..value + len]);
            match key {
                FORMAT_KEY => found.format = value.try_into().ok().map(u32::from_le_bytes),
                COMMIT_KEY => found.commit = value.try_into().ok().map(u64::from_le_bytes),
                QUOTA_KEY => found.quota = value.try_into().ok().map(u64::from_le_bytes),
                SUMS_KEY => found.sums = value.first().copied(),
                DATA_NAME => found.data = tree(value),
                TEMPORAL_NAME => found.temporal = tree(value),
                _ => {}
            }
        }
        Ok(found)
    }
}

/// The tree in the record of a table's name; `None` if it cannot be one.
pub(super) fn tree(value: &[u8]) -> Option<Tree> {
    (value.len() == TREE_LEN).then(|| Tree::read(value, 0, Content::Records))?
}

fn damaged(what: &str) -> Damage {
    Damage::Corrupt(format!("its meta pages {what}"))
}
