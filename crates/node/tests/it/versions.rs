//! A rolling upgrade: nodes of two adjacent versions are one federation, with a balancer of the newer one before them;
//! a node of two versions ago is refused, and its peers say so.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use punctual_engines::Memory;
use punctual_federation::admission::Gate;
use punctual_federation::balancer::Home;
use punctual_federation::ids::{Boot, FederationId, Member, NodeId};
use punctual_federation::node::Setup;
use punctual_federation::replica::Replica;
use punctual_logs::Memory as Log;
use punctual_logs::socket::{LogServer, SharedLog};
use punctual_node::process::balance::Balancing;
use punctual_node::process::{Access, Listening, NodeControl, PeerAddress};
use punctual_node::seen::What;
use punctual_node::wire::{OLDEST, VERSION};
use punctual_os::LinuxOs;
use punctual_server::net::Waker;
use punctual_store::{Store, StoreOptions};
use punctual_testing::wait_until;
use punctual_units::Nanos;

const VALIDITY: Nanos = Nanos::from_secs(1);

/// A node on a thread of this process, with an empty store.
struct RunningNode {
    clients: SocketAddr,
    peers: SocketAddr,
    control: Sender<NodeControl>,
    waker: Waker,
    notes: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl RunningNode {
    fn start(number: u32, boot: u64, versions: [u8; 2], socket: PathBuf) -> RunningNode {
        let any = "127.0.0.1:0".parse().unwrap();
        let access = Access {
            versions,
            ..Access::default()
        };
        let listening = Listening::bind(any, any, access).unwrap();
        let (clients, peers) = listening.addresses();
        let options = StoreOptions {
            replicated: true,
            ..StoreOptions::default()
        };
        let replica = Replica::new(Store::open(Memory::default(), LinuxOs, options).unwrap(), VALIDITY);
        let replica = replica.with_clock(|| 0).unwrap();
        let setup = Setup {
            me: Member {
                node: NodeId(number),
                boot: Boot(boot),
            },
            federation: FederationId(1),
            peers: vec![NodeId(0), NodeId(1)],
            log_entries_max: 10_000,
            executors: 1,
            gate: Gate::Open,
        };
        let (control, orders) = channel();
        let (waker, notes) = (listening.waker(), Arc::new(Mutex::new(Vec::new())));
        let noted = Arc::clone(&notes);
        let thread = thread::spawn(move || {
            let tell = move |notice: punctual_node::seen::TimedNotice| {
                if let What::Note(text) = notice.what {
                    noted.lock().unwrap().push(text);
                }
            };
            listening.run(&setup, socket, replica, LinuxOs, orders, tell).unwrap();
        });
        RunningNode {
            clients,
            peers,
            control,
            waker,
            notes,
            thread: Some(thread),
        }
    }

    fn finds(&self, peers: &BTreeMap<NodeId, PeerAddress>) {
        self.control.send(NodeControl::Peers(peers.clone())).unwrap();
        (self.waker)();
    }

    fn says(&self, request: &str) -> String {
        said(self.clients, request)
    }
}

impl Drop for RunningNode {
    fn drop(&mut self) {
        drop(self.control.send(NodeControl::End));
        (self.waker)();
        self.thread.take().map(JoinHandle::join);
    }
}

/// The reply to a request, on a connection of its own; of a long one, all of it.
fn said(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(format!("{request}\r\nQUIT\r\n").as_bytes()).unwrap();
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    lines.take_while(|line| line != "+OK").collect::<Vec<_>>().join("\n")
}

/// Two nodes behind a balancer of this version.
struct Federation {
    nodes: [Option<RunningNode>; 2],
    socket: PathBuf,
    boots: u64,
    balancer: SocketAddr,
    addresses: Sender<BTreeMap<u32, PeerAddress>>,
    ends: Arc<AtomicBool>,
    waker: Waker,
    balancing: Option<JoinHandle<()>>,
    count: u64,
}

impl Federation {
    fn new(socket: &Path) -> Federation {
        let balancing = Balancing::bind("127.0.0.1:0".parse().unwrap(), Access::default()).unwrap();
        let (balancer, waker) = (balancing.address(), balancing.waker());
        let (addresses, found): (_, Receiver<_>) = channel();
        let ends = Arc::new(AtomicBool::new(false));
        let is_to_end = Arc::clone(&ends);
        let thread = thread::spawn(move || {
            let home = Box::new(Home::default());
            balancing.run(found, home, 9, LinuxOs, &is_to_end, drop).unwrap();
        });
        Federation {
            nodes: [None, None],
            socket: socket.to_path_buf(),
            boots: 0,
            balancer,
            addresses,
            ends,
            waker,
            balancing: Some(thread),
            count: 0,
        }
    }

    /// Ends a node, and starts another one of these versions in its place.
    fn replace(&mut self, number: usize, versions: [u8; 2]) {
        self.nodes[number] = None;
        self.boots += 1;
        let node = RunningNode::start(number as u32, self.boots, versions, self.socket.clone());
        self.nodes[number] = Some(node);
        let places = self.nodes.iter().enumerate();
        let places = places.filter_map(|(at, node)| Some((at as u32, PeerAddress::of(node.as_ref()?.peers))));
        let places: BTreeMap<u32, PeerAddress> = places.collect();
        let peers = places
            .iter()
            .map(|(at, address)| (NodeId(*at), address.clone()))
            .collect();
        self.nodes.iter().flatten().for_each(|node| node.finds(&peers));
        self.addresses.send(places).unwrap();
        (self.waker)();
    }

    fn node(&self, number: usize) -> &RunningNode {
        self.nodes[number].as_ref().unwrap()
    }

    /// A transaction through the balancer is executed, and both nodes have it.
    fn works(&mut self) {
        self.count += 1;
        let wanted = self.count.to_string();
        wait_until("the balancer sets a key", || {
            said(self.balancer, &format!("DEADLINE 5000 SET count {wanted}")).is_empty()
                && said(self.balancer, "GET count").ends_with(&format!("\n{wanted}"))
        });
        for number in 0..2 {
            wait_until("both nodes serve what was set", || {
                let node = self.node(number);
                let info = node.says("INFO federation");
                info.contains("standing:serving") && node.says("GET count").ends_with(&format!("\n{wanted}"))
            });
        }
    }
}

impl Drop for Federation {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        (self.waker)();
        self.balancing.take().map(JoinHandle::join);
    }
}

#[test]
fn a_federation_is_upgraded_node_by_node() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("log");
    let log = SharedLog::new(Log::default());
    let _log = LogServer::start(&socket, move || Some(log.clone())).unwrap();
    let mut federation = Federation::new(&socket);
    let (former, present) = ([OLDEST; 2], [OLDEST, VERSION]);
    federation.replace(0, former);
    federation.replace(1, former);
    federation.works();
    for number in [1, 0] {
        federation.replace(number, present);
        federation.works();
    }
    // One of two versions ago is heard by no node, and its peer says why.
    federation.replace(1, [OLDEST - 1; 2]);
    wait_until("a node notes the version", || {
        let notes = federation.node(0).notes.lock().unwrap();
        notes
            .iter()
            .any(|note| note.contains("the other side speaks version 3, this program version 5 and down to 4"))
    });
    federation.replace(1, present);
    federation.works();
}
