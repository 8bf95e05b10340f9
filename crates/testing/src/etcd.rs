//! An etcd started by a test or a run of the lab: its executable, and its members as processes of this machine.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use punctual_logs::Etcd;
use punctual_logs::etcd::{Address, EtcdError, Health, VERSION_MIN, is_new_enough};

use crate::ports::reserved_ports;

/// Interval of a leader's heartbeats, in milliseconds.
const BEAT_MS: u32 = 30;
/// Silence of a leader after which another one is elected, in milliseconds; etcd adds up to as much at random.
const ELECTION_MS: u32 = 300;
/// Interval at which starting members are checked.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Most bytes of a member's output that an error shows.
const SAID_MAX: usize = 600;

/// Reason for which no etcd was started.
#[derive(Debug, thiserror::Error)]
pub enum MembersError {
    /// The executable's version is too old.
    #[error(
        "{place}: this is etcd {found}, at least {}.{} is needed: update it, or build one with `.ci/etcd build`",
        VERSION_MIN.0, VERSION_MIN.1
    )]
    TooOld { place: String, found: String },
    /// No executable was found.
    #[error(
        "no etcd found: build one with `.ci/etcd build` (Go 1.26, some minutes), name one in PUNCTUAL_ETCD, or put one \
         of version {}.{} or newer into PATH", VERSION_MIN.0, VERSION_MIN.1
    )]
    NoProgram,
    /// A member has failed; numbers begin at 0.
    #[error("etcd member {member}: {what}")]
    Member { member: usize, what: String },
    /// A member cannot be started.
    #[error("a member of etcd cannot be started: {0}")]
    Start(io::Error),
    /// The members cannot be asked.
    #[error(transparent)]
    Ask(#[from] EtcdError),
}

/// An executable of etcd that is new enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdProgram {
    pub path: PathBuf,
    /// Version as the executable prints it.
    pub version: String,
}

impl EtcdProgram {
    /// The executable named by PUNCTUAL_ETCD; without that, the first in PATH that is new enough, or `target/etcd` in
    /// this folder or one above.
    ///
    /// # Errors
    /// [`MembersError::TooOld`] if all that were found are older, [`MembersError::NoProgram`].
    pub fn find() -> Result<EtcdProgram, MembersError> {
        if let Some(named) = std::env::var_os("PUNCTUAL_ETCD").filter(|named| !named.is_empty()) {
            return EtcdProgram::at(PathBuf::from(named));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let in_path = std::env::split_paths(&path).map(|folder| folder.join("etcd"));
        let here = std::env::current_dir().unwrap_or_default();
        let built = here.ancestors().map(|folder| folder.join("target/etcd"));
        let mut old = None;
        for candidate in in_path.chain(built).filter(|candidate| candidate.is_file()) {
            match EtcdProgram::at(candidate) {
                Ok(program) => return Ok(program),
                Err(error) => _ = old.get_or_insert(error),
            }
        }
        Err(old.unwrap_or(MembersError::NoProgram))
    }

    /// The executable at `path`.
    ///
    /// # Errors
    /// [`MembersError::TooOld`], also for a file that is no etcd.
    pub fn at(path: PathBuf) -> Result<EtcdProgram, MembersError> {
        let told = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
        let told = told.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let version = told.ok().and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("etcd Version:"))?;
            Some(line.trim().to_owned())
        });
        match version {
            Some(version) if is_new_enough(&version) => Ok(EtcdProgram { path, version }),
            version => Err(MembersError::TooOld {
                place: path.display().to_string(),
                found: version.unwrap_or("of no version that it tells".into()),
            }),
        }
    }
}

/// Members of an etcd as processes of this machine, at loopback addresses; killed when this is dropped.
pub struct Members {
    program: EtcdProgram,
    /// Makes the command that starts the executable.
    command: fn(&Path) -> Command,
    folder: PathBuf,
    addresses: Vec<String>,
    peers: Vec<String>,
    children: Vec<Option<Child>>,
}

impl Members {
    /// Starts `count` members with their data in `folder`, in files whose names begin with `log`, and waits until all
    /// of them have a leader, for at most `within`. `command` makes the command for an executable.
    ///
    /// # Errors
    /// [`MembersError::Member`], [`MembersError::Ask`], [`MembersError::Start`].
    ///
    /// # Panics
    /// Without a free port.
    pub fn start(
        program: &EtcdProgram,
        folder: &Path,
        count: usize,
        within: Duration,
        command: fn(&Path) -> Command,
    ) -> Result<Members, MembersError> {
        let address = |_| {
            let [port] = reserved_ports();
            format!("127.0.0.1:{port}")
        };
        let addresses = (0..count).map(address).collect();
        let peers = (0..count).map(address).collect();
        let mut members = Members {
            program: program.clone(),
            command,
            folder: folder.to_path_buf(),
            addresses,
            peers,
            children: (0..count).map(|_| None).collect(),
        };
        (0..count).try_for_each(|member| members.restart(member))?;
        members.await_leader(within)?;
        Ok(members)
    }

