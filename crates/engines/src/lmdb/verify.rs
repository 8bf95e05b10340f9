//! How much of a store is read before it is opened, and the progress of that. `check` describes the order.

/// How much of a store is read before it is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Reads every page in use, and compares every checksum: the opened data is exactly the written data.
    #[default]
    Full,
    /// Reads every page in use and checks all that the engine relies on without checking it. Damage in values is found
    /// when they are read, by their checksums.
    Structure,
    /// Reads the two meta pages, the tables, and the lists of free pages. Other pages are checked when they are first
    /// met, with the records in them, so that damage is an error of that call; docs/store.md lists the damage that
    /// stays unnoticed. Reads take about twice as long, and pages are not brought into memory, so first reads wait for
    /// the medium.
    None,
}

/// Progress of the check of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyProgress {
    /// Bytes read so far.
    pub read: u64,
    /// Bytes to read in all.
    pub all: u64,
}

/// Callback for the progress of a check.
pub(super) type Callback<'t> = &'t mut dyn FnMut(VerifyProgress);
