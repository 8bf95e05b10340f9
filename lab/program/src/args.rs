//! The command line of the lab: arguments and their texts in `punctual-lab --help`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use punctual_allocation::mapping::MappingPolicy;
use punctual_cli::args::{
    Change, Controller, Dialling, Pipeline, Platform, Policies, Process, Profile, Replay, Run, Serve, ServerAddress,
    mapping_policy, mechanism, span,
};
use punctual_evaluation::control_loop::Way;
use punctual_evaluation::neighbours::Stranger;
use punctual_evaluation::{dna, dps};
use punctual_files::toml::{Override, parse_time};
use punctual_pipelines::WhenFull;
use punctual_pipelines::linux::Mechanism;
use punctual_radio::format::SampleFormat;
use punctual_units::{CoreId, Nanos};
use punctual_workload::ControllerKind;

use crate::radio;
use crate::simulated::SimulationOptions;

/// Parser of times from `least` to `most`.
pub fn between(least: &'static str, most: &'static str) -> impl Fn(&str) -> Result<Nanos, String> + Clone {
    move |text| {
        let time = parse_time(text)?;
        let is_within = |bound: &str, within: fn(&Nanos, &Nanos) -> bool| {
            parse_time(bound).is_ok_and(|bound| within(&time, &bound))
        };
        match is_within(least, Nanos::ge) && is_within(most, Nanos::le) {
            true => Ok(time),
            false => Err(format!("give a time from {least} to {most}")),
        }
    }
}

/// The kind of controller that an option names.
pub const fn kind(controller: Controller) -> ControllerKind {
    match controller {
        Controller::Open => ControllerKind::Open,
        Controller::Qod => ControllerKind::Qod,
        Controller::Clock => ControllerKind::Clock,
        Controller::Mimo => ControllerKind::Mimo,
    }
}

/// Measures `punctual`, and repeats the evaluations of papers.
#[derive(Debug, Parser)]
#[command(name = "punctual-lab", version)]
pub struct Arguments {
    /// The command.
    #[command(subcommand)]
    pub command: LabCommand,
}

/// All commands.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Measure parts of `punctual` on this machine
    #[command(subcommand)]
    Bench(Bench),
    /// Repeat a paper's evaluation on simulated machines, and compare with the paper's claims
    Experiment(Experiment),
    /// Receive FM radio in a pipeline of processes, whose stages move and restart while it plays
    ///
    /// Without a recording it plays the shipped one. With a receiver: rtl_sdr -f 100.7M -s 250000 - | punctual-lab
    /// radio
    /// - --wav - | aplay
    Radio(Radio),
    /// Simulate a cluster under every fault, run one under load and faults, or offer a load to one that runs
    #[command(subcommand)]
    Cluster(Cluster),
    /// Part of a run of a cluster, in a process of its own
    #[command(subcommand, hide = true)]
    Process(LabProcess),
    /// Run a scenario as `punctual run` does, with machines, governors and faults for the simulated one; fm plays a
    /// radio
    Run(LabRun),
    /// The product's command, for the servers that `bench` starts.
    #[command(hide = true)]
    Serve(Serve),
    /// The product's command, for a radio that plays.
    #[command(hide = true)]
    Pipeline(Pipeline),
    /// The product's command, for what `run` and the radio record.
    #[command(hide = true)]
    Replay(Replay),
    /// The product's command, for the profiles that `run` takes.
    #[command(hide = true)]
    Profile(Profile),
}

impl LabCommand {
    /// Adds what only this program has to the arguments of the product: the options of the simulated machine, and the
    /// shipped scenario of the radio.
    pub fn joined(mut self) -> LabCommand {
        match &mut self {
            LabCommand::Run(LabRun { run, simulated }) => {
                simulated.add_to(&mut run.change);
                run.scenario = run.scenario.take().map(radio::scenario::file);
            }
            LabCommand::Bench(Bench::Controllers(bench)) => bench.simulated.add_to(&mut bench.change),
            LabCommand::Bench(Bench::Rates(bench)) => bench.simulated.add_to(&mut bench.change),
            _ => {}
        }
        self
    }
}

