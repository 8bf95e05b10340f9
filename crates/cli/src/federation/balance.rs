//! `punctual federation balance`: a balancer between clients of Redis and nodes, as a process.

use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use punctual_federation::balancer::Home;
use punctual_node::process::Access;
use punctual_node::process::balance::Balancing;
use punctual_node::seen::{Seen, What};
use punctual_os::LinuxOs;
use punctual_platform::linux::process;
use punctual_units::Clock;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::node::Told;
use crate::args::FederationBalance;
use crate::commands::print;
use crate::failure::Failure;

/// Carries out `punctual federation balance`.
pub(super) fn balance(arguments: &FederationBalance) -> Result<(), Failure> {
    let input = |error: &dyn std::fmt::Display| Failure::input([error.to_string()]);
    let ends = Arc::new(AtomicBool::new(false));
    let balancing = Balancing::bind(arguments.listen, Access::default()).map_err(|error| input(&error))?;
    let listens = balancing.address().map_err(|error| input(&error))?;
    let waker = balancing.waker();
    match arguments.parent {
        Some(parent) => {
            process::die_with(parent);
            process::leave_signals_to_parent();
            let end = Arc::clone(&ends);
            // The end of the input is the end of the balancer.
            thread::spawn(move || {
                BufReader::new(std::io::stdin())
                    .lines()
                    .map_while(Result::ok)
                    .for_each(drop);
                end.store(true, Ordering::SeqCst);
                drop(waker.wake());
            });
            tell(&Told::Listens {
                clients: listens,
                peers: listens,
                metrics: None,
            });
        }
        None => {
            for signal in [SIGINT, SIGTERM] {
                // A signal ends the wait of the loop by itself. The second one ends the process.
                flag::register_conditional_default(signal, Arc::clone(&ends)).map_err(|error| input(&error))?;
                flag::register(signal, Arc::clone(&ends)).map_err(|error| input(&error))?;
            }
            print(&format!("clients reach the federation at {listens}\n"))?;
        }
    }
    let for_a_run = arguments.parent.is_some();
    let note = |text: String| match for_a_run {
        true => tell(&Told::Seen(Seen {
            at: LinuxOs.now(),
            what: What::Note(text),
        })),
        // A closed standard error is no reason to stop.
        false => drop(writeln!(std::io::stderr(), "{text}")),
    };
    let draw = RandomState::new().hash_one(std::process::id());
    balancing
        .run(&arguments.nodes, Box::new(Home::default()), draw, LinuxOs, &ends, note)
        .map_err(|error| input(&error))
}

/// A line for the process that started this one. Notes are rare, so the loop does not wait for a pipe that is full.
fn tell(told: &Told) {
    let mut line = serde_json::to_string(told).unwrap_or_default();
    line.push('\n');
    let mut out = std::io::stdout().lock();
    drop(out.write_all(line.as_bytes()).and_then(|()| out.flush()));
}

/// Where a balancer listens unless an argument says otherwise.
pub const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7400);
