//! `punctual-lab cluster load`: clients that send requests at random instants (Poisson arrivals). Response times count
//! from the scheduled instant, whether the servers keep up or not.

mod client;
mod driver;
mod tally;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use mio::Poll;
use punctual_platform::linux::process;
use punctual_units::{Nanos, Time};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

pub use self::client::{Fate, RequestKind, RequestOutcome};
use self::driver::Driver;
pub use self::tally::{Histogram, LoadTally};
use crate::args::{ClusterLoad, Workload};
use punctual_cli::cluster::dial::Dial;
use punctual_cli::commands::print;
use punctual_files::failure::Failure;
use punctual_report::output::OutputFile;

/// Time limit for the first answer of any server to a load of its own; nodes that a parent starts may take longer.
const ANSWER_MAX: Nanos = Nanos::from_secs(5);

/// Parameters of the load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// Servers: clients are spread evenly, and reconnect to the next one if a connection ends.
    pub addresses: Vec<SocketAddr>,
    /// Requests a second; `None`: `times` the capacity, which is measured first.
    pub rate: Option<f64>,
    /// Load as a multiple of the measured capacity; unused if `rate` is given.
    pub times: f64,
    /// Share of requests that count (INCR), 0 to 1; the others read.
    pub writes: f64,
    /// Number of clients, each with one request at a time.
    pub clients: usize,
    /// Deadline of each request, counted from its scheduled instant.
    pub deadline: Nanos,
    /// Seed of the random instants.
    pub seed: u64,
}

/// An arrival that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndedRequest {
    /// Kind of the request.
    pub kind: RequestKind,
    /// Ending of the request.
    pub ending: RequestOutcome,
    /// Time since the scheduled instant.
    pub took: Nanos,
    /// Instant of the end.
    pub at: Time,
    /// Client, and index of the address that it was connected to; `None` if it was not sent.
    pub by: Option<(u32, u8)>,
}

/// Reports of a load to its parent process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadMessage {
    /// Measured capacity, in requests a second.
    Capacity(f64),
    /// Requests come at random instants from now on.
    Begins {
        /// Instant of the start.
        at: Time,
        /// Rate in requests a second.
        rate: f64,
    },
    /// Results since the last report.
    Learned {
        /// Arrivals that have ended.
        ended: Vec<EndedRequest>,
        /// Outcomes of transactions, each with session and number.
        fates: Vec<(u64, u64, Fate)>,
        /// Reads that returned a value that they cannot have read.
        wrong_reads: u64,
    },
    /// Last report: key and expected value of each client's counter.
    Done(Vec<(String, i64)>),
}

/// Carries out `punctual-lab cluster load`.
pub fn load(arguments: &ClusterLoad) -> Result<(), Failure> {
    if arguments.workload == Workload::Stock {
        return super::stock::load(arguments);
    }
    let offer = offer(arguments)?;
    let mut dial = Dial::load(&arguments.dialling)?;
    dial.hosts = arguments.places.iter().map(|place| place.host.clone()).collect();
    match arguments.parent {
        Some(parent) => for_a_run(offer, dial, parent),
        None => alone(offer, dial, arguments),
    }
}

fn offer(arguments: &ClusterLoad) -> Result<Offer, Failure> {
    let refuse = |what: String| Failure::of(what);
    if arguments
        .rate
        .is_some_and(|rate| !(1.0..=super::run::RATE_MAX).contains(&rate))
    {
        let most = super::run::RATE_MAX;
        return Err(refuse(format!("--rate: the load has 1 to {most} requests a second")));
    }
    if !(0.1..=100.0).contains(&arguments.times) {
        return Err(refuse("--times: 0.1 to 100 times of what is served".into()));
    }
    if !(0.0..=1.0).contains(&arguments.writes) {
        return Err(refuse("--writes: a share of the requests, 0 to 1".into()));
    }
    if arguments.places.is_empty() || arguments.places.len() > usize::from(u8::MAX) {
        return Err(refuse("name 1 to 255 addresses, of balancers or nodes".into()));
    }
    Ok(Offer {
        addresses: arguments.places.iter().map(|place| place.socket).collect(),
        rate: arguments.rate,
        times: arguments.times,
        writes: arguments.writes,
        clients: arguments.clients as usize,
        deadline: arguments.deadline,
        seed: arguments.seed,
    })
}

