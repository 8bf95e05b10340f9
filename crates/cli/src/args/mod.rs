//! The command line: commands and options as `punctual --help` shows them.

pub mod cluster;
pub mod profile;
pub mod store;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use punctual_allocation::mapping::MappingPolicy;
use punctual_pipelines::linux::Mechanism;
use punctual_store::engine::Durability;

use punctual_files::server::of_this_machine;
use punctual_files::toml::{Override, parse_time};

pub use cluster::{Cluster, ClusterBalance, ClusterRun, Dialling, Policies, Process, ServerAddress, Top};
pub use profile::{Profile, Show, Smooth, Trace};
pub use store::StoreCommand;

/// Keep soft real-time work on time on multicore Linux.
#[derive(Debug, Parser)]
#[command(name = "punctual", version)]
#[command(after_help = "Without a command, `punctual` runs the built-in scenario: `punctual run`.")]
pub struct Arguments {
    /// Command; `run` if left out.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Commands of the `punctual` program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a scenario (a set of tasks with deadlines), and report which jobs were late, and why
    ///
    /// Needs no rights; what this user may set (CPU frequency, priorities, cores) is set for the run, and restored at
    /// its end, also after a kill.
    Run(Run),
    /// Hold programs that already run to their goals: they report their jobs
    ///
    /// A program reports when each of its jobs begins and ends, by two calls in C, C++, Python or Rust; a script by
    /// `punctual job begin NAME` and `punctual job end NAME` (docs/guide/attach.md). Only what the file names is set,
    /// and restored at the end of the run, also after a kill.
    Attach(Attach),
    /// Show a `run`, `attach` or `model learn` of this user while it runs, or what nodes of a cluster report
    ///
    /// Live view on a terminal, otherwise a line a second. Ctrl-C or q ends it, and the run goes on. Without a name it
    /// shows the only run; root finds those of all users. Exits with 2 if there is no such run, or no node answers.
    Top(Top),
    /// Report that a job of a task begins or ends, for scripts; does nothing if no `punctual attach` runs
    #[command(hide = true)]
    Job(JobWords),
    /// List the built-in scenarios, or write one, or a crate in Rust, to start your own
    New(New),
    /// Learn how this machine responds, and design a feedback controller
    #[command(subcommand)]
    Model(Model),
    /// Recompute the decisions of a recorded run, and compare
    ///
    /// Feeds the events of a log from `run --record` to the controllers; no task runs. Exits with 1 if a decision
    /// differs, with 2 if the log is damaged or of another version.
    Replay(Replay),
    /// Compare two reports of `run` or `attach`: which figures are worse or better, by more than chance
    ///
    /// Intervals are at 95 %: of twenty figures that do not differ, one looks as if it did. Repeat runs, and compare on
    /// a quiet machine. Exits with 2 if a file is no report, or if the two have no task and no stage in common.
    Compare(Compare),
    /// Report what this machine offers, what is missing, and how to get it
    Doctor(Doctor),
    /// List running pipelines of processes; move or upgrade their stages
    Pipeline(Pipeline),
    /// Inspect, check and copy a store, mostly while a program has it open
    ///
    /// A store is a folder with a file data.mdb. inspect, verify, export and backup read a snapshot and do not disturb
    /// the program that has the store open; that program may end a snapshot that holds back too many pages: run the
    /// command again. Exit codes: 2 if there is no store or it cannot be read, 1 if it is damaged.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Replicate a store: try and balance a cluster of nodes
    #[command(subcommand)]
    Cluster(Cluster),
    /// Part of a run of a cluster, in a process of its own
    #[command(subcommand, hide = true)]
    Process(Process),
    /// Serve a store, or a node of a cluster, to any Redis client
    ///
    /// docs/guide/redis.md lists the commands and the differences from Redis. Ctrl-C ends it cleanly. Exits with 2 if
    /// it cannot start.
    Serve(Serve),
    /// Simulate a program's cache misses for each number of cache ways
    ///
    /// Runs PROGRAM to its end under QEMU's user-mode emulation (qemu-user) and counts, for every window of
    /// instructions, the requests to the last-level cache (LLC) and their misses with 1, 2, ... ways. PROGRAM has the
    /// terminal's input and output.
    Profile(Profile),
}

