//! The command line: what can be asked for, in the words of `punctual --help`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use punctual_allocation::Policy;
use punctual_allocation::mapping::MappingPolicy;
use punctual_pipeline::WhenFull;
use punctual_runtime::linux::pipeline::Mechanism;
use punctual_scenario::{Fault, Governor};
use punctual_store::engine::Durability;
use punctual_units::{CoreId, Nanos};
#[cfg(feature = "lab")]
use punctual_workload::ControllerKind;

use crate::fault;
use crate::federation::dial::Place;
use crate::federation::run::Fault as FederationFault;
#[cfg(feature = "lab")]
use crate::lab::args::{Bench, Experiment};
use crate::scenario::{Override, WAY_KIB_MAX, parse_policy, parse_time};
use crate::size;
use crate::store::args::StoreCommand;

/// Where `--json` writes to: a file, or "-" for standard output.
///
/// # Errors
/// In words, for the name of a scenario: `--json` without FILE may stand before one, and would write over it.
pub fn json_file(name: &str) -> Result<PathBuf, String> {
    if name.ends_with(".toml") {
        return Err("JSON would be written over this scenario: name the scenario before --json".into());
    }
    Ok(name.into())
}

/// Keeps soft real-time work on time on multicore Linux.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Without a command, `punctual` runs the shipped scenario: `punctual run`."
)]
pub struct Arguments {
    /// What to do; `run` if left out.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What can be asked for.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a scenario and show how well its deadlines are held
    Run(Run),
    /// List or show the built-in scenarios
    #[command(subcommand)]
    Scenario(ScenarioCommand),
    /// Move the knobs on the running system and learn a model from what they do
    Identify(Identify),
    /// Work out a controller's gains from a model
    Design(Design),
    /// Take the decisions of a recorded run again, and compare
    ///
    /// Reads a log that `punctual run --record` wrote, and feeds its events to fresh policies. Ends with 1 if a
    /// decision differs, with 2 if the log is damaged or of another version.
    Replay(Replay),
    /// Say what this machine offers, what is missing, and how to get it
    Doctor(Doctor),
    /// Put back what dead programs of punctual have left changed on this machine
    ///
    /// What a living program wants stays. Ends with 2 if something could not be put back, and says how to do it by
    /// hand.
    Restore(Restore),
    /// See the pipelines that run, and move, replace or kill their stages
    Pipeline(Pipeline),
    /// Look at a store, check it and copy it, also while a program has it open
    ///
    /// A store is a folder with a file data.mdb. inspect, verify, export and backup read a snapshot and leave the
    /// program alone that has the store open; it may end the snapshot of a reader that keeps too much (docs/store.md).
    /// All of them end with 2 for what is no store or cannot be read, with 1 for a store that is damaged.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Receive FM radio by a pipeline of processes, whose stages move and start again while it plays
    ///
    /// Without a recording it plays the shipped one. A radio: rtl_sdr -f 100.7M -s 250000 - | punctual radio - --wav -
    /// | aplay
    Radio(Radio),
    /// Run a federation of nodes on this machine, or simulate one under every fault, and check what it promised
    Federation(Federation),
    /// Serve one store to any client of Redis, on this machine
    ///
    /// docs/commands.md names the commands and what differs from Redis. Ctrl-C ends it in order. Ends with 2 where it
    /// cannot start.
    Serve(Serve),
    /// Measure parts of `punctual` on this machine
    #[cfg(feature = "lab")]
    #[command(subcommand)]
    Bench(Bench),
    /// Measure parts of `punctual` on this machine (not in this build)
    #[cfg(not(feature = "lab"))]
    Bench(Absent),
    /// Repeat a paper's evaluation on simulated machines, and hold it against the paper's claims
    #[cfg(feature = "lab")]
    Experiment(Experiment),
    /// Repeat a paper's evaluation (not in this build)
    #[cfg(not(feature = "lab"))]
    Experiment(Absent),
    /// Find what cache ways are worth to a program, along its execution
    ///
    /// Runs PROGRAM to its end under QEMU's user-mode emulation (qemu-user) and counts, for every window of
    /// instructions, the requests to the last-level cache (LLC) and how many of them miss with 1, 2, ... ways. Its
    /// input and output are its own.
    Profile(Profile),
}

