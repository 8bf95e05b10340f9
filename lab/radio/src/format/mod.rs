//! Formats of recordings: WAV, SigMF and raw IQ samples of any sample rate, as the bytes that the receiver takes.
//!
//! **Problem.** The receiver takes unsigned bytes, I before Q, [`IQ_RATE`] a second. Recordings come as integers and
//! floats of several widths, with or without a header, at other rates. A format taken for another one is noise.
//!
//! **Method.** A header (WAV, SigMF) states format and rate; an option that contradicts it is refused. A raw recording
//! has the format of the option, else of the name's end, else `cu8`, and its samples must not refute it
//! (`evidence.rs`). Samples are resampled, scaled to the range of a byte and rounded as they are read ([`Converter`]):
//! frequency modulation carries no sound in the amplitude, so a gain that changes from block to block is not heard.
//!
//! **Bounds.** Memory is that of a block and a resampler, whatever the length of the recording.

mod converter;
mod evidence;
mod resampler;
mod sigmf;
mod wav;

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::input::InputError;
use crate::options::{CHANNEL_CUTOFF, IQ_RATE};

pub use converter::Converter;

/// Least sample rate: below it, the band of the channel's filter does not fit.
pub const RATE_MIN: f64 = 2.0 * CHANNEL_CUTOFF;
/// Greatest sample rate; the resampler's taps grow with it.
pub const RATE_MAX: f64 = 20e6;
/// Names of raw formats for messages.
const NAMES: &str = "cu8, cs8, cs16, cs32 or cf32 (_be for the higher byte first)";
/// Greatest length of a sample: two floats of 8 bytes.
const SAMPLE_MAX: usize = 16;

/// Representation of the numbers I and Q of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Zero lies between the two middle values.
    Unsigned,
    Signed,
    Float,
}

/// Format of IQ samples: two numbers each, I before Q.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleFormat {
    kind: Kind,
    /// Bytes of one of the two numbers.
    bytes: usize,
    /// Bytes of a number in use, the highest ones; fewer than `bytes` in a WAV file with padding.
    used: usize,
    big_endian: bool,
}

impl SampleFormat {
    /// The receiver's format: unsigned bytes.
    pub const CU8: SampleFormat = SampleFormat::new(Kind::Unsigned, 1);

    const fn new(kind: Kind, bytes: usize) -> SampleFormat {
        SampleFormat {
            kind,
            bytes,
            used: bytes,
            big_endian: false,
        }
    }

    /// Bytes of an IQ sample.
    pub fn sample_bytes(self) -> usize {
        2 * self.bytes
    }

    /// I and Q of full scale 1, from the bytes of a sample.
    fn sample(self, bytes: &[u8]) -> [f32; 2] {
        let (i, q) = bytes.split_at(self.bytes);
        [self.number(i), self.number(q)]
    }

    fn number(self, bytes: &[u8]) -> f32 {
        // The number in the highest bytes of a word, the lowest byte first.
        let mut word = [0; 8];
        let place = &mut word[8 - self.bytes..];
        place.copy_from_slice(bytes);
        if self.big_endian {
            place.reverse();
        }
        let word = u64::from_le_bytes(word);
        match (self.kind, self.bytes) {
            (Kind::Float, 4) => f32::from_bits((word >> 32) as u32),
            (Kind::Float, _) => f64::from_bits(word) as f32,
            (kind, _) => {
                let flip = if kind == Kind::Unsigned { 1 << 63 } else { 0 };
                let step = libm::exp2(64.0 - 8.0 * self.used as f64);
                // Half a step makes both ends of the range equally far from zero, as for the receiver's bytes.
                (((word ^ flip) as i64 as f64 + step / 2.0) / (libm::exp2(63.0) - step / 2.0)) as f32
            }
        }
    }
}

impl fmt::Display for SampleFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Unsigned => 'u',
            Kind::Signed => 's',
            Kind::Float => 'f',
        };
        write!(
            f,
            "c{kind}{}{}",
            8 * self.used,
            if self.big_endian { "_be" } else { "" }
        )
    }
}

impl FromStr for SampleFormat {
    type Err = String;

    /// Reads names such as `cu8`, `cs16`, `ci16_le` (SigMF) and `cf32_be`.
    fn from_str(name: &str) -> Result<SampleFormat, String> {
        let (plain, big_endian) = match (name.strip_suffix("_be"), name.strip_suffix("_le")) {
            (Some(plain), _) => (plain, true),
            (_, Some(plain)) => (plain, false),
            _ => (name, false),
        };
        let (kind, bytes) = match plain {
            "cu8" => (Kind::Unsigned, 1),
            "cu16" => (Kind::Unsigned, 2),
            "cu32" => (Kind::Unsigned, 4),
            "cs8" | "ci8" => (Kind::Signed, 1),
            "cs16" | "ci16" => (Kind::Signed, 2),
            "cs32" | "ci32" => (Kind::Signed, 4),
            "cf32" => (Kind::Float, 4),
            "cf64" => (Kind::Float, 8),
            "wav" | "sigmf" => {
                return Err(format!(
                    "{name}: leave the option out, the header is read; else give {NAMES}"
                ));
            }
            _ => return Err(format!("give {NAMES}")),
        };
        Ok(SampleFormat {
            big_endian: big_endian && bytes > 1,
            ..SampleFormat::new(kind, bytes)
        })
    }
}

