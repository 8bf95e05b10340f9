//! The command line of the lab: what can be asked for, in the words of `punctual --help`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use punctual_lab::dna;

use crate::args::{Change, Controller, Platform, json_file};
use crate::scenario::Override;

/// `experiment`
#[derive(Debug, Args)]
pub struct Experiment {
    /// Which, such as qedb-transient; `list` shows all
    pub name: String,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// How many seeds, counting up from the first [default: 10; with a scenario, 5 repetitions; of dna-*, 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub seeds: Option<u32>,
    /// Task sets of each utilisation in dna-*
    #[arg(long, value_name = "N", default_value_t = dna::SETS, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub sets: u32,
    /// Simulated machines; `linux` runs qedb-transient or controllers on this one, with a scenario
    #[arg(long, value_enum, default_value_t = Platform::Sim)]
    pub platform: Platform,
    /// The scenario whose best-effort tasks (qedb-transient) or surges of work (controllers) come and go [on linux:
    /// scenarios/fire-rescue.toml]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["machines", "claims"])]
    pub scenario: Option<PathBuf>,
    /// Machine files to run on, in place of the calibrated ones
    #[arg(long, value_name = "FILES", value_delimiter = ',')]
    pub machines: Vec<PathBuf>,
    /// A media file for dps and its parts, in place of media/dps-table-1.toml; their machine (--machines, one) is such
    /// as machines/dps-dual-core.toml
    #[arg(long, value_name = "FILE", conflicts_with = "scenario")]
    pub media: Option<PathBuf>,
    /// A folder of profiles (PROGRAM.csv or PROGRAM.SET.csv) for dna-*, in place of the shipped ones
    #[arg(long, value_name = "DIR")]
    pub profiles: Option<PathBuf>,
    /// A file of claims, in place of the shipped one
    #[arg(long, value_name = "FILE")]
    pub claims: Option<PathBuf>,
    /// Write claims, means and samples as JSON; without FILE to standard output, and the text to standard error
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", value_parser = json_file)]
    pub json: Option<PathBuf>,
    /// Write a page with the figures and the claims, for any browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// `bench`
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Compare the store with the bare engine under it, interleaved, beside a no-op control
    Store {
        /// How often each case is measured
        #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        rounds: u32,
        /// Ordinary records on either side
        #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
        objects: u32,
        /// Bytes of each record's value
        #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=65_536))]
        value_bytes: u32,
        /// Write the figures as JSON; without FILE to standard output, and the text to standard error
        #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", value_parser = json_file)]
        json: Option<PathBuf>,
    },
    /// Run a scenario under each controller in turn, several times, and compare them
    ///
    /// Each run lasts 30s unless --duration says otherwise, and has a temporary store of its own. Repetition k, from 0,
    /// adds k to the seed: `punctual run` repeats a single run.
    Controllers(Controllers),
    /// Find the highest rate of sensor updates held with nothing shed, in each update mode
    ///
    /// Copies of the sensors are added until the goal's mean tardiness is exceeded, an update is shed, superseded or
    /// lost, or data is stale. Each run lasts 10s with 1s of warm-up unless --duration and --set control.warm_up say
    /// otherwise, and has a temporary store of its own; a rate that is not held is tried once more. About 20 runs.
    Rates(Rates),
    /// Measure what a decision about ways and bandwidth costs, and how near each policy comes to the optimum
    Allocation(AllocationBench),
    /// Play a movie beside hogs on all cores and a busy disk: blocking and fair, blocking and real-time, and on a core
    /// of its own
    ///
    /// Every repetition plays each way once, in an order that rotates, and once lets the hogs alone. Programs that
    /// PUNCTUAL_SPARE names (as `ps -o comm` shows them, with commas between) are not moved off the player's core.
    Movie(Movie),
    /// Run cyclictest, oslat (rt-tests) and rt-app on the last core beside hogs, outside and inside of the protection
    /// of an exclusive core
    ///
    /// Each that is installed; priority, places and load are the same on both sides.
    Referees(Referees),
    /// Run programs that know nothing of punctual (a linker in a loop, hogs) alone, beside a core set apart by hand,
    /// and beside exclusive tasks; count what fails, what each gets, and what is not put back
    Neighbours(Neighbours),
}

/// `bench allocation`
#[derive(Debug, Args)]
pub struct AllocationBench {
    /// Decide for the programs whose profiles (NAME.csv) are in this folder [default: the shipped ones of
    /// data/profiles]
    #[arg(long, value_name = "DIR")]
    pub profiles: Option<PathBuf>,
    /// How often every policy decides its runs again
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: u32,
    /// The seed of task sets and instants
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write the figures as JSON; without FILE to standard output, and the text to standard error
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", value_parser = json_file)]
    pub json: Option<PathBuf>,
}

