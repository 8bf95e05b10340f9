//! Storage engines behind the store's [`Engine`](punctual_store::engine::Engine) trait.
//!
//! - `Lmdb`, on Linux: the default. Reads make no system call, and no writer blocks them. There is no background work
//!   and no recovery step. The remaining causes of delay (page faults, sync, the write lock) are bounded here and in
//!   the store.
//! - `Redb`, by the feature `redb`: on every system, in Rust alone. docs/guide/store.md lists what it does not promise.
//! - `AnyEngine`, on Linux: LMDB or memory, chosen when the store is opened; the front crate's engine.
//! - [`Memory`]: a map in memory. The conformance suite compares with it, and the examples run on it.
//!
//! All engines pass the conformance suite of `punctual-testing`.

// The front crate shows its items to programs of others.
#![warn(missing_docs)]

#[cfg(target_os = "linux")]
mod any;
#[cfg(any(target_os = "linux", feature = "redb"))]
mod directory;
mod held;
#[cfg(target_os = "linux")]
pub mod lmdb;
mod memory;
mod noted;
#[cfg(feature = "redb")]
pub mod redb;
mod seek;
mod slot;

/// Atomics of `slot.rs`; its model-checked test replaces this module by loom's types (`tests/it/slot`).
mod atomics {
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// Memory that several threads touch, one at a time.
    #[derive(Debug, Default)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(content: T) -> UnsafeCell<T> {
            UnsafeCell(std::cell::UnsafeCell::new(content))
        }

        #[inline]
        pub(crate) fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
            look(self.0.get())
        }

        #[inline]
        pub(crate) fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
            change(self.0.get())
        }
    }

    /// Sleeps for about the time that ending a transaction of an engine takes.
    pub(crate) fn wait_a_little() {
        std::thread::sleep(Duration::from_micros(20));
    }
}

#[cfg(target_os = "linux")]
pub use any::{AnyEngine, Either};
#[cfg(target_os = "linux")]
pub use lmdb::Lmdb;
pub use memory::Memory;
#[cfg(feature = "redb")]
pub use redb::Redb;
