//! Command line of `punctual store`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use punctual_units::Share;

/// Commands of `punctual store`.
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Show format, sizes, records, sensor readings with their ages, and readers
    Inspect(Inspect),
    /// Read and check every page and every record
    ///
    /// Exits with 0 if the store is sound, with 1 if it is damaged (and prints the first damage found), with 2 if there
    /// is no store, it has a newer format, or it cannot be read.
    Verify(Verify),
    /// Write all records as text; the last line has their number, length and checksum
    Export(Export),
    /// Create a store from the output of `export`
    ///
    /// A truncated or modified export is refused, and the new store is removed.
    Import(Import),
    /// Copy the store as it is now
    ///
    /// The copy has no free pages. It is synced, then renamed to TO once complete.
    Backup(Backup),
    /// Rewrite the store without its free pages; refused while a program has it open
    Compact(Compact),
}

/// Arguments of `punctual store inspect`.
#[derive(Debug, Args)]
pub struct Inspect {
    /// Folder of the store
    pub store: PathBuf,
    /// Write the result as JSON; - is standard output, and the text goes to standard error
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// Arguments of `punctual store verify`.
#[derive(Debug, Args)]
pub struct Verify {
    /// Folder of the store
    pub store: PathBuf,
    /// Check only the structure of the pages, not the checksum of each record
    #[arg(long)]
    pub structure: bool,
}

/// Arguments of `punctual store export`.
#[derive(Debug, Args)]
pub struct Export {
    /// Folder of the store
    pub store: PathBuf,
    /// File to write to; - is standard output
    #[arg(default_value = "-")]
    pub to: PathBuf,
}

/// Arguments of `punctual store import`.
#[derive(Debug, Args)]
pub struct Import {
    /// Folder of the new store; must be missing or empty
    pub store: PathBuf,
    /// File that `export` wrote; - is standard input
    #[arg(default_value = "-")]
    pub from: PathBuf,
}

/// Arguments of `punctual store backup`.
#[derive(Debug, Args)]
pub struct Backup {
    /// Folder of the store
    pub store: PathBuf,
    /// Folder of the copy; must be missing or empty
    pub to: PathBuf,
    /// Limit on copying while a program has the store open: percent of elapsed time, 0.01 to 100 (no pauses), but at
    /// least 2 MB/s
    #[arg(long, value_name = "PERCENT", default_value = "0.5", value_parser = percent)]
    pub share: Share,
}

fn percent(text: &str) -> Result<Share, String> {
    let number = text.parse().ok().filter(|number| (0.01..=100.0).contains(number));
    number
        .map(|number: f64| Share::clamped(number / 100.0))
        .ok_or_else(|| "expected a number of percent, 0.01 to 100".to_owned())
}

/// Arguments of `punctual store compact`.
#[derive(Debug, Args)]
pub struct Compact {
    /// Folder of the store
    pub store: PathBuf,
}