/// Arguments of `punctual-lab run`.
#[derive(Debug, Args)]
pub struct LabRun {
    #[command(flatten)]
    pub run: Run,
    #[command(flatten)]
    pub simulated: SimulationOptions,
}

/// Reads one of `all` by its name.
fn named<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [T; N],
    name: fn(T) -> &'static str,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let found = all.into_iter().find(|one| name(*one) == text);
        found.ok_or_else(|| format!("possible values: {}", all.map(name).join(", ")))
    }
}

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
    /// Simulated machines; `linux` runs qedb-transient or controllers on this one, with a scenario, and measures mig-*
    /// and chronos-* on it
    #[arg(long, value_enum, default_value_t = Platform::Sim)]
    pub platform: Platform,
    /// Duration of each run of chronos-* on linux, 2s to 600s
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = between("2s", "600s"))]
    pub duration: Nanos,
    /// The scenario whose best-effort tasks (qedb-transient) or surges of work (controllers) come and go [on linux:
    /// scenarios/fire-rescue.toml]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["machines", "claims"])]
    pub scenario: Option<PathBuf>,
    /// Machine files to run on, in place of the calibrated ones; of mig and its parts one such as machines/mpsoc.toml
    #[arg(long, value_name = "FILES", value_delimiter = ',')]
    pub machines: Vec<PathBuf>,
    /// A media file for dps and its parts, in place of media/dps-table-1.toml; their machine (--machines, one) is such
    /// as machines/dps-dual-core.toml
    #[arg(long, value_name = "FILE", conflicts_with = "scenario")]
    pub media: Option<PathBuf>,
    #[command(flatten)]
    pub play: Play,
    /// A folder of profiles (PROGRAM.csv or PROGRAM.SET.csv) for dna-*, in place of the shipped ones
    #[arg(long, value_name = "DIR")]
    pub profiles: Option<PathBuf>,
    /// A file of claims, in place of the shipped one
    #[arg(long, value_name = "FILE")]
    pub claims: Option<PathBuf>,
    /// Write claims, means and samples as JSON; - is standard output, and the text goes to standard error
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Write a page with the figures and the claims, for any browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Options of the film, of `bench movie` and of the parts of dps.
#[derive(Clone, Debug, Default, Args)]
pub struct Play {
    /// The film, by its rate: bd (48 Mbit/s), hd (20) or dvd (10.08); of dps, the one that the claims are about
    /// [default: of dps, bd; of bench movie, as the scenario says]
    #[arg(long, value_name = "NAME", value_parser = named(dps::Film::ALL, dps::Film::name))]
    pub film: Option<dps::Film>,
    /// Frames per second, 1 to 240; each is due before the next [default: 24, or as the scenario says]
    #[arg(long, value_name = "N", value_parser = parse_fps, allow_hyphen_values = true)]
    pub fps: Option<f64>,
    /// Programs that never rest: of dps in all, of bench movie on each core [default: 4, or as the scenario says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=64))]
    pub hogs: Option<u32>,
    /// What decoding a frame takes [default: of dps, 15.83ms on average; of bench movie, as the scenario says]
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    pub decode: Option<Nanos>,
}

impl Play {
    /// Whether any of the options is set.
    pub fn is_some(&self) -> bool {
        self.film.is_some() || self.fps.is_some() || self.hogs.is_some() || self.decode.is_some()
    }

    /// Time between two frames, if their rate is set.
    pub fn period(&self) -> Option<Nanos> {
        self.fps.map(|fps| Nanos::from_secs_f64(1.0 / fps))
    }
}

fn parse_fps(text: &str) -> Result<f64, String> {
    let [least, most] = dps::FPS;
    let fps = text.parse().ok().filter(|fps| (least..=most).contains(fps));
    fps.ok_or_else(|| format!("give {least} to {most} frames per second, such as 24"))
}

