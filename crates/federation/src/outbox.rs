//! The actions of one step of a node.

use punctual_units::Nanos;

use crate::action::{Action, Caller};
use crate::admission::Late;
use crate::ids::{NodeId, RequestId};
use crate::liveness::NODES_MAX;
use crate::master::{BATCH_MAX, QUEUE_MAX};
use crate::message::{Answer, Message, Reason, Reply, Report};
use crate::queries::QUERIES_MAX;
use crate::records::RETRY_AFTER;

/// Most actions of one step: an answer to every waiting request, a message to each peer, and a few of the node's own.
pub const ACTIONS_MAX: usize = QUEUE_MAX + BATCH_MAX + QUERIES_MAX + NODES_MAX + 8;

#[derive(Clone, Debug, Default)]
pub struct Outbox {
    actions: Vec<Action>,
    /// A node to which clients of late requests are sent.
    better: Option<NodeId>,
}

impl Outbox {
    /// An empty outbox; clients whose requests are late are sent to `better`.
    pub fn new(better: Option<NodeId>) -> Outbox {
        let actions = Vec::new();
        Outbox { actions, better }
    }

    pub fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Answers a request, through the node that passed it on if there is one.
    pub fn answer(&mut self, caller: Caller, id: RequestId, answer: Answer) {
        self.push(match caller {
            // The node's state is filled in at the end of the step.
            Caller::Client(client) => Action::Reply(
                client,
                Reply {
                    id,
                    answer,
                    said: Report::default(),
                },
            ),
            Caller::Node(node) => Action::Send(node, Message::Answered(id, answer)),
        });
    }

    /// Answers that a request was not executed.
    pub fn late(&mut self, caller: Caller, id: RequestId, reason: Reason, node: Option<NodeId>) {
        self.answer(caller, id, Answer::late(reason, node.or(self.better)));
    }

    /// Answers that a request was not admitted, or can no longer end in time.
    pub fn refuse(&mut self, caller: Caller, id: RequestId, late: Late) {
        let answer = Answer::Late {
            reason: late.reason,
            retry_after: late.retry_after,
            node: self.better,
        };
        self.answer(caller, id, answer);
    }

    /// All actions, in the order in which they were added, with the node's state on each reply.
    pub fn actions(mut self, now_said: Report) -> Vec<Action> {
        for action in &mut self.actions {
            if let Action::Reply(_, Reply { said, .. }) = action {
                *said = now_said;
            }
        }
        debug_assert!(
            self.actions.len() <= ACTIONS_MAX,
            "{} actions in a step",
            self.actions.len()
        );
        self.actions
    }
}

impl Answer {
    /// The answer that a request was not executed; `node` may be a better one.
    pub fn late(reason: Reason, node: Option<NodeId>) -> Answer {
        let retry_after = match reason {
            Reason::NoMaster if node.is_some() => Nanos::ZERO,
            _ => RETRY_AFTER,
        };
        Answer::Late {
            reason,
            retry_after,
            node,
        }
    }
}
