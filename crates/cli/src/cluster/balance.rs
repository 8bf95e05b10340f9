//! `punctual cluster balance`: a balancer between clients of Redis and nodes, as a process.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use punctual_node::process::balance::Balancing;
use punctual_node::process::{Access, PeerAddress};
use punctual_node::seen::{TimedNotice, What};
use punctual_os::LinuxOs;
use punctual_platform::linux::process;
use punctual_units::Clock;
use signal_hook::consts::SIGHUP;
use signal_hook::flag;

use super::member::{self, CERTIFICATES_EVERY, LOOK_EVERY, find_peers};
use super::node::NodeLine;
use crate::args::ClusterBalance;
use crate::commands::{metrics, print};
use crate::serve::raise_descriptors;
use punctual_files::balancer::{self, BalancerFile};
use punctual_files::failure::Failure;

/// Settings of the arguments, or of their file.
fn settings(arguments: &ClusterBalance) -> Result<BalancerFile, Failure> {
    let Some(file) = &arguments.file else {
        return Ok(BalancerFile {
            listen: arguments.listen,
            metrics: arguments.metrics,
            balancer: arguments.balancer,
            nodes: arguments.nodes.iter().map(ToString::to_string).collect(),
            users: Vec::new(),
            tls: None,
            of_nodes: None,
        });
    };
    balancer::load(file)
}

/// Carries out `punctual cluster balance`.
pub(super) fn balance(arguments: &ClusterBalance) -> Result<(), Failure> {
    raise_descriptors();
    let settings = settings(arguments)?;
    let access = member::access(settings.users, settings.tls.as_ref(), settings.of_nodes.as_ref())?;
    let ends = Arc::new(AtomicBool::new(false));
    let mut balancing = Balancing::bind(settings.listen, access.clone()).map_err(Failure::of)?;
    let page = metrics::bind("metrics", settings.metrics)?;
    let metrics = page.as_ref().and_then(|page| page.address().ok());
    if let Some(page) = page {
        balancing = balancing.page(page);
    }
    let listens = balancing.address();
    let waker = balancing.waker();
    match arguments.parent {
        Some(parent) => {
            process::die_with(parent);
            process::leave_signals_to_parent();
            let end = Arc::clone(&ends);
            // The end of standard input ends the balancer.
            thread::spawn(move || {
                BufReader::new(std::io::stdin())
                    .lines()
                    .map_while(Result::ok)
                    .for_each(drop);
                end.store(true, Ordering::SeqCst);
                waker();
            });
            // Blocking on a full pipe does no harm here, nor for notes, which are rare.
            let (clients, peers) = (listens, listens);
            let line = NodeLine::Listens {
                clients,
                peers,
                metrics,
            };
            drop(line.print());
        }
        None => {
            // A signal by itself interrupts the loop's wait.
            member::ends(&ends).map_err(Failure::of)?;
            // Without certificates, SIGHUP ends the process, as usual.
            if settings.tls.is_some() || settings.of_nodes.is_some() {
                let asked = Arc::new(AtomicBool::new(false));
                flag::register(SIGHUP, Arc::clone(&asked)).map_err(Failure::of)?;
                thread::spawn(move || renew(&access, &asked));
            }
            print(&format!("clients reach the federation at {listens}\n"))?;
            if let Some(metrics) = metrics {
                print(&format!("figures on http://{metrics}/metrics\n"))?;
            }
        }
    }
    let for_a_run = arguments.parent.is_some();
    let note = |text: String| match for_a_run {
        true => {
            let (at, what) = (LinuxOs.now(), What::Note(text));
            drop(NodeLine::Seen(TimedNotice { at, what }).print());
        }
        // A closed standard error is no reason to stop.
        false => drop(writeln!(std::io::stderr(), "{text}")),
    };
    let (found, nodes) = channel();
    {
        // Not joined, because a lookup may take long: the thread ends with the process.
        let (ends, waker) = (Arc::clone(&ends), balancing.waker());
        let tell = move |places: BTreeMap<u32, PeerAddress>| {
            let is_heard = found.send(places).is_ok();
            waker();
            is_heard
        };
        thread::spawn(move || find_peers(&settings.nodes, tell, &ends));
    }
    let draw = RandomState::new().hash_one(std::process::id());
    balancing
        .run(nodes, settings.balancer.balancer(), draw, LinuxOs, &ends, note)
        .map_err(Failure::of)
}

/// Reloads certificates when their files change, or at a signal. Runs until the process ends.
fn renew(access: &Access, asked: &AtomicBool) {
    for round in 0u64.. {
        let is_asked = asked.swap(false, Ordering::SeqCst);
        if is_asked || round % CERTIFICATES_EVERY == 0 {
            member::renew(access, is_asked);
        }
        thread::sleep(LOOK_EVERY);
    }
}