#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Compare the store with the bare engine under it, interleaved, beside a no-op control
    ///
    /// Gets, scans, puts that are synced and that are not, and eight readers beside a writer: median, p99 and p99.9.
    /// Built with the feature `peers`, it sets redb, fjall and SQLite beside them. The stores lie in the temporary
    /// folder (TMPDIR); those that sync have at most 10,000 records.
    Store {
        /// How often each case is measured
        #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        repetitions: u32,
        /// Ordinary records on either side
        #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
        objects: u32,
        /// Bytes of each record's value
        #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=65_536))]
        value_bytes: u32,
        /// Write the figures as JSON; - is standard output, and the text goes to standard error
        #[arg(long, value_name = "FILE|-")]
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
    /// Run a loop of 1 kHz beside hogs and a busy disk: as an ordinary thread, under SCHED_FIFO, on a core set apart by
    /// hand, under SCHED_DEADLINE, and on a core of its own without and with lending
    ///
    /// Every repetition runs each way once, in an order that rotates, and once lets the others alone.
    Loop(Loop),
    /// Measure what moving a stage of a pipeline to another core costs, by each mechanism, beside a control
    Migration(Migration),
    /// Run cyclictest, oslat (rt-tests) and rt-app on the last core beside hogs, outside and inside of the protection
    /// of an exclusive core
    ///
    /// Each that is installed; priority, places and load are the same on both sides.
    Referees(Referees),
    /// Run programs that know nothing of punctual (a linker in a loop, hogs) alone, beside a core set apart by hand,
    /// and beside exclusive tasks; count what fails, what each gets, and what is not restored
    Neighbours(Neighbours),
    /// Kill, stop, cut off and replace processes of a federation, one after the other under load, and measure the gap
    /// between answers
    ///
    /// A fault every 2.5 s. Cuts need the rights to make network namespaces (root). Ends with 1 where a promise was
    /// broken.
    Failover(Failover),
    /// Set temporal objects on one node of a federation of processes at a steady rate, and measure what its peers get
    ///
    /// Readings delivered, superseded and lost, their ages, and each node's share of a core.
    Replication(Replication),
    /// Offer `punctual serve`, Redis, and HAProxy before Redis more than they serve, and count what is answered in time
    ///
    /// Requests at random instants, timed from when they were to be sent; the servers take turns on the same cores.
    /// What is not installed is left out. Takes some three minutes with the defaults.
    Overload(Overload),
}

#[derive(Debug, Args)]
pub struct Replication {
    /// How many peers the node has: one federation after the other
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1,4,16", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub peers: Vec<u32>,
    /// Readings a second
    #[arg(long, value_name = "R", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub rate: u32,
    /// Objects, each set in turn
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub objects: u32,
    /// The length of a value in bytes
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(8..=1024))]
    pub bytes: u32,
    /// Duration, such as 10s
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = between("1s", "10min"))]
    pub duration: Nanos,
    /// Write the figures as JSON; - is standard output, without the text
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Overload {
    /// Connections to each server
    #[arg(long, value_name = "N", default_value_t = 7500, value_parser = clap::value_parser!(u32).range(16..=60_000))]
    pub connections: u32,
    /// What is offered, in multiples of what a server serves unloaded
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0.5,1,2,3", value_parser = parse_multiple)]
    pub multiples: Vec<f64>,
    /// How long each multiple is offered to each server
    #[arg(long, value_name = "TIME", default_value = "8s", value_parser = between("1s", "10min"))]
    pub duration: Nanos,
    /// How often each multiple is offered to each server
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repetitions: u32,
    /// The time that each request has
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time, allow_hyphen_values = true)]
    pub deadline: Nanos,
    /// What a request takes a server
    #[arg(long, value_name = "TIME", default_value = "300us", value_parser = parse_time, allow_hyphen_values = true)]
    pub work: Nanos,
    /// The seed of the instants
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write the figures as JSON; - is standard output, without the text
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

fn parse_multiple(text: &str) -> Result<f64, String> {
    let multiple = text.parse().ok().filter(|multiple| (0.01..=100.0).contains(multiple));
    multiple.ok_or_else(|| "give numbers from 0.01 to 100, such as 0.5,1,2".into())
}

