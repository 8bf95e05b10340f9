//! Command line of `punctual cluster`, and of the processes that a run of a cluster starts.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use punctual_federation::admission::AdmissionKind;
use punctual_federation::balancer::BalancerKind;
use punctual_files::balancer::LISTEN;
use punctual_files::server::of_this_machine;
use punctual_files::toml::parse_time;
use punctual_units::Nanos;

/// Commands of `punctual cluster`.
#[derive(Debug, Subcommand)]
pub enum Cluster {
    /// Run balancers and nodes as processes of this machine, to try a cluster
    ///
    /// Prints the addresses for Redis clients and for `cluster balance`, and shows the nodes until Ctrl-C. The
    /// replication log is one file of this machine, itself not replicated. Its data is removed at the end.
    Run(ClusterRun),
    /// Forward requests of any Redis client to the nodes of a cluster
    ///
    /// Reads go to the node that the balancer chooses, writes to the master, so a client needs this one address. A
    /// balancer keeps no state: run several. Ctrl-C ends it.
    Balance(ClusterBalance),
    /// Keep the replication log in a file, for local nodes that `punctual serve NODE.toml` starts
    ///
    /// The log is not replicated: if the machine is lost, so is the log.
    Log {
        /// File of the log, created if missing
        file: PathBuf,
        /// Unix socket to listen on; nodes name it in their configuration as log = "unix:PATH"
        #[arg(long, value_name = "PATH")]
        listen: PathBuf,
    },
    #[cfg_attr(
        feature = "etcd",
        doc = "Create a cluster's replication log in etcd, before its first node starts, or begin a new log from a backup"
    )]
    #[cfg_attr(not(feature = "etcd"), doc = "Begin a cluster's replication log from a backup")]
    ///
    /// Nodes never create a log; they treat an empty one as data loss. Repeating the command changes nothing. --from
    /// starts the log at that store's end.
    Found {
        /// Name of the cluster, as in its nodes' configuration
        name: String,
        #[cfg_attr(
            feature = "etcd",
            doc = "Address of the log in etcd, as in the nodes' configuration; or a file for `cluster log`"
        )]
        #[cfg_attr(not(feature = "etcd"), doc = "File of the log, for `cluster log`")]
        #[arg(long, value_name = if cfg!(feature = "etcd") { "etcd://HOSTS/NAME|FILE" } else { "FILE" })]
        log: String,
        /// A node's store or its backup to begin from; then start one node with it, all others empty
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
    /// Remove the folder of a run that was killed
    Sweep {
        /// Folder of that run.
        folder: PathBuf,
    },
}

/// Arguments of `punctual cluster run`.
#[derive(Clone, Debug, Default, Args)]
pub struct ClusterRun {
    /// Settings in TOML; docs/guide/reference/node-file.md lists the keys [default: two balancers, three nodes]
    pub file: Option<PathBuf>,
    /// Number of nodes, 1 to 16
    #[arg(long, value_name = "N")]
    pub nodes: Option<u32>,
    /// Number of balancers, 1 to 8
    #[arg(long, value_name = "N")]
    pub balancers: Option<u32>,
    #[command(flatten)]
    pub policies: Policies,
    /// Duration, 1s to 24h [default: until Ctrl-C, or the file's]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub duration: Option<Nanos>,
    /// Write the nodes' reports as JSON at the end; - is standard output, without the text
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Write an HTML page with the state of the nodes over time
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print the addresses only, without a live view
    #[arg(long)]
    pub plain: bool,
}

/// Arguments of `punctual top`.
#[derive(Debug, Args)]
pub struct Top {
    /// Name of a run, or number of its process; or HOST:PORT for clients, of 1 to 64 nodes or balancers [default: the
    /// only run]
    #[arg(num_args = 0..=64, value_name = "NAME|PID|ADDRESS")]
    pub shown: Vec<String>,
    #[command(flatten)]
    pub dialling: Dialling,
    /// Duration, such as 10s [default: until Ctrl-C, or the run's end]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub duration: Option<Nanos>,
    /// Print lines instead of the live view; of nodes it ends after 10 s if none answers
    #[arg(long)]
    pub plain: bool,
    /// Serve the view of a run to browsers at http://ADDRESS/, a loopback address, which every user of this machine can
    /// read, and print lines; port 0 takes a free port
    #[arg(long, value_name = "ADDRESS", value_parser = of_this_machine)]
    pub serve: Option<SocketAddr>,
    /// Write the nodes' reports as JSON at the end; - is standard output
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Write the nodes' reports as an HTML page at the end
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// TLS and login options of a client of nodes and balancers.
#[derive(Clone, Debug, Default, Args)]
pub struct Dialling {
    /// Use TLS, and trust certificates signed by the CA in FILE (PEM)
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
    /// Address to listen on for Redis clients; port 0 takes a free port
    #[arg(long, value_name = "ADDRESS", default_value_t = LISTEN)]
    pub listen: SocketAddr,
    /// Policy that chooses the node of a read
    #[arg(long, value_name = "NAME", default_value = "home", value_parser = named(BalancerKind::NAMED))]
    pub balancer: BalancerKind,
    /// Configuration in place of NODE and the other options: also users and certificates;
    /// docs/guide/reference/node-file.md lists the keys
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "listen", "metrics", "balancer"])]
    pub file: Option<PathBuf>,
    /// Serve Prometheus metrics at http://ADDRESS/metrics, a loopback address; port 0 takes a free port
    #[arg(long, value_name = "ADDRESS", value_parser = of_this_machine)]
    pub metrics: Option<SocketAddr>,
    /// Process id of the parent; the balancer ends with it
    #[arg(long, hide = true)]
    pub parent: Option<i32>,
}

/// Policies of a cluster that runs on this machine.
#[derive(Clone, Debug, Default, Args)]
pub struct Policies {
    /// Policy by which balancers choose the node of a read
    #[arg(long, value_name = "NAME", value_parser = named(BalancerKind::NAMED))]
    pub balancer: Option<BalancerKind>,
    /// Reads that nodes admit: all (open), within a bound that a control law sets (paper), or those that end in time
    #[arg(long, value_name = "NAME", value_parser = named(AdmissionKind::NAMED))]
    pub admission: Option<AdmissionKind>,
}

/// Parser of a policy's name.
fn named<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [(&'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    let found = move |name: String| { all.into_iter() }.find(|(known, _)| *known == name);
    PossibleValuesParser::new(all.map(|(name, _)| name))
        .try_map(move |name| found(name).map(|(_, one)| one).ok_or("no policy has this name"))
}

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// Socket address found by the name lookup.
    pub socket: SocketAddr,
    /// Name that its TLS certificate must have: a host, or an address.
    pub host: String,
}

impl ServerAddress {
    /// A server whose certificate names its address.
    pub fn of(socket: SocketAddr) -> ServerAddress {
        ServerAddress {
            socket,
            host: socket.ip().to_string(),
        }
    }
}

impl FromStr for ServerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ServerAddress, String> {
        let host = text.rsplit_once(':').map_or("", |(host, _)| host);
        let found = text.to_socket_addrs().map(|mut found| found.next());
        match found {
            Ok(Some(socket)) if !host.is_empty() => Ok(ServerAddress {
                socket,
                host: host.trim_matches(['[', ']']).to_owned(),
            }),
            Ok(_) => Err("expected HOST:PORT".into()),
            Err(error) => Err(format!("expected HOST:PORT: {error}")),
        }
    }
}
