//! Which node commits, answers, takes over, and admits what? Every decision of a federation, as pure code.
//!
//! **Problem.** One node has a limit, and can die. Several nodes must answer as one, in time or with a refusal at once,
//! whichever of them dies.
//!
//! **Terms.** The *master* executes transactions in batches and commits each batch by appending it to the log. A
//! *replica* (`slave` in the code) applies the log's entries and answers queries. A *revision* is the number of an
//! entry of the log; an *epoch* numbers the term of one master (its `Reign`). A *session* is the order in which one
//! client sees its requests.
//!
//! **Method.** State machines: `step(event, now) -> actions`. They read no clock, no file and no socket.

pub mod action;
pub mod admission;
pub mod balancer;
pub mod cells;
pub mod copying;
pub mod entry;
pub mod follower;
pub mod front;
pub mod ids;
pub mod line;
pub mod liveness;
pub mod master;
pub mod message;
pub mod node;
pub mod outbox;
pub mod queries;
pub mod quota;
pub mod records;
pub mod replica;
pub mod session;
pub mod slave;
pub mod takeover;
pub mod temporal;
