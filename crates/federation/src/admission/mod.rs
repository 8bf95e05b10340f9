//! Admission of requests on a node: those that it can answer in time; it refuses the others at once.
//!
//! **Problem.** A node that takes every request answers none in time once more come than it can serve: all of them wait
//! in one queue, and each is late. A client that is refused at once can go elsewhere, or wait on purpose.
//!
//! **Terms.** An *item* is one data item that a request reads or writes; how many there will be is known before the
//! request runs. The *backlog* of a node is the items of all requests that it has admitted and not finished. The *cost*
//! is the time that one executor takes for one item. A *forecast* is how long a request will take from now to its end.
//! d, the *bound*, is the backlog up to which a node admits.
//!
//! **Method.** An [`Intake`] stands before the executors of a node. Its [`Gate`] judges each request, and its queue has
//! a [`ServiceOrder`].
//!
//! - [`Gate::Open`] knows no deadlines. The baselines of the paper have no admission. Chronos-C (Y. Zhou and K.-D.
//!   Kang, "A Federated Approach for Increasing the Timely Throughput of Real-Time Data Services", 2012) is this gate
//!   and a control law that moves d once a second so that the *mean* delay is the target: `punctual_loop::backlog`.
//! - [`Gate::Dropping`] drops expired requests. With d chosen by hand, a careful engineer would do the same.
//! - [`Gate::Timely`] is this project's: each request is forecast, and admitted if it ends in time by a learned margin
//!   ([`timely`]).
//!
//! d is one of the loop's knobs, whatever the gate is: a [`BacklogMachine`] offers it.
//!
//! A refusal is a value, [`Late`]. The client gets it before the deadline of the request; it means that the request was
//! not executed and will not be.
//!
//! ```
//! use punctual_federation::admission::{Ask, Gate, Intake, Reason, ServiceOrder, Timely};
//! use punctual_federation::ids::NodeId;
//! use punctual_units::{Nanos, Time};
//!
//! // One executor that takes 1 ms an item; requests of 100 items with a second each.
//! let gate = Gate::Timely(Timely::new(Nanos::from_secs(1)));
//! let mut intake = Intake::new(NodeId(1), 1, Nanos::from_millis(1), gate, ServiceOrder::Deadline);
//! let mut admitted = 0;
//! let late = loop {
//!     let ask = Ask { items: 100, deadline: Time(1_000_000_000) };
//!     match intake.judge(ask, Time(0)) {
//!         Ok(forecast) => intake.enter(ask, forecast, admitted, Time(0)),
//!         Err(late) => break late,
//!     }
//!     intake.start(Time(0), 0);
//!     admitted += 1;
//! };
//! assert_eq!(late.reason, Reason::Backlog);
//! assert!((3..10).contains(&admitted) && late.retry_after > Nanos::ZERO);
//! ```

pub mod bound;
mod cost;
mod intake;
mod machine;
mod queue;
pub mod timely;

use std::fmt;

use punctual_units::{Nanos, Time};
use serde::{Deserialize, Serialize};

use crate::ids::NodeId;

pub use intake::{BacklogReport, EndedRequest, Intake, Start};
pub use machine::{BACKLOG_MAX, BacklogMachine};
pub use queue::{QUEUE_MAX, ServiceOrder};
pub use timely::Timely;

/// A request as admission sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Data items that it will read or write, estimated before it runs.
    pub items: u32,
    /// The instant by which the client must have its answer.
    pub deadline: Time,
}

/// A refusal: the request was not executed, and the client is answered before the deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Late {
    pub reason: Reason,
    /// Time after which the same request would probably be admitted here.
    pub retry_after: Nanos,
    /// The node that refuses.
    pub node: NodeId,
}

punctual_units::named! {
    /// Reason for a refusal.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Reason by name {
        /// The admitted requests leave too little time.
        Backlog = "backlog",
        /// The request was admitted, and can no longer end in time; or its deadline had passed when it came.
        Expired = "expired",
        /// There is no master for the transaction at present, or no node that serves at all.
        NoMaster = "no-master",
    }
}

impl fmt::Display for Late {
    /// As in the protocol: `late reason=backlog retry_after=12ms node=3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Late {
            reason,
            retry_after,
            node,
        } = self;
        // Rounded up: a client that comes back too early is refused again.
        let millis = retry_after.0.div_ceil(1_000_000);
        write!(f, "late reason={reason} retry_after={millis}ms node={node}")
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

punctual_units::named! {
    /// Admission of a node, by its name in files and options.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum AdmissionKind by name {
        /// Every request that the queue has room for.
        Open = "open",
        /// Every request within a bound of the backlog that Chronos-C's control law sets.
        Paper = "paper",
        /// Requests whose forecast ends in time.
        #[default]
        Timely = "timely",
    }
}

impl AdmissionKind {
    /// The gate of a node with this admission. [`AdmissionKind::Paper`] needs the law besides, which sets the bound;
    /// `timely` is the forecast's, for a machine or a simulated one.
    pub fn gate(self, timely: Timely) -> Gate {
        match self {
            AdmissionKind::Open | AdmissionKind::Paper => Gate::Open,
            AdmissionKind::Timely => Gate::Timely(timely),
        }
    }
}

/// The rule that admits a request, besides the bound of the backlog.
#[derive(Clone, Debug, PartialEq)]
pub enum Gate {
    /// Admits everything that the queue has room for.
    Open,
    /// As `Open`, and drops requests that can no longer end in time.
    Dropping,
    /// Admits requests whose forecast ends in time; drops requests that can no longer end in time.
    Timely(Timely),
}