#[derive(Debug, Args)]
pub struct Failover {
    /// How often a master is killed
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub kills: u32,
    /// How often a master stands still for a second (SIGSTOP), after that
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub stops: u32,
    /// How often a master's network cable is out for a second, after that
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub cuts: u32,
    /// How often a replica is killed, after that
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub replica_kills: u32,
    /// How often a balancer is killed, after that
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub balancer_kills: u32,
    /// How often the master gets the order to leave, and another process its place, after that
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub upgrades: u32,
    /// How often the process that leads the log is killed, after that; with --log etcd
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub leader_kills: u32,
    /// How often it is killed with the master, after that; with --log etcd
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub both_kills: u32,
    /// Where the order of commits is kept: local is one file of this machine; etcd starts one of three members here;
    /// etcd://HOST:PORT,HOST:PORT/NAME is an etcd that runs
    #[arg(long, value_name = "LOG", default_value = "local")]
    pub log: LogKind,
    /// How many nodes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub nodes: u32,
    /// Write the figures as JSON; - is standard output, without the text
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct AllocationBench {
    /// Decide for the programs whose profiles (NAME.csv) are in this folder [default: the shipped ones of
    /// data/profiles]
    #[arg(long, value_name = "DIR")]
    pub profiles: Option<PathBuf>,
    /// How often every policy decides its runs again
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub repetitions: u32,
    /// The seed of task sets and instants
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write the figures as JSON; - is standard output, and the text goes to standard error
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Movie {
    /// The scenario file [default: scenarios/movie.toml]
    pub scenario: Option<PathBuf>,
    /// Change a key of the scenario, such as movie.frames=48 or task.player.compute=10ms
    #[arg(long, value_name = "KEY=VALUE", value_parser = Override::parse, allow_hyphen_values = true)]
    pub set: Vec<Override>,
    #[command(flatten)]
    pub play: Play,
    /// How often each way is played
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    /// Write every frame and the summary as JSON; - is standard output, and the text goes to standard error
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Write a page with distributions, figures and goals, for any browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Migration {
    /// Sizes of the stage's state in bytes, up to 64 MiB
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1024,4096,65536,1048576,16777216", value_parser = clap::value_parser!(u32).range(1..=64 << 20))]
    pub states: Vec<u32>,
    /// Moves by each mechanism with each state
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub moves: u32,
    /// Write the rows as JSON; - is standard output, and the text goes to standard error
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Loop {
    /// Between two jobs, 100us to 1s; each is due before the next
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = parse_time, allow_hyphen_values = true)]
    pub period: Nanos,
    /// What one job computes
    #[arg(long, value_name = "TIME", default_value = "150us", value_parser = parse_time, allow_hyphen_values = true)]
    pub compute: Nanos,
    /// What SCHED_DEADLINE reserves in each period [default: 80 % of it, or what a job computes where that is more]
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    pub reserve: Option<Nanos>,
    /// How long each run lasts
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = between("1s", "10min"))]
    pub duration: Nanos,
    /// How often each way runs
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    /// Threads that never rest, on each core
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=64))]
    pub hogs: u32,
    /// Leave the disk idle
    #[arg(long)]
    pub idle_disk: bool,
    /// Which ways, in this order: alone (no loop; the others' work is shown against it), ordinary, fifo, by-hand (on a
    /// core that the others are kept off by taskset), deadline, exclusive, lent (exclusive, and lent between jobs)
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = named(Way::ALL, Way::name), default_value = "alone,ordinary,fifo,by-hand,deadline,exclusive,lent")]
    pub ways: Vec<Way>,
    /// Write runs and summary as JSON; - is standard output, and the text goes to standard error
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Referees {
    /// How often each runs outside and inside
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    /// How long each run lasts
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = between("1s", "1h"))]
    pub duration: Nanos,
    /// Threads that never rest, on each core
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=64))]
    pub hogs: u32,
    /// Write the runs as JSON; - is standard output, and the text goes to standard error
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Write a page with distributions and figures, for any browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

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
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = between("1s", "24h"))]
    pub duration: Nanos,
    /// Programs that run in a loop beside: link (links a small program, by lld where it is there), jvm (compiles and
    /// runs a program), go, openmp
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = named(Stranger::ALL, Stranger::name), default_value = "link")]
    pub program: Vec<Stranger>,
    /// Programs that never rest, in a control group that the core is lent to
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(0..=64))]
    pub hogs: u32,
    /// Put the programs that run in a loop into that group, too
    #[arg(long)]
    pub lend_programs: bool,
    /// Have that group, with the programs in it, share the core all the time: exclusive tasks preempt it
    #[arg(long, conflicts_with = "lend_programs")]
    pub share_programs: bool,
    /// Programs that sleep all the time, as most do on a machine that others use
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub sleepers: u32,
    /// Control groups that one sleeping program each is in
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=500))]
    pub groups: u32,
    /// Write every run as JSON; - is standard output, and the text goes to standard error
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Controllers {
    /// The scenario file [default: scenarios/fire-rescue.toml]
    pub scenario: Option<PathBuf>,
    #[command(flatten)]
    pub change: Change,
    #[command(flatten)]
    pub simulated: SimulationOptions,
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
    /// A model (from `model learn`) or controller (from `model design`) to run with, in place of the scenario's
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
    /// Write every run's summary and the table as JSON; - is standard output, and the text goes to standard error
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Rates {
    /// The scenario file [default: scenarios/fire-rescue.toml]
    pub scenario: Option<PathBuf>,
    #[command(flatten)]
    pub change: Change,
    #[command(flatten)]
    pub simulated: SimulationOptions,
    /// Write all summaries and the result as JSON; - is standard output, and the text goes to standard error
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// Arguments of `punctual-lab radio`.
#[derive(Debug, Args)]
pub struct Radio {
    #[command(flatten)]
    pub input: RadioInput,
    /// Bands of the equalizer, 1 to 16 [default: 4]
    #[arg(long, value_name = "N")]
    pub bands: Option<usize>,
    /// Gain of each band in dB, -40 to 40, lowest band first
    #[arg(long, value_name = "dB,..", value_delimiter = ',', allow_hyphen_values = true)]
    pub gains: Option<Vec<f64>>,
    /// Frames per second: real (as received), max (no pacing), or a number up to 100000
    #[arg(long, default_value = "real", allow_hyphen_values = true)]
    pub rate: String,
    /// IQ samples per frame, a multiple of 10, at most 2500000
    #[arg(long, default_value_t = 250, value_name = "SAMPLES")]
    pub frame: usize,
    /// Capacity of each queue in frames
    #[arg(long, default_value_t = 14)]
    pub slots: u32,
    /// Action for samples that arrive from a pipe while the first queue is full: wait (the pipe's writer waits),
    /// drop-oldest, drop-late (drop frames past their due time)
    #[arg(long, default_value = "wait", value_parser = when_full)]
    pub when_full: WhenFull,
    /// Cores for the stages, such as 0,2-3, or auto
    #[arg(long, default_value = "auto", value_parser = core_list)]
    pub cores: CoreList,
    /// Mechanism of moves: affinity (pin the same process), replica (a waiting process takes over), announced (the
    /// same, woken ahead), recreate (start a new process afterwards), recreate-ahead (start it before)
    #[arg(long, default_value = "announced", value_parser = mechanism)]
    pub mechanism: Mechanism,
    /// Policy that maps stages to cores: none, balance (level loads), table (least power, cores always on), table-off
    /// (least power, idle cores off), thermal (cool the hottest core), alone (each core levels loads by itself)
    #[arg(long, default_value = "none", value_parser = mapping_policy)]
    pub policy: MappingPolicy,
    /// Write the policy's inputs and decisions, for `punctual replay`
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Root of the kernel's files about clocks: a recorded or emulated tree
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub kernel_tree: Option<PathBuf>,
    /// Move a random stage every TIME, such as 1ms
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub migrate_every: Option<Duration>,
    /// Kill a random stage's process every TIME, such as 20ms
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub kill_every: Option<Duration>,
    /// Replace the process of every stage by a new one at TIME, such as 3s
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub upgrade_at: Option<Duration>,
    /// Program of the new processes [default: this one]
    #[arg(long, value_name = "PROGRAM", requires = "upgrade_at")]
    pub upgrade_to: Option<PathBuf>,
    /// Stop after N frames
    #[arg(long, value_name = "N")]
    pub frames: Option<u64>,
    /// Write the sound to FILE (WAV); - is standard output
    #[arg(long, value_name = "FILE")]
    pub wav: Option<PathBuf>,
    /// True sound to compare with (WAV, 25 kHz)
    #[arg(long, value_name = "FILE")]
    pub reference: Option<PathBuf>,
    /// Seed of the random moves and kills
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the report as JSON; - is standard output, and the text goes to standard error
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Write an HTML page with the sound, spectra, cores, queues and handovers
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// No live view, only the report at the end
    #[arg(long)]
    pub plain: bool,
    /// Exit with 1 if a frame is lost, repeated or late, or the sound differs from that of a single thread
    #[arg(long)]
    pub check: bool,
}

/// Recording of a radio, and its format.
#[derive(Debug, Args)]
pub struct RadioInput {
    /// Recording: WAV (I and Q in two channels), SigMF, or raw samples, plain or zstd (.zst); - is standard input
    pub recording: Option<PathBuf>,
    /// Format of raw samples: cu8, cs8, cs16, cs32 or cf32, with _be for the higher byte first [default: the end of the
    /// recording's name, else cu8, as rtl_sdr writes]
    #[arg(long, value_name = "NAME")]
    pub format: Option<SampleFormat>,
    /// IQ samples a second, such as 250k or 2.4M, 190000 to 20000000 [default: the header's, else 250000]
    #[arg(long, value_name = "HZ", value_parser = hertz)]
    pub iq_rate: Option<f64>,
}

/// Reads a number with k or M behind it, or without.
fn hertz(text: &str) -> Result<f64, String> {
    let (number, unit) = match (text.strip_suffix('k'), text.strip_suffix('M')) {
        (Some(number), _) => (number, 1e3),
        (_, Some(number)) => (number, 1e6),
        _ => (text, 1.0),
    };
    match number.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number * unit),
        _ => Err("give hertz, such as 250000, 250k or 2.4M".into()),
    }
}

