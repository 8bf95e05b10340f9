//! The command line: what can be asked for, in the words of `punctual --help`.

use punctual_lab::dna;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use punctual_allocation::Policy;
use punctual_scenario::{Fault, Governor};
use punctual_workload::ControllerKind;

use crate::fault;
use crate::scenario::{Override, WAY_KIB_MAX, parse_policy};
use crate::size;

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
    /// Move the knobs on the running system and learn a model from what they do
    Identify(Identify),
    /// Work out a controller's gains from a model
    Design(Design),
    /// Say what this machine offers, what is missing, and how to get it
    Doctor(Doctor),
    /// Measure parts of `punctual` on this machine
    #[command(subcommand)]
    Bench(Bench),
    /// Fit the simulated machine to the QeDB paper's microbenchmarks: an ensemble of machines
    ///
    /// Each machine answers one question that the figures leave open, and leaves the rest to them; see
    /// docs/calibration.md. Prints every figure beside the paper's, and what each machine predicts for the evaluation.
    Calibrate(Calibrate),
    /// Repeat a paper's evaluation on simulated machines, and hold it against the paper's claims
    Experiment(Experiment),
    /// Find what cache ways are worth to a program, along its execution
    ///
    /// Runs PROGRAM to its end under QEMU's user-mode emulation (qemu-user) and counts, for every window of instructions, the
    /// requests to the last-level cache (LLC) and how many of them miss with 1, 2, ... ways. Its input and output are its own.
    Profile(Profile),
}

/// `run`
#[derive(Debug, Default, Args)]
pub struct Run {
    /// The scenario file [default: scenarios/fire-rescue.toml]
    pub scenario: Option<PathBuf>,
    #[command(flatten)]
    pub change: Change,
    /// Who decides: the scenario's control.controller
    #[arg(long, value_enum)]
    pub controller: Option<Controller>,
    /// A model (from `identify`) or controller (from `design`) to run with, in place of the scenario's
    #[arg(long, value_name = "FILE", conflicts_with = "identify")]
    pub model: Option<PathBuf>,
    /// Learn a model on this machine first, then run with it
    #[arg(long)]
    pub identify: bool,
    /// Write everything about the run as JSON
    #[arg(long, value_name = "FILE")]
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
    /// Write what was recorded, sample by sample, as JSON: also where the model is not accepted
    #[arg(long, value_name = "FILE")]
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
}

/// `doctor`
#[derive(Debug, Args)]
pub struct Doctor {
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}

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
    /// A media file for dps and its parts, in place of media/dps-table-1.toml; their machine (--machines, one) is such as
    /// machines/dps-dual-core.toml
    #[arg(long, value_name = "FILE", conflicts_with = "scenario")]
    pub media: Option<PathBuf>,
    /// A folder of profiles (PROGRAM.csv or PROGRAM.SET.csv) for dna-*, in place of the shipped ones
    #[arg(long, value_name = "DIR")]
    pub profiles: Option<PathBuf>,
    /// A file of claims, in place of the shipped one
    #[arg(long, value_name = "FILE")]
    pub claims: Option<PathBuf>,
    /// Write claims, means and samples as JSON
    #[arg(long, value_name = "FILE")]
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
        /// Write the figures as JSON
        #[arg(long, value_name = "FILE")]
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
    /// Measure what deciding who gets ways and bandwidth costs, and how near each policy comes to the optimum
    Allocation(AllocationBench),
    /// Play a movie beside hogs on all cores and a busy disk: blocking and fair, blocking and real-time, and on a core of its own
    ///
    /// Every repetition plays each way once, in an order that rotates, and once lets the hogs alone. Programs that PUNCTUAL_SPARE names
    /// (as `ps -o comm` shows them, with commas between) are not moved off the player's core.
    Movie(Movie),
    /// Run cyclictest, oslat (rt-tests) and rt-app on the last core beside hogs, outside and inside of the protection of an exclusive core
    ///
    /// Each that is installed; priority, places and load are the same on both sides.
    Referees(Referees),
}

/// `bench allocation`
#[derive(Debug, Args)]
pub struct AllocationBench {
    /// Decide for the programs whose profiles (NAME.csv) are in this folder [default: the shipped ones of data/profiles]
    #[arg(long, value_name = "DIR")]
    pub profiles: Option<PathBuf>,
    /// How often every policy decides its runs again
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: u32,
    /// The seed of task sets and instants
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write the figures as JSON
    #[arg(long, value_name = "FILE")]
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
    /// Write every frame of every run and the summary as JSON
    #[arg(long, value_name = "FILE")]
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
    /// Write the runs as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a page with distributions and figures, for any browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
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
    /// Write every run's summary and the table as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `bench rates`
#[derive(Debug, Args)]
pub struct Rates {
    /// The scenario file [default: scenarios/fire-rescue.toml]
    pub scenario: Option<PathBuf>,
    #[command(flatten)]
    pub change: Change,
    /// Write every run's summary and the result as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
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
    /// Measure a program by the processor's counters, under the allocation in force
    Measure(Measure),
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

/// `profile measure`
#[derive(Debug, Args)]
pub struct Measure {
    /// Cache ways that the program has now: what its rows say
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub ways: u8,
    /// Bandwidth partitions that it has now
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub partitions: u8,
    /// Instructions of a window
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(10_000..))]
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
    /// Write phases, rates and errors as JSON
    #[arg(long, value_name = "FILE")]
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

/// `calibrate`
#[derive(Debug, Args)]
pub struct Calibrate {
    /// The figures to fit to [default: a built-in copy of crates/lab/data/qedb-calibration.toml]
    #[arg(long, value_name = "FILE")]
    pub targets: Option<PathBuf>,
    /// Write the machines into this folder, as qedb-NAME.toml
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Write everything as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// The seed of sensor reports, pauses and objects read
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Jobs over which each figure is a mean
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub jobs: u64,
    /// How many candidates may be measured for each machine
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub evaluations: u32,
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
    /// freeze:METER@10s..20s, wrong:METER@10s..20s=0.5 (a factor), lose:METER@10s..20s=0.3 (a probability); METER is clock,
    /// busy, energy or response
    #[arg(long, value_name = "SPEC", value_parser = fault::parse)]
    pub fault: Vec<Fault>,
    /// A task's execution profile, in place of the scenario's: what it does, and how fast with so many cache ways and so
    /// much bandwidth
    #[arg(long, value_name = "TASK=FILE", value_parser = profile_of)]
    pub profile: Vec<(String, String)>,
    /// Who gets which ways and how much bandwidth among tasks with profiles, in place of the scenario's allocation.policy
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
    /// Both, by inverting the model at every step.
    OneStep,
}

impl Controller {
    /// The controller that is meant.
    pub const fn kind(self) -> ControllerKind {
        match self {
            Controller::Open => ControllerKind::Open,
            Controller::Qod => ControllerKind::Qod,
            Controller::Clock => ControllerKind::Clock,
            Controller::Mimo => ControllerKind::Mimo,
            Controller::OneStep => ControllerKind::OneStep,
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