/// Runs the load for a parent process: a line on standard input stops new requests, the end of standard input ends the
/// process.
fn for_a_run(offer: Offer, dial: Dial, parent: i32) -> Result<(), Failure> {
    process::die_with(parent);
    process::leave_signals_to_parent();
    let (ends, ends_now) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let poll = Poll::new().map_err(|error| failed(&error))?;
    let waker = Driver::waker(&poll).map_err(|error| failed(&error))?;
    let (end, end_now) = (Arc::clone(&ends), Arc::clone(&ends_now));
    thread::spawn(move || {
        for _ in BufReader::new(std::io::stdin()).lines().map_while(Result::ok) {
            end.store(true, Ordering::SeqCst);
            drop(waker.wake());
        }
        end_now.store(true, Ordering::SeqCst);
        drop(waker.wake());
    });
    let mut tell = |told: LoadMessage| {
        let Ok(mut line) = serde_json::to_string(&told) else {
            return;
        };
        line.push('\n');
        let mut out = std::io::stdout().lock();
        if out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_err() {
            ends_now.store(true, Ordering::SeqCst); // the parent, which read the lines, has ended
        }
    };
    let now = || ends_now.load(Ordering::SeqCst);
    let driver = Driver::new(offer, dial, poll, &mut tell);
    driver
        .run(&|| ends.load(Ordering::SeqCst), &now)
        .map_err(|error| failed(&error))
}

fn failed(error: &std::io::Error) -> Failure {
    // Errors of the driver are sentences; those of the system do not say where they came from.
    match error.get_ref() {
        Some(refused) => Failure::of(refused.to_string()),
        None => Failure::of(format!("the load's event loop: {error}")),
    }
}

fn alone(offer: Offer, dial: Dial, arguments: &ClusterLoad) -> Result<(), Failure> {
    let json = OutputFile::report(arguments.json.as_ref())?;
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The second signal ends this process as if it had no handler.
        let handled = flag::register_conditional_default(signal, Arc::clone(&ends))
            .and_then(|_| flag::register(signal, Arc::clone(&ends)));
        handled.map_err(|error| failed(&error))?;
    }
    let poll = Poll::new().map_err(|error| failed(&error))?;
    let waker = Driver::waker(&poll).map_err(|error| failed(&error))?;
    let mut tally = LoadTally::new(offer.deadline);
    let (duration, ended) = (Duration::from(arguments.duration), Arc::clone(&ends));
    let begun = Arc::new(AtomicBool::new(false));
    let begins = Arc::clone(&begun);
    thread::spawn(move || {
        while !begins.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(20));
        }
        thread::sleep(duration);
        ended.store(true, Ordering::SeqCst);
        drop(waker.wake());
    });
    let mut tell = |told: LoadMessage| {
        if let LoadMessage::Begins { .. } = told {
            begun.store(true, Ordering::SeqCst);
        }
        tally.take(&told);
    };
    let driver = Driver::new(offer, dial, poll, &mut tell).answered_within(ANSWER_MAX);
    driver
        .run(&|| ends.load(Ordering::SeqCst), &|| false)
        .map_err(|error| failed(&error))?;
    if arguments.json.as_deref() != Some(Path::new("-")) {
        print(&tally.text())?;
    }
    if let Some(json) = json {
        json.json(&tally.document())?;
    }
    match tally.wrong() {
        0 => Ok(()),
        wrong => Err(Failure::Refuted(format!(
            "{wrong} answers are not what this client has counted"
        ))),
    }
}
