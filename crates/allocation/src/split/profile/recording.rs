//! Reader for all files of profiles, and the way from a file to phases.

use serde::{Deserialize, Serialize};

use super::accuracy::Accuracy;
use super::course::Course;
use super::error::{ReadError, SplitError};
use super::measured::{self, MeasuredRuns};
use super::merge;
use super::phases::Kinds;
use super::rows::{CsvTable, shown};
use super::smooth::Smoothing;
use super::timing::Timing;
use super::windows::{self, Windows};
use super::{Phase, Profile};
use crate::cluster::ClusteringSettings;
use crate::grid::Grid;
use crate::table::RateTable;

/// Most phases of a program: an allocator keeps tables for each.
pub const PHASES_MAX: usize = 64;
/// Most windows of a profile; a longer profile is made coarser before its phases are sought.
const WINDOWS_MAX: usize = 4096;

/// Content of a profile's file; its first line says which of the two it is.
#[derive(Clone, Debug, PartialEq)]
pub enum ProfileRecording {
    /// Under each share, spans of instructions with their rates:
    /// `cache_ways,bandwidth_partitions,cluster,start_instr,end_instr,instr_per_s`.
    Measured(MeasuredRuns),
    /// In each window, requests and misses for each number of ways:
    /// `window_index,instr_start,instr_count,llc_requests,miss_w1,miss_w2,...`.
    Windows(Windows),
}

/// How a recording is read and compiled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProfileOptions {
    /// Grid that the machine must have; `None`: that of the file (a profile by window says nothing about bandwidth: 20
    /// partitions).
    pub grid: Option<Grid>,
    /// How misses become time, in a profile by window.
    pub timing: Timing,
    /// How kinds of windows are found, in a profile by window; `None` takes every window for a phase of its own, and
    /// leaves it to merging to find few.
    pub clustering: Option<ClusteringSettings>,
    /// Phases that are kept, 1..=[`PHASES_MAX`].
    pub phases: usize,
    /// Treatment of rates that fall with more of a resource.
    pub smoothing: Smoothing,
}

impl Default for ProfileOptions {
    /// For whatever machine the file is for, [`Timing::PAPER`], [`PHASES_MAX`] phases, rates as they were recorded.
    fn default() -> ProfileOptions {
        ProfileOptions {
            grid: None,
            timing: Timing::PAPER,
            clustering: Some(ClusteringSettings::default()),
            phases: PHASES_MAX,
            smoothing: Smoothing::AsRecorded,
        }
    }
}

/// Profile made from a recording, and its errors.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// At most as many phases as were asked for.
    pub profile: Profile,
    /// Errors of the profile, compared with the recording.
    pub accuracy: Accuracy,
    /// Kinds of behaviour, where windows were clustered and not all alike.
    pub kinds: Option<Kinds>,
    /// Phases of the recording over all shares, before the least different neighbours were merged.
    pub phases_found: usize,
}

/// Reads and compiles the profile in `bytes`, which came from `file`; its name without folder and ending names the
/// program.
///
/// # Errors
/// [`ReadError`] says where, what, and what to do.
///
/// # Examples
/// ```
/// use punctual_allocation::profile::{ProfileOptions, load};
///
/// let text = "window_index,instr_start,instr_count,llc_requests,miss_w1,miss_w2\n\
///             0,0,1000000,20000,20000,1000\n\
///             1,1000000,1000000,100,100,100\n";
/// let compiled = load("data/profiles/walk.csv", text.as_bytes(), &ProfileOptions::default())?;
/// assert_eq!(compiled.profile.name, "walk");
/// let all = compiled.profile.grid.all();
/// assert!(compiled.profile.phases[0].rates.rate(all) < compiled.profile.phases[1].rates.rate(all));
/// # Ok::<(), punctual_allocation::profile::ReadError>(())
/// ```
pub fn load(file: &str, bytes: &[u8], options: &ProfileOptions) -> Result<Fit, ReadError> {
    ProfileRecording::read(file, bytes, options.grid)?
        .compile(options)
        .map_err(|error| error.of_file(file))
}