fn when_full(text: &str) -> Result<WhenFull, String> {
    match text {
        "wait" => Ok(WhenFull::Wait),
        "drop-oldest" => Ok(WhenFull::DropOldest),
        "drop-late" => Ok(WhenFull::DropLate),
        _ => Err("give wait, drop-oldest or drop-late".into()),
    }
}

/// List of cores; empty: chosen automatically.
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

/// Commands of `punctual-lab cluster`.
#[derive(Debug, Subcommand)]
pub enum Cluster {
    /// Simulate nodes, network, clocks and log, seed by seed, and check every answer
    ///
    /// Exits with 1 at the first seed that breaks a guarantee, and prints the events before it as a message chart: a
    /// column for each node, time downwards. The same settings and seed give the same run.
    Sim(ClusterSim),
    /// Send requests at random instants (Poisson arrivals) to balancers or nodes; response time counts from the
    /// scheduled instant
    ///
    /// Each client has its own session and counter; exits with 1 if an answer differs from the expected count.
    Load(ClusterLoad),
    /// Run balancers and nodes as local processes under twice their capacity, kill the master half-way, and time each
    /// part of the outage
    ///
    /// At the end the answers to clients are compared with the log; exits with 1 if they disagree. All files of the run
    /// are removed.
    Run(ClusterTrial),
}

