//! `punctual process node`: one node as a process, for its parent. And `process sweep`, which removes a run's
//! files if the run itself was killed.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, sync_channel};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use punctual_engines::lmdb::LmdbOptions;
use punctual_federation::admission::{AdmissionKind, Timely};
use punctual_federation::ids::{Boot, FederationId, Member, NodeId};
use punctual_federation::node::Setup;
use punctual_federation::replica::Replica;
use punctual_node::conversation::TIME_LEFT;
use punctual_node::process::{Access, Listening, NodeControl, PeerAddress};
use punctual_node::seen::TimedNotice;
use punctual_node::sensing::Temporal;
use punctual_node::stores::ExtraCost;
use punctual_os::LinuxOs;
use punctual_platform::linux::process;
use punctual_server::metrics::Page;
use punctual_store::engine::Durability;
use punctual_store::{Store, StoreOptions};
use punctual_units::Nanos;
use serde::{Deserialize, Serialize};

use super::backlog::Turns;
use crate::serve::raise_descriptors;
use punctual_files::failure::Failure;
use punctual_files::node::BacklogFile;

/// Queries that a node's store executes at the same time.
const EXECUTORS: usize = 2;
/// Capacity of the queue of lines to print; lines beyond it are dropped.
const TOLD_MAX: usize = 1024;
/// Interval and number of attempts to remove a run's files: its nodes end within that time.
const SWEEP_EVERY: Duration = Duration::from_millis(50);
const SWEEPS: usize = 200;

/// First line on a node's standard input, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Begin {
    /// Process id of the parent; the node ends with it.
    pub parent: i32,
    pub node: NodeId,
    pub federation: FederationId,
    /// All nodes, including this one.
    pub nodes: Vec<NodeId>,
    /// Socket of the log.
    pub log: PathBuf,
    /// Address of an etcd; if given, the node itself serves the log's socket.
    pub etcd: Option<String>,
    /// Folder of the store.
    pub store: PathBuf,
    /// Addresses to listen on; port 0 takes a free port.
    pub clients: SocketAddr,
    pub peers: SocketAddr,
    /// Address of the metrics for Prometheus.
    pub metrics: SocketAddr,
    /// Whether these addresses belong to a network that no other machine reaches.
    pub private: bool,
    pub log_entries_max: u64,
    pub store_bytes_max: u64,
    /// Age up to which a reading counts as fresh, and the most temporal objects.
    pub validity: Nanos,
    pub objects_max: usize,
    /// Processor time that each request takes in addition to its own cost.
    pub work: Nanos,
    /// Time for which each item of a query keeps its thread.
    pub item: Nanos,
    pub admission: AdmissionKind,
    /// Control of the backlog's bound.
    pub backlog: Option<BacklogFile>,
}

/// Later lines on a node's standard input. The end of the input ends the node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Order {
    Peers(BTreeMap<NodeId, SocketAddr>),
    Leave,
}

/// Lines on a node's standard output.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum NodeLine {
    /// The node listens at these addresses.
    Listens {
        clients: SocketAddr,
        peers: SocketAddr,
        /// Address of the metrics for Prometheus; `None` for a balancer.
        metrics: Option<SocketAddr>,
    },
    Seen(TimedNotice),
}

impl NodeLine {
    /// Prints the line for the parent process.
    pub(super) fn print(&self) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(self)?)?;
        out.flush()
    }
}

/// Setup of the state machine of node `me` in a federation of `peers`, which include it.
pub(super) fn setup(
    (me, federation): (NodeId, FederationId),
    peers: Vec<NodeId>,
    log_entries_max: u64,
    admission: AdmissionKind,
) -> Setup {
    Setup {
        me: Member {
            node: me,
            boot: Boot(RandomState::new().hash_one(std::process::id())),
        },
        federation,
        peers,
        log_entries_max,
        executors: EXECUTORS,
        gate: admission.gate(Timely::new(TIME_LEFT).on_linux()),
    }
}

/// Carries out `punctual process node`.
pub(super) fn node() -> Result<(), Failure> {
    raise_descriptors();
    let mut lines = BufReader::new(std::io::stdin()).lines();
    let first = lines.next().and_then(Result::ok).unwrap_or_default();
    let begin: Begin = serde_json::from_str(&first).map_err(|error| {
        Failure::of(format!(
            "this is a part of `punctual cluster run`, which tells it what to do: {error}"
        ))
    })?;
    process::die_with(begin.parent);
    process::leave_signals_to_parent();
    let access = Access {
        is_private: begin.private,
        ..Access::default()
    };
    let mut listening = Listening::bind(begin.clients, begin.peers, access).map_err(Failure::of)?;
    listening.extra = ExtraCost {
        each: begin.work,
        item: begin.item,
    };
    let turns = begin.backlog.as_ref().map(Turns::begin).transpose()?;
    listening.bound = turns.as_ref().map(Turns::asked);
    let page = Page::bind(begin.metrics)
        .map_err(|error| Failure::of(format!("{}: its figures cannot be there: {error}", begin.metrics)))?;
    let metrics = page.address().map_err(Failure::of)?;
    let temporal = Temporal {
        validity: begin.validity,
        objects_max: begin.objects_max,
        ..temporal()
    };
    (listening.temporal, listening.page) = (temporal, Some(page));
    let replica = open(&begin.store, begin.store_bytes_max, &temporal).map_err(Failure::of)?;
    let (clients, peers) = listening.addresses();

    let (tell, told) = sync_channel::<NodeLine>(TOLD_MAX);
    let writing = thread::spawn(move || {
        // The parent, which read the lines, may have ended.
        told.iter().try_for_each(|told| told.print())
    });
    // A line beyond the queue's capacity is dropped: the loop never waits for a reader.
    drop(tell.try_send(NodeLine::Listens {
        clients,
        peers,
        metrics: Some(metrics),
    }));
    let (control, orders) = std::sync::mpsc::channel();
    let waker = listening.waker();
    thread::spawn(move || obey(lines, &control, &*waker));

    let members = (begin.node, begin.federation);
    let setup = setup(members, begin.nodes, begin.log_entries_max, begin.admission);
    let failed = |error: &dyn fmt::Display| Failure::of(format!("node {}: {error}", begin.node));
    let log = begin
        .etcd
        .as_deref()
        .map(|address| super::etcd::log_in_etcd(address, &begin.log));
    let log = log.transpose().map_err(|error| failed(&error))?;
    let ended = {
        let tell = tell.clone();
        let tell = move |seen| drop(tell.try_send(NodeLine::Seen(seen)));
        listening.run(&setup, begin.log, replica, LinuxOs, orders, tell)
    };
    drop((tell, log, turns.and_then(|turns| turns.end())));
    drop(writing.join());
    ended.map_err(|error| failed(&error))
}

