//! Which effect has a command of Redis on records, and which bytes carry it? No sockets, no threads.
//!
//! **Problem.** A store alone, each node of a federation and its master carry out the same commands, and a client must
//! not see which of them did.
//!
//! **Method.** One interpreter ([`commands`]) works on any view of records: a snapshot or a transaction of a store, or
//! the records that a federation shows. It reads parsed requests and writes replies ([`resp`]). Some commands also ask
//! the wall clock, for instants since 1970, or draw keys and fields at random.

pub mod commands;
pub mod cursors;
pub mod glob;
pub mod resp;