/// A command of the lab in a build without it: takes any arguments, to say where it is.
#[cfg(not(feature = "lab"))]
#[derive(Debug, Args)]
pub struct Absent {
    /// Not looked at.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub rest: Vec<std::ffi::OsString>,
}

/// `run`
#[derive(Debug, Default, Args)]
pub struct Run {
    /// The scenario file, or the name of a built-in one [default: scenarios/fire-rescue.toml]
    pub scenario: Option<PathBuf>,
    #[command(flatten)]
    pub change: Change,
    /// The law that decides: the scenario's control.controller
    #[arg(long, value_enum)]
    pub controller: Option<Controller>,
    /// A model (from `identify`) or controller (from `design`) to run with, in place of the scenario's
    #[arg(long, value_name = "FILE", conflicts_with = "identify")]
    pub model: Option<PathBuf>,
    /// Learn a model on this machine first, then run with it; where nothing useful is learnt, with the scenario's, else
    /// open
    #[arg(long)]
    pub identify: bool,
    /// Run all the same if the loop is unstable, or a knob of the model works backwards; the report says so
    #[arg(long)]
    pub force: bool,
    /// Write everything about the run as JSON; without FILE to standard output, and the text to standard error
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", value_parser = json_file)]
    pub json: Option<PathBuf>,
    /// Write a page with the curves, for any browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the log of the run's events, which replays to the same decisions
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// One line per second in place of the live view
    #[arg(long)]
    pub plain: bool,
    /// Exit with 1 unless every task holds its goal, for scripts
    #[arg(long)]
    pub check: bool,
}

/// `serve`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Serve {
    /// What else it can do
    #[command(subcommand)]
    pub command: Option<ServeCommand>,
    /// The file of the node, in TOML; docs/commands.md names the keys [default: a store in punctual.store]
    #[arg(value_name = "NODE.toml")]
    pub file: Option<PathBuf>,
    /// Where to listen; port 0 takes a free one [default: 127.0.0.1:6379]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// The folder of the store, which is made if it is not there [default: punctual.store]
    #[arg(long, value_name = "FOLDER")]
    pub store: Option<PathBuf>,
    /// What a write that is acknowledged survives [default: durable]
    #[arg(long, value_enum)]
    pub durability: Option<StoreDurability>,
}

/// `serve ...`
#[derive(Debug, Subcommand)]
pub enum ServeCommand {
    /// Read a password from standard input, and print what a node's file keeps of it
    Hash {
        /// How often it is hashed: more make each guess dearer, and each check
        #[arg(long, value_name = "N", default_value_t = punctual_server::users::ROUNDS)]
        rounds: u32,
    },
}

/// `serve --durability`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StoreDurability {
    /// A power cut
    Durable,
    /// A power cut, but for the newest commit
    NoMetaSync,
    /// The end of the program, not a power cut
    Volatile,
}

impl StoreDurability {
    /// As the store has it.
    pub fn durability(self) -> Durability {
        match self {
            StoreDurability::Durable => Durability::Durable,
            StoreDurability::NoMetaSync => Durability::NoMetaSync,
            StoreDurability::Volatile => Durability::Volatile,
        }
    }
}

/// `federation ...`
#[derive(Debug, Args)]
pub struct Federation {
    /// What to do
    #[command(subcommand)]
    pub what: FederationCommand,
}

