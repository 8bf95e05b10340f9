//! The balancers and nodes of a run as processes of this program.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use punctual_federation::ids::{Epoch, FederationId, NodeId};
use punctual_node::seen::{TimedNotice, What};
use punctual_os::LinuxOs;
use punctual_units::{Clock, Nanos, Time};

use super::super::node::{Begin, NodeLine, Order};
use punctual_federation::balancer::BalancerKind;
use punctual_files::failure::Failure;
use punctual_files::local::LocalSettings;

/// Time limit for nodes to listen and to elect a master: far longer than a busy machine takes.
const START_MAX: Duration = Duration::from_secs(60);
/// Time limit for a node to leave before it is killed.
const LEAVE_MAX: Duration = Duration::from_secs(5);
/// Most notes of nodes that a run shows.
const NOTES_MAX: usize = 32;
/// Interval between looks for a node that died by itself.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Time for which nodes' reports are kept, to find the phases of an outage.
const KEPT: Nanos = Nanos::from_secs(60);

/// Private network that a caller gives the nodes, so that it can cut one off.
pub trait NodeNetwork {
    /// IP address of a node.
    fn address(&self, node: usize) -> IpAddr;

    /// Makes a command start a process without a connection.
    fn isolate(&self, command: &mut Command);

    /// Connects such a process as that node.
    ///
    /// # Errors
    /// A sentence for the user.
    fn join(&self, node: usize, process: u32) -> Result<(), String>;
}

/// A process, by its index in the run: nodes by their numbers, then balancers.
pub type Part = usize;

enum Role {
    Node(Box<Begin>),
    /// Address to listen on: port 0 at first, the same port again after a restart; and the policy.
    Balancer(SocketAddr, BalancerKind),
}

/// A process that runs, or has run.
struct Process {
    role: Role,
    child: Option<(Child, ChildStdin)>,
    /// Number of starts; late reports of an earlier start are ignored.
    starts: u32,
    /// Addresses for clients and for peers, once it has reported them.
    listens: Option<(SocketAddr, SocketAddr)>,
    /// Instant at which the present start reported that it serves.
    serves: Option<Time>,
    /// Whether it was ordered to leave, so that its end is no error.
    leaves: bool,
}