/// Settings as for `punctual serve`. The count of starts is at least the time of day, so it still rises after the store
/// is lost.
pub(super) fn temporal() -> Temporal {
    Temporal {
        boot: wall_clock(),
        ..Temporal::default()
    }
}

/// Milliseconds since 1970.
fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}

/// Quota of a store beyond twice its records: entries of the log must always be applied, and a batch of many small
/// changes copies as many pages. Until used, it is only address space.
const BEYOND_BYTES: usize = 512 << 20;

/// The longest wait of a thread for a node's write lock. Only the node's own threads take it, and one that is refused
/// ends the node, so a machine that starves them for a while must not have them refused.
const LOCK_WAIT_MAX: Nanos = Nanos::from_secs(60);

/// Opens a node's replica. Every commit is synced except the newest, which the log has: after a power cut, the store is
/// in a state that was committed.
pub(super) fn open(
    folder: &Path,
    bytes_max: u64,
    temporal: &Temporal,
) -> Result<Replica<punctual_engines::Lmdb, LinuxOs>, punctual_store::StoreError> {
    let engine = LmdbOptions {
        durability: Durability::NoMetaSync,
        quota: 2 * bytes_max as usize + BEYOND_BYTES,
        ..LmdbOptions::default()
    };
    let options = StoreOptions {
        replicated: true,
        created_max: temporal.objects_max,
        lock_wait_max: LOCK_WAIT_MAX,
        ..StoreOptions::default()
    };
    let store = Store::open(engine.open(folder)?, LinuxOs, options)?;
    let replica = Replica::new(store, temporal.validity).bounded(bytes_max);
    // The wall clock, because no other clock is comparable between machines.
    replica.with_clock(wall_clock)
}

fn obey(lines: impl Iterator<Item = std::io::Result<String>>, control: &Sender<NodeControl>, wake: &dyn Fn()) {
    for line in lines.map_while(Result::ok) {
        let control_of = |order| match order {
            Order::Peers(addresses) => {
                let peers = addresses
                    .into_iter()
                    .map(|(node, socket)| (node, PeerAddress::of(socket)));
                NodeControl::Peers(peers.collect())
            }
            Order::Leave => NodeControl::Leave,
        };
        // An unknown order comes from a newer program; it is ignored.
        if let Ok(order) = serde_json::from_str(&line)
            && control.send(control_of(order)).is_ok()
        {
            wake();
        }
    }
    if control.send(NodeControl::End).is_ok() {
        wake();
    }
}

/// Prefix of the name of a run's folder.
pub(super) const FOLDER_PREFIX: &str = "punctual-federation-";

/// Refuses a folder that is not a run's, because any user may name any folder: it must have the prefix, and contain
/// only a log and nodes' stores.
fn check_swept(folder: &Path) -> Result<(), Failure> {
    let begins = |name: Option<&std::ffi::OsStr>, with: &[&str]| {
        let name = name.map(|name| name.to_string_lossy()).unwrap_or_default();
        with.iter().any(|with| name.starts_with(with))
    };
    let is_ours = |entry: std::io::Result<std::fs::DirEntry>| {
        // Entries that cannot be read cannot be removed either.
        entry.is_err() || entry.is_ok_and(|entry| begins(Some(&entry.file_name()), &["log", "node-"]))
    };
    let are_ours = std::fs::read_dir(folder).map_or(true, |mut entries| entries.all(is_ours));
    if begins(folder.file_name(), &[FOLDER_PREFIX]) && are_ours {
        return Ok(());
    }
    Err(Failure::at(
        folder,
        "no folder of `punctual cluster run`, which alone calls this: nothing was removed",
    ))
}

/// Waits until the process that holds the other end of standard input ends, then removes its folder.
///
/// # Errors
/// If that is no folder of a run: nothing is removed.
pub(super) fn sweep(folder: &Path) -> Result<(), Failure> {
    // The kernel sends SIGHUP (and SIGCONT) to a stopped process group whose parent ends (_exit(2)).
    process::leave_signals_to_parent();
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
        // After an orderly end of the run, the folder is gone already.
        if !folder.exists() {
            return Ok(());
        }
        check_swept(folder)?;
        if std::fs::remove_dir_all(folder).is_ok() {
            return Ok(());
        }
        thread::sleep(SWEEP_EVERY);
    }
    Err(Failure::at(folder, "could not be removed: remove it by hand"))
}
