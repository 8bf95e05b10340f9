//! `punctual federation node`: one node as a process, for the one that started it. And what removes a run's files where
//! the run itself was killed.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, sync_channel};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use punctual_engines::lmdb::LmdbOptions;
use punctual_federation::admission::{Gate, Timely};
use punctual_federation::ids::{Boot, FederationId, Member, NodeId};
use punctual_federation::node::Setup;
use punctual_federation::replica::Replica;
use punctual_node::commands::INTERPRETER;
use punctual_node::conversation::TIME_LEFT;
use punctual_node::datagram::Multicast;
use punctual_node::process::{Access, Control, Listening, PeerAddress};
use punctual_node::seen::Seen;
use punctual_node::sensing::Temporal;
use punctual_os::LinuxOs;
use punctual_platform::linux::process;
use punctual_server::metrics::Page;
use punctual_store::engine::Durability;
use punctual_store::{Store, StoreOptions};
use punctual_units::Nanos;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::serve::raise_descriptors;
use crate::serve::zenoh::{self, ZenohFile};

/// Queries that a node's store answers at once.
pub(super) const EXECUTORS: usize = 2;
/// The most lines that wait to be told; what comes on top is not told.
const TOLD_MAX: usize = 1024;
/// How often, and how many times, the files of a run are tried to be removed: its nodes end within that.
const SWEEP_EVERY: Duration = Duration::from_millis(50);
const SWEEPS: usize = 200;

/// What a node is told first, as a line of JSON on its standard input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Begin {
    /// The process that starts it: it ends with that.
    pub parent: i32,
    pub node: NodeId,
    pub federation: FederationId,
    /// All nodes, this one included.
    pub nodes: Vec<NodeId>,
    /// The socket of the log.
    pub log: PathBuf,
    /// The address of an etcd: then the node itself serves that socket.
    pub etcd: Option<String>,
    /// The folder of its store.
    pub store: PathBuf,
    /// Where it listens; port 0 takes a free one.
    pub clients: SocketAddr,
    pub peers: SocketAddr,
    /// Where its figures are for Prometheus.
    pub metrics: SocketAddr,
    /// Whether these addresses are of a network that no other machine reaches.
    pub private: bool,
    pub log_entries_max: u64,
    pub store_bytes_max: u64,
    /// Where readings are told to all nodes at once, on this machine.
    pub multicast: Option<SocketAddrV4>,
    /// Readings from Zenoh.
    pub zenoh: Option<ZenohFile>,
    /// The processor time that each request takes, besides what it needs.
    pub work: Nanos,
}

/// What it is told after that, each as a line. The end of the input is the end of the node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Order {
    Peers(BTreeMap<NodeId, SocketAddr>),
    Leave,
}

/// What it tells, each as a line on its standard output.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Told {
    /// It listens.
    Listens {
        clients: SocketAddr,
        peers: SocketAddr,
        /// Its figures for Prometheus; a balancer has none.
        metrics: Option<SocketAddr>,
    },
    Seen(Seen),
}

/// Carries out `punctual federation node`.
pub(super) fn node() -> Result<(), Failure> {
    let input = |error: &dyn std::fmt::Display| Failure::input([error.to_string()]);
    raise_descriptors();
    let mut lines = BufReader::new(std::io::stdin()).lines();
    let first = lines.next().and_then(Result::ok).unwrap_or_default();
    let begin: Begin = serde_json::from_str(&first).map_err(|error| {
        input(&format!(
            "this is a part of `punctual federation run`, which tells it what to do: {error}"
        ))
    })?;
    process::die_with(begin.parent);
    process::leave_signals_to_parent();
    let access = Access {
        is_private: begin.private,
        ..Access::default()
    };
    let mut listening = Listening::bind(begin.clients, begin.peers, access).map_err(|error| input(&error))?;
    listening.work = begin.work;
    if let Some(group) = begin.multicast {
        let interface = Ipv4Addr::LOCALHOST;
        listening
            .join(Multicast { group, interface })
            .map_err(|error| input(&error))?;
    }
    let page = Page::bind(begin.metrics)
        .map_err(|error| input(&format!("{}: its figures cannot be there: {error}", begin.metrics)))?;
    let metrics = page.address().map_err(|error| input(&error))?;
    (listening.temporal, listening.page) = (temporal(), Some(page));
    let replica = open(&begin.store, begin.store_bytes_max).map_err(|error| input(&error))?;
    let zenoh = { begin.zenoh.as_ref() }.map(|zenoh| zenoh::start(zenoh, &mut listening));
    let zenoh = zenoh.transpose()?;
    let (clients, peers) = listening.addresses().map_err(|error| input(&error))?;

    let (tell, told) = sync_channel::<Told>(TOLD_MAX);
    let writing = thread::spawn(move || {
        for told in told {
            let Ok(mut line) = serde_json::to_string(&told) else {
                continue;
            };
            line.push('\n');
            let mut out = std::io::stdout().lock();
            if out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_err() {
                return; // the one that would read it has ended
            }
        }
    });
    // A line that does not fit is not told: the loop never waits for a reader.
    drop(tell.try_send(Told::Listens {
        clients,
        peers,
        metrics: Some(metrics),
    }));
    let (control, orders) = std::sync::mpsc::channel();
    let waker = listening.waker();
    thread::spawn(move || obey(lines, &control, &|| drop(waker.wake())));

    let setup = Setup {
        me: Member {
            node: begin.node,
            boot: Boot(RandomState::new().hash_one(std::process::id())),
        },
        federation: begin.federation,
        peers: begin.nodes,
        log_entries_max: begin.log_entries_max,
        executors: EXECUTORS,
        gate: Gate::Timely(Timely::new(TIME_LEFT).on_linux()),
    };
    let log = begin
        .etcd
        .as_deref()
        .map(|address| super::run::log_in_etcd(address, &begin.log));
    let log = log
        .transpose()
        .map_err(|error| input(&format!("node {}: {error}", begin.node)))?;
    let ended = {
        let tell = tell.clone();
        let tell = move |seen| drop(tell.try_send(Told::Seen(seen)));
        listening.run(&setup, begin.log, replica, LinuxOs, orders, tell)
    };
    // What takes longer ends with the process.
    zenoh.iter().for_each(|zenoh| _ = zenoh.close());
    drop((tell, log));
    drop(writing.join());
    ended.map_err(|error| input(&format!("node {}: {error}", begin.node)))
}

