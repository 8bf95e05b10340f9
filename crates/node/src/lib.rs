//! What does a node of a federation do as a process? Sockets, threads and a store around the state machine; no policy.
//!
//! **Problem.** `federation::node::Node` decides what a node does, from values. A process has to pass it each event in
//! real time, and carry out its actions in their order.
//!
//! **Method.** One thread, the event loop ([`process`]), owns the state machine and all sockets: those of clients,
//! which speak RESP ([`conversation`]), of peers ([`wire`], [`outgoing`]), and of the log. It leaves the store to
//! threads ([`stores`]), and each of their results is a further event. The loop sleeps until an event comes, or until
//! the instant at which the state machine has to be woken. Readings of temporal objects it installs itself
//! ([`sensing`], [`making`]): they are copied in memory. It reports its work as figures ([`figures`]), with the time
//! that late requests spent at each stage ([`spans`]).
//!
//! **Bounds.** Connections, requests that wait, bytes of a message, messages that wait for a peer: each has a name.

pub mod ages;
pub mod changes;
pub mod conversation;
pub mod figures;
pub mod making;
pub mod outgoing;
pub mod own;
#[cfg(target_os = "linux")]
pub mod process;
pub mod seen;
pub mod sensing;
pub mod spans;
#[cfg(target_os = "linux")]
pub mod stores;
pub mod whereabouts;
pub mod wire;

pub use punctual_federation::admission::bound;
