//! Storage engines behind the store's [`Engine`](punctual_store::engine::Engine) trait.
//!
//! - `Lmdb`, on Linux: the default. Reads make no system call and no writer blocks them, there is no background work
//!   and no recovery step; what is left in its tail (page faults, sync, the write lock) is owned here and in the store.
//! - [`Memory`]: a map in memory, the reference the conformance suite compares with, and the engine of the examples.
//!
//! Both pass the conformance suite of `punctual-testing`.

#[cfg(target_os = "linux")]
pub mod lmdb;
mod memory;

#[cfg(target_os = "linux")]
pub use lmdb::Lmdb;
pub use memory::Memory;
