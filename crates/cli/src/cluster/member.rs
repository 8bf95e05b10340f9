//! `punctual serve NODE.toml` if the file has a section `[federation]`: one node of a federation, as a separate
//! program.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use punctual_federation::ids::NodeId;
use punctual_logs::socket::LogServer;
use punctual_loop::EventLog;
use punctual_node::own::OwnReading;
use punctual_node::process::{Access, Listening, NodeControl, PeerAddress};
use punctual_node::seen::{TimedNotice, What};
use punctual_os::LinuxOs;
use punctual_server::users::{User, Users};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;
use tempfile::TempDir;

use super::backlog::Turns;
use super::etcd::log_in_etcd;
use super::node::{open, setup, temporal};
use crate::commands::{metrics, print, replay};
use crate::serve::tasks::{self, ReadyTasks, RunningTasks};
use crate::serve::{password, raise_descriptors};
use punctual_files::failure::Failure;
use punctual_files::node::{LogAddress, Membership};
use punctual_files::server::{NodeFile, TlsPaths};
use punctual_report::output::OutputFile;
use punctual_report::terminal::ECHO;
use punctual_units::{Clock, Time};

/// Capacity of the queue of lines to print; lines beyond it are dropped.
const LINES_MAX: usize = 256;
/// Interval between looks for signals and for the end of the node.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Looks between two checks of the certificate files: once a second.
pub(super) const CERTIFICATES_EVERY: u64 = 50;
/// Interval between lookups of nodes' names; the shorter one applies while a name has no address yet.
const RESOLVE_EVERY: Duration = Duration::from_secs(60);
const RESOLVE_AGAIN: Duration = Duration::from_secs(2);

/// Runs the node until a signal tells it to leave; a second signal ends it at once.
///
/// # Errors
/// [`Failure::Input`] if it cannot start, or must stop.
pub fn serve(mut file: NodeFile, membership: &Membership) -> Result<(), Failure> {
    raise_descriptors();
    let (asked, signals) = signals(file.tls.is_some() || membership.tls.is_some())?;
    let record = OutputFile::log(file.record.as_ref())?;
    let mut tasks = file.tasks.as_ref().map(ReadyTasks::load).transpose()?;
    if record.is_some() {
        tasks.iter_mut().for_each(ReadyTasks::record);
    }
    let users = std::mem::take(&mut file.users);
    let access = access(users, file.tls.as_ref(), membership.tls.as_ref())?;
    let mut listening = listen(&file, membership, access.clone())?;
    let replica = open(&file.store, membership.store_bytes_max, &listening.temporal).map_err(Failure::of)?;
    let replica = Arc::new(replica);
    let turns = membership.backlog.as_ref().map(Turns::begin).transpose()?;
    listening.bound = turns.as_ref().map(Turns::asked);
    let tasks = match tasks {
        None => None,
        Some(tasks) => {
            let own = own_readings(&file);
            let running = tasks.start(&asked, &mut |tasks, needs| {
                let opened = tasks::beside(tasks, Arc::new(needs.own()?), &replica, &own);
                Ok(opened)
            })?;
            let Some(running) = running else {
                return Ok(()); // a signal came before the tasks began
            };
            (listening.tasks, listening.own) = (Some(running.told()), own);
            Some(running)
        }
    };
    let (clients, peers) = listening.addresses();
    let node = membership.node;
    let (log, _bridge) = log_socket(&membership.log)?;
    let (store, place) = (file.store.display(), &membership.log);
    let begun = format!("node {node}: clients at {clients}, nodes at {peers}, store {store}, log {place}");
    print(&format!("{begun}; Ctrl-C has it leave\n"))?;

    let (control, orders) = std::sync::mpsc::channel();
    let has_ended = Arc::new(AtomicBool::new(false));
    let send = Orders {
        control,
        wake: listening.waker(),
    };
    let have_ended = tasks.as_ref().map(RunningTasks::ended);
    let looks = {
        let (send, has_ended, access, drain_max) =
            (send.clone(), Arc::clone(&has_ended), access, file.options.drain_max);
        let turns = turns.clone();
        thread::spawn(move || {
            let mut each = |orders: &Orders| {
                if have_ended.as_ref().is_some_and(|ended| ended()) {
                    orders.send(NodeControl::Leave);
                }
                turns.as_ref().map(Turns::keep);
            };
            look(signals, &send, &access, drain_max.into(), &has_ended, &mut each);
        })
    };
    {
        // Not joined, because a lookup may take long: the thread ends with the process.
        let (nodes, has_ended) = (membership.nodes.clone(), Arc::clone(&has_ended));
        let tell = move |found: BTreeMap<u32, PeerAddress>| {
            let found = found.into_iter().map(|(number, address)| (NodeId(number), address));
            send.send(NodeControl::Peers(found.collect()))
        };
        thread::spawn(move || find_peers(&nodes, tell, &has_ended));
    }
    let setup = setup(
        (node, membership.federation),
        { 0..membership.nodes.len() as u32 }.map(NodeId).collect(),
        membership.log_entries_max,
        membership.admission,
    );
    let (tell, told) = sync_channel::<TimedNotice>(LINES_MAX);
    let writes = thread::spawn(move || {
        for seen in told {
            // A closed standard output must not end the node.
            drop(line(node, &seen.what).map(|line| print(&line)));
        }
    });
    // A line beyond the queue's capacity is dropped: the loop never waits for a reader.
    let ended = listening.run(&setup, log, replica, LinuxOs, orders, move |seen| {
        drop(tell.try_send(seen));
    });
    has_ended.store(true, Ordering::SeqCst);
    drop((looks.join(), writes.join()));
    let (tasks, log) = match tasks.map_or(Ok(None), RunningTasks::end) {
        Ok(log) => (Ok(()), log),
        Err(failure) => (Err(failure), None),
    };
    let mut log: EventLog = log.unwrap_or_default();
    turns
        .and_then(|turns| turns.end())
        .into_iter()
        .for_each(|bounds| log.join(bounds));
    let decided = replay::write(record, Some(log));
    let ended = ended.map_err(|error| Failure::of(format!("node {node}: {error}")));
    Failure::all([ended, tasks, decided])
}

