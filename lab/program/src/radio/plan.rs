//! Settings of a run of the radio, checked.

use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use punctual_allocation::mapping::MappingPolicy;
use punctual_pipelines::linux::ClockOptions;
use punctual_pipelines::{Graph, WhenFull};
use punctual_platform::linux::KernelTree;
use punctual_radio::format::{Converter, InputOptions, Layout, RecordingFile};
use punctual_radio::{IQ_BYTES, IQ_RATE, Options, REFERENCE, Recording, STATION};
use punctual_units::{CoreId, Nanos};
use punctual_workload::TaskGoal;

use super::orders::Orders;
use super::page::PAGE_SAMPLES;
use super::pipes::{Incoming, Tap, TappedReader};
use super::rate::RATE_MAX;
use super::sink::{COMPARED_MAX, LEAD};
use crate::args::Radio;
use punctual_files::failure::Failure;

/// Name of the shipped recording in reports.
const SHIPPED: &str = "station.cu8.zst";
/// Least goal of tardiness for control of the clocks: at low frame rates, frames are done long before they are due.
const SOON: f64 = 0.5;

/// Settings of a run, from the command line.
#[derive(Clone, Debug)]
pub struct RadioPlan {
    /// File of the recording; `None`: the shipped one.
    pub recording: Option<PathBuf>,
    /// Format and rate of the recording from the command line.
    pub input: InputOptions,
    pub reference: Option<PathBuf>,
    pub radio: Options,
    /// Time between two frames; `None`: as fast as possible.
    pub period: Option<Nanos>,
    pub cores: Vec<CoreId>,
    pub orders: Orders,
    pub wav: Option<PathBuf>,
    /// Whether a page was requested.
    pub records: bool,
    pub frames: Option<u64>,
}

impl RadioPlan {
    /// Checks the command line.
    ///
    /// # Errors
    /// [`Failure::Input`] naming the option.
    pub fn new(arguments: &Radio) -> Result<RadioPlan, Failure> {
        let wrong = |option: &str, why: String| Failure::of(format!("{option}: {why}"));
        let gains = match (&arguments.gains, arguments.bands) {
            (Some(gains), None) => gains.clone(),
            (Some(gains), Some(bands)) if gains.len() == bands => gains.clone(),
            (Some(gains), Some(bands)) => {
                let why = format!("{} gains for {bands} bands: give one for each", gains.len());
                return Err(wrong("--gains", why));
            }
            (None, bands) => vec![0.0; bands.unwrap_or(4)],
        };
        let radio = Options {
            gains,
            slots: arguments.slots,
            frame: arguments.frame,
            full: arguments.when_full,
            ..Options::default()
        };
        radio.check().map_err(Failure::of)?;
        let real = 1.0 / real_period(&radio).as_secs_f64();
        let rate = match arguments.rate.as_str() {
            "real" => Some(real),
            "max" => None,
            number => match number.parse::<f64>() {
                Ok(rate) if rate > 0.0 && rate <= RATE_MAX => Some(rate),
                _ => {
                    let why = format!("\"{number}\": give real, max, or frames per second, at most {RATE_MAX}");
                    return Err(wrong("--rate", why));
                }
            },
        };
        let plan = RadioPlan {
            reference: arguments.reference.clone(),
            recording: arguments.input.recording.clone(),
            input: InputOptions {
                format: arguments.input.format,
                rate: arguments.input.iq_rate,
            },
            radio,
            period: rate.map(|rate| Nanos::from_secs_f64(1.0 / rate)),
            cores: arguments.cores.clone().0,
            orders: Orders {
                mechanism: arguments.mechanism,
                migrate_every: arguments.migrate_every,
                kill_every: arguments.kill_every,
                upgrade_at: arguments.upgrade_at,
                upgrade_to: arguments.upgrade_to.clone().unwrap_or_else(|| "/proc/self/exe".into()),
                seed: arguments.seed,
            },
            wav: arguments.wav.clone(),
            records: arguments.html.is_some(),
            frames: arguments.frames,
        };
        if plan.radio.full != WhenFull::Wait && !plan.is_live() {
            let why = "a recording that is a file waits, and loses nothing: leave the option out, or give a pipe";
            return Err(wrong("--when-full", why.into()));
        }
        Ok(plan)
    }

    /// Time between two frames as received.
    pub fn real_period(&self) -> Nanos {
        real_period(&self.radio)
    }

    /// Checks that stages can be moved, if moves were requested.
    ///
    /// # Errors
    /// [`Failure::Input`] on a single core.
    pub fn check_moves(&self, cores: &[CoreId]) -> Result<(), Failure> {
        match (cores, self.orders.migrate_every) {
            ([only], Some(_)) => Err(Failure::of(format!(
                "--migrate-every: core {only} is the only one: leave the option out, or give the radio two cores (--cores)"
            ))),
            _ => Ok(()),
        }
    }

    /// Format and rate of a recording that can be read again; `None` for the shipped one, and for a pipe, which is
    /// judged while it plays.
    ///
    /// # Errors
    /// [`Failure::Input`] if the recording cannot be read, or cannot have its format.
    pub fn layout(&self) -> Result<Option<Layout>, Failure> {
        let Some(path) = self.recording.as_deref().filter(|_| self.can_be_read_again()) else {
            return Ok(None);
        };
        let opened = Recording::open_as(path, &self.input).map_err(Failure::of)?;
        Ok(opened.layout())
    }

