//! Which bytes on which socket? A store served to any client of Redis; no policy.
//!
//! **Problem.** A store in a process is reached by that process alone. Clients on other machines, in other languages,
//! speak RESP, and expect to be answered in time, or told at once that they will not be.
//!
//! **Method.** One thread, the event loop ([`node`]), owns all sockets: it parses ([`resp`]), keeps each connection's
//! state ([`session`]) and never calls the store. What asks the store goes to a fixed pool of threads, which take it
//! earliest deadline first ([`queue`]) and put what waits together into one transaction ([`work`]). A connection has
//! one piece of work on the pool at a time, so its replies come in the order of its requests.
//!
//! **Bounds.** Connections, bytes of a request, requests that wait, bytes of replies that are not taken, time for half
//! a request: each has a name and is told when it is met.

pub mod commands;
pub mod cursors;
pub mod forecast;
pub mod glob;
mod info;
pub mod login;
pub mod metrics;
pub mod node;
mod pool;
pub mod prover;
pub mod queue;
pub mod resp;
pub mod session;
pub mod stream;
pub mod subscribers;
pub mod tasks;
#[cfg(all(test, target_os = "linux"))]
mod tests;
#[cfg(feature = "tls")]
pub mod tls;
pub mod users;
pub mod work;

pub use node::{Listening, Options, Running, ServeError};
