//! `punctual profile FILE`: rate, misses and phases of a profile's file.

use std::path::Path;

use punctual_allocation::profile::{Course, Fit, ProfileOptions, ProfileRecording, ReadError, Smoothing, Timing};
use punctual_allocation::{Grid, Share};

use super::document::Document;
use super::steps::Steps;
use super::{super::print, draw};
use crate::args::{Profile, Smooth};
use punctual_files::failure::Failure;
use punctual_files::profiles;
use punctual_report::output::{OutputFile, apart};
use punctual_report::summary::{count, counted, percent};
use punctual_report::terminal::width;

/// Width of a line without a terminal, in characters.
const WIDTH: usize = 100;

/// A profile, and the parts of it that are shown.
pub struct ProfileView {
    pub recording: ProfileRecording,
    pub options: ProfileOptions,
    /// The profile in full detail.
    pub course: Course,
    /// The profile reduced to a few phases.
    pub compiled: Fit,
    /// Shares whose curves are drawn: everything, a quarter, the least.
    pub shares: Vec<Share>,
}

/// Carries out `punctual profile FILE`.
pub fn show(file: &Path, arguments: &Profile, command: &str) -> Result<(), Failure> {
    apart(&[
        ("the profile", Some(file)),
        ("--json", arguments.show.json.as_deref()),
        ("--html", arguments.show.html.as_deref()),
    ])?;
    let shown = ProfileView::read(file, options(arguments)?)?;
    let json = OutputFile::report(arguments.show.json.as_ref())?;
    let html = OutputFile::page(arguments.show.html.as_ref())?;
    let width = width(&std::io::stdout()).unwrap_or(WIDTH);
    print(&draw::text(&shown, width))?;
    json.map_or(Ok(()), |file| file.json(&Document::of(&shown)))?;
    html.map_or(Ok(()), |file| file.text(&super::page::profile(&shown, command)))
}

fn options(arguments: &Profile) -> Result<ProfileOptions, Failure> {
    let show = &arguments.show;
    if arguments.trace.ways.is_some() && show.partitions.is_none() {
        return Err(Failure::of(
            "--ways with a profile describes a machine: add --partitions",
        ));
    }
    let grid = arguments.trace.ways.zip(show.partitions);
    Ok(ProfileOptions {
        grid: grid.map(|(ways, partitions)| Grid { ways, partitions }),
        phases: show.phases,
        smoothing: match show.smooth {
            Smooth::None => Smoothing::AsRecorded,
            Smooth::Best => Smoothing::Best,
            Smooth::Nearest => Smoothing::Nearest,
        },
        ..ProfileOptions::default()
    })
}

impl ProfileView {
    /// Reads and compiles `file`.
    pub fn read(file: &Path, options: ProfileOptions) -> Result<ProfileView, Failure> {
        let bytes = profiles::bytes(file).map_err(|line| Failure::Input(vec![line]))?;
        let name = file.display().to_string();
        ProfileView::of(&name, &bytes, options).map_err(Failure::of)
    }

    /// Reads and compiles the profile in `bytes`; messages call it `file`.
    pub fn of(file: &str, bytes: &[u8], options: ProfileOptions) -> Result<ProfileView, ReadError> {
        let recording = ProfileRecording::read(file, bytes, options.grid)?;
        let course = recording.course(&options).map_err(|error| error.of_file(file))?;
        let compiled = recording.compile(&options).map_err(|error| error.of_file(file))?;
        let Grid { ways, partitions } = course.grid();
        let part = |divisor: u8| Share {
            ways: (ways / divisor).max(1),
            partitions: (partitions / divisor).max(1),
        };
        let mut shares = vec![part(1), part(4), Share { ways: 1, partitions: 1 }];
        shares.dedup();
        Ok(ProfileView {
            recording,
            options,
            course,
            compiled,
            shares,
        })
    }

    /// Headline: program, kind of profile, and the machine's resources.
    pub fn title(&self) -> String {
        let grid = self.course.grid();
        let kind = match &self.recording {
            ProfileRecording::Measured(_) => "measured".to_string(),
            ProfileRecording::Windows(it) => format!("traced, {}", counted(it.windows().len() as u64, "window")),
        };
        format!("{}: {kind}; {}", self.recording.name(), named(grid.all()))
    }

    /// Sentences on the origin of the rates.
    pub fn provenance(&self) -> Vec<String> {
        match &self.recording {
            ProfileRecording::Measured(_) => vec![
                "rates as measured; those of a share whose run is longer than with everything are scaled to its length"
                    .into(),
            ],
            ProfileRecording::Windows(_) => {
                let Timing {
                    base_cycles,
                    llc_cycles,
                    memory_cycles,
                    clock_hz,
                    partition_bytes_per_s,
                } = self.options.timing;
                vec![format!(
                    "rates by a timing model, not measured: {base_cycles} cycles an instruction, {llc_cycles} for a hit, {memory_cycles} for a miss, {:.0} MHz, {:.0} MB/s a partition",
                    clock_hz * 1e-6,
                    partition_bytes_per_s * 1e-6
                )]
            }
        }
    }

