//! The nodes of a run as processes of this program.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use punctual_federation::ids::{Epoch, FederationId, NodeId};
use punctual_node::seen::{Seen, What};
use punctual_os::LinuxOs;
use punctual_units::{Clock, Time};

use super::super::node::{Begin, Order, Told};
use super::settings::Settings;
use crate::failure::Failure;

/// How long nodes may take to listen, and to have a master: far longer than they do on a busy machine.
const START_MAX: Duration = Duration::from_secs(60);
/// How long a node may take to leave before it is killed.
const LEAVE_MAX: Duration = Duration::from_secs(5);
/// The most notes of nodes that a run shows.
const NOTES_MAX: usize = 32;
/// How often a node that has died by itself is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A node that runs, or has run.
struct Process {
    begin: Begin,
    child: Option<(Child, ChildStdin)>,
    /// How many times it was started: what an earlier start tells late is of the past.
    starts: u32,
    /// Whether this start has told that it serves.
    serves: bool,
}

/// All of them.
pub(super) struct Processes {
    nodes: Vec<Process>,
    tell: Sender<(usize, u32, Told)>,
    told: Receiver<(usize, u32, Told)>,
    /// What each has told, in the order in which it came.
    pub seen: Vec<(NodeId, Seen)>,
    /// The last that has told that it reigns, and in which reign.
    pub master: Option<(NodeId, Epoch)>,
    listens: BTreeMap<NodeId, (SocketAddr, SocketAddr)>,
    /// How many notes of nodes were shown.
    notes: usize,
    /// A signal has asked for the end.
    ends: Arc<AtomicBool>,
}

impl Processes {
    /// Starts `count` nodes of a federation, with their stores in `folder`, and waits until one of them is the master.
    /// They ask the log at the socket `log`, or at an address of `etcd`.
    pub fn start(
        count: u32,
        federation: FederationId,
        folder: &Path,
        (log, etcd): (PathBuf, Option<String>),
        settings: &Settings,
        ends: &Arc<AtomicBool>,
    ) -> Result<Processes, Failure> {
        let (tell, told) = channel();
        let nodes: Vec<NodeId> = (0..count).map(NodeId).collect();
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        let begin = |node: NodeId| Begin {
            parent: std::process::id() as i32,
            node,
            federation,
            nodes: nodes.clone(),
            log: match etcd {
                Some(_) => folder.join(format!("log-{node}.socket")),
                None => log.clone(),
            },
            etcd: etcd.clone(),
            store: folder.join(format!("node-{node}")),
            clients: free,
            peers: free,
            log_entries_max: settings.log_entries_max,
            store_bytes_max: settings.store_bytes_max,
        };
        let process = |node: &NodeId| Process {
            begin: begin(*node),
            child: None,
            starts: 0,
            serves: false,
        };
        let mut processes = Processes {
            nodes: nodes.iter().map(process).collect(),
            tell,
            told,
            seen: Vec::new(),
            master: None,
            listens: BTreeMap::new(),
            notes: 0,
            ends: Arc::clone(ends),
        };
        for node in &nodes {
            processes.spawn(*node)?;
        }
        processes.wait(|all| all.listens.len() == count as usize, "did not listen")?;
        nodes.iter().for_each(|node| processes.introduce(*node));
        processes.wait(|all| all.master.is_some(), "had no master")?;
        Ok(processes)
    }

    fn process(&mut self, node: NodeId) -> Option<&mut Process> {
        self.nodes.get_mut(node.0 as usize)
    }

