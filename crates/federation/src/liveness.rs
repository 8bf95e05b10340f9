//! Which nodes live, as far as heartbeats tell.
//!
//! Safety does not depend on any of this: a node that is taken for dead although it lives costs a change of masters,
//! and the log sees to it that the former master commits nothing more. So suspicion may be quick.

use std::collections::BTreeMap;

use punctual_units::{Nanos, Time};

use crate::ids::{Member, NodeId, Revision};
use crate::message::{Heartbeat, Standing};

/// How often a node tells its peers that it lives.
pub const HEARTBEAT: Nanos = Nanos::from_millis(50);
/// How many heartbeats in a row are missed before a node is suspected.
pub const MISSES: u64 = 4;
/// The silence after which a node is suspected.
pub const SUSPECT_AFTER: Nanos = Nanos(HEARTBEAT.0 * MISSES);
/// The most nodes of a federation; heartbeats of more are not heard.
pub const NODES_MAX: usize = 64;
/// A node that is silent for as long is forgotten, unless it is in the configuration.
pub const FORGET_AFTER: Nanos = Nanos::from_secs(60);

#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    configured: bool,
    /// The last heartbeat and when it came; `None` since a reset.
    heard: Option<(Heartbeat, Time)>,
}

/// What became of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It counts.
    Taken,
    /// Another process goes by that name: this one should be told.
    NameTaken,
    /// There are [`NODES_MAX`] nodes already.
    TooMany,
}

/// What one node knows of its peers.
#[derive(Clone, Debug)]
pub struct Liveness {
    me: NodeId,
    peers: BTreeMap<NodeId, Peer>,
}

impl Liveness {
    /// A node that is to look for `peers`.
    pub fn new(me: NodeId, peers: &[NodeId]) -> Liveness {
        let configured = Peer {
            configured: true,
            heard: None,
        };
        let others = peers.iter().filter(|peer| **peer != me).take(NODES_MAX);
        Liveness {
            me,
            peers: others.map(|peer| (*peer, configured)).collect(),
        }
    }

    /// Takes a heartbeat.
    pub fn heard(&mut self, heartbeat: Heartbeat, now: Time) -> Heard {
        let Member { node, boot } = heartbeat.from;
        if node == self.me {
            return Heard::Taken; // another process by our own name: peers decide between the two
        }
        self.peers
            .retain(|_, peer| peer.configured || peer.heard.is_some_and(|(_, at)| now.since(at) < FORGET_AFTER));
        if !self.peers.contains_key(&node) && self.peers.len() >= NODES_MAX {
            return Heard::TooMany;
        }
        let peer = self.peers.entry(node).or_default();
        match peer.heard {
            Some((before, at)) if before.from.boot != boot && now.since(at) < SUSPECT_AFTER => Heard::NameTaken,
            _ => {
                peer.heard = Some((heartbeat, now));
                Heard::Taken
            }
        }
    }

    /// The connection to a peer was reset: it is suspected at once.
    pub fn reset(&mut self, node: NodeId) {
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.heard = None;
        }
    }

    /// The nodes to send heartbeats to.
    pub fn peers(&self) -> impl Iterator<Item = NodeId> {
        self.peers.keys().copied()
    }

    /// The last heartbeats of the nodes that are not suspected.
    pub fn live(&self, now: Time) -> impl Iterator<Item = &Heartbeat> {
        let recent = move |peer: &'_ Peer| peer.heard.is_some_and(|(_, at)| now.since(at) < SUSPECT_AFTER);
        let live = self.peers.values().filter(move |peer| recent(peer));
        live.filter_map(|peer| peer.heard.as_ref().map(|(heartbeat, _)| heartbeat))
    }

    /// Whether this very process is heard and may reign.
    pub fn counts_on(&self, member: Member, now: Time) -> bool {
        self.live(now).any(|peer| peer.from == member && peer.may_reign())
    }

    /// A node that takes requests, the most applied one.
    pub fn serving(&self, now: Time) -> Option<NodeId> {
        let serving = self.live(now).filter(|peer| peer.said.standing == Standing::Serving);
        serving.max_by_key(|peer| peer.applied).map(|peer| peer.from.node)
    }

    /// How many nodes should take over before one that has applied the log up to `applied`: those that have applied
    /// more, and of equals those of lower numbers.
    pub fn rank(&self, applied: Revision, now: Time) -> u64 {
        let first = |peer: &&Heartbeat| {
            peer.serves() && (peer.applied > applied || (peer.applied == applied && peer.from.node < self.me))
        };
        self.live(now).filter(first).count() as u64
    }

    /// The least revision that all live nodes have on disk; `None` where none lives.
    pub fn durable(&self, now: Time) -> Option<Revision> {
        self.live(now).map(|peer| peer.durable).min()
    }

    /// The node to copy from: a slave rather than the master, the most applied one, but not `except`.
    pub fn source(&self, except: Option<NodeId>, now: Time) -> Option<NodeId> {
        let whole = self.live(now).filter(|peer| peer.said.standing != Standing::Copying);
        let others = whole.filter(|peer| Some(peer.from.node) != except);
        let best = others.max_by_key(|peer| (!peer.master, peer.applied));
        best.map(|peer| peer.from.node)
    }
}
