//! The load of a run, as a separate process, and its reports.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use punctual_federation::ids::{RequestId, SessionId};
use punctual_units::{Nanos, Time};

use super::super::load::{EndedRequest, LoadMessage, LoadTally, Offer, RequestKind, RequestOutcome};
use super::audit::Clients;
use punctual_files::failure::Failure;

/// Time limit for the load to begin: to connect, and to measure the capacity.
const BEGIN_MAX: Duration = Duration::from_secs(60);
/// Time limit for the load to end: its clients ask for outcomes for a minute at most.
const END_MAX: Duration = Duration::from_secs(90);
/// Time for which ended requests are kept, to find the gaps around a fault.
const KEPT: Nanos = Nanos::from_secs(10);

/// Process of the load while it runs.
pub(super) struct LoadProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    told: Receiver<LoadMessage>,
    /// Counts of requests by their ending.
    pub tally: LoadTally,
    /// Answers to all clients, for the audit.
    pub clients: Clients,
    /// Name and expected value of each client's counter, once the load has ended.
    pub counters: Vec<(String, i64)>,
    /// Requests that ended lately, in the order of the reports: nearly sorted by instant, to some milliseconds.
    pub recent: VecDeque<EndedRequest>,
    began: bool,
}

impl LoadProcess {
    /// Starts the process of the load.
    pub fn start(offer: &Offer) -> Result<LoadProcess, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::of(format!("the load cannot be started: {error}"));
        let mut command = Command::new("/proc/self/exe");
        command
            .args(["process", "load", "--parent", &std::process::id().to_string()])
            .args(offer.addresses.iter().map(SocketAddr::to_string))
            .args(["--writes", &offer.writes.to_string()])
            .args(["--clients", &offer.clients.to_string()])
            .args(["--deadline", &format!("{}ns", offer.deadline.0)])
            .args(["--seed", &offer.seed.to_string()]);
        match offer.rate {
            Some(rate) => command.args(["--rate", &rate.to_string()]),
            None => command.args(["--times", &offer.times.to_string()]),
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let stdout = stdout.ok_or_else(|| failed(&"it has no pipes"))?;
        let (tell, told) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Ok(told) = serde_json::from_str(&line)
                    && tell.send(told).is_err()
                {
                    return;
                }
            }
        });
        Ok(LoadProcess {
            child,
            stdin,
            told,
            tally: LoadTally::new(offer.deadline),
            clients: Clients::default(),
            counters: Vec::new(),
            recent: VecDeque::new(),
            began: false,
        })
    }

    /// Process id of the load.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until requests come at random instants; calls `goes_on` meanwhile.
    pub fn begins(&mut self, mut goes_on: impl FnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
        let until = Instant::now() + BEGIN_MAX;
        while !self.began && goes_on()? {
            if Instant::now() > until || !self.take()? {
                return Err(Failure::of(format!("the load did not begin within {BEGIN_MAX:?}")));
            }
        }
        match self.tally.capacity {
            Some(capacity) if capacity < 1.0 => Err(Failure::of(
                "nothing was served while the capacity was measured: give --rate, or a smaller --work",
            )),
            _ => Ok(()),
        }
    }

    /// Takes pending reports; returns whether the load still runs.
    pub fn take(&mut self) -> Result<bool, Failure> {
        while let Ok(told) = self.told.try_recv() {
            self.learn(told);
        }
        match self.child.try_wait() {
            Ok(Some(status)) if !status.success() => {
                Err(Failure::of(format!("the load has ended by itself: {status}")))
            }
            Ok(status) => Ok(status.is_none()),
            Err(_) => Ok(false),
        }
    }

    fn learn(&mut self, told: LoadMessage) {
        self.tally.take(&told);
        match told {
            LoadMessage::Capacity(_) => {}
            LoadMessage::Begins { .. } => self.began = true,
            LoadMessage::Learned {
                ended,
                fates,
                wrong_reads,
            } => {
                self.clients.wrong += wrong_reads;
                for (session, number, fate) in fates {
                    let session = SessionId(session);
                    self.clients.take(RequestId { session, number }, fate);
                }
                self.recent.extend(ended);
                let last = self.recent.back().map_or(Time::ZERO, |ended| ended.at);
                while self.recent.front().is_some_and(|first| last.since(first.at) > KEPT) {
                    self.recent.pop_front();
                }
            }
            LoadMessage::Done(counters) => self.counters = counters,
        }
    }

    /// Tells the load to stop offering, and waits until it knows the outcomes of its requests; with `at_once`, does not
    /// wait.
    pub fn end(&mut self, at_once: &dyn Fn() -> bool) -> Result<(), Failure> {
        if let Some(stdin) = &mut self.stdin {
            // A write error means that the load has ended, which the loop below notices.
            drop(writeln!(stdin));
        }
        let until = Instant::now() + END_MAX;
        while self.counters.is_empty() && self.take()? {
            if at_once() || Instant::now() > until {
                self.stdin = None;
            }
            thread::sleep(Duration::from_millis(5));
        }
        // The last reports were sent before the process ended.
        while let Ok(told) = self.told.recv_timeout(Duration::from_millis(200)) {
            self.learn(told);
        }
        Ok(())
    }

    /// Instants, in order, at which requests of a kind were served, from `from` on.
    pub fn served(&self, kind: Option<RequestKind>, from: Time) -> Vec<Time> {
        let is_served = |ended: &&EndedRequest| {
            matches!(ended.ending, RequestOutcome::Timely | RequestOutcome::Overdue)
                && ended.at >= from
                && kind.is_none_or(|kind| ended.kind == kind)
        };
        let mut served: Vec<Time> = self.recent.iter().filter(is_served).map(|ended| ended.at).collect();
        served.sort_unstable();
        served
    }

    /// Whether the kept requests reach back to `at`: true while one from before is kept.
    pub fn reaches(&self, at: Time) -> bool {
        self.recent.front().is_none_or(|first| first.at < at)
    }

    /// Index of the address that answered most requests lately: clients stay on the address that they moved to when a
    /// connection ended.
    pub fn busiest(&self) -> Option<usize> {
        let mut counts = std::collections::BTreeMap::new();
        let last = self.recent.back()?.at;
        let lately = self
            .recent
            .iter()
            .filter(|ended| last.since(ended.at) < Nanos::from_secs(1));
        for (_, place) in lately.filter_map(|ended| ended.by) {
            *counts.entry(usize::from(place)).or_insert(0_u64) += 1;
        }
        counts
            .into_iter()
            .max_by_key(|(_, count)| *count)
            .map(|(place, _)| place)
    }

    /// Number of requests that ended within the span and were not served in time.
    pub fn not_served(&self, from: Time, until: Time) -> u64 {
        let is_so =
            |ended: &&EndedRequest| ended.ending != RequestOutcome::Timely && (from..=until).contains(&ended.at);
        self.recent.iter().filter(is_so).count() as u64
    }

    /// Longest time without an answer, from `at` on, of the clients that were connected to one address.
    pub fn gap_of(&self, place: usize, at: Time) -> Option<Nanos> {
        let before = self.recent.iter().filter(|ended| ended.at < at && served(ended));
        let mut last = std::collections::BTreeMap::new();
        for ended in before {
            if let Some((client, place)) = ended.by {
                last.insert(client, (place, ended.at));
            }
        }
        last.retain(|_, (found, _)| usize::from(*found) == place);
        let from = last.values().map(|(_, at)| *at).max()?;
        let after = self.recent.iter().filter(|ended| ended.at >= at && served(ended));
        let theirs = after.filter(|ended| ended.by.is_some_and(|(client, _)| last.contains_key(&client)));
        theirs.map(|ended| ended.at).min().map(|first| first.since(from))
    }
}

fn served(ended: &EndedRequest) -> bool {
    matches!(ended.ending, RequestOutcome::Timely | RequestOutcome::Overdue)
}

impl Drop for LoadProcess {
    fn drop(&mut self) {
        self.stdin = None;
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