    /// Recorded rate, in million instructions per second.
    pub fn rate(&self, share: Share) -> Steps {
        Steps {
            ends: self.course.ends().to_vec(),
            values: (0..self.course.len())
                .map(|piece| self.course.rate(piece, share) * 1e-6)
                .collect(),
        }
    }

    /// Rate of the phases, in million instructions per second.
    pub fn phase_rate(&self, share: Share) -> Steps {
        let phases = &self.compiled.profile.phases;
        Steps {
            ends: phases.iter().map(|phase| phase.ends).collect(),
            values: phases
                .iter()
                .map(|phase| f64::from(phase.rates.rate(share)) * 1e-6)
                .collect(),
        }
    }

    /// Misses per 1000 instructions with the fewest and with the most ways; empty if they were not recorded.
    pub fn misses(&self) -> Vec<(u8, Steps)> {
        let ProfileRecording::Windows(windows) = &self.recording else {
            return Vec::new();
        };
        let whole = windows.instructions() as f64;
        let of = |ways: u8| {
            let steps = windows.windows().iter().map(|window| {
                let misses = 1000.0 * window.misses(ways) as f64 / window.instructions as f64;
                ((window.start + window.instructions) as f64 / whole, misses)
            });
            let (ends, values) = steps.unzip();
            Steps { ends, values }
        };
        let mut ways: Vec<u8> = self.shares.iter().map(|share| share.ways).collect();
        ways.sort_unstable();
        ways.dedup();
        ways.into_iter().map(|ways| (ways, of(ways))).collect()
    }

    /// Time of a whole run with equal numbers of both resources, in seconds and as a share of the longest.
    pub fn durations(&self) -> Vec<(Share, f64, f64)> {
        let Grid { ways, partitions } = self.course.grid();
        let most = ways.max(partitions);
        let mut counts = vec![1, 2, 3, 5, 10, 20, 40, most];
        counts.retain(|count| *count <= most);
        counts.dedup();
        let taken = |count: u8| {
            let (ways, partitions) = (ways.min(count), partitions.min(count));
            let share = Share { ways, partitions };
            (share, self.course.duration(share))
        };
        let taken: Vec<(Share, f64)> = counts.into_iter().map(taken).collect();
        let longest = taken.iter().map(|(_, seconds)| *seconds).fold(0.0, f64::max);
        let with_part = |(share, seconds)| (share, seconds, seconds / longest);
        taken.into_iter().map(with_part).collect()
    }

    /// Names and texts of the figures that the terminal and the page both show.
    pub fn figures(&self) -> Vec<(&'static str, String)> {
        let Fit {
            profile,
            accuracy,
            kinds,
            phases_found,
        } = &self.compiled;
        let (mut figures, grid) = (Vec::new(), self.course.grid());
        let mut figure = |name, text| figures.push((name, text));
        if let Some(kinds) = kinds {
            let best = kinds.choice.best();
            let each = |share: &Share| format!("{} with {}", count(kinds.phases(*share) as u64), named(*share));
            let each: Vec<String> = self.shares.iter().map(each).collect();
            // Of 0 where the windows of each kind are equal: then the other index divides by 0.
            let indices = match (best.davies_bouldin, best.calinski_harabasz) {
                (0.0, _) => String::new(),
                (first, other) => format!("; Davies-Bouldin {first:.2}, Calinski-Harabasz {other:.0}"),
            };
            figure("kinds", format!("{} of windows{indices}", best.kinds));
            figure("runs of a kind", each.join(", "));
        }
        let made = match self.options.smoothing {
            Smoothing::AsRecorded => "",
            Smoothing::Best => ", rates monotone by the best within a share",
            Smoothing::Nearest => ", rates nearest monotone",
        };
        let (kept, found) = (profile.phases.len(), count(*phases_found as u64));
        figure(
            "phases",
            format!("{kept} of {found} over all {} shares{made}", grid.len()),
        );
        let rates = [accuracy.rate_mean, accuracy.rate_mean_worst_share, accuracy.rate_worst];
        let [mean, worst_share, worst] = rates.map(percent);
        let rates = format!("{mean} on average over progress and shares; {worst_share} with the worst share");
        figure("rate error", format!("{rates}; {worst} at worst"));
        let times = [accuracy.duration_mean, accuracy.duration_worst, accuracy.lag_worst];
        let [mean, worst, lag] = times.map(|part| format!("{:.2} %", 100.0 * part));
        let times = format!("{mean} of a whole run on average over shares, {worst} with the worst");
        figure("time error", format!("{times}; up to some progress {lag} at worst"));
        if accuracy.faster_than_recorded > 0.0 {
            let by = percent(accuracy.faster_than_recorded);
            figure(
                "too fast",
                format!("up to {by} faster than any recorded run within its share"),
            );
        }
        figures
    }
}

/// Text such as `20 ways and 20 partitions`.
pub fn named(share: Share) -> String {
    let s = if share.partitions == 1 { "" } else { "s" };
    format!("{} and {} partition{s}", ways(share.ways), share.partitions)
}

/// Text such as `20 ways`.
pub fn ways(count: u8) -> String {
    format!("{count} way{}", if count == 1 { "" } else { "s" })
}