/// `bench movie`
#[derive(Debug, Args)]
pub struct Movie {
    /// The scenario file [default: scenarios/movie.toml]
    pub scenario: Option<PathBuf>,
    /// Change a key of the scenario, such as movie.frames=48 or task.player.compute=10ms
    #[arg(long, value_name = "KEY=VALUE", value_parser = Override::parse, allow_hyphen_values = true)]
    pub set: Vec<Override>,
    /// How often each way is played
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    /// Write every frame and the summary as JSON; without FILE to standard output, and the text to standard error
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", value_parser = json_file)]
    pub json: Option<PathBuf>,
    /// Write a page with distributions, figures and goals, for any browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// `bench referees`
#[derive(Debug, Args)]
pub struct Referees {
    /// How often each runs outside and inside
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    /// How long each run lasts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,
    /// Threads that never rest, on each core
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=64))]
    pub hogs: u32,
    /// Write the runs as JSON; without FILE to standard output, and the text to standard error
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", value_parser = json_file)]
    pub json: Option<PathBuf>,
    /// Write a page with distributions and figures, for any browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// `bench neighbours`
#[derive(Debug, Args)]
pub struct Neighbours {
    /// The scenario file whose exclusive tasks run [default: scenarios/movie.toml]
    pub scenario: Option<PathBuf>,
    /// Change a key of the scenario, such as task.player.period=1ms
    #[arg(long, value_name = "KEY=VALUE", value_parser = Override::parse, allow_hyphen_values = true)]
    pub set: Vec<Override>,
    /// How often each way runs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    /// How long each run lasts
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub seconds: u32,
    /// Programs that run in a loop beside
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',', default_value = "link")]
    pub program: Vec<Program>,
    /// Programs that never rest, in a control group that the core is lent to
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(0..=64))]
    pub hogs: u32,
    /// Programs that sleep all the time, as most do on a machine that others use
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub sleepers: u32,
    /// Control groups that one sleeping program each is in
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=500))]
    pub groups: u32,
    /// Write every run as JSON; without FILE to standard output, and the text to standard error
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", value_parser = json_file)]
    pub json: Option<PathBuf>,
}

/// A program that `bench neighbours` runs in a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Program {
    /// Links a small program, by lld where it is there
    Link,
    /// A Java virtual machine that compiles and runs a program
    Jvm,
    /// A Go program
    Go,
    /// A parallel loop of OpenMP
    Openmp,
}

impl Program {
    /// As the lab has it.
    pub fn stranger(self) -> punctual_lab::neighbours::Stranger {
        use punctual_lab::neighbours::Stranger;
        match self {
            Program::Link => Stranger::Link,
            Program::Jvm => Stranger::Jvm,
            Program::Go => Stranger::Go,
            Program::Openmp => Stranger::Openmp,
        }
    }
}

/// `bench controllers`
#[derive(Debug, Args)]
pub struct Controllers {
    /// The scenario file [default: scenarios/fire-rescue.toml]
    pub scenario: Option<PathBuf>,
    #[command(flatten)]
    pub change: Change,
    /// Which controllers, each once in every repetition
    #[arg(
        long,
        value_name = "LIST",
        value_enum,
        value_delimiter = ',',
        default_value = "open,qod,mimo"
    )]
    pub controllers: Vec<Controller>,
    /// How often each controller runs
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    /// A model (from `identify`) or controller (from `design`) to run with, in place of the scenario's
    #[arg(long, value_name = "FILE", conflicts_with = "identify")]
    pub model: Option<PathBuf>,
    /// Learn a model on this machine first, and use it in every run
    #[arg(long)]
    pub identify: bool,
    /// How long to learn, warm-up included
    #[arg(
        long,
        value_name = "TIME",
        default_value = "80s",
        requires = "identify",
        allow_hyphen_values = true
    )]
    pub identify_duration: String,
    /// Write every run's summary and the table as JSON; without FILE to standard output, and the text to standard error
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", value_parser = json_file)]
    pub json: Option<PathBuf>,
}

/// `bench rates`
#[derive(Debug, Args)]
pub struct Rates {
    /// The scenario file [default: scenarios/fire-rescue.toml]
    pub scenario: Option<PathBuf>,
    #[command(flatten)]
    pub change: Change,
    /// Write all summaries and the result as JSON; without FILE to standard output, and the text to standard error
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", value_parser = json_file)]
    pub json: Option<PathBuf>,
}