/// Processes that a run starts from its own program.
#[derive(Debug, Subcommand)]
pub enum LabProcess {
    #[command(flatten)]
    Product(Process),
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
}

/// Arguments of `punctual-lab cluster run`.
#[derive(Debug, Args)]
pub struct ClusterTrial {
    /// Settings of cluster and load in TOML; docs/guide/reference/node-file.md lists the keys [default: two balancers,
    /// three nodes, twice their capacity, 10 s]
    pub file: Option<PathBuf>,
    /// Number of nodes, 1 to 16
    #[arg(long, value_name = "N")]
    pub nodes: Option<u32>,
    /// Number of balancers, 1 to 8
    #[arg(long, value_name = "N")]
    pub balancers: Option<u32>,
    #[command(flatten)]
    pub policies: Policies,
    /// Duration of the load, 1s to 24h [default: 10s, or the file's]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub duration: Option<Nanos>,
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
    /// Requests a second, 1 to 50000 [default: twice the measured capacity]
    #[arg(long, value_name = "R")]
    pub rate: Option<f64>,
    /// Extra processor time for each request at a node, such as 0.3ms, at most 1s [default: 1ms]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub work: Option<Nanos>,
    /// Write the result as JSON; - is standard output, without the text
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Write an HTML page with the state of the nodes over time
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print the result only, without a live view
    #[arg(long)]
    pub plain: bool,
}