/// `federation sim`
#[derive(Debug, Subcommand)]
pub enum FederationCommand {
    /// Simulate nodes, network, clocks and log, seed by seed, and check every answer
    ///
    /// Ends with 1 at the first seed that breaks a promise, and shows what led to it as a message chart: a column for
    /// each node, time downwards. The same settings and seed give the same run.
    Sim(FederationSim),
    /// Run balancers and nodes as processes of this machine, offer twice the load that they can serve, kill the master
    /// half-way, and show the outage part by part
    ///
    /// The log is one file of this machine, behind this process: it is not replicated. At the end, what clients were
    /// told is held against the log; ends with 1 where the two do not agree. Nothing is left behind.
    Run(FederationRun),
    /// Show what nodes tell of themselves: roles, lag, requests done and late, why and where, ages of readings
    ///
    /// A live view on a terminal, otherwise a line for each node every second. Ctrl-C or q ends it. Ends with 2 where
    /// no node answers.
    Watch(FederationWatch),
    /// Pass requests of any client of Redis on to the nodes of a federation
    ///
    /// Queries go where a balancer says, transactions to the master, so a client needs this one address. It keeps
    /// nothing: run several. Ctrl-C ends it.
    Balance(FederationBalance),
    /// Offer requests at random instants (Poisson) to balancers or nodes, each timed from when it was to be sent
    ///
    /// Each client has a session and a counter of its own; ends with 1 where an answer is not what it has counted.
    Load(FederationLoad),
    /// Keep a log in one file, for nodes of this machine that `punctual serve NODE.toml` starts
    ///
    /// It is not replicated: with the machine the log is gone.
    Log {
        /// The log; it is made where there is none
        file: PathBuf,
        /// The socket at which nodes find it, as their files name it: log = "unix:PATH"
        #[arg(long, value_name = "PATH")]
        listen: PathBuf,
    },
    /// Make a place in etcd the log of a federation, before its first node starts; or begin anew from a backup
    ///
    /// Nodes never do: to a node, a place that is empty is a log that has lost its entries. Done twice, it changes
    /// nothing. With --from, the log begins where that store ends, in a file that `federation log` keeps, or in etcd.
    Found {
        /// The federation's name, as in the files of its nodes
        name: String,
        /// The place, as in the files of its nodes; or the file of a log on this machine
        #[arg(long, value_name = "etcd://HOST:PORT,../NAME|FILE")]
        log: String,
        /// A node's store, or a backup of one: one node is to start with it, and all others with empty folders
        #[arg(long, value_name = "STORE")]
        from: Option<PathBuf>,
    },
    /// One node, for the process that started it
    #[command(hide = true)]
    Node,
    /// A member of etcd, which ends with the process that started it
    #[command(hide = true)]
    Member {
        /// That process.
        parent: i32,
        /// The program.
        program: PathBuf,
        /// Its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Removes the folder of a run that was killed
    #[command(hide = true)]
    Sweep {
        /// The folder.
        folder: PathBuf,
    },
}

/// `federation run`
#[derive(Debug, Args)]
pub struct FederationRun {
    /// Settings in TOML; docs/federation.md names the keys [default: two balancers, three nodes, twice their capacity,
    /// 10 s]
    pub file: Option<PathBuf>,
    /// How many nodes, 1 to 16
    #[arg(long, value_name = "N")]
    pub nodes: Option<u32>,
    /// How many balancers, 1 to 8
    #[arg(long, value_name = "N")]
    pub balancers: Option<u32>,
    /// Where the order of commits is kept: local is one file of this machine; etcd://HOST:PORT,HOST:PORT/NAME is an
    /// etcd that runs; etcd starts one of three members here
    #[arg(long, value_name = "LOG", default_value = "local")]
    pub log: LogKind,
    /// What happens half-way
    #[arg(long, value_enum, default_value = "kill")]
    pub fault: FederationFault,
    /// A fault of a kind drawn at random each so often (such as 5s), in place of the one half-way
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub fault_every: Option<Nanos>,
    /// For how long the load is offered, in seconds
    #[arg(long, value_name = "S")]
    pub seconds: Option<u64>,
    /// Requests a second [default: twice what was served as fast as it could be, measured first]
    #[arg(long, value_name = "R")]
    pub rate: Option<f64>,
    /// The processor time that a node spends on each request, besides what it needs (such as 0.3ms) [default: 1ms]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub work: Option<Nanos>,
    /// Write the result as JSON; without FILE to standard output, and no text
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", value_parser = json_file)]
    pub json: Option<PathBuf>,
    /// Write what the nodes were along the run as a page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// No live view
    #[arg(long)]
    pub plain: bool,
}

/// `federation watch`
#[derive(Debug, Args)]
pub struct FederationWatch {
    /// Where the nodes are, as clients reach them: HOST:PORT
    #[arg(required = true, num_args = 1..=64, value_name = "ADDRESS")]
    pub places: Vec<Place>,
    #[command(flatten)]
    pub dialling: Dialling,
    /// For how long, in seconds [default: until Ctrl-C]
    #[arg(long, value_name = "S")]
    pub seconds: Option<u64>,
    /// Lines in place of the live view
    #[arg(long)]
    pub plain: bool,
    /// Write what was told as JSON at the end; "-" is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write what was told as a page at the end
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// How a client comes to nodes and balancers that want TLS, or a user.
#[derive(Clone, Debug, Default, Args)]
pub struct Dialling {
    /// Speak TLS, and believe certificates of the authority in this file (PEM)
    #[arg(long, value_name = "FILE")]
    pub authority: Option<PathBuf>,
    /// Show this certificate (PEM), where clients need one
    #[arg(long, value_name = "FILE", requires_all = ["key", "authority"])]
    pub certificate: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// Come as this user; the password is the first line of --password-file
    #[arg(long, value_name = "NAME", requires = "password_file")]
    pub user: Option<String>,
    /// The user's password, in a file that no other user of this machine may read
    #[arg(long, value_name = "FILE", requires = "user")]
    pub password_file: Option<PathBuf>,
}

/// `federation balance`
#[derive(Debug, Args)]
pub struct FederationBalance {
    /// Where the nodes hear their peers, as `federation run` prints it
    #[arg(value_name = "NODE", required_unless_present = "file")]
    pub nodes: Vec<SocketAddr>,
    /// Where clients of Redis reach it: an address of this machine; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value_t = crate::federation::balance::LISTEN)]
    pub listen: SocketAddr,
    /// A file that says all of that: nodes, address, users and certificates; docs/federation.md
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "listen", "metrics"])]
    pub file: Option<PathBuf>,
    /// Have figures for Prometheus there, at /metrics: an address of this machine; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", value_parser = crate::serve::file::of_this_machine)]
    pub metrics: Option<SocketAddr>,
    /// The process that starts it: it ends with that.
    #[arg(long, hide = true)]
    pub parent: Option<i32>,
}