    /// First core of each stage: the demodulator, with half of all work, on the second one, all others on the first.
    pub fn placement(&self, graph: &Graph) -> Vec<usize> {
        let stages = graph.stages().iter();
        stages.map(|stage| usize::from(stage.name == "demodulator")).collect()
    }

    /// Control of the clocks under a policy with a table: clocks follow its rows, or run higher so that frames reach
    /// the sink while half of the sink's queue is still to be played.
    pub fn clocks(&self, arguments: &Radio) -> Option<ClockOptions> {
        let waits = |period: Nanos| period.as_secs_f64() * f64::from(self.radio.slots) / 2.0;
        let least = |period| TaskGoal::Tardiness((1.0 - waits(period) / LEAD.as_secs_f64()).max(SOON));
        let table = matches!(arguments.policy, MappingPolicy::Table | MappingPolicy::TableOff);
        table.then(|| ClockOptions {
            tree: arguments
                .kernel_tree
                .as_ref()
                .map_or_else(KernelTree::default, KernelTree::at),
            holds: self.period.map(|period| ("sum".into(), least(period))),
            records: arguments.record.is_some(),
        })
    }

    /// Opens the recording; reads fail once the user asks to stop.
    ///
    /// # Errors
    /// [`Failure::Input`] if it cannot be read.
    pub fn open(&self, stop: &Arc<AtomicBool>, tap: &Arc<Tap<u8>>) -> Result<Recording, Failure> {
        let reader: Box<dyn Read + Send> = match self.recording.as_deref() {
            Some(path) if !is_packed(path) => {
                let located = self.located(path)?;
                let incoming = Incoming::open(&located.path, stop);
                let incoming = incoming.map_err(|why| Failure::at(path, why))?;
                let mut converted = Converter::new(located, incoming);
                if !self.is_live() {
                    converted.check().map_err(Failure::of)?;
                }
                Box::new(converted)
            }
            packed => Box::new(Cursor::new(self.unpacked(packed)?)),
        };
        let limit = self
            .frames
            .map_or(u64::MAX, |frames| frames.saturating_mul(self.frame_bytes()));
        let reader = TappedReader {
            reader: reader.take(limit),
            tap: Arc::clone(tap),
            stop: Arc::clone(stop),
        };
        Ok(Recording::from_reader(&self.name(), Box::new(reader)))
    }

    fn located(&self, path: &Path) -> Result<RecordingFile, Failure> {
        RecordingFile::new(path, &self.input).map_err(Failure::of)
    }

    /// Bytes of a frame as received.
    pub fn frame_bytes(&self) -> u64 {
        (self.radio.frame * IQ_BYTES) as u64
    }

    /// Decompresses a whole recording in advance, so that decompression delays no frame.
    fn unpacked(&self, path: Option<&Path>) -> Result<Vec<u8>, Failure> {
        let recording = Recording::open_as(path.unwrap_or(Path::new(STATION)), &self.input);
        let mut recording = recording.map_err(Failure::of)?;
        let limit = self.frames.map(|frames| (frames * self.frame_bytes()) as usize);
        let mut plain = LimitedBuffer {
            bytes: Vec::new(),
            limit,
        };
        let copied = recording.copy_to(&mut plain);
        match copied {
            Err(_) if plain.is_full() => {}
            other => drop(other.map_err(Failure::of)?),
        }
        plain.bytes.truncate(limit.unwrap_or(usize::MAX));
        Ok(plain.bytes)
    }

    /// Whether the recording is a pipe or a device, which cannot be read again, and may be silent for a while.
    pub fn is_live(&self) -> bool {
        let path = self.recording.as_deref();
        let path = path.map(|path| {
            if path == Path::new("-") {
                Path::new("/dev/stdin")
            } else {
                path
            }
        });
        path.is_some_and(|path| path.metadata().is_ok_and(|found| !found.is_file()))
    }

    /// Whether the recording can be read again.
    pub fn can_be_read_again(&self) -> bool {
        self.recording.as_deref() != Some(Path::new("-")) && !self.is_live()
    }

    /// Number of samples to keep from the beginning of the sound, for the comparison or a page.
    pub fn keeps(&self) -> usize {
        let compared = self.reference.is_some() || self.recording.is_none();
        match (compared, self.records) {
            (true, _) => COMPARED_MAX,
            // The extra sample tells that the sound was longer.
            (false, true) => PAGE_SAMPLES + 1,
            (false, false) => 0,
        }
    }

    /// Path of the recording, for reports.
    pub fn name(&self) -> PathBuf {
        self.recording.clone().unwrap_or_else(|| SHIPPED.into())
    }

    /// The true sound, if it is known.
    ///
    /// # Errors
    /// [`Failure::Input`] if its file cannot be read.
    pub fn true_sound(&self) -> Result<Option<Vec<f32>>, Failure> {
        match (&self.reference, &self.recording) {
            (Some(path), _) => super::reference(path).map(Some),
            (None, None) => super::reference(Path::new(REFERENCE)).map(Some),
            (None, Some(_)) => Ok(None),
        }
    }
}

fn real_period(radio: &Options) -> Nanos {
    Nanos::from_secs_f64(radio.frame as f64 / f64::from(IQ_RATE))
}

fn is_packed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "zst")
}

/// Collects bytes up to a limit.
struct LimitedBuffer {
    bytes: Vec<u8>,
    limit: Option<usize>,
}

impl LimitedBuffer {
    fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.bytes.len() >= limit)
    }
}

impl Write for LimitedBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.is_full() {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
