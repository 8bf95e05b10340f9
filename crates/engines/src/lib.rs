//! Where do bytes live? Storage engines behind the store's [`Engine`](punctual_store::engine::Engine) trait.
//!
//! - `Lmdb`, on Linux: the default. Reads make no system call, and no writer blocks them. There is no background work
//!   and no recovery step. What is left in its tail (page faults, sync, the write lock) is bounded here and in the
//!   store.
//! - [`Memory`]: a map in memory. The conformance suite compares with it, and the examples run on it.
//!
//! Both pass the conformance suite of `punctual-testing`.

#[cfg(target_os = "linux")]
pub mod lmdb;
mod memory;

#[cfg(target_os = "linux")]
pub use lmdb::Lmdb;
pub use memory::Memory;