/// `federation load`
#[derive(Debug, Args)]
pub struct FederationLoad {
    /// Balancers or nodes, HOST:PORT: clients are shared out evenly, and go to the next where a connection ends
    #[arg(value_name = "ADDRESS", required = true)]
    pub places: Vec<Place>,
    #[command(flatten)]
    pub dialling: Dialling,
    /// Requests a second [default: --times what was served as fast as it could be, measured first]
    #[arg(long, value_name = "R")]
    pub rate: Option<f64>,
    /// How many times of what is served are offered
    #[arg(long, value_name = "X", default_value_t = 2.0, conflicts_with = "rate")]
    pub times: f64,
    /// The share of requests that count (INCR), 0 to 1; the others read (GET)
    #[arg(long, value_name = "SHARE", default_value_t = 0.2)]
    pub writes: f64,
    /// Clients, each with one request at a time
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub clients: u32,
    /// The time that each request has, from when it was to be sent
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(5..=60_000))]
    pub deadline_ms: u64,
    /// For how long, in seconds
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// Of the random instants
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write the result as JSON; without FILE to standard output, and no text
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", value_parser = json_file)]
    pub json: Option<PathBuf>,
    /// The process that starts it, reads what this one prints, and with which this one ends
    #[arg(long, hide = true)]
    pub parent: Option<i32>,
}

/// Where a federation's log is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogKind {
    /// One file of this machine, not replicated
    Local,
    /// Three members of etcd, which the run starts
    Members,
    /// An etcd that runs, by its address
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

/// `federation sim`
#[derive(Debug, Args)]
pub struct FederationSim {
    /// Settings of the cluster, in TOML; docs/federation.md names the keys [default: three nodes, one that joins, two
    /// fronts, four clients, 2.5 s with faults]
    pub file: Option<PathBuf>,
    /// How many seeds to simulate
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: u64,
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Break a promise on purpose, to see the check find it; a wrong name lists those that there are
    #[arg(long, value_name = "FAULT")]
    pub plant: Option<String>,
    /// Write the result as JSON; without FILE to standard output, and the text to standard error
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", value_parser = json_file)]
    pub json: Option<PathBuf>,
    /// Write a page, with the message chart of a seed that fails
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write what clients did and were told, for other checkers
    #[arg(long, value_enum, value_name = "KIND")]
    pub export: Option<Export>,
    /// Where to write it; "-" is standard output, and the text goes to standard error
    #[arg(long, value_name = "FILE", default_value = "-", requires = "export")]
    pub to: PathBuf,
}

