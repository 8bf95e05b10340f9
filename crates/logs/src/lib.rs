//! Where does a federation keep the order of its commits? In one log that is appended to by compare-and-set.
//!
//! **Problem.** Nodes that take each other for dead must not both commit. A lease or a clock cannot prevent that: a
//! node may stop between its look at the clock and its write.
//!
//! **Method.** One log is both the order and the fence. An append names the revision at which the log is expected to
//! end, and is refused if it ends at another. So of two nodes that append at one revision, one succeeds.
//!
//! **A history** is a log from its making on. A federation that has lost its log begins another one from a backup, and
//! revisions of both are alike. So each log has a number of its own ([`LogHistory`]), however far it is trimmed.
//!
//! **A missing answer is an answer.** Calls go over a network. An append without an answer ([`LogError::NoAnswer`]) is
//! neither done nor failed: it may be in the log, or arrive there later. The caller learns which from a read, as soon
//! as the log has moved on; until then it may only append the same entry at the same revision again.
//!
//! ```
//! use punctual_logs::{AppendResult, CommitLog, FORMAT, FederationId, LogHistory, Identity, Memory, Revision};
//! let mut log = Memory::default();
//! log.open(Identity { federation: FederationId(7), format: FORMAT, history: LogHistory::default() })?;
//! assert_eq!(log.append(Revision::ZERO, b"first")?, AppendResult::At(Revision(1)));
//! // Another node that has not seen it loses the race.
//! assert_eq!(log.append(Revision::ZERO, b"other")?, AppendResult::Lost { last: Revision(1) });
//! # Ok::<(), punctual_logs::LogError>(())
//! ```
//!
//! [`Memory`] is the reference, [`Local`] is a file of one machine, `socket` lends a log to other processes, `Etcd` is
//! replicated (feature `etcd`). All pass one suite (`tests/it/suite.rs`), also behind a network that loses, delays and
//! repeats calls.

#[cfg(all(feature = "etcd", target_os = "linux"))]
pub mod etcd;
pub mod frame;
pub mod local;
mod log;
mod memory;
mod revision;
#[cfg(target_os = "linux")]
pub mod socket;

#[cfg(all(feature = "etcd", target_os = "linux"))]
pub use etcd::Etcd;
pub use local::{Local, LocalError};
pub use log::{AppendResult, CommitLog, ENTRY_BYTES_MAX, FORMAT, Identity, LogError, LogRecord, LogState, Stretch};
pub use memory::Memory;
pub use revision::{FederationId, HistoryId, LogHistory, Revision};