/// Arguments of `punctual-lab cluster load`.
#[derive(Debug, Args)]
pub struct ClusterLoad {
    /// Addresses of 1 to 255 balancers or nodes, HOST:PORT; clients are spread evenly, and reconnect to the next
    /// address
    #[arg(value_name = "ADDRESS", required = true)]
    pub places: Vec<ServerAddress>,
    #[command(flatten)]
    pub dialling: Dialling,
    /// What clients ask for
    #[arg(long, value_enum, default_value_t)]
    pub workload: Workload,
    /// Stocks of the market, for the workload `stock`
    #[arg(long, value_name = "N", default_value_t = 3000, value_parser = clap::value_parser!(u32).range(100..=100_000))]
    pub stocks: u32,
    /// Requests a second, 1 to 50000 [default: --times the measured capacity; stock: a closed loop]
    #[arg(long, value_name = "R")]
    pub rate: Option<f64>,
    /// Load as a multiple of the measured capacity, 0.1 to 100, for the workload `count`
    #[arg(long, value_name = "X", default_value_t = 2.0, conflicts_with = "rate")]
    pub times: f64,
    /// Share of requests that write (INCR), 0 to 1, for the workload `count`; the others read (GET)
    #[arg(long, value_name = "SHARE", default_value_t = 0.2)]
    pub writes: f64,
    /// Clients, 1 to 10000 (2000 that trade stocks), each with one request at a time
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
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Process id of the parent, which reads this program's output; the load ends with it
    #[arg(long, hide = true)]
    pub parent: Option<i32>,
}

/// Requests of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Each client counts, and reads its count
    #[default]
    Count,
    /// Stock trading, as the third paper's testbed: prices, portfolios, purchases and sales
    Stock,
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
    ReplicaKill,
    /// Kill a balancer, and restart it after 1 s; its clients move to the other one
    BalancerKill,
    /// Tell the master to leave; once it has ended, start another process in its place
    Upgrade,
    /// Kill the leader of the log, and restart it after 1 s (with --log etcd)
    Leader,
    /// Kill the leader of the log and the master, and restart both after 1 s (with --log etcd)
    Both,
}

/// Arguments of `punctual-lab cluster sim`.
#[derive(Debug, Args)]
pub struct ClusterSim {
    /// Settings of the cluster, in TOML; docs/guide/cluster-safety.md lists the keys [default: three nodes, one that
    /// joins, two balancers, four clients, 2.5 s with faults]
    pub file: Option<PathBuf>,
    /// Number of seeds to simulate, at least 1
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: u64,
    /// First seed; the others follow by one
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Break a guarantee on purpose, to test the check; an unknown name lists the faults
    #[arg(long, value_name = "FAULT")]
    pub plant: Option<String>,
    /// Write the result as JSON; - is standard output, and the text goes to standard error
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Write an HTML page, with the message chart of a failing seed
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the clients' requests and answers, for external checkers
    #[arg(long, value_enum, value_name = "KIND")]
    pub export: Option<Export>,
    /// Destination of --export; "-" is standard output, and the text goes to standard error
    #[arg(long, value_name = "FILE", default_value = "-", requires = "export")]
    pub to: PathBuf,
}

/// Formats of external checkers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Export {
    /// EDN history of list appends, for Elle
    ListAppend,
    /// A JSON object a line for each request, for `.ci/linearizable`
    Requests,
}