/// What other checkers read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Export {
    /// One history of lists in EDN, as Elle reads it
    ListAppend,
    /// Every request as a JSON object a line, for `.ci/linearizable`
    Requests,
}

/// `scenario ...`
#[derive(Debug, Subcommand)]
pub enum ScenarioCommand {
    /// Name the built-in scenarios, each with what it is about
    List,
    /// Print a built-in scenario, for a file to start your own from
    Show {
        /// Its name, such as robot
        name: PathBuf,
    },
}

/// `identify`
#[derive(Debug, Args)]
pub struct Identify {
    /// The scenario file
    pub scenario: PathBuf,
    /// Where to write the model
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    #[command(flatten)]
    pub change: Change,
    /// Write what was recorded as JSON, also where the model is not accepted; without FILE to standard output, and the
    /// text to standard error
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", value_parser = json_file)]
    pub json: Option<PathBuf>,
    /// One line per second in place of the live view
    #[arg(long)]
    pub plain: bool,
}

/// `design`
#[derive(Debug, Args)]
pub struct Design {
    /// The model, from `identify`
    pub model: PathBuf,
    /// Where to write the controller
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Write it all the same if a loop is unstable, or a knob of the model works backwards
    #[arg(long)]
    pub force: bool,
}

/// `replay`
#[derive(Debug, Args)]
pub struct Replay {
    /// The log, from `run --record`
    pub log: PathBuf,
}

