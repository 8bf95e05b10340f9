//! Command line of `punctual cluster`, and of the processes that a run of a cluster starts.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use punctual_files::scenario::parse_time;
use punctual_units::Nanos;

use super::{between, json_file};

/// Default address to listen on.
pub const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7400);

/// Commands of `punctual cluster`.
#[derive(Debug, Subcommand)]
pub enum Cluster {
    /// Run balancers and nodes as local processes under twice their capacity, kill the master half-way, and time each
    /// part of the outage
    ///
    /// The log is one file of this machine, served by this process; it is not replicated. At the end the answers to
    /// clients are compared with the log; exits with 1 if they disagree. All files of the run are removed.
    Run(ClusterRun),
    /// Show what nodes report: roles, lag, requests done and late, reasons and stages of lateness, ages of readings
    ///
    /// Live view on a terminal, otherwise a line for each node every second. Ctrl-C or q ends it. Exits with 2 if no
    /// node answers.
    Watch(ClusterWatch),
    /// Forward requests of any client of Redis to the nodes of a federation
    ///
    /// Queries go to the node that the balancer chooses, transactions to the master, so a client needs this one
    /// address. A balancer keeps no state: run several. Ctrl-C ends it.
    Balance(ClusterBalance),
    /// Keep the log in one file, for nodes of this machine that `punctual serve NODE.toml` starts
    ///
    /// The log is not replicated: if the machine is lost, so is the log.
    Log {
        /// File of the log, created if missing
        file: PathBuf,
        /// Unix socket to listen on; nodes name it in their configuration as log = "unix:PATH"
        #[arg(long, value_name = "PATH")]
        listen: PathBuf,
    },
    /// Create a federation's log in etcd, before its first node starts, or start a new log from a backup
    ///
    /// Nodes never create a log: to them, an empty one has lost its entries. Repeating the command changes nothing.
    /// With --from, the log begins where that store ends, in etcd or in a file for `cluster log`.
    Found {
        /// Name of the federation, as in its nodes' configuration
        name: String,
        /// Address of the log in etcd, as in the nodes' configuration; or a log file on this machine
        #[arg(long, value_name = "etcd://HOST:PORT,../NAME|FILE")]
        log: String,
        /// A node's store or its backup: start one node with it, and all others with empty folders
        #[arg(long, value_name = "STORE")]
        from: Option<PathBuf>,
    },
}

/// Processes that a run of a cluster starts from its own program.
#[derive(Debug, Subcommand)]
pub enum Process {
    /// Run one node on behalf of `cluster run`
    Node,
    /// Run one balancer on behalf of `cluster run`
    Balance(ClusterBalance),
    /// Run the load of `cluster run`
    Load(ClusterLoad),
    /// Run a member of etcd that ends with the process that started it
    Member {
        /// Process id of the parent.
        parent: i32,
        /// Program file of etcd.
        program: PathBuf,
        /// Arguments of that program.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Remove the folder of a run that was killed
    Sweep {
        /// Folder of that run.
        folder: PathBuf,
    },
}

/// Arguments of `punctual cluster run`.
#[derive(Debug, Args)]
pub struct ClusterRun {
    /// Settings in TOML; docs/federation.md lists the keys [default: two balancers, three nodes, load of twice their
    /// capacity, 10 s]
    pub file: Option<PathBuf>,
    /// Number of nodes, 1 to 16
    #[arg(long, value_name = "N")]
    pub nodes: Option<u32>,
    /// Number of balancers, 1 to 8
    #[arg(long, value_name = "N")]
    pub balancers: Option<u32>,
    /// Log that orders commits: local (one file of this machine), etcd (starts three members here), or the address of a
    /// running etcd, etcd://HOST:PORT,HOST:PORT/NAME
    #[arg(long, value_name = "LOG", default_value = "local")]
    pub log: LogKind,
    /// Fault to inject half-way
    #[arg(long, value_enum, default_value = "kill")]
    pub fault: Fault,
    /// Inject a random fault every TIME (such as 5s) instead of the one half-way
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub fault_every: Option<Nanos>,
    /// Duration of the load, 1s to 24h [default: 10s, or the file's]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub duration: Option<Nanos>,
    /// Requests a second, 1 to 50000 [default: twice the measured capacity]
    #[arg(long, value_name = "R")]
    pub rate: Option<f64>,
    /// Extra processor time for each request at a node, such as 0.3ms, at most 1s [default: 1ms]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub work: Option<Nanos>,
    /// Write the result as JSON; - is standard output, without the text
    #[arg(long, value_name = "FILE|-", value_parser = json_file)]
    pub json: Option<PathBuf>,
    /// Write an HTML page with the state of the nodes over time
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print lines instead of the live view
    #[arg(long)]
    pub plain: bool,
}

/// Arguments of `punctual cluster watch`.
#[derive(Debug, Args)]
pub struct ClusterWatch {
    /// Client addresses of 1 to 64 nodes, HOST:PORT
    #[arg(required = true, num_args = 1..=64, value_name = "ADDRESS")]
    pub places: Vec<Place>,
    #[command(flatten)]
    pub dialling: Dialling,
    /// Duration, such as 10s [default: until Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub duration: Option<Nanos>,
    /// Print lines instead of the live view
    #[arg(long)]
    pub plain: bool,
    /// Write the nodes' reports as JSON at the end; - is standard output
    #[arg(long, value_name = "FILE|-", value_parser = json_file)]
    pub json: Option<PathBuf>,
    /// Write the nodes' reports as an HTML page at the end
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// TLS and login options of a client of nodes and balancers.
#[derive(Clone, Debug, Default, Args)]
pub struct Dialling {
    /// Use TLS, and trust certificates signed by the authority in FILE (PEM)
    #[arg(long, value_name = "FILE")]
    pub authority: Option<PathBuf>,
    /// Client certificate to present (PEM), where servers require one
    #[arg(long, value_name = "FILE", requires_all = ["key", "authority"])]
    pub certificate: Option<PathBuf>,
    /// Private key of --certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// User name to log in with; --password-file holds the password
    #[arg(long, value_name = "NAME", requires = "password_file")]
    pub user: Option<String>,
    /// File with the user's password as its first line; no other user of this machine may be able to read it
    #[arg(long, value_name = "FILE", requires = "user")]
    pub password_file: Option<PathBuf>,
}

/// Arguments of `punctual cluster balance`.
#[derive(Debug, Args)]
pub struct ClusterBalance {
    /// Addresses on which the nodes listen for each other, as `cluster run` prints them
    #[arg(value_name = "NODE", required_unless_present = "file")]
    pub nodes: Vec<SocketAddr>,
    /// Address to listen on for clients of Redis; port 0 takes a free port
    #[arg(long, value_name = "ADDRESS", default_value_t = LISTEN)]
    pub listen: SocketAddr,
    /// Configuration instead of these arguments: nodes, address, users and certificates; docs/federation.md lists the
    /// keys
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "listen", "metrics"])]
    pub file: Option<PathBuf>,
    /// Serve Prometheus metrics at http://ADDRESS/metrics, on an address of this machine; port 0 takes a free port
    #[arg(long, value_name = "ADDRESS", value_parser = of_this_machine)]
    pub metrics: Option<SocketAddr>,
    /// Process id of the parent; the balancer ends with it
    #[arg(long, hide = true)]
    pub parent: Option<i32>,
}