impl ProfileRecording {
    /// Reads the profile in `bytes`, which came from `file`, for a machine that can split `grid`, or for whichever the
    /// file is for.
    ///
    /// # Errors
    /// [`ReadError`] says where, what, and what to do.
    pub fn read(file: &str, bytes: &[u8], grid: Option<Grid>) -> Result<ProfileRecording, ReadError> {
        let mut table = CsvTable::new(file, bytes)?;
        if let Some(Grid { ways, partitions }) = grid.filter(|grid| !grid.is_sound()) {
            let what = format!("cannot be read for {ways} ways and {partitions} partitions; both must be 1..=64");
            return Err(table.refused(None, what));
        }
        let name = stem(file);
        let has = |column| table.columns().contains(&column);
        if has(windows::COLUMNS[0]) {
            Windows::read(name, &mut table, grid.map(|grid| grid.ways)).map(ProfileRecording::Windows)
        } else if has(measured::COLUMNS[0]) {
            MeasuredRuns::read(name, &mut table, grid).map(ProfileRecording::Measured)
        } else {
            let found = shown(&table.columns().join(","));
            Err(table.refused(
                Some(1),
                format!(
                    "is no profile: its first line is \"{found}\"; expected cache_ways,bandwidth_partitions,... (measured) \
                     or window_index,instr_start,... (by window, as `punctual profile` writes it)"
                ),
            ))
        }
    }

    /// Name of the program, from the file's name.
    pub fn name(&self) -> &str {
        match self {
            ProfileRecording::Measured(measured) => &measured.name,
            ProfileRecording::Windows(windows) => &windows.name,
        }
    }

    /// Course of the whole recording: how long each stretch of progress takes under each share. A profile of more than
    /// `WINDOWS_MAX` windows is made coarser first.
    ///
    /// # Errors
    /// An invalid timing model, or a recording that is too large.
    pub fn course(&self, options: &ProfileOptions) -> Result<Course, SplitError> {
        match self {
            ProfileRecording::Measured(measured) => measured.course(),
            ProfileRecording::Windows(windows) => {
                if let Some((figure, value)) = options.timing.wrong() {
                    return Err(SplitError(format!(
                        "cannot be timed: {figure} is {value}; \
                         it must be finite and positive (cycles of a wait may be 0)"
                    )));
                }
                let partitions = options.grid.unwrap_or(Grid::PAPER).partitions;
                Ok(windows.coarser(WINDOWS_MAX).course(&options.timing, partitions))
            }
        }
    }

    /// The kinds of windows, and the last piece of each joint phase before any is merged.
    fn phases(&self, course: &Course, options: &ProfileOptions) -> (Option<Kinds>, Vec<usize>) {
        let every = || (0..course.len()).collect();
        let (ProfileRecording::Windows(windows), Some(settings)) = (self, &options.clustering) else {
            return (None, every());
        };
        let kinds = Kinds::learn(&windows.coarser(WINDOWS_MAX), course, settings);
        let lasts = kinds.as_ref().map(Kinds::lasts);
        // Where all windows are alike, there is one phase.
        (kinds, lasts.unwrap_or_else(|| vec![course.len() - 1]))
    }

    /// Finds the recording's phases, joint over all shares, and measures the error of keeping so few.
    ///
    /// # Errors
    /// As [`ProfileRecording::course`]; also rates that a profile cannot hold.
    pub fn compile(&self, options: &ProfileOptions) -> Result<Fit, SplitError> {
        let course = self.course(options)?;
        let (kinds, lasts) = self.phases(&course, options);
        let joint = course.joined(&lasts);
        let lasts = merge::groups(&joint, options.phases.clamp(1, PHASES_MAX));
        let profile = profile(self.name(), &joint.joined(&lasts), options.smoothing);
        profile.check()?;
        Ok(Fit {
            accuracy: Accuracy::of(&profile, &course),
            kinds,
            phases_found: joint.len(),
            profile,
        })
    }
}

/// Profile with one phase for each piece of `course`.
fn profile(name: &str, course: &Course, smoothing: Smoothing) -> Profile {
    let phase = |piece: usize| {
        let rates = RateTable::new(course.grid(), |share| course.rate(piece, share) as f32);
        Phase {
            ends: course.ends()[piece],
            rates: smoothing.of(rates),
        }
    };
    Profile {
        name: name.to_string(),
        grid: course.grid(),
        instructions: course.instructions(),
        phases: (0..course.len()).map(phase).collect(),
    }
}

/// Stem of a file's name: `fft.scaled` of `data/profiles/fft.scaled.csv`.
fn stem(file: &str) -> &str {
    let name = file.rsplit('/').next().unwrap_or(file);
    match name.rsplit_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem,
        _ => name,
    }
}