/// `doctor`
#[derive(Debug, Args)]
pub struct Doctor {
    /// The folder of a store to look at, may be given several times; those that scenarios and nodes (*.toml) in this
    /// folder name are looked at anyway
    #[arg(long, value_name = "DIR")]
    pub store: Vec<PathBuf>,
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// `restore`
#[derive(Debug, Args)]
pub struct Restore {
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// `pipeline`
#[derive(Debug, Args)]
pub struct Pipeline {
    /// What is to be done.
    #[command(subcommand)]
    pub what: PipelineCommand,
    /// Which one, where several run: the process that started it
    #[arg(long, global = true, value_name = "PID")]
    pub process: Option<i32>,
}

/// `pipeline ...`
#[derive(Debug, Subcommand)]
pub enum PipelineCommand {
    /// The pipelines that run, and their stages
    List {
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Move a stage to another core
    Move {
        /// The stage
        stage: String,
        /// The core
        core: u32,
        /// How: affinity, replica, announced, recreate, recreate-ahead
        #[arg(long, default_value = "announced", value_parser = mechanism)]
        mechanism: Mechanism,
    },
    /// Have a process of another program take a stage over; until it has read the stage's state, the old one goes on
    Upgrade {
        /// The stage
        stage: String,
        /// The program, which is started with the arguments of the running one
        program: PathBuf,
    },
    /// Kill the process that has a stage; another one goes on
    Kill {
        /// The stage
        stage: String,
    },
    /// Set what decides where stages run: policy, rate, hold or period
    Set {
        /// policy (none, balance, table, table-off, thermal, alone), rate (frames per second, for a source that looks),
        /// hold (how long a user's move holds, such as 10s), or period (how often the policy is asked, such as 100ms)
        key: String,
        /// Its value
        value: String,
    },
}

/// `radio`
#[derive(Debug, Args)]
pub struct Radio {
    /// IQ samples as rtl_sdr writes them, 250,000 a second, plain or packed (.zst); - is the standard input
    pub recording: Option<PathBuf>,
    /// Bands of the equalizer, 1 to 16 [default: 4]
    #[arg(long, value_name = "N")]
    pub bands: Option<usize>,
    /// Gains of the bands in decibels, the lowest band's first
    #[arg(long, value_name = "dB,..", value_delimiter = ',', allow_hyphen_values = true)]
    pub gains: Option<Vec<f64>>,
    /// Frames per second: real (as they were received), max (as fast as possible), or a number
    #[arg(long, default_value = "real", allow_hyphen_values = true)]
    pub rate: String,
    /// IQ samples of a frame, a multiple of 10
    #[arg(long, default_value_t = 250, value_name = "SAMPLES")]
    pub frame: usize,
    /// Frames of each queue
    #[arg(long, default_value_t = 14)]
    pub slots: u32,
    /// What becomes of samples that come while the first queue is full, where the input is a pipe: wait (the pipe's
    /// writer waits), drop-oldest, drop-late
    #[arg(long, default_value = "wait", value_parser = when_full)]
    pub when_full: WhenFull,
    /// Cores of the stages, such as 0,2-3, or auto
    #[arg(long, default_value = "auto", value_parser = core_list)]
    pub cores: CoreList,
    /// How stages move: affinity, replica, announced, recreate, recreate-ahead
    #[arg(long, default_value = "announced", value_parser = mechanism)]
    pub mechanism: Mechanism,
    /// What decides where stages run: none, balance, table, table-off, thermal, alone
    #[arg(long, default_value = "none", value_parser = mapping_policy)]
    pub policy: MappingPolicy,
    /// Write what the policy saw and answered, for `punctual replay`
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Where the kernel's files about clocks are: a recorded or emulated tree
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub kernel_tree: Option<PathBuf>,
    /// Move a stage so often, such as 1ms
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub migrate_every: Option<Duration>,
    /// Kill a stage's process so often, such as 20ms
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub kill_every: Option<Duration>,
    /// Have a new process take every stage over at this time, such as 3s
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub upgrade_at: Option<Duration>,
    /// The program of these processes [default: this one]
    #[arg(long, value_name = "PROGRAM", requires = "upgrade_at")]
    pub upgrade_to: Option<PathBuf>,
    /// Play so many frames
    #[arg(long, value_name = "N")]
    pub frames: Option<u64>,
    /// Write the sound to this file; - is the standard output
    #[arg(long, value_name = "FILE")]
    pub wav: Option<PathBuf>,
    /// The true sound (WAV, 25 kHz), to compare with
    #[arg(long, value_name = "FILE")]
    pub reference: Option<PathBuf>,
    /// Draws which stage is moved or killed
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the report as JSON; without FILE to standard output, and the text to standard error
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", value_parser = json_file)]
    pub json: Option<PathBuf>,
    /// Write a page with the sound, spectra, cores, queues and hand-overs, for any browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// No live view
    #[arg(long)]
    pub plain: bool,
    /// End with 1 where a frame is lost, twice or late, or the sound differs from that of one thread
    #[arg(long)]
    pub check: bool,
}

fn when_full(text: &str) -> Result<WhenFull, String> {
    match text {
        "wait" => Ok(WhenFull::Wait),
        "drop-oldest" => Ok(WhenFull::DropOldest),
        "drop-late" => Ok(WhenFull::DropLate),
        _ => Err("give wait, drop-oldest or drop-late".into()),
    }
}

/// Cores; none: auto.
#[derive(Clone, Debug)]
pub struct CoreList(pub Vec<CoreId>);

fn core_list(text: &str) -> Result<CoreList, String> {
    let cores = punctual_platform::linux::cores::parse_list(text);
    match text {
        "auto" => Ok(CoreList(Vec::new())),
        _ if cores.is_empty() => Err("give auto, or a list such as 0,2-3".into()),
        _ => Ok(CoreList(cores)),
    }
}

fn mechanism(text: &str) -> Result<Mechanism, String> {
    let names = Mechanism::ALL.map(Mechanism::name).join(", ");
    let found = Mechanism::ALL.into_iter().find(|mechanism| mechanism.name() == text);
    found.ok_or_else(|| format!("give one of {names}"))
}

/// A policy, as users write it.
pub fn mapping_policy(text: &str) -> Result<MappingPolicy, String> {
    let names = MappingPolicy::ALL.map(MappingPolicy::name).join(", ");
    let found = MappingPolicy::ALL.into_iter().find(|policy| policy.name() == text);
    found.ok_or_else(|| format!("\"{text}\": give one of {names}"))
}

fn span(text: &str) -> Result<Duration, String> {
    parse_time(text).map(Duration::from)
}

/// `profile`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Profile {
    /// What else is asked for.
    #[command(subcommand)]
    pub what: Option<ProfileCommand>,
    #[command(flatten)]
    pub trace: Trace,
}

/// `profile ...`
#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// Profile a program; the word may be left out
    Trace(Trace),
    /// Draw rate, misses and phases of a profile, and tell what it costs to keep few phases
    Show(Show),
}

/// `profile trace`
#[derive(Debug, Args)]
pub struct Trace {
    /// Ways of the LLC, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub ways: u8,
    /// Size of each way
    #[arg(long, value_name = "SIZE", default_value = "2MiB", value_parser = size::parse)]
    pub way_size: u64,
    /// Size of the first level, for instructions and for data each: 8 ways
    #[arg(long, value_name = "SIZE", default_value = "32KiB", value_parser = size::parse)]
    pub l1: u64,
    /// Size of the second level: 8 ways; 0 for none
    #[arg(long, value_name = "SIZE", default_value = "256KiB", value_parser = size::parse)]
    pub l2: u64,
    /// Instructions of a window; it ends with the block of instructions in which it gets full
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(10_000..))]
    pub window: u64,
    /// Where to write the profile [default: PROGRAM.profile.csv]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The program, and what to give it
    #[arg(last = true, required = true, value_names = ["PROGRAM", "ARGS"], num_args = 1..)]
    pub command: Vec<std::ffi::OsString>,
}