impl Process {
    fn kill(&mut self) {
        self.serves = None;
        if let Some((mut child, _)) = self.child.take() {
            // An error means that the process has ended already.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// All processes of a run, nodes first.
pub struct Processes {
    all: Vec<Process>,
    tell: Sender<(Part, u32, NodeLine)>,
    told: Receiver<(Part, u32, NodeLine)>,
    /// Reports of nodes, in the order of their arrival.
    pub seen: Vec<(NodeId, TimedNotice)>,
    /// The last node that reported a term as the master, with its epoch.
    pub master: Option<(NodeId, Epoch)>,
    network: Option<Box<dyn NodeNetwork>>,
    /// Number of notes shown so far.
    notes: usize,
    /// Set once a signal asked for the end.
    ends: Arc<AtomicBool>,
}

impl Processes {
    /// Starts the nodes of a federation, with their stores in `folder`, then its balancers, and waits until there is a
    /// master. Nodes reach the log at the socket `log`, or at an address of `etcd`.
    pub fn start(
        federation: FederationId,
        folder: &Path,
        (log, etcd): (PathBuf, Option<String>),
        settings: &LocalSettings,
        network: Option<Box<dyn NodeNetwork>>,
        ends: &Arc<AtomicBool>,
    ) -> Result<Processes, Failure> {
        let (tell, told) = channel();
        let nodes: Vec<NodeId> = (0..settings.nodes).map(NodeId).collect();
        let own = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let begin = |node: &NodeId| {
            let reach = network.as_ref().map_or(own, |network| network.address(node.0 as usize));
            Role::Node(Box::new(Begin {
                parent: std::process::id() as i32,
                node: *node,
                federation,
                nodes: nodes.clone(),
                log: match etcd {
                    Some(_) => folder.join(format!("log-{node}.socket")),
                    None => log.clone(),
                },
                etcd: etcd.clone(),
                store: folder.join(format!("node-{node}")),
                clients: SocketAddr::new(reach, 0),
                peers: SocketAddr::new(reach, 0),
                metrics: SocketAddr::from(([127, 0, 0, 1], 0)),
                private: network.is_some(),
                log_entries_max: settings.log_entries_max,
                store_bytes_max: settings.store_bytes_max,
                validity: settings.validity,
                objects_max: settings.objects_max,
                work: settings.work,
                item: settings.item,
                admission: settings.admission,
                backlog: settings.backlog.clone(),
            }))
        };
        let same = (0..settings.balancers).map(|_| settings.balancer);
        let kinds = same.chain(settings.more_balancers.iter().copied());
        let balancers = kinds.map(|kind| Role::Balancer(SocketAddr::new(own, 0), kind));
        let process = |role| Process {
            role,
            child: None,
            starts: 0,
            listens: None,
            serves: None,
            leaves: false,
        };
        let mut processes = Processes {
            all: nodes.iter().map(begin).chain(balancers).map(process).collect(),
            tell,
            told,
            seen: Vec::new(),
            master: None,
            network,
            notes: 0,
            ends: Arc::clone(ends),
        };
        let listen = |all: &Processes, parts: std::ops::Range<Part>| {
            all.all[parts].iter().all(|process| process.listens.is_some())
        };
        let (first, end) = (nodes.len(), processes.all.len());
        (0..first).try_for_each(|part| processes.spawn(part))?;
        processes.wait(|all| listen(all, 0..first), "did not listen")?;
        (0..first).for_each(|part| processes.introduce(part));
        (first..end).try_for_each(|part| processes.spawn(part))?;
        processes.wait(|all| listen(all, first..end), "did not listen")?;
        processes.wait(|all| all.master.is_some() && all.all_serve(), "did not serve")?;
        Ok(processes)
    }

    /// Name of a process for reports.
    pub fn name(&self, part: Part) -> String {
        match part.checked_sub(self.nodes()) {
            None => format!("node {part}"),
            Some(balancer) => format!("balancer {balancer}"),
        }
    }

    /// Number of nodes; the remaining processes are balancers.
    pub fn nodes(&self) -> usize {
        let is_node = |process: &Process| matches!(process.role, Role::Node(_));
        self.all.partition_point(is_node)
    }

    /// Indices of all processes.
    pub fn parts(&self) -> std::ops::Range<Part> {
        0..self.all.len()
    }

    /// Running processes with their number of starts and their process id.
    pub fn ids(&self) -> impl Iterator<Item = (Part, u32, u32)> {
        let with = |(part, process): (Part, &Process)| {
            let (child, _) = process.child.as_ref()?;
            Some((part, process.starts, child.id()))
        };
        self.all.iter().enumerate().filter_map(with)
    }

    /// Starts a process that is not running, on its former port if it had one. It ends with the calling thread.
    ///
    /// # Errors
    /// [`Failure`] where the kernel refuses the process, or its network.
    pub fn spawn(&mut self, part: Part) -> Result<(), Failure> {
        let name = self.name(part);
        let failed = |error: &dyn std::fmt::Display| Failure::of(format!("{name} cannot be started: {error}"));
        let nodes: Vec<String> = self
            .all
            .iter()
            .filter(|process| matches!(process.role, Role::Node(_)))
            .filter_map(|process| process.listens.map(|(_, peers)| peers.to_string()))
            .collect();
        let tell = self.tell.clone();
        let Some(process) = self.all.get_mut(part) else {
            return Ok(());
        };
        let mut command = Command::new("/proc/self/exe");
        match &process.role {
            Role::Node(_) => _ = command.args(["process", "node"]),
            Role::Balancer(listen, kind) => {
                command
                    .args(["process", "balance", "--listen", &listen.to_string()])
                    .args(["--balancer", kind.name()])
                    .args(["--parent", &std::process::id().to_string()])
                    .args(nodes);
            }
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let network = self.network.as_ref().filter(|_| matches!(process.role, Role::Node(_)));
        if let Some(network) = network {
            network.isolate(&mut command);
        }
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        process.starts += 1;
        (process.serves, process.leaves) = (None, false);
        let starts = process.starts;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(&"it has no pipes"));
        };
        if let Some(network) = network {
            network.join(part, child.id()).map_err(|error| failed(&error))?;
        }
        if let Role::Node(begin) = &process.role {
            // With an incomplete first line, the process ends with its own error.
            let begin = serde_json::to_string(begin).unwrap_or_default();
            drop(writeln!(stdin, "{begin}"));
        }
        process.child = Some((child, stdin));
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Ok(told) = serde_json::from_str(&line)
                    && tell.send((part, starts, told)).is_err()
                {
                    return;
                }
            }
        });
        Ok(())
    }

    /// Sends a node the addresses of all nodes.
    fn introduce(&mut self, part: Part) {
        let address = |process: &Process| match &process.role {
            Role::Node(begin) => process.listens.map(|(_, peers)| (begin.node, peers)),
            Role::Balancer(..) => None,
        };
        let addresses: BTreeMap<NodeId, SocketAddr> = self.all.iter().filter_map(address).collect();
        self.order(part, &Order::Peers(addresses));
    }

    fn order(&mut self, part: Part, order: &Order) {
        if let Some((_, stdin)) = self.all.get_mut(part).and_then(|process| process.child.as_mut()) {
            // A write error means that the process has ended, which is noticed elsewhere.
            drop(writeln!(stdin, "{}", serde_json::to_string(order).unwrap_or_default()));
        }
    }

    /// Takes reports for `span`, or until another node is the master.
    pub fn listen(&mut self, span: Duration) -> Result<(), Failure> {
        let until = Instant::now() + span;
        let master = self.master;
        while self.master == master {
            let left = until.saturating_duration_since(Instant::now());
            match self.told.recv_timeout(left.min(LOOK_EVERY)) {
                Ok((part, starts, told)) => self.take(part, starts, told),
                Err(RecvTimeoutError::Timeout) if left > LOOK_EVERY => self.look()?,
                Err(_) => return self.look(),
            }
        }
        Ok(())
    }

    fn take(&mut self, part: Part, starts: u32, told: NodeLine) {
        let Some(process) = self.all.get_mut(part).filter(|process| process.starts == starts) else {
            return;
        };
        match (told, &mut process.role) {
            (NodeLine::Listens { clients, .. }, Role::Balancer(listen, _)) => {
                *listen = clients;
                process.listens = Some((clients, clients));
                process.serves = Some(LinuxOs.now());
            }
            (
                NodeLine::Listens {
                    clients,
                    peers,
                    metrics,
                },
                Role::Node(begin),
            ) => {
                (begin.clients, begin.peers) = (clients, peers);
                begin.metrics = metrics.unwrap_or(begin.metrics);
                process.listens = Some((clients, peers));
                if starts > 1 {
                    self.introduce(part);
                }
            }
            (NodeLine::Seen(seen), role) => {
                if let What::Note(text) = &seen.what {
                    return self.note(part, text);
                }
                let Role::Node(begin) = role else { return };
                let node = begin.node;
                if let What::Reigns(epoch) = seen.what
                    && self.master.is_none_or(|(_, before)| epoch > before)
                {
                    self.master = Some((node, epoch));
                }
                if matches!(seen.what, What::Serves) {
                    process.serves = Some(seen.at);
                }
                let old = self.seen.partition_point(|(_, before)| seen.at.since(before.at) > KEPT);
                self.seen.drain(..old);
                self.seen.push((node, seen));
            }
        }
    }

    /// Prints a node's note for the operator, up to `NOTES_MAX` notes.
    fn note(&mut self, part: Part, text: &str) {
        self.notes += 1;
        let name = self.name(part);
        let line = match self.notes {
            ..NOTES_MAX => format!("{name}: {text}\n"),
            NOTES_MAX => format!("{name}: {text}; further notes are not shown\n"),
            _ => return,
        };
        // A closed standard error is no reason to stop.
        drop(std::io::stderr().write_all(line.as_bytes()));
    }

    /// Whether every process serves, as far as it has reported.
    pub fn all_serve(&self) -> bool {
        self.all.iter().all(|process| process.serves.is_some())
    }

    /// Instant at which the present start of a process reported that it serves.
    pub fn serves(&self, part: Part) -> Option<Time> {
        self.all.get(part)?.serves
    }

    /// Fails if a process has ended by itself; the process has printed its reason on standard error.
    fn look(&mut self) -> Result<(), Failure> {
        for part in self.parts() {
            let process = &mut self.all[part];
            if let Some((child, _)) = &mut process.child
                && let Ok(Some(status)) = child.try_wait()
            {
                process.child = None;
                if !process.leaves {
                    let name = self.name(part);
                    return Err(Failure::of(format!("{name} has ended by itself: {status}")));
                }
            }
        }
        Ok(())
    }

    fn wait(&mut self, is_so: impl Fn(&Processes) -> bool, not_so: &str) -> Result<(), Failure> {
        let until = Instant::now() + START_MAX;
        while !is_so(self) {
            if Instant::now() > until {
                return Err(Failure::of(format!("the processes {not_so} within {START_MAX:?}")));
            }
            if self.ends.load(Ordering::SeqCst) {
                return Err(Failure::of("ended by a signal before there was a master"));
            }
            self.listen(LOOK_EVERY)?;
        }
        Ok(())
    }

    /// Client addresses of the nodes, or of the balancers.
    pub fn addresses(&self, of_nodes: bool) -> Vec<SocketAddr> {
        let nodes = self.nodes();
        let parts = if of_nodes { 0..nodes } else { nodes..self.all.len() };
        let listening = self.all[parts].iter().filter_map(|process| process.listens);
        listening.map(|(clients, _)| clients).collect()
    }

    /// Addresses on which nodes listen for balancers and each other.
    pub fn peers(&self) -> Vec<SocketAddr> {
        let listening = self.all[..self.nodes()].iter().filter_map(|process| process.listens);
        listening.map(|(_, peers)| peers).collect()
    }

    /// Kills a process, and returns the instant. Like a power cut of its machine, except that its sockets are reset.
    pub fn kill(&mut self, part: Part) -> Time {
        let at = LinuxOs.now();
        self.all.get_mut(part).map(Process::kill);
        at
    }

    /// Orders a node to finish its requests and end; returns the instant.
    pub fn drain(&mut self, part: Part) -> Time {
        let at = LinuxOs.now();
        if let Some(process) = self.all.get_mut(part) {
            (process.leaves, process.serves) = (true, None);
        }
        self.order(part, &Order::Leave);
        at
    }

    /// Orders all nodes to leave, and kills those that do not.
    pub fn leave(mut self) {
        for part in self.parts() {
            match self.all[part].role {
                Role::Node(_) => self.order(part, &Order::Leave),
                // A balancer has no state to lose.
                Role::Balancer(..) => _ = self.kill(part),
            }
        }
        let until = Instant::now() + LEAVE_MAX;
        for process in &mut self.all {
            while let Some((child, _)) = &mut process.child
                && matches!(child.try_wait(), Ok(None))
                && Instant::now() < until
            {
                thread::sleep(LOOK_EVERY);
            }
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.all.iter_mut().for_each(Process::kill);
    }
}