/// Takes SIGINT and SIGTERM: the flag is set by either, and a second one ends the process at once ([`ends`]). With
/// `certificates`, SIGHUP is taken to reload them; without, it ends the node, as it ends any program.
pub(crate) fn signals(certificates: bool) -> Result<(Arc<AtomicBool>, Signals), Failure> {
    let untaken = |error: std::io::Error| Failure::of(format!("signals cannot be taken: {error}; see `ulimit -n`"));
    let asked = Arc::new(AtomicBool::new(false));
    ends(&asked).map_err(untaken)?;
    let reload = certificates.then_some(SIGHUP);
    let signals = Signals::new([SIGINT, SIGTERM].into_iter().chain(reload)).map_err(untaken)?;
    Ok((asked, signals))
}

/// Sets `asked` at the first SIGINT or SIGTERM; the second one ends the process at once. A signal of the same kind
/// within [`ECHO`] is no second one.
pub(crate) fn ends(asked: &Arc<AtomicBool>) -> std::io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        let (asked, first) = (Arc::clone(asked), AtomicU64::new(0));
        let came = move || {
            let now = LinuxOs.now();
            // In this order: of two handlers of one signal at once, neither takes the other's for another request.
            let was_asked = asked.load(Ordering::SeqCst);
            let first = first.compare_exchange(0, now.0, Ordering::SeqCst, Ordering::SeqCst);
            asked.store(true, Ordering::SeqCst);
            if first.map_or_else(|first| now.since(Time(first)) > ECHO.into(), |_| was_asked) {
                low_level::exit(128 + signal);
            }
        };
        // SAFETY: the action reads the clock, uses atomics and _exit(2), all of which a handler may do.
        unsafe { low_level::register(signal, came) }?;
    }
    Ok(())
}

/// Binds the addresses for clients, nodes and metrics.
fn listen(file: &NodeFile, membership: &Membership, access: Access) -> Result<Listening, Failure> {
    let own = &membership.nodes[membership.node.0 as usize];
    let peers = match membership.listen {
        Some(listen) => listen,
        None => resolve(own).ok_or_else(|| {
            Failure::of(format!(
                "federation.nodes: {own}, this node's own place, has no address: set federation.listen"
            ))
        })?,
    };
    let mut listening = Listening::bind(file.listen, peers, access).map_err(Failure::of)?;
    listening.page = metrics::bind("metrics", file.metrics)?;
    (listening.temporal, listening.extra.each) = (temporal(), membership.work);
    Ok(listening)
}

/// Socket of the log; for a log in etcd with its bridge, and the socket's folder, which other users cannot read.
fn log_socket(log: &LogAddress) -> Result<(PathBuf, Option<(LogServer, TempDir)>), Failure> {
    let address = match log {
        LogAddress::Socket(log) => return Ok((log.clone(), None)),
        LogAddress::Etcd(address) => address,
    };
    let folder = tempfile::Builder::new().prefix("punctual-node-").tempdir();
    let folder = folder.map_err(|error| Failure::of(format!("a folder for a socket: {error}")))?;
    let log = folder.path().join("log.socket");
    let bridge = log_in_etcd(address, &log).map_err(|error| Failure::of(format!("federation.log: {error}")))?;
    Ok((log, Some((bridge, folder))))
}

