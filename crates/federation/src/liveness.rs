//! The live nodes, as far as heartbeats show.
//!
//! Safety does not depend on any of this: if a live node is taken for dead, that costs a change of masters, and the log
//! ensures that the former master commits nothing more. So suspicion may be quick.

use std::collections::BTreeMap;

use punctual_units::{Nanos, Time};

use crate::ids::{Member, NodeId, Revision};
use crate::message::{Heartbeat, Standing};

/// Interval of a node's heartbeats to its peers.
pub const HEARTBEAT: Nanos = Nanos::from_millis(50);
/// Heartbeats missed in a row before a node is suspected.
pub const MISSES: u64 = 4;
/// Silence after which a node is suspected.
pub const SUSPECT_AFTER: Nanos = Nanos(HEARTBEAT.0 * MISSES);
/// A node whose own steps are further apart than this was starved: it is to step with each heartbeat of its own.
pub const STARVED_AFTER: Nanos = Nanos(HEARTBEAT.0 * 2);
/// Most time in which the node did not run that is excused since another was heard, beyond the first such time.
pub const EXCUSE_MAX: Nanos = Nanos::from_secs(1);
/// Most nodes of a federation; heartbeats of further ones are ignored.
pub const NODES_MAX: usize = 64;
/// Silence after which a node is forgotten, unless it is in the configuration.
pub const FORGET_AFTER: Nanos = Nanos::from_secs(60);

/// Time in which this node did not run, and which is no silence of the other one, since that was heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excuse(pub Nanos);

impl Excuse {
    /// Excuses one more such time. The first one may be of any length: what came meanwhile is read next. Further ones
    /// come to at most [`EXCUSE_MAX`], so that a node that is starved again and again suspects a dead one as well.
    pub fn add(&mut self, span: Nanos) {
        if self.0 == Nanos::ZERO || self.0 + span <= EXCUSE_MAX {
            self.0 += span;
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    configured: bool,
    /// The last heartbeat and its arrival; `None` since a reset.
    heard: Option<(Heartbeat, Time)>,
    excuse: Excuse,
}

impl Peer {
    /// Whether a heartbeat came less than `span` ago, while this node ran.
    fn heard_within(&self, span: Nanos, now: Time) -> bool {
        self.heard.is_some_and(|(_, at)| now.since(at + self.excuse.0) < span)
    }
}

/// The result of taking a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeartbeatOutcome {
    Taken,
    /// Another process uses the same number: the sender should be notified.
    NameTaken,
    /// There are [`NODES_MAX`] nodes already.
    TooMany,
}

/// A node's knowledge about its peers.
#[derive(Clone, Debug)]
pub struct Liveness {
    me: NodeId,
    peers: BTreeMap<NodeId, Peer>,
}

impl Liveness {
    /// Knowledge of the node `me`, which expects heartbeats of `peers`.
    pub fn new(me: NodeId, peers: &[NodeId]) -> Liveness {
        let configured = Peer {
            configured: true,
            ..Peer::default()
        };
        let others = peers.iter().filter(|peer| **peer != me).take(NODES_MAX);
        Liveness {
            me,
            peers: others.map(|peer| (*peer, configured)).collect(),
        }
    }

    /// Notes a heartbeat that arrived at `now`.
    pub fn heard(&mut self, heartbeat: Heartbeat, now: Time) -> HeartbeatOutcome {
        let Member { node, boot } = heartbeat.from;
        if node == self.me {
            return HeartbeatOutcome::Taken; // another process with this node's number: peers decide between the two
        }
        self.peers
            .retain(|_, peer| peer.configured || peer.heard_within(FORGET_AFTER, now));
        if !self.peers.contains_key(&node) && self.peers.len() >= NODES_MAX {
            return HeartbeatOutcome::TooMany;
        }
        let peer = self.peers.entry(node).or_default();
        match peer.heard {
            // Two processes with one number are both heard: no time is excused.
            Some((before, at)) if before.from.boot != boot && now.since(at) < SUSPECT_AFTER => {
                HeartbeatOutcome::NameTaken
            }
            _ => {
                peer.heard = Some((heartbeat, now));
                peer.excuse = Excuse::default();
                HeartbeatOutcome::Taken
            }
        }
    }

    /// Does not count `span`, for which this node itself did not run, as silence of its peers.
    pub fn excuse(&mut self, span: Nanos) {
        self.peers.values_mut().for_each(|peer| peer.excuse.add(span));
    }

    /// Notes that the connection to a peer was reset: the peer is suspected at once.
    pub fn reset(&mut self, node: NodeId) {
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.heard = None;
        }
    }

    /// The nodes to which heartbeats are sent.
    pub fn peers(&self) -> impl Iterator<Item = NodeId> {
        self.peers.keys().copied()
    }

    /// The last heartbeats of the nodes that are not suspected.
    pub fn live(&self, now: Time) -> impl Iterator<Item = &Heartbeat> {
        let live = self
            .peers
            .values()
            .filter(move |peer| peer.heard_within(SUSPECT_AFTER, now));
        live.filter_map(|peer| peer.heard.as_ref().map(|(heartbeat, _)| heartbeat))
    }

    /// Whether this very process is alive and may stay master.
    pub fn counts_on(&self, member: Member, now: Time) -> bool {
        self.live(now).any(|peer| peer.from == member && peer.may_reign())
    }

    /// Whether the master is alive, and would stay if the log answered it.
    pub fn waits_for_log(&self, master: Option<Member>, now: Time) -> bool {
        self.live(now)
            .any(|peer| Some(peer.from) == master && peer.serves() && peer.said.log_silent)
    }

    /// The live node that takes requests and has applied the most; `None` if no node serves.
    pub fn serving(&self, now: Time) -> Option<NodeId> {
        let serving = self.live(now).filter(|peer| peer.said.standing == Standing::Serving);
        serving.max_by_key(|peer| peer.applied).map(|peer| peer.from.node)
    }

    /// Number of nodes that should take over before one that has applied the log up to `applied`: those that have
    /// applied more, and of equals those with lower numbers.
    pub fn rank(&self, applied: Revision, now: Time) -> u64 {
        let first = |peer: &&Heartbeat| {
            peer.serves() && (peer.applied > applied || (peer.applied == applied && peer.from.node < self.me))
        };
        self.live(now).filter(first).count() as u64
    }

    /// The lowest of the revisions that live nodes have on disk; `None` if no node is alive.
    pub fn durable(&self, now: Time) -> Option<Revision> {
        self.live(now).map(|peer| peer.durable).min()
    }

    /// The node to copy from: a replica rather than the master, the one that has applied the most, but not `except`.
    pub fn source(&self, except: Option<NodeId>, now: Time) -> Option<NodeId> {
        let whole = self.live(now).filter(|peer| peer.said.standing != Standing::Copying);
        let others = whole.filter(|peer| Some(peer.from.node) != except);
        let best = others.max_by_key(|peer| (!peer.master, peer.applied));
        best.map(|peer| peer.from.node)
    }
}
