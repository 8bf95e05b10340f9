//! How much of a store is read before it is opened, and how far that is. `check` says in which order.

/// How much of a store is read before it is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Every page in use, and every checksum: what is opened is what was written.
    #[default]
    Full,
    /// Every page in use: what the engine relies on without checking it. Damage in values is found when they are read,
    /// by their checksums.
    Structure,
    /// The two meta pages, the tables, and the lists of free pages. Other pages are checked when they are first met,
    /// with the records in them, so that damage is an error of that call; docs/store.md says what is not found so.
    /// Reads take about twice as long, and pages are not brought into memory, so first reads wait for the medium.
    None,
}

/// How far the check of a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that were read.
    pub read: u64,
    /// Bytes that there are to be read.
    pub all: u64,
}

/// What is told how far a check is.
pub(super) type Tell<'t> = &'t mut dyn FnMut(Progress);