    /// Addresses of the members, for keys that begin with `name`.
    pub fn address(&self, name: &str) -> Address {
        Address {
            members: self.addresses.clone(),
            name: name.to_owned(),
            tls: None,
        }
    }

    /// Number of members, killed ones included.
    pub fn count(&self) -> usize {
        self.children.len()
    }

    /// The version of all members.
    pub fn version(&self) -> &str {
        &self.program.version
    }

    /// The folder with a member's data.
    pub fn data(&self, member: usize) -> PathBuf {
        self.folder.join(format!("log-etcd-{member}"))
    }

    /// Starts a member that does not run, with the data in its folder.
    ///
    /// # Errors
    /// [`MembersError::Start`].
    pub fn restart(&mut self, member: usize) -> Result<(), MembersError> {
        let said = File::create(self.said(member)).map_err(MembersError::Start)?;
        let (client, peer) = (&self.addresses[member], &self.peers[member]);
        let all: Vec<String> = (self.peers.iter().enumerate())
            .map(|(number, peer)| format!("m{number}=http://{peer}"))
            .collect();
        let mut command = (self.command)(&self.program.path);
        command
            .args(["--name", &format!("m{member}"), "--data-dir"])
            .arg(self.data(member))
            .args(["--listen-client-urls", &format!("http://{client}")])
            .args(["--advertise-client-urls", &format!("http://{client}")])
            .args(["--listen-peer-urls", &format!("http://{peer}")])
            .args(["--initial-advertise-peer-urls", &format!("http://{peer}")])
            .args(["--initial-cluster", &all.join(",")])
            .args(["--initial-cluster-token", &self.peers.join("-")])
            .args(["--heartbeat-interval", &BEAT_MS.to_string()])
            .args(["--election-timeout", &ELECTION_MS.to_string()])
            .args(["--log-level", "error"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said);
        // etcd refuses to start if its environment repeats a setting of its arguments.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ETCD_") {
                command.env_remove(name);
            }
        }
        self.children[member] = Some(command.spawn().map_err(MembersError::Start)?);
        Ok(())
    }

    /// Kills a member that runs.
    pub fn kill(&mut self, member: usize) {
        if let Some(mut child) = self.children[member].take() {
            // Errors mean that the member has ended already.
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// The member that leads; `None` if there is no leader.
    ///
    /// # Errors
    /// [`MembersError::Ask`].
    pub fn leader(&self) -> Result<Option<usize>, MembersError> {
        let health = Etcd::new(&self.address("none"), false)?.health();
        let leads = |health: &Result<Health, String>| health.as_ref().is_ok_and(|health| health.leads);
        Ok(health.iter().position(leads))
    }

    /// Fails with the output of a member that has ended by itself.
    ///
    /// # Errors
    /// [`MembersError::Member`].
    pub fn look(&mut self) -> Result<(), MembersError> {
        for member in 0..self.count() {
            let child = &mut self.children[member];
            if let Some(Ok(Some(status))) = child.as_mut().map(Child::try_wait) {
                self.children[member] = None;
                let said = std::fs::read_to_string(self.said(member)).unwrap_or_default();
                let end = said.char_indices().rev().nth(SAID_MAX).map_or(0, |(at, _)| at);
                return Err(MembersError::Member {
                    member,
                    what: format!("ended by itself: {status}; it said: {}", said[end..].trim()),
                });
            }
        }
        Ok(())
    }

    /// Waits until all running members have a leader.
    ///
    /// # Errors
    /// As [`start`](Members::start).
    pub fn await_leader(&mut self, within: Duration) -> Result<(), MembersError> {
        let until = Instant::now() + within;
        let mut etcd = Etcd::new(&self.address("none"), false)?;
        loop {
            self.look()?;
            let health = etcd.health();
            let is_led = |health: &Result<Health, String>| health.as_ref().is_ok_and(|health| health.is_led);
            let mut asked = health.iter().zip(&self.children);
            if asked.all(|(health, child)| child.is_none() || is_led(health)) {
                return Ok(());
            }
            if Instant::now() > until {
                return Ok(etcd.check()?);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn said(&self, member: usize) -> PathBuf {
        self.folder.join(format!("log-etcd-{member}.txt"))
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        (0..self.count()).for_each(|member| self.kill(member));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_old_program_is_refused_with_the_reason_and_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let [script, path] = ["script", "etcd"].map(|name| folder.path().join(name));
        for (says, found) in [("etcd Version: 3.4.23", "3.4.23"), ("hello", "no version")] {
            std::fs::write(&script, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
            std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
            crate::copy_program(&script, &path);
            let error = EtcdProgram::at(path.clone()).unwrap_err().to_string();
            for part in [found, "at least 3.6", ".ci/etcd build"] {
                assert!(error.contains(part), "{error}");
            }
            std::fs::remove_file(&path).unwrap();
        }
    }
}
