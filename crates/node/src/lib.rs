//! What does a node of a federation do as a process? Sockets, threads and a store around the state machine; no policy.
//!
//! **Problem.** `federation::node::Node` decides what a node does, from values. A process has to pass it what happens,
//! in real time, and carry out what it wants, in the order in which it wants it.
//!
//! **Method.** One thread, the event loop ([`process`]), owns the state machine and all sockets: those of clients,
//! which speak RESP ([`conversation`]), of peers ([`wire`], [`outgoing`]), and of the log. It never calls the store:
//! threads do ([`stores`]), and what comes of it is the next event. The loop sleeps until something comes, or until the
//! instant at which the state machine wants to be woken.
//!
//! **Bounds.** Connections, requests that wait, bytes of a message, messages that wait for a peer: each has a name.

pub mod conversation;
pub mod outgoing;
#[cfg(target_os = "linux")]
pub mod process;
pub mod seen;
#[cfg(target_os = "linux")]
pub mod stores;
pub mod wire;
