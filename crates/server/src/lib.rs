//! Which bytes on which socket? A store, a node or a balancer served to any client of Redis; no policy.
//!
//! **Problem.** A store in a process is reached by that process alone. Clients on other machines, in other languages,
//! speak RESP. They expect an answer in time, or at once the answer that there will be none in time.
//!
//! **Method.** One thread, the host's event loop, owns all sockets, by the [`door`]: it parses ([`resp`]), keeps each
//! connection's state ([`session`]) and calls a backend that never waits. Where a store is served alone
//! ([`node`]), requests go to a fixed pool of threads, which take them earliest deadline first ([`queue`]) and put
//! waiting ones together into one transaction ([`work`]).
//!
//! **Bounds.** Connections, bytes of a request, requests that wait, bytes of unread replies, time for half a request:
//! each bound has a name, and the client gets an error that names it.

pub mod door;
pub mod figures;
pub mod forecast;
mod info;
pub mod link;
pub mod listening;
pub mod local;
pub mod login;
pub mod logins;
pub mod metrics;
pub mod net;
pub mod node;
mod pool;
pub mod prover;
pub mod queue;
pub mod session;
pub mod slots;
pub mod stream;
pub mod subscribers;
pub mod tasks;
#[cfg(all(test, target_os = "linux"))]
mod tests;
pub mod tls;
mod usage;
pub mod users;
pub mod work;

pub use punctual_redis::{commands, cursors, glob, resp};

pub use listening::{Listening, ServeError};
pub use node::{EventLoop, Options, RunningServer};
