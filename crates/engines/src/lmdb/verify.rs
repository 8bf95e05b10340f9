//! How much of a store is read before it is opened, and the progress of that. `check` describes the order.

pub use punctual_store::engine::StoreCheck as Verify;

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
