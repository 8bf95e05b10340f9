//! etcd as the log of a run.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use punctual_federation::ids::{FederationId, Revision};
use punctual_logs::etcd::{Address, EtcdError};
use punctual_logs::socket::WAIT_MAX;
use punctual_logs::{CommitLog, Etcd, FORMAT, HistoryId, Identity, LogError, LogHistory};
use punctual_os::LinuxOs;
use punctual_testing::etcd::{EtcdProgram, Members};
use punctual_units::{Clock, Nanos, Time};

use super::audit::Audit;
use super::log::Backing;
use crate::args::LogKind;
use punctual_cli::cluster::etcd::answered;
use punctual_files::failure::Failure;

/// Members of etcd that a run starts.
const MEMBERS: usize = 3;
/// Time limit for the members to elect a leader: far longer than a busy machine takes.
const START_MAX: Duration = Duration::from_secs(60);
/// Time limit for the audit to reach the log's end.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Most entries read at once.
const READ_MAX: usize = 256;
/// Time limit of an answer to the witness (a bare client of etcd), and interval between its writes.
const WITNESS_WAIT: Duration = Duration::from_millis(15);
const WITNESS_EVERY: Duration = Duration::from_millis(10);

/// Audit of the entries so far, and the error that stopped it.
#[derive(Default)]
struct AuditState {
    audit: Audit,
    upto: Revision,
    stopped: Option<LogError>,
}

struct InEtcd {
    log: Etcd,
    identity: Identity,
    address: Address,
    /// Members that this run has started; `None` for an etcd that runs already.
    members: Option<Members>,
    killed: Option<usize>,
    noted: Arc<Mutex<AuditState>>,
    /// Instants at which the witness's writes were acknowledged.
    beats: Arc<Mutex<Vec<Time>>>,
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

fn input(error: &dyn std::fmt::Display) -> Failure {
    Failure::of(error)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Command that starts a member of etcd, which ends with this process and is outside of the terminal's group.
fn member(program: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["process", "member"])
        .arg(std::process::id().to_string())
        .arg(program)
        .process_group(0);
    command
}

pub(super) fn open(kind: &LogKind, folder: &Path, federation: FederationId) -> Result<Box<dyn Backing>, Failure> {
    let (members, address) = match kind {
        LogKind::Etcd(address) => (None, address.parse().map_err(|error: EtcdError| input(&error))?),
        _ => {
            let program = EtcdProgram::find().map_err(|error| input(&error))?;
            let members = Members::start(&program, folder, MEMBERS, START_MAX, member);
            let members = members.map_err(|error| input(&error))?;
            let address = members.address("punctual");
            (Some(members), address)
        }
    };
    let mut log = Etcd::new(&address, true).map_err(|error| input(&error))?;
    log.check().map_err(|error| input(&error))?;
    let identity = Identity {
        federation,
        format: FORMAT,
        history: LogHistory {
            id: HistoryId(federation.0),
            ..LogHistory::default()
        },
    };
    let opened = answered(|| log.open(identity)).map_err(|error| match error {
        LogError::OtherFederation { found, .. } => Failure::of(format!(
            "{address}: the log of another run is there (federation {found}), which goes on or was killed: name another \
             place behind the addresses, as etcd://HOST:PORT/NAME, or remove that log with `etcdctl del --prefix {}/`",
            address.name
        )),
        error => Failure::of(format!("{address}: {error}")),
    })?;
    let mut backing = InEtcd {
        log,
        identity,
        address: address.clone(),
        members,
        killed: None,
        noted: Arc::default(),
        beats: Arc::default(),
        ends: Arc::default(),
        threads: Vec::new(),
    };
    let mut reader = Etcd::new(&address, false).map_err(|error| input(&error))?;
    let (noted, ends) = (Arc::clone(&backing.noted), Arc::clone(&backing.ends));
    backing.threads.push(thread::spawn(move || {
        if let Err(error) = note(&mut reader, identity, opened.last, &noted, &ends) {
            locked(&noted).stopped = Some(error);
        }
    }));
    // Only if its leader may be killed, because it costs etcd 100 writes a second.
    if backing.members.is_some() {
        let mut witness = Etcd::with_wait(&address, WITNESS_WAIT).map_err(|error| input(&error))?;
        let (beats, ends) = (Arc::clone(&backing.beats), Arc::clone(&backing.ends));
        backing.threads.push(thread::spawn(move || {
            while !ends.load(Ordering::SeqCst) {
                let begun = Instant::now();
                if witness.beat() {
                    locked(&beats).push(LinuxOs.now());
                }
                thread::sleep(WITNESS_EVERY.saturating_sub(begun.elapsed()));
            }
        }));
    }
    Ok(Box::new(backing))
}

/// Audits entries in the order of their appends. etcd's history keeps them for some seconds longer than the log does.
fn note(
    log: &mut Etcd,
    identity: Identity,
    mut upto: Revision,
    noted: &Mutex<AuditState>,
    ends: &AtomicBool,
) -> Result<(), LogError> {
    answered(|| log.open(identity))?;
    while !ends.load(Ordering::SeqCst) {
        let records = match log.await_from(upto, READ_MAX, WAIT_MAX) {
            Err(LogError::NoAnswer) => continue,
            records => records?,
        };
        let mut noted = locked(noted);
        for record in records {
            upto = record.revision;
            noted.audit.note(upto, &record.bytes, identity.federation);
        }
        noted.upto = upto;
    }
    Ok(())
}

impl Backing for InEtcd {
    fn address(&self) -> Option<String> {
        Some(self.address.to_string())
    }