/// Arguments of `punctual run`.
#[derive(Debug, Default, Args)]
pub struct Run {
    /// Scenario file, or the name of a built-in scenario [default: fire-rescue]
    pub scenario: Option<PathBuf>,
    #[command(flatten)]
    pub change: Change,
    /// Controller, in place of the scenario's control.controller
    #[arg(long, value_enum)]
    pub controller: Option<Controller>,
    /// File from `model learn` or `model design`, in place of the scenario's
    #[arg(long, value_name = "FILE", conflicts_with = "identify")]
    pub model: Option<PathBuf>,
    /// First learn a model on this machine, and use it; if it is unusable, use the scenario's; without one, move the
    /// knobs in steps, towards fewer late jobs
    #[arg(long)]
    pub identify: bool,
    /// Run even if the control loop is unstable, or the model has the CPU frequency or the admitted updates act in the
    /// wrong direction; the report says so
    #[arg(long)]
    pub force: bool,
    /// Write the full report as JSON; - is standard output, and the text goes to standard error
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Write an HTML page with the report and its curves over time
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write a timeline of jobs, late ones with their causes, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Write the log of the run's events, for `punctual replay`
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Serve Prometheus metrics at http://ADDRESS/metrics, a loopback address; port 0 takes a free port
    #[arg(long, value_name = "ADDRESS", value_parser = of_this_machine)]
    pub metrics: Option<SocketAddr>,
    /// Print one line a second instead of the live view
    #[arg(long)]
    pub plain: bool,
    /// Exit with 1 unless every task and stage meets its goal
    #[arg(long)]
    pub check: bool,
    /// Print how cache ways and bandwidth would be set on this machine, and run nothing
    #[arg(long)]
    pub dry_run: bool,
}

impl Run {
    /// The given options that are about a model.
    pub fn of_a_model(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            ("--model", self.model.is_some()),
            ("--identify", self.identify),
            ("--force", self.force),
        ];
        given.into_iter().filter(|(_, given)| *given).map(|(option, _)| option)
    }
}

/// Arguments of `punctual attach`.
#[derive(Debug, Args)]
pub struct Attach {
    /// File that names the tasks, their goals, and what may be set for them
    #[arg(value_name = "FILE.toml")]
    pub file: PathBuf,
    /// Print which programs report these tasks and what would be set, and set nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Duration, such as 60s [default: the file's, else until Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub duration: Option<Duration>,
    /// Write the full report as JSON; - is standard output, and the text goes to standard error
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Write an HTML page with the report and its curves over time
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write a timeline of jobs, late ones with their causes, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Serve Prometheus metrics at http://ADDRESS/metrics, a loopback address; port 0 takes a free port
    #[arg(long, value_name = "ADDRESS", value_parser = of_this_machine)]
    pub metrics: Option<SocketAddr>,
    /// Print one line a second instead of the live view
    #[arg(long)]
    pub plain: bool,
    /// Exit with 1 unless every task meets its goal (its share of late jobs)
    #[arg(long)]
    pub check: bool,
}

/// Arguments of `punctual job`.
#[derive(Debug, Args)]
pub struct JobWords {
    /// Whether the job begins or ends
    #[arg(value_enum)]
    pub what: JobWord,
    /// Name of the task
    pub name: String,
}

/// Report of `punctual job`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum JobWord {
    /// The job begins now
    Begin,
    /// The job ends now
    End,
}

/// Arguments of `punctual serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// Only hash a password from standard input, and print the line for a node's configuration: by N PBKDF2 rounds,
    /// 1000 to 10000000; more make guessing and each login slower
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "600000", exclusive = true)]
    pub hash: Option<u32>,
    /// Configuration of the node, in TOML; docs/guide/reference/node-file.md lists the keys; the options win over it
    /// [default: none]
    #[arg(value_name = "NODE.toml")]
    pub file: Option<PathBuf>,
    /// Address to listen on; port 0 takes a free port [default: 127.0.0.1:6379]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Unix socket to listen on as well, for clients of this user [default: none]
    #[arg(long, value_name = "PATH")]
    pub unix_socket: Option<PathBuf>,
    /// Folder of the store, created if missing [default: punctual.store]
    #[arg(long, value_name = "STORE")]
    pub store: Option<PathBuf>,
    /// Failure that an acknowledged write survives [default: durable]
    #[arg(long, value_enum)]
    pub durability: Option<StoreDurability>,
}

