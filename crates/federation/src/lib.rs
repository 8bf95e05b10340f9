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
//!
//! # Argument
//!
//! Promises and suppositions (S1 to S5) are those of docs/guide/cluster-safety.md.
//!
//! 1. *At each revision there is one entry, which stays.* From S1.
//! 2. *A node's records are those of the log up to the revision that is inside of them.* A node applies entry r + 1
//!    only on records at r, and writes r + 1 in the same commit (S2). So an entry is neither applied twice nor left
//!    out, after a crash either. The master applies its own batches in the same way, after the log has acknowledged
//!    them. A node that is given a copy has the records up to a key, which is in the same commit, too. Images are
//!    installed at their revision, and entries are applied to these keys. It answers nothing, and is no master, before
//!    it has all.
//! 3. *A master executes each batch on the records of the revision that it appends to.* It has one batch under way, and
//!    names the revision of its records in the append. By 1, if the append succeeds, no entry is between.
//! 4. *What a transaction returns and writes is what it returns and writes at its place in the log.* By 2 and 3 its
//!    batch was executed on the records of all entries before, in the order in which it is written. The readings of
//!    temporal objects, which are no function of the records, are in the entry. Nodes apply values, and do not execute
//!    anew. So the log is a serial order of all transactions that write (promise 1). Queries of one snapshot have their
//!    place after its revision.
//! 5. *A deposed master commits nothing more.* A takeover is an entry of the log, at some revision r. Any append of the
//!    old master that comes later names a revision before r, and fails by 1. Those that came before r are in the log.
//!    The new master has applied them before it appends its record, because it names r - 1. No clock is read.
//! 6. *Acknowledged is committed.* The master answers when the log has acknowledged or a read has shown its entry, and
//!    its own records have it. By 1 it stays (promise 2).
//! 7. *Unknown is not decided by guess.* An append without an answer, or one that lost its race (a copy of it may have
//!    won), is read back. While the log ends where it did, only the same entry is appended there again. Of all copies
//!    under way, at most one succeeds, by 1, and it is the same transaction. When the log has moved, the entry at that
//!    place is ours or not, and stays so. Then the batch is committed, or can never be (promise 3 for `no-master`).
//!    Where the log no longer shows that entry, the outcome stays unknown to this node, and it says so. An entry that
//!    the log finds too long is not in it and never will be, by S1, nor is any copy of it. Its transactions are
//!    executed anew in smaller batches, and one that is too long alone is refused.
//! 8. *Late is not executed.* A request that waits is taken out of the queue before it is said to be late. One in a
//!    batch that is being executed is said to be late only before the append. Then the whole batch is executed anew
//!    without it, because others may have read what it wrote.
//! 9. *A request is executed at most once.* The session's record is written in the transaction itself: the number of
//!    its last transaction, its revision, and a floor. A transaction whose number is not above the floor is not
//!    executed.
//! 10. *Outcome is final.* The request for it goes through the log. It reads the session's record and raises the floor
//!     to the number asked for, in one transaction. By 4 and 9, a transaction that is in the log before it is found.
//!     One that is not will be refused after it, by this master and by each later one (promise 4).
//! 11. *Sessions.* Each answer carries the revision that it shows, and the client sends the highest along. A node
//!     answers from records that are at least as far (2). One that is behind waits for half of the time left, then
//!     passes the query on to the master (promise 5).
//! 12. *Latest.* The master executes such a query on its records at r, and asks the log by a linearizable read. If it
//!     still ends at r, all that was acknowledged before the query came is at r or before, by 6. If it does not,
//!     another master is there, and the query is late (promise 6).
//! 13. *Balancers add nothing to be proven.* A balancer says *refused* and *late* of a transaction that it has sent
//!     nowhere. Of others it says *done*, *refused* and *late* only where a node did, and else *unknown*. Of one that
//!     it sends once more, it says what the second node did. The first has said that it does not execute it (8), and by
//!     9 even both together would execute it once. A query leaves nothing behind, so any node may answer it, and a
//!     balancer may say that it is late.
//! 14. *Pausing and leaving lose nothing.* A node that pauses or leaves goes on with what it has, so 1 to 12 hold of
//!     it. It may be ended when each of its requests has its answer. What was acknowledged is in the log (6), and what
//!     it has applied is on its disk (promise 8). Its peers take over by 5, whatever it says of itself.
//!
//! When a supposition fails: a log that forgets (S1) loses acknowledged transactions. Two processes with one boot (S4)
//! may take each other's term for their own. Each still commits by compare-and-set, so the order stays serial, but an
//! acknowledgement may go to the wrong one.

pub mod action;
pub mod admission;
pub mod balancer;
pub mod commands;
pub mod copying;
pub mod entry;
pub mod follower;
pub mod front;
mod history;
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
pub mod terms;
