//! `punctual store ...`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use punctual_units::Share;

/// What to do with a store.
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Show format, sizes, records, temporal objects with their ages, and readers
    Inspect(Inspect),
    /// Read every page and every record, and check them
    ///
    /// Ends with 0 if the store is sound, with 1 if it is damaged (and says what was found first), with 2 if it is no
    /// store, of a newer format, or cannot be read.
    Verify(Verify),
    /// Write all records as text, with their number, length and checksum at the end
    Export(Export),
    /// Make a new store of what `export` has written
    ///
    /// An export that was cut off or changed is refused, and nothing is left of the new store then.
    Import(Import),
    /// Make a copy of the store as it is now
    ///
    /// The copy holds no free pages. It is synced, and gets its name when it is whole.
    Backup(Backup),
    /// Write the store anew without the pages that are free in it; no program may have it open
    Compact(Compact),
}

/// `store inspect`
#[derive(Debug, Args)]
pub struct Inspect {
    /// The folder of the store
    pub store: PathBuf,
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// `store verify`
#[derive(Debug, Args)]
pub struct Verify {
    /// The folder of the store
    pub store: PathBuf,
    /// Check the structure of all pages only, not each record's checksum
    #[arg(long)]
    pub structure: bool,
}

/// `store export`
#[derive(Debug, Args)]
pub struct Export {
    /// The folder of the store
    pub store: PathBuf,
    /// Where to write to; "-" is standard output
    #[arg(default_value = "-")]
    pub to: PathBuf,
}

/// `store import`
#[derive(Debug, Args)]
pub struct Import {
    /// The folder of the new store: one that is not there, or an empty one
    pub store: PathBuf,
    /// What `export` has written; "-" is standard input
    #[arg(default_value = "-")]
    pub from: PathBuf,
}

/// `store backup`
#[derive(Debug, Args)]
pub struct Backup {
    /// The folder of the store
    pub store: PathBuf,
    /// The folder of the copy: one that is not there, or an empty one
    pub to: PathBuf,
    /// While a program has the store open: write for so much of the time, so that its own writes seldom wait for the
    /// medium, or for more, so that 2 MB a second are copied; 100 makes no pauses
    #[arg(long, value_name = "PERCENT", default_value = "0.5", value_parser = percent)]
    pub share: Share,
}

fn percent(text: &str) -> Result<Share, String> {
    let number = text.parse().ok().filter(|number| (0.01..=100.0).contains(number));
    number
        .map(|number: f64| Share::clamped(number / 100.0))
        .ok_or_else(|| "expected a number of percent, 0.01 to 100".to_owned())
}

/// `store compact`
#[derive(Debug, Args)]
pub struct Compact {
    /// The folder of the store
    pub store: PathBuf,
}