/// `profile show`
#[derive(Debug, Args)]
pub struct Show {
    /// The profile: measured (cache_ways,bandwidth_partitions,...), or by window (window_index,instr_start,...)
    pub file: PathBuf,
    /// Phases to keep, over all shares
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64))]
    pub phases: usize,
    /// Make more of a resource never slower
    #[arg(long, value_enum, default_value_t = Smooth::None)]
    pub smooth: Smooth,
    /// Ways of the machine, which the profile must be for [default: those of the profile]
    #[arg(long, value_name = "N", requires = "partitions", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub ways: Option<u8>,
    /// Bandwidth partitions of the machine [default: those of the profile; 20 for one by window]
    #[arg(long, value_name = "N", requires = "ways", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub partitions: Option<u8>,
    /// Write phases, rates and errors as JSON; without FILE to standard output, and the text to standard error
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", value_parser = json_file)]
    pub json: Option<PathBuf>,
    /// Write a page with the curves, for any browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// What is made of rates that fall with more of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Smooth {
    /// Nothing.
    #[default]
    None,
    /// The best rate within each share: what a core reaches that leaves partitions unused, if rates were exact.
    Best,
    /// The nearest rates that do not fall: averages noise.
    Nearest,
}

/// Where a scenario runs, and what is different this time.
#[derive(Debug, Default, Args)]
pub struct Change {
    /// This machine, or the simulated one
    #[arg(long, value_enum, default_value_t = Platform::Linux)]
    pub platform: Platform,
    /// How long, warm-up included, such as 60s
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub duration: Option<String>,
    /// The seed of everything that is drawn
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub seed: Option<String>,
    /// Change a key of the scenario for this run, such as goal.tardiness=0.9 or task.analysis.period=80ms
    #[arg(long, value_name = "KEY=VALUE", value_parser = Override::parse, allow_hyphen_values = true)]
    pub set: Vec<Override>,
    #[command(flatten)]
    pub simulated: Simulated,
}

/// What only the simulated machine has.
#[derive(Debug, Default, Args)]
pub struct Simulated {
    /// The machine to simulate [default: the built-in machines/exynos5422-a15.toml]
    #[arg(long, value_name = "FILE")]
    pub machine: Option<PathBuf>,
    /// The kernel's governor that sets the simulated clock while no controller does: performance, userspace:1000MHz,
    /// ondemand-old, ondemand-old:20..90 (thresholds in percent), ondemand or schedutil
    #[arg(long, value_name = "NAME")]
    pub governor: Option<Governor>,
    /// Let a knob or a meter fail: stuck:clock@10s..20s, refuse:clock@10s..20s, late:METER@10s..20s=500ms,
    /// freeze:METER@10s..20s, wrong:METER@10s..20s=0.5 (a factor), lose:METER@10s..20s=0.3 (a probability); METER is
    /// clock, busy, energy or response
    #[arg(long, value_name = "SPEC", value_parser = fault::parse)]
    pub fault: Vec<Fault>,
    /// A task's execution profile, in place of the scenario's: what it does, and how fast with so many cache ways and
    /// so much bandwidth
    #[arg(long, value_name = "TASK=FILE", value_parser = profile_of)]
    pub profile: Vec<(String, String)>,
    /// The policy that splits ways and bandwidth among tasks with profiles, in place of the scenario's
    /// allocation.policy
    #[arg(long, value_name = "POLICY", value_parser = parse_policy)]
    pub allocate: Option<Policy>,
    /// Size of a cache way in KiB, in place of the scenario's allocation.way_kib: a core that gains one must fill it,
    /// through partitions of 72 MB/s; 0 makes it free
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u32).range(0..=i64::from(WAY_KIB_MAX)))]
    pub way_kib: Option<u32>,
}