/// As `punctual serve` has them. Starts are counted by the time of day at least: a node that lost its store goes on.
pub(super) fn temporal() -> Temporal {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Temporal {
        boot: since.as_millis() as u64,
        ..Temporal::default()
    }
}

/// Carries out `punctual federation member`: becomes a member of etcd; why it could not.
pub(super) fn member(parent: i32, program: &Path, arguments: &[String]) -> Failure {
    process::die_with(parent);
    let error = std::process::Command::new(program).args(arguments).exec();
    Failure::input([format!("{}: cannot be started: {error}", program.display())])
}

/// What a store takes beyond twice its records: what is in the log must be applied, and a batch of many small changes
/// copies that many pages. It is address space until then.
const BEYOND_BYTES: usize = 512 << 20;

/// Each commit is on the medium but for the newest one, which the log has: what a power cut leaves is a state that was
/// committed.
pub(super) fn open(
    folder: &Path,
    bytes_max: u64,
) -> Result<Replica<punctual_engines::Lmdb, LinuxOs>, punctual_store::StoreError> {
    let engine = LmdbOptions {
        durability: Durability::NoMetaSync,
        quota: 2 * bytes_max as usize + BEYOND_BYTES,
        ..LmdbOptions::default()
    };
    let temporal = Temporal::default();
    let options = StoreOptions {
        replicated: true,
        created_max: temporal.objects_max,
        ..StoreOptions::default()
    };
    let store = Store::open(engine.open(folder)?, LinuxOs, options)?;
    let replica = Replica::new(store, temporal.validity).bounded(bytes_max);
    // The clock that persons set: no other one is the same on several machines.
    let clock = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    };
    replica.speaking(INTERPRETER, clock)
}

fn obey(lines: impl Iterator<Item = std::io::Result<String>>, control: &Sender<Control>, wake: &dyn Fn()) {
    for line in lines.map_while(Result::ok) {
        let control_of = |order| match order {
            Order::Peers(addresses) => {
                let peers = addresses
                    .into_iter()
                    .map(|(node, socket)| (node, PeerAddress::of(socket)));
                Control::Peers(peers.collect())
            }
            Order::Leave => Control::Leave,
        };
        // A line that is no order is of a newer program, and not for this one.
        if let Ok(order) = serde_json::from_str(&line)
            && control.send(control_of(order)).is_ok()
        {
            wake();
        }
    }
    if control.send(Control::End).is_ok() {
        wake();
    }
}

/// The beginning of the name of a run's folder.
pub(super) const FOLDER_PREFIX: &str = "punctual-federation-";

/// Any user may name any folder: only one of a run is removed, with nothing in it but a log and nodes' stores.
fn check_swept(folder: &Path) -> Result<(), Failure> {
    let begins = |name: Option<&std::ffi::OsStr>, with: &[&str]| {
        let name = name.map(|name| name.to_string_lossy()).unwrap_or_default();
        with.iter().any(|with| name.starts_with(with))
    };
    let is_ours = |entry: std::io::Result<std::fs::DirEntry>| {
        // What cannot be read is not removed either.
        entry.is_err() || entry.is_ok_and(|entry| begins(Some(&entry.file_name()), &["log", "node-"]))
    };
    let are_ours = std::fs::read_dir(folder).map_or(true, |mut entries| entries.all(is_ours));
    if begins(folder.file_name(), &[FOLDER_PREFIX]) && are_ours {
        return Ok(());
    }
    Err(Failure::input([format!(
        "{}: no folder of `punctual federation run`, which alone calls this: nothing was removed",
        folder.display()
    )]))
}

/// Waits until the process ends that holds the other end of the standard input, then removes its folder.
///
/// # Errors
/// Where that is no folder of a run: nothing is removed.
pub(super) fn sweep(folder: &Path) -> Result<(), Failure> {
    process::leave_signals_to_parent();
    // The kernel sends it to a process group that is stopped as its parent ends (_exit(2)), so that it goes on.
    process::pass_over(libc::SIGHUP);
    check_swept(folder)?;
    let mut nothing = String::new();
    while std::io::stdin()
        .lock()
        .read_line(&mut nothing)
        .is_ok_and(|count| count > 0)
    {
        nothing.clear();
    }
    for _ in 0..SWEEPS {
        // Where the run has ended in order, nothing is there.
        if !folder.exists() {
            return Ok(());
        }
        check_swept(folder)?;
        if std::fs::remove_dir_all(folder).is_ok() {
            return Ok(());
        }
        thread::sleep(SWEEP_EVERY);
    }
    Err(Failure::input([format!(
        "{}: could not be removed: remove it by hand",
        folder.display()
    )]))
}