    fn failure(&mut self) -> Option<String> {
        let look = self.members.as_mut().map_or(Ok(()), Members::look);
        look.err().map(|error| error.to_string())
    }

    fn audit(&mut self) -> Result<Audit, Failure> {
        let unread = |why: &dyn std::fmt::Display| {
            let address = &self.address;
            Failure::of(format!(
                "{address}: what was appended could not be read to its end: {why}"
            ))
        };
        let opened = answered(|| self.log.open(self.identity)).map_err(|error| unread(&error))?;
        let until = Instant::now() + ANSWER_MAX;
        loop {
            let noted = locked(&self.noted);
            if let Some(error) = &noted.stopped {
                return Err(unread(error));
            }
            if noted.upto >= opened.last {
                return Ok(noted.audit.clone());
            }
            if Instant::now() > until {
                return Err(unread(&LogError::NoAnswer));
            }
            drop(noted);
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn kill_leader(&mut self) -> Result<Time, Failure> {
        let Some(members) = &mut self.members else {
            let why = "this run has not started etcd, and does not kill it: run it with --log etcd";
            return Err(Failure::of(why));
        };
        // A second missing member would cost the majority.
        members.await_leader(START_MAX).map_err(|error| input(&error))?;
        let leader = members.leader().map_err(|error| input(&error))?;
        let at = LinuxOs.now();
        if let Some(leader) = leader {
            members.kill(leader);
            self.killed = Some(leader);
        }
        Ok(at)
    }

    fn restart(&mut self) -> Result<(), Failure> {
        if let (Some(members), Some(member)) = (&mut self.members, self.killed.take()) {
            members.restart(member).map_err(|error| input(&error))?;
        }
        Ok(())
    }

    fn own_gap(&self, from: Time, to: Time) -> Option<Nanos> {
        let beats = locked(&self.beats);
        let first = beats.partition_point(|at| *at < from).saturating_sub(1);
        let last = beats.partition_point(|at| *at <= to);
        let around = beats.get(first..(last + 1).min(beats.len())).unwrap_or_default();
        around.windows(2).map(|pair| pair[1].since(pair[0])).max()
    }
}

impl Drop for InEtcd {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
        // After the run the nodes' stores are gone, so the log has no use. Members of the run are removed with the
        // folder.
        if self.members.is_none() {
            drop(answered(|| self.log.remove()));
        }
    }
}
