//! Command line of `punctual profile`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use punctual_files::size;

/// Arguments of `punctual profile`.
#[derive(Debug, Args)]
pub struct Profile {
    /// Profile to show instead of running a program: a CSV file with the columns cache_ways,bandwidth_partitions,...
    /// or, as -o writes it, window_index,instr_start,...
    #[arg(conflicts_with = "command")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub trace: Trace,
    #[command(flatten)]
    pub show: Show,
}

/// Options of `punctual profile -- PROGRAM`.
#[derive(Debug, Args)]
pub struct Trace {
    /// Ways of the simulated last-level cache, 1 to 64 [default: 20, or FILE's; must match FILE]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub ways: Option<u8>,
    /// Size of each way of the last-level cache
    #[arg(long, value_name = "SIZE", default_value = "2MiB", value_parser = size::parse, conflicts_with = "file")]
    pub way_size: u64,
    /// Size of each first-level cache (instructions, data), 8 ways
    #[arg(long, value_name = "SIZE", default_value = "32KiB", value_parser = size::parse, conflicts_with = "file")]
    pub l1: u64,
    /// Size of the second-level cache, 8 ways; 0: none
    #[arg(long, value_name = "SIZE", default_value = "256KiB", value_parser = size::parse, conflicts_with = "file")]
    pub l2: u64,
    /// Instructions per window, at least 10000, rounded up to a whole basic block
    #[arg(long, value_name = "N", default_value_t = 1_000_000, conflicts_with = "file", value_parser = clap::value_parser!(u64).range(10_000..))]
    pub window: u64,
    /// File to write the profile to [default: PROGRAM.profile.csv]
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    pub output: Option<PathBuf>,
    /// Program to profile, and its arguments
    #[arg(last = true, required_unless_present = "file", value_names = ["PROGRAM", "ARGS"], num_args = 1..)]
    pub command: Vec<std::ffi::OsString>,
}

/// Options of `punctual profile FILE`.
#[derive(Debug, Args)]
pub struct Show {
    /// Most phases to merge FILE's windows into, 1 to 64, the same ones for each share of cache and bandwidth
    #[arg(long, value_name = "N", default_value_t = 64, requires = "file", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64))]
    pub phases: usize,
    /// Correct speeds of FILE that fall as a resource grows
    #[arg(long, value_enum, default_value_t = Smooth::None, requires = "file")]
    pub smooth: Smooth,
    /// Bandwidth partitions of the machine, 1 to 64 [default: those of FILE; 20 if traced in windows]
    #[arg(long, value_name = "N", requires_all = ["ways", "file"], value_parser = clap::value_parser!(u8).range(1..=64))]
    pub partitions: Option<u8>,
    /// Write phases, rates and errors of FILE as JSON; - is standard output, and the text goes to standard error
    #[arg(long, value_name = "FILE|-", requires = "file")]
    pub json: Option<PathBuf>,
    /// Write an HTML page with the curves of FILE
    #[arg(long, value_name = "FILE", requires = "file")]
    pub html: Option<PathBuf>,
}

/// Corrections of rates that fall with more of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Smooth {
    /// No correction
    #[default]
    None,
    /// Best speed with that share or less, as if some could stay unused; assumes exact speeds
    Best,
    /// Nearest speeds that never fall: averages noise
    Nearest,
}