/// Format and sample rate from options; `None`: from a header, the name, or the receiver's own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InputOptions {
    /// Format of the samples.
    pub format: Option<SampleFormat>,
    /// IQ samples per second.
    pub rate: Option<f64>,
}

/// Format, rate and place of a recording's samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layout {
    /// Format of the samples.
    pub format: SampleFormat,
    /// IQ samples per second.
    pub rate: f64,
    /// Bytes of samples according to a header; `None`: to the end.
    length: Option<u64>,
    /// Whether no header states the format.
    is_raw: bool,
}

impl Layout {
    /// Whether the samples are those that the receiver takes.
    fn is_plain(&self) -> bool {
        self.format == SampleFormat::CU8 && self.rate == f64::from(IQ_RATE)
    }
}

/// A recording's file of samples, and all that is known of them without reading it.
#[derive(Clone, Debug)]
pub struct RecordingFile {
    /// Path of the file of samples; `-`: standard input.
    pub path: PathBuf,
    options: InputOptions,
    stated: Option<Header>,
}

/// Format and rate that a header states.
#[derive(Clone, Copy, Debug)]
struct Header {
    format: SampleFormat,
    rate: Option<f64>,
    /// Name of the header's kind.
    header: &'static str,
    length: Option<u64>,
}

impl RecordingFile {
    /// Finds the samples of the recording at `path`: for SigMF, it reads the metadata.
    ///
    /// # Errors
    /// [`InputError::Format`] for SigMF metadata that the receiver cannot use, or that contradict the options.
    pub fn new(path: &Path, options: &InputOptions) -> Result<RecordingFile, InputError> {
        let (path, stated) = match sigmf::paths(path) {
            Some((meta, data)) => {
                let (data, stated) = sigmf::read(&meta, &data)?;
                (data, Some(stated))
            }
            None => (path.to_path_buf(), None),
        };
        let options = *options;
        let file = RecordingFile { path, options, stated };
        if let Some(stated) = stated {
            file.layout(Some(stated))?;
        }
        Ok(file)
    }

    /// Determines the layout; `head` is the beginning of the file, `rest` what follows it.
    ///
    /// # Errors
    /// [`InputError::Format`].
    fn layout_of(&self, head: &[u8], rest: &mut dyn Read) -> Result<Layout, InputError> {
        let found = match (self.stated, wav::is_wav(head)) {
            (Some(stated), _) => Some(stated),
            (None, true) => Some(wav::read(&self.path, rest)?),
            (None, false) => None,
        };
        if let (None, None, Some(name)) = (found, self.options.format, evidence::foreign(head)) {
            let what = format!("is a {name} file, which holds no plain IQ samples");
            return Err(self.refused(what, "unpack or convert it, to WAV for example"));
        }
        self.layout(found)
    }

    fn layout(&self, found: Option<Header>) -> Result<Layout, InputError> {
        let InputOptions { format, rate } = self.options;
        if let Some(Header {
            format: stated, header, ..
        }) = found
            && format.is_some_and(|format| format != stated)
        {
            let what = format!(
                "the {header} header says {stated}, --format says {}",
                format.unwrap_or(stated)
            );
            return Err(self.refused(what, "leave the option out"));
        }
        if let Some(Header {
            rate: Some(stated),
            header,
            ..
        }) = found
            && rate.is_some_and(|rate| (rate - stated).abs() >= 0.5)
        {
            let what = format!(
                "the {header} header says {stated} IQ samples a second, --iq-rate says {}",
                rate.unwrap_or(stated)
            );
            return Err(self.refused(what, "leave the option out"));
        }
        let by_header = found.and_then(|stated| stated.rate);
        let layout = Layout {
            format: found
                .map(|stated| stated.format)
                .or(format)
                .unwrap_or(by_name(&self.path)),
            rate: by_header.or(rate).unwrap_or(f64::from(IQ_RATE)),
            length: found.and_then(|stated| stated.length),
            is_raw: found.is_none(),
        };
        if let (Some(Header { header, rate: None, .. }), None) = (found, rate) {
            return Err(self.refused(
                format!("the {header} header states no sample rate"),
                "give it by --iq-rate",
            ));
        }
        if !(RATE_MIN..=RATE_MAX).contains(&layout.rate) {
            let what = format!("{} IQ samples a second", layout.rate);
            let bounds = format!("a station needs {RATE_MIN}, at most {RATE_MAX}: record at {IQ_RATE} a second");
            return Err(self.refused(what, &bounds));
        }
        Ok(layout)
    }

    fn refused(&self, found: String, remedy: &str) -> InputError {
        refused(&self.path, found, remedy)
    }
}

fn refused(path: &Path, found: String, remedy: &str) -> InputError {
    InputError::Format {
        path: path.into(),
        found,
        remedy: remedy.into(),
    }
}

/// Format by the end of the name, before `.zst`.
fn by_name(path: &Path) -> SampleFormat {
    let stem = path.file_stem().map(Path::new);
    let name = stem.filter(|_| path.extension().is_some_and(|end| end == "zst"));
    let end = name
        .unwrap_or(path)
        .extension()
        .and_then(|end| end.to_str())
        .unwrap_or("");
    match end {
        "s8" => SampleFormat::new(Kind::Signed, 1),
        "s16" => SampleFormat::new(Kind::Signed, 2),
        "f32" | "fc32" | "cfile" => SampleFormat::new(Kind::Float, 4),
        _ => end.parse().unwrap_or(SampleFormat::CU8),
    }
}