/// Values of `serve --durability`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StoreDurability {
    /// Power cut: each commit is synced
    Durable,
    /// Power cut, except for the newest commit
    NoMetaSync,
    /// Kill of the program, but no power cut
    Volatile,
}

impl StoreDurability {
    /// Converts to the store's type.
    pub fn durability(self) -> Durability {
        match self {
            StoreDurability::Durable => Durability::Durable,
            StoreDurability::NoMetaSync => Durability::NoMetaSync,
            StoreDurability::Volatile => Durability::Volatile,
        }
    }
}

/// Arguments of `punctual new`.
#[derive(Debug, Args)]
pub struct New {
    /// Name of the scenario, such as robot, or `crate`; without it, all are listed
    pub scenario: Option<PathBuf>,
    /// File or folder to write, which must not exist; - is standard output [default: the name with .toml; robot]
    pub file: Option<PathBuf>,
}

/// Commands of `punctual model`.
#[derive(Debug, Subcommand)]
pub enum Model {
    /// Run a scenario, vary CPU frequency and admitted sensor updates, and fit a model to the response
    Learn(Box<Learn>),
    /// Compute a controller file from a model
    Design(Design),
}

/// Arguments of `punctual model learn`.
#[derive(Debug, Args)]
pub struct Learn {
    /// Scenario file to run during the measurement
    pub scenario: PathBuf,
    /// File to write the model to
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    #[command(flatten)]
    pub change: Change,
    /// Write the measured values as JSON, even if the model is rejected; - is standard output, and the text goes to
    /// standard error
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Print one line a second instead of the live view
    #[arg(long)]
    pub plain: bool,
}

/// Arguments of `punctual model design`.
#[derive(Debug, Args)]
pub struct Design {
    /// Model file, from `model learn`
    pub model: PathBuf,
    /// File to write the controller to
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Write the controller even if a loop is unstable, or the model has the CPU frequency or the admitted updates act
    /// in the wrong direction
    #[arg(long)]
    pub force: bool,
}

/// Arguments of `punctual replay`.
#[derive(Debug, Args)]
pub struct Replay {
    /// Log file, from `run --record`
    pub log: PathBuf,
}

/// Arguments of `punctual compare`.
#[derive(Debug, Args)]
pub struct Compare {
    /// Report of the first run, from `--json`
    pub before: PathBuf,
    /// Report of the second run
    pub after: PathBuf,
    /// Write the comparison as JSON; - is standard output, and the text goes to standard error
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Exit with 1 if a figure regressed
    #[arg(long)]
    pub check: bool,
}

/// Arguments of `punctual doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Folder of a store to examine, repeatable; those named in *.toml files of the current folder are examined anyway
    #[arg(long, value_name = "STORE")]
    pub store: Vec<PathBuf>,
    /// Undo changes to this machine (CPU frequency, cgroups, interrupts) by punctual processes that died
    ///
    /// Settings of processes that still run stay. Exits with 2 if a setting could not be restored, and prints how to
    /// restore it by hand.
    #[arg(long, conflicts_with = "store")]
    pub restore: bool,
    /// Take the steps of remedies that a program can take: write kernel files, mount, load modules, restore
    ///
    /// Prints each step before it is taken, then the remedies that take a person, such as those that switch a
    /// protection off. Steps last until the next boot. Exits with 1 if a step failed or did not help.
    #[arg(long, conflicts_with = "restore")]
    pub fix: bool,
    /// Write the result as JSON; - is standard output, and the text goes to standard error
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// Arguments of `punctual pipeline`.
#[derive(Debug, Args)]
pub struct Pipeline {
    /// Command to carry out.
    #[command(subcommand)]
    pub what: PipelineCommand,
    /// Process that started the pipeline; needed if several pipelines run
    #[arg(long, global = true, value_name = "PID")]
    pub process: Option<i32>,
}