/// Objects that the tasks set, each once.
fn own_readings(file: &NodeFile) -> Vec<Arc<OwnReading>> {
    let sets = file.tasks.iter().flat_map(|tasks| &tasks.sets);
    let mut keys: Vec<&str> = sets.map(|set| set.object.as_str()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter()
        .map(|key| Arc::new(OwnReading::new(key.as_bytes().to_vec())))
        .collect()
}

/// Line of text for an event of a node.
fn line(node: NodeId, what: &What) -> Option<String> {
    Some(match what {
        What::Reigns(epoch) => format!("node {node} is the master (epoch {epoch})\n"),
        What::Cedes => format!("node {node} is the master no more\n"),
        What::Trusts(master) => format!("node {node} follows node {master}\n"),
        What::Suspects => format!("node {node} has no master\n"),
        What::Serves => format!("node {node} serves\n"),
        What::Copying(bytes) => format!(
            "node {node} is given the records by others: {:.1} MiB so far; it takes no requests until it has all\n",
            *bytes as f64 / f64::from(1 << 20)
        ),
        What::Left => format!("node {node} has left: no client waits, and all is on disk\n"),
        What::Note(text) => format!("node {node}: {text}\n"),
        What::Ordinary(why) => format!("node {node}: on a busy machine masters may change: {why}\n"),
        What::CaughtUp(_) => return None,
    })
}

/// Rules on which programs may connect: `of_clients` names the files of certificates for clients, `of_nodes` those for
/// nodes.
pub(super) fn access(
    users: Vec<User>,
    of_clients: Option<&TlsPaths>,
    of_nodes: Option<&TlsPaths>,
) -> Result<Access, Failure> {
    let load = |paths: Option<&TlsPaths>| paths.map(crate::serve::certificates::load).transpose();
    Ok(Access {
        users: Arc::new(Users::new(users, password::salt()?)),
        clients: load(of_clients)?,
        peers: load(of_nodes)?,
        ..Access::default()
    })
}

/// Reloads certificates whose files have changed; all of them if `is_asked`.
pub(super) fn renew(access: &Access, is_asked: bool) {
    for tls in [&access.clients, &access.peers].into_iter().flatten() {
        if is_asked || tls.has_changed() {
            crate::serve::certificates::reload(tls);
        }
    }
}

/// Channel of orders to a node's loop.
#[derive(Clone)]
struct Orders {
    control: Sender<NodeControl>,
    /// Wakes the node's loop.
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl Orders {
    /// Sends an order; returns whether the loop still runs.
    fn send(&self, control: NodeControl) -> bool {
        let is_there = self.control.send(control).is_ok();
        (self.wake)();
        is_there
    }
}

/// Handles signals: the first tells the node to leave, and ends it if that takes longer than `drain_max`; SIGHUP
/// reloads certificates.
fn look(
    mut signals: Signals,
    orders: &Orders,
    access: &Access,
    drain_max: Duration,
    has_ended: &AtomicBool,
    each: &mut dyn FnMut(&Orders),
) {
    let mut leaves = None;
    for round in 0u64.. {
        if has_ended.load(Ordering::SeqCst) {
            return;
        }
        let pending: Vec<_> = signals.pending().collect();
        if leaves.is_none() && pending.iter().any(|signal| *signal != SIGHUP) {
            leaves = Some(Instant::now());
            orders.send(NodeControl::Leave);
        }
        if leaves.is_some_and(|since| since.elapsed() > drain_max) {
            orders.send(NodeControl::End);
        }
        let is_asked = pending.contains(&SIGHUP);
        if is_asked || round % CERTIFICATES_EVERY == 0 {
            renew(access, is_asked);
        }
        each(orders);
        thread::sleep(LOOK_EVERY);
    }
}

/// Looks up the nodes' addresses, by their position in the list. Calls `tell` with the first result and with each
/// change, until it returns `false`.
pub(super) fn find_peers(
    nodes: &[String],
    mut tell: impl FnMut(BTreeMap<u32, PeerAddress>) -> bool,
    has_ended: &AtomicBool,
) {
    let mut told = BTreeMap::new();
    while !has_ended.load(Ordering::SeqCst) {
        let mut found = told.clone();
        for (number, node) in nodes.iter().enumerate() {
            // A name that has no address now keeps its former one.
            if let Some(socket) = resolve(node) {
                let name = node.rsplit_once(':').map_or("", |(host, _)| host);
                let name = name.trim_matches(['[', ']']).to_owned();
                found.insert(number as u32, PeerAddress { socket, name });
            }
        }
        let is_whole = found.len() == nodes.len();
        if found != told {
            if !tell(found.clone()) {
                return;
            }
            told = found;
        }
        thread::sleep(if is_whole { RESOLVE_EVERY } else { RESOLVE_AGAIN });
    }
}

fn resolve(node: &str) -> Option<SocketAddr> {
    node.to_socket_addrs().ok()?.next()
}
