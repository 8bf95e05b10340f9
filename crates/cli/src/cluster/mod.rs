//! `punctual cluster`: nodes and balancers as processes of this machine (`run`), balancers and logs on their own
//! (`balance`, `log`, `found`), and a view of their figures ([`watch`]).

mod backlog;
pub mod balance;
pub mod dial;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(not(feature = "etcd"))]
#[path = "no_etcd.rs"]
pub mod etcd;
mod log;
pub mod member;
pub mod node;
pub mod run;
pub mod watch;

use crate::args::{Cluster, Process};
use punctual_files::failure::Failure;

/// Carries out `punctual cluster`; `command` is the command line as typed.
pub fn cluster(what: &Cluster, command: &str) -> Result<(), Failure> {
    match what {
        Cluster::Run(arguments) => run::run(arguments, command),
        Cluster::Balance(arguments) => balance::balance(arguments),
        Cluster::Log { file, listen } => log::log(file, listen),
        Cluster::Found { name, log, from } => log::found(name, log, from.as_deref()),
    }
}

/// Carries out the part of one process of a run.
pub fn process(what: &Process) -> Result<(), Failure> {
    match what {
        Process::Node => node::node(),
        Process::Balance(arguments) => balance::balance(arguments),
        Process::Sweep { folder } => node::sweep(folder),
    }
}