    /// Starts a node; once it listened somewhere, it listens there again. It ends with the calling thread.
    fn spawn(&mut self, node: NodeId) -> Result<(), Failure> {
        let failed =
            |error: &dyn std::fmt::Display| Failure::input([format!("node {node} cannot be started: {error}")]);
        let tell = self.tell.clone();
        let Some(process) = self.process(node) else {
            return Ok(());
        };
        let mut command = Command::new("/proc/self/exe");
        command
            .args(["federation", "node"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        process.starts += 1;
        process.serves = false;
        let starts = process.starts;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(&"it has no pipes"));
        };
        // It ends with an error of its own if this one has no end.
        let begin = serde_json::to_string(&process.begin).unwrap_or_default();
        drop(writeln!(stdin, "{begin}"));
        process.child = Some((child, stdin));
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Ok(told) = serde_json::from_str(&line)
                    && tell.send((node.0 as usize, starts, told)).is_err()
                {
                    return;
                }
            }
        });
        Ok(())
    }

    /// Tells a node where all of them are.
    fn introduce(&mut self, node: NodeId) {
        let addresses = self.listens.iter().map(|(node, (_, peers))| (*node, *peers)).collect();
        self.order(node, &Order::Peers(addresses));
    }

    fn order(&mut self, node: NodeId, order: &Order) {
        if let Some(Process {
            child: Some((_, stdin)),
            ..
        }) = self.process(node)
        {
            // One that has ended is seen to have.
            drop(writeln!(stdin, "{}", serde_json::to_string(order).unwrap_or_default()));
        }
    }

    /// Takes what nodes tell, for so long, or until another node is the master.
    pub fn listen(&mut self, span: Duration) -> Result<(), Failure> {
        let until = Instant::now() + span;
        let master = self.master;
        while self.master == master {
            let left = until.saturating_duration_since(Instant::now());
            match self.told.recv_timeout(left.min(LOOK_EVERY)) {
                Ok((node, starts, told)) => self.take(node, starts, told),
                Err(RecvTimeoutError::Timeout) if left > LOOK_EVERY => self.look()?,
                Err(_) => return self.look(),
            }
        }
        Ok(())
    }

    fn take(&mut self, node: usize, starts: u32, told: Told) {
        let Some(process) = self.nodes.get_mut(node).filter(|process| process.starts == starts) else {
            return;
        };
        let node = process.begin.node;
        match told {
            Told::Listens { clients, peers } => {
                (process.begin.clients, process.begin.peers) = (clients, peers);
                self.listens.insert(node, (clients, peers));
                if starts > 1 {
                    self.introduce(node);
                }
            }
            Told::Seen(seen) => {
                if let What::Reigns(epoch) = seen.what
                    && self.master.is_none_or(|(_, before)| epoch > before)
                {
                    self.master = Some((node, epoch));
                }
                process.serves |= matches!(seen.what, What::Serves);
                match seen.what {
                    What::Note(text) => self.note(node, &text),
                    _ => self.seen.push((node, seen)),
                }
            }
        }
    }

    /// What a node's operator should know.
    fn note(&mut self, node: NodeId, text: &str) {
        self.notes += 1;
        let line = match self.notes {
            ..NOTES_MAX => format!("node {node}: {text}\n"),
            NOTES_MAX => format!("node {node}: {text}; further notes of nodes are not shown\n"),
            _ => return,
        };
        // A closed standard error is no reason to stop.
        drop(std::io::stderr().write_all(line.as_bytes()));
    }

    /// Whether each node that was started serves, as far as it has told.
    pub fn all_serve(&self) -> bool {
        self.nodes.iter().all(|process| process.serves)
    }

    /// A node that has ended by itself has said why, on standard error.
    fn look(&mut self) -> Result<(), Failure> {
        for process in &mut self.nodes {
            if let Some((child, _)) = &mut process.child
                && let Ok(Some(status)) = child.try_wait()
            {
                let node = process.begin.node;
                process.child = None;
                return Err(Failure::input([format!("node {node} has ended by itself: {status}")]));
            }
        }
        Ok(())
    }

    fn wait(&mut self, is_so: impl Fn(&Processes) -> bool, not_so: &str) -> Result<(), Failure> {
        let until = Instant::now() + START_MAX;
        while !is_so(self) {
            if Instant::now() > until {
                return Err(Failure::input([format!("the nodes {not_so} within {START_MAX:?}")]));
            }
            if self.ends.load(Ordering::SeqCst) {
                return Err(Failure::input(["ended by a signal before there was a master"]));
            }
            self.listen(LOOK_EVERY)?;
        }
        Ok(())
    }

    /// Where clients reach each node.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listens.values().map(|(clients, _)| *clients).collect()
    }

    /// Kills a node, as a power cut of its machine would end it, but that its sockets are reset; when.
    pub fn kill(&mut self, node: NodeId) -> Time {
        let at = LinuxOs.now();
        if let Some((mut child, _)) = self.process(node).and_then(|process| process.child.take()) {
            // One that has ended already is as dead.
            drop(child.kill());
            drop(child.wait());
        }
        at
    }

    /// Sends a node's process a signal (SIGSTOP, SIGCONT); when.
    pub fn signal(&mut self, node: NodeId, signal: i32) -> Time {
        let at = LinuxOs.now();
        if let Some(Process {
            child: Some((child, _)),
            ..
        }) = self.process(node)
        {
            // SAFETY: plain numbers; the process is a child that was not waited for, so the number is its own.
            unsafe { libc::kill(child.id() as i32, signal) };
        }
        at
    }

    /// Starts a node again that was killed.
    pub fn restart(&mut self, node: NodeId) -> Result<(), Failure> {
        self.spawn(node)
    }

    /// Has all nodes leave, and ends those that do not.
    pub fn leave(mut self) {
        let nodes: Vec<NodeId> = self.nodes.iter().map(|process| process.begin.node).collect();
        nodes.into_iter().for_each(|node| self.order(node, &Order::Leave));
        let until = Instant::now() + LEAVE_MAX;
        for process in &mut self.nodes {
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
        for process in &mut self.nodes {
            if let Some((mut child, _)) = process.child.take() {
                drop(child.kill());
                drop(child.wait());
            }
        }
    }
}