/// Commands of `punctual pipeline`.
#[derive(Debug, Subcommand)]
pub enum PipelineCommand {
    /// List the running pipelines and their stages
    List {
        /// Write the list as JSON; - is standard output, and the text goes to standard error
        #[arg(long, value_name = "FILE|-")]
        json: Option<PathBuf>,
    },
    /// Move a stage to another core, for the time of `set hold`, if a policy places stages
    Move {
        /// Name of the stage
        stage: String,
        /// CPU to move to, by its number as for `taskset`
        core: u32,
        /// Mechanism: affinity (pin the same process), replica (a standby takes over), announced (a standby that is
        /// woken early), recreate (stop it, then start anew), recreate-ahead (start a new one, then stop it)
        #[arg(long, default_value = "announced", value_parser = mechanism)]
        mechanism: Mechanism,
    },
    /// Start another program to take over a stage; the old process runs until the new one has read the stage's state
    Upgrade {
        /// Name of the stage
        stage: String,
        /// Program to start, with the arguments of the running one
        program: PathBuf,
    },
    /// Change a setting of the mapping of stages to cores: policy, rate, hold or period
    Set {
        /// policy: none, balance (level the cores' loads), table (least power for the frame rate), table-off (the same,
        /// where idle cores are switched off), thermal (cool the hottest core) or alone (each core for itself); rate:
        /// frames per second of a source that follows it; hold: time that a stage stays where a user moved it, such as
        /// 10s; period: interval between decisions of the policy, such as 100ms
        key: String,
        /// New value of KEY
        value: String,
    },
}

/// Parses the name of a mechanism of moves.
///
/// # Errors
/// The list of names.
pub fn mechanism(text: &str) -> Result<Mechanism, String> {
    let names = Mechanism::ALL.map(Mechanism::name).join(", ");
    let found = Mechanism::ALL.into_iter().find(|mechanism| mechanism.name() == text);
    found.ok_or_else(|| format!("give one of {names}"))
}

/// Mapping policy of that name; the error lists the names.
pub fn mapping_policy(text: &str) -> Result<MappingPolicy, String> {
    let names = MappingPolicy::ALL.map(MappingPolicy::name).join(", ");
    let found = MappingPolicy::ALL.into_iter().find(|policy| policy.name() == text);
    found.ok_or_else(|| format!("\"{text}\": give one of {names}"))
}

/// Parses a time with its unit.
///
/// # Errors
/// The expected form.
pub fn span(text: &str) -> Result<Duration, String> {
    parse_time(text).map(Duration::from)
}

/// Machine of a scenario, and changes of its keys for this run.
#[derive(Clone, Debug, Default, Args)]
pub struct Change {
    /// Machine: this one, or a simulated one
    #[arg(long, value_enum, default_value_t = Platform::Linux)]
    pub platform: Platform,
    /// Duration, warm-up included, such as 60s [default: the scenario's]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub duration: Option<String>,
    /// Seed of all random values [default: the scenario's]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub seed: Option<String>,
    /// Change a key of the scenario for this run, such as task.analysis.period=80ms; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = Override::parse, allow_hyphen_values = true)]
    pub set: Vec<Override>,
}

/// Machine to run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Platform {
    /// This machine
    #[default]
    Linux,
    /// Simulated machine
    Sim,
}

/// Values of the option `--controller`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Controller {
    /// No control: all sensor updates are admitted, and the CPU frequency stays as found
    Open,
    /// Quality of data: controls the admitted share of sensor updates
    Qod,
    /// Controls the CPU frequency
    Clock,
    /// Controls both together (multi-input, multi-output)
    Mimo,
}

impl Change {
    /// Overrides of the scenario's keys by these options, `--set` first, so that a dedicated option wins.
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
        self.set.iter().cloned().chain(options).collect()
    }
}

#[cfg(test)]
mod reference_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_units_of_systemd_name_commands_that_are_there() {
        for unit in ["balance", "log", "serve"] {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd");
            let text = std::fs::read_to_string(format!("{folder}/punctual-{unit}.service")).expect("a unit");
            let command = text
                .lines()
                .find_map(|line| line.strip_prefix("ExecStart="))
                .expect("a command");
            Arguments::try_parse_from(command.split(' ')).unwrap_or_else(|error| panic!("{unit}: {error}"));
        }
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