/// `TASK=FILE`.
fn profile_of(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((task, file)) if !task.is_empty() && !file.is_empty() => Ok((task.into(), file.into())),
        _ => Err("expected the name of a task and a file, such as analysis=data/profiles/fft.scaled.csv".into()),
    }
}

impl Simulated {
    /// Whether anything is asked for.
    pub fn is_some(&self) -> bool {
        self.machine.is_some() || self.governor.is_some() || !self.fault.is_empty() || !self.overrides().is_empty()
    }

    /// What differs from the scenario file, as overrides of its keys.
    fn overrides(&self) -> Vec<Override> {
        let profile = |(task, file): &(String, String)| Override {
            written: format!("--profile {task}={file}"),
            key: format!("task.{task}.profile"),
            // In quotes: a file may be called 1.5.
            value: toml::Value::from(file.as_str()).to_string(),
        };
        let policy = |policy: Policy| Override::of_option("--allocate", "allocation.policy", policy.name());
        let way = |kib: u32| Override::of_option("--way-kib", "allocation.way_kib", &kib.to_string());
        let profiles = self.profile.iter().map(profile);
        profiles
            .chain(self.allocate.map(policy))
            .chain(self.way_kib.map(way))
            .collect()
    }
}

/// Which machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Platform {
    /// This one.
    #[default]
    Linux,
    /// The simulated one.
    Sim,
}

/// Which controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Controller {
    /// No control.
    Open,
    /// The admitted share of updates.
    Qod,
    /// The clock.
    Clock,
    /// Both.
    Mimo,
}

#[cfg(feature = "lab")]
impl Controller {
    /// The controller that is meant.
    pub const fn kind(self) -> ControllerKind {
        match self {
            Controller::Open => ControllerKind::Open,
            Controller::Qod => ControllerKind::Qod,
            Controller::Clock => ControllerKind::Clock,
            Controller::Mimo => ControllerKind::Mimo,
        }
    }
}

impl Change {
    /// Everything that differs from the scenario file, as overrides of its keys. An option of its own outranks `--set`.
    pub fn overrides(&self, controller: Option<Controller>) -> Vec<Override> {
        let controller = controller.and_then(|controller| controller.to_possible_value());
        let controller = controller.map(|value| value.get_name().to_string());
        let options = [
            ("--duration", "duration", self.duration.clone()),
            ("--seed", "seed", self.seed.clone()),
            ("--controller", "control.controller", controller),
        ];
        let options = options
            .into_iter()
            .filter_map(|(option, key, value)| Some(Override::of_option(option, key, &value?)));
        // On another machine they are refused, not looked at.
        let simulated = match self.platform {
            Platform::Linux => Vec::new(),
            Platform::Sim => self.simulated.overrides(),
        };
        self.set.iter().cloned().chain(options).chain(simulated).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn options_become_overrides_after_those_of_set() {
        let arguments = Arguments::parse_from([
            "punctual",
            "run",
            "x.toml",
            "--duration",
            "-5s",
            "--set",
            "seed=3",
            "--seed",
            "4",
            "--controller",
            "qod",
        ]);
        let Some(Command::Run(run)) = arguments.command else {
            panic!("no run")
        };
        let written: Vec<String> = run
            .change
            .overrides(run.controller)
            .into_iter()
            .map(|o| o.written)
            .collect();
        assert_eq!(
            written,
            ["--set seed=3", "--duration -5s", "--seed 4", "--controller qod"]
        );
    }
}