/// Arguments of `punctual-lab cluster load`.
#[derive(Debug, Args)]
pub struct ClusterLoad {
    /// Addresses of 1 to 255 balancers or nodes, HOST:PORT; clients are spread evenly, and reconnect to the next
    /// address
    #[arg(value_name = "ADDRESS", required = true)]
    pub places: Vec<Place>,
    #[command(flatten)]
    pub dialling: Dialling,
    /// Requests a second, 1 to 50000 [default: --times the measured capacity]
    #[arg(long, value_name = "R")]
    pub rate: Option<f64>,
    /// Load as a multiple of the measured capacity, 0.1 to 100
    #[arg(long, value_name = "X", default_value_t = 2.0, conflicts_with = "rate")]
    pub times: f64,
    /// Share of requests that write (INCR), 0 to 1; the others read (GET)
    #[arg(long, value_name = "SHARE", default_value_t = 0.2)]
    pub writes: f64,
    /// Clients, 1 to 10000, each with one request at a time
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub clients: u32,
    /// Deadline of each request, 5ms to 60s, counted from its scheduled instant
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = between("5ms", "60s"))]
    pub deadline: Nanos,
    /// Duration, 1s to 24h
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = between("1s", "24h"))]
    pub duration: Nanos,
    /// Seed of the random instants
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write the result as JSON; - is standard output, without the text
    #[arg(long, value_name = "FILE|-", value_parser = json_file)]
    pub json: Option<PathBuf>,
    /// Process id of the parent, which reads this program's output; the load ends with it
    #[arg(long, hide = true)]
    pub parent: Option<i32>,
}

/// Storage of a federation's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogKind {
    /// A file of this machine, not replicated.
    Local,
    /// Three members of etcd, which the run starts.
    Members,
    /// A running etcd, by its address.
    Etcd(String),
}

impl std::str::FromStr for LogKind {
    type Err = String;

    fn from_str(text: &str) -> Result<LogKind, String> {
        match text {
            "local" => Ok(LogKind::Local),
            "etcd" => Ok(LogKind::Members),
            _ if text.starts_with("etcd://") || text.starts_with("etcds://") => Ok(LogKind::Etcd(text.into())),
            _ => Err("a log is `local`, `etcd`, or an address as etcd://HOST:PORT,HOST:PORT/NAME".into()),
        }
    }
}

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Socket address found by the name lookup.
    pub socket: SocketAddr,
    /// Name that its TLS certificate must have: a host, or an address.
    pub host: String,
}

impl Place {
    /// A server whose certificate names its address.
    pub fn of(socket: SocketAddr) -> Place {
        Place {
            socket,
            host: socket.ip().to_string(),
        }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let host = text.rsplit_once(':').map_or("", |(host, _)| host);
        let found = text.to_socket_addrs().map(|mut found| found.next());
        match found {
            Ok(Some(socket)) if !host.is_empty() => Ok(Place {
                socket,
                host: host.trim_matches(['[', ']']).to_owned(),
            }),
            Ok(_) => Err("expected HOST:PORT".into()),
            Err(error) => Err(format!("expected HOST:PORT: {error}")),
        }
    }
}

/// Faults that a run can inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Fault {
    /// Kill the master, and restart it after 1 s
    Kill,
    /// Stop the master (SIGSTOP) for 1 s
    Stop,
    /// Cut the master off the network for 1 s; needs the rights to create network namespaces
    Cut,
    /// Kill a replica, and restart it after 1 s
    SlaveKill,
    /// Kill a balancer, and restart it after 1 s; its clients move to the other one
    BalancerKill,
    /// Tell the master to leave; once it has ended, start another process in its place
    Upgrade,
    /// Kill the leader of the log, and restart it after 1 s (with --log etcd)
    Leader,
    /// Kill the leader of the log and the master, and restart both after 1 s (with --log etcd)
    Both,
}

/// Parses an address that no other machine can reach.
pub fn of_this_machine(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse::<SocketAddr>().ok();
    let address = address.filter(|address| address.ip().is_loopback());
    address.ok_or_else(|| "expected an address of this machine alone, such as \"127.0.0.1:9121\"".into())
}
