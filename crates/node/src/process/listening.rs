//! A node before and after its loop: binds its sockets, starts its threads, runs the loop, and ends.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

use punctual_federation::action::Event;
use punctual_federation::message::Stop;
use punctual_federation::node::{Node, Setup};
use punctual_federation::replica::Replica;
use punctual_os::Os;
use punctual_platform::Machine;
use punctual_server::listening::{Listening as ClientListening, ServeError};
use punctual_server::metrics::{Page, PublishedFigures};
use punctual_server::net::{Net, Waker};
use punctual_server::tasks::Tasks;
use punctual_store::StoreError;
use punctual_store::engine::Engine;
use punctual_units::Nanos;

use super::claim::ProcessorClaim;
use super::clients::{self, Clients};
use super::lane::RequestLane;
use super::log::LogLinks;
use super::peers::Peers;
use super::reports::LastReport;
use super::requests::Requests;
use super::temporal::TemporalObjects;
use super::{Access, BoundControl, NodeControl, NodeLoop, PEERS, Process};
use crate::bound::{Bound, DelayTarget, Outcome};
use crate::figures::Figures;
use crate::own::OwnReading;
use crate::seen::{TimedNotice, What};
use crate::sensing::Temporal;
use crate::stores::{ExtraCost, Failed, Stores};
use crate::wire::Packet;

/// The reason for which a node did not start, or has stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// An address cannot be bound, or the system refused another call.
    #[error(transparent)]
    System(#[from] ServeError),
    /// Without TLS between nodes, other machines could take part as nodes.
    #[error(
        "{0}: without TLS between nodes, any machine that reaches this address could take part as a node: add \
         [federation.tls] to the node's file, or have nodes listen on 127.0.0.1 or [::1]"
    )]
    OpenToPeers(SocketAddr),
    /// The store returned an error at the start.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A task of the store has failed.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// The state machine has stopped the node.
    #[error(transparent)]
    Stopped(#[from] Stop),
}

/// The bound sockets and the settings of a node that does not run yet.
#[derive(Debug)]
pub struct Listening {
    clients: ClientListening,
    peers: SocketAddr,
    access: Access,
    /// Cost of requests beside what they need: none, except for a load of a given size.
    pub extra: ExtraCost,
    /// Settings of temporal objects; the number of this start is at least `boot`.
    pub temporal: Temporal,
    /// The page of figures for Prometheus, if there is one.
    pub page: Option<Page>,
    /// Target of the control law that sets the backlog's bound, and where its model and decisions are left.
    pub bound: Option<(DelayTarget, Arc<Mutex<Outcome>>)>,
    /// Figures of tasks in this process, if there are any; shown with the node's own.
    pub tasks: Option<Arc<Tasks>>,
    /// Objects that tasks of this process set; the loop takes their values whenever it wakes, at each heartbeat at the
    /// latest.
    pub own: Vec<Arc<OwnReading>>,
}

impl Listening {
    /// Binds two addresses of this machine, for clients and for peers; port 0 takes a free one.
    ///
    /// # Errors
    /// Any [`NodeError`], as for a port in use.
    pub fn bind(clients: SocketAddr, peers: SocketAddr, access: Access) -> Result<Listening, NodeError> {
        Listening::on(None, clients, peers, access)
    }

    /// As [`bind`](Listening::bind), on a network of the caller's in place of the system's.
    ///
    /// # Errors
    /// Those of [`bind`](Listening::bind).
    pub fn on(
        net: Option<Box<dyn Net>>,
        clients: SocketAddr,
        peers: SocketAddr,
        access: Access,
    ) -> Result<Listening, NodeError> {
        let mut clients = access.listen(net, clients)?;
        access.check_peers(peers)?;
        let peers = clients.beside(peers, PEERS)?;
        Ok(Listening {
            clients,
            peers,
            access,
            extra: ExtraCost::default(),
            temporal: Temporal::default(),
            page: None,
            bound: None,
            tasks: None,
            own: Vec::new(),
        })
    }

    /// The addresses for clients and for peers, with the ports that were taken.
    pub fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.clients.address(), self.peers)
    }

    /// Has the loop look at its [`NodeControl`].
    pub fn waker(&self) -> Waker {
        self.clients.waker()
    }

    /// Runs a node until it is ended, has left, or must stop. `tell` gets the notices, and must not wait.
    ///
    /// # Errors
    /// The reason for which the node had to stop.
    pub fn run<E: Engine + 'static, O: Os>(
        self,
        setup: &Setup,
        log: PathBuf,
        replica: impl Into<Arc<Replica<E, O>>>,
        os: O,
        control: Receiver<NodeControl>,
        tell: impl FnMut(TimedNotice),
    ) -> Result<(), NodeError> {
        let mut turned = self.event_loop(setup, log, replica, os, control, tell)?;
        loop {
            if let Some(end) = turned.turn(turned.wait()) {
                return end;
            }
        }
    }

    /// Makes the event loop, before its first turn, and the threads that call the store; as [`run`](Listening::run).
    ///
    /// # Errors
    /// The node could not begin.
    pub fn event_loop<E: Engine + 'static, O: Os, T: FnMut(TimedNotice)>(
        self,
        setup: &Setup,
        log: PathBuf,
        replica: impl Into<Arc<Replica<E, O>>>,
        os: O,
        control: Receiver<NodeControl>,
        tell: T,
    ) -> Result<NodeLoop<E, O, T>, NodeError> {
        let replica = replica.into();
        let temporal = Temporal {
            boot: replica.count_boot(self.temporal.boot)?,
            ..self.temporal
        };
        let stores = Stores::start(&replica, &os, setup.executors, self.extra, &self.waker())
            .map_err(ServeError::of("the store's threads"))?;
        let (now, address) = (os.now(), self.clients.address());
        let (door, net) = clients::open(self.clients, &self.access, &os)?;
        let mut node = Node::new(setup, replica.revision(), replica.upto(), replica.reign()?, now);
        let turned = self.bound.map(|(asked, outcome)| BoundControl {
            bound: Bound::new(asked, node.machine(now).offers(), now),
            cpu: Nanos::ZERO,
            outcome,
        });
        let me = setup.me;
        let hello = Packet::Hello {
            federation: setup.federation,
            from: me,
            clients: address,
        };
        let page =
            PublishedFigures::serve(self.page, Figures::metrics).map_err(ServeError::of("the thread for figures"))?;
        let mut process = Process {
            net,
            access: self.access,
            clients: Clients::new(setup.me.boot.0),
            peers: Peers::new(hello),
            log: LogLinks::new(log, setup, replica.revision()),
            setup: setup.clone(),
            node,
            os,
            stores,
            requests: Requests::default(),
            events: VecDeque::from([Event::Wake]),
            lane: RequestLane::default(),
            control,
            last_report: LastReport::default(),
            left: None,
            ends: None,
            scratch: Vec::new(),
            replica,
            objects: TemporalObjects::new(me, temporal, self.own),
            applying: None,
            started: now,
            page,
            turned,
            tasks: self.tasks,
            tell,
        };
        // Last, because threads inherit it that this one starts.
        let (claim, refused) = ProcessorClaim::take(&process.os);
        if let Some(refusal) = refused {
            process.seen(What::Ordinary(refusal.to_string()));
        }
        process.carry_on();
        let looked = process.os.now();
        Ok(NodeLoop {
            process,
            door,
            claim,
            ready: Vec::new(),
            looked,
        })
    }
}
