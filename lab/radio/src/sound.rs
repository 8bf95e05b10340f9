//! 16-bit mono sound at [`AUDIO_RATE`]: files, pipes, fingerprints.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::options::AUDIO_RATE;

const SPEC: hound::WavSpec = hound::WavSpec {
    channels: 1,
    sample_rate: AUDIO_RATE,
    bits_per_sample: 16,
    sample_format: hound::SampleFormat::Int,
};

/// Greatest length of a sound file that is read, in samples: an hour.
const SAMPLES_MAX: u32 = 3600 * AUDIO_RATE;

/// Greatest length of a sound file that is written, in samples: its header has 32 bits for the length in bytes. 23 h 51
/// min.
const FILE_MAX: u32 = u32::MAX / 2 - 1024;
/// Interval in samples at which a file's header is updated, so that a file left by a kill can be played.
const HEADER_EVERY: u32 = AUDIO_RATE;

/// Why a sound file or pipe fails.
#[derive(Debug, Error)]
pub enum SoundError {
    /// The file cannot be written or read.
    #[error("{}: {why}", path.display())]
    File {
        /// Path of the file; `-` for the standard output.
        path: PathBuf,
        /// The error of the library or the system.
        why: hound::Error,
    },
    /// The file has reached the greatest length of the format.
    #[error("{}: is full: a WAV file holds 23 h 51 min; write to the standard output (-) and cut there", .0.display())]
    Full(PathBuf),
    /// The file is not mono, of 16 bits and at `AUDIO_RATE`, or is longer than an hour.
    #[error(
        "{}: {channels} channels of {bits} bits at {rate} Hz; needed is mono, 16 bits, {AUDIO_RATE} Hz, of an hour at most",
        path.display()
    )]
    Kind {
        /// Path of the rejected file.
        path: PathBuf,
        /// Number of its channels.
        channels: u16,
        /// Number of bits of a sample.
        bits: u16,
        /// Sample rate of the file, in hertz.
        rate: u32,
    },
}

impl SoundError {
    /// Whether the error means that no process reads the pipe any more.
    pub fn is_gone(&self) -> bool {
        let SoundError::File { why, .. } = self else {
            return false;
        };
        matches!(why, hound::Error::IoError(why) if why.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Converts a sample of full scale 1 to 16 bits: rounds, and clips beyond full scale.
pub fn quantized(sample: f32) -> i16 {
    // The cast saturates, and turns NaN into 0.
    libm::rintf(sample * f32::from(i16::MAX)) as i16
}

/// Converts a 16-bit sample to a part of full scale, -1 to 1.
pub fn scaled(sample: i16) -> f32 {
    f32::from(sample) / f32::from(i16::MAX)
}

/// Fingerprint of sound: SHA-256 of its 16-bit samples, the lower byte first.
#[derive(Clone, Debug, Default)]
pub struct Fingerprint(Sha256);

impl Fingerprint {
    /// Adds the next part of the sound.
    pub fn add(&mut self, sound: &[f32]) {
        for &sample in sound {
            self.0.update(quantized(sample).to_le_bytes());
        }
    }

    /// Fingerprint of everything added: 64 hexadecimal digits.
    pub fn digits(&self) -> String {
        self.0
            .clone()
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

/// Destination of sound: a WAV file, or the standard output as a WAV stream of unknown length.
pub enum Sound {
    /// A file, whose header gets its length at the end.
    File(PathBuf, Box<hound::WavWriter<BufWriter<File>>>),
    /// A pipe, and a buffer for the bytes of one write.
    Pipe(Box<dyn Write + Send>, Vec<u8>),
}

impl Sound {
    /// Writes to the file at `path`; to the standard output for `-`.
    ///
    /// # Errors
    /// [`SoundError::File`] if it cannot be created.
    pub fn create(path: &Path) -> Result<Sound, SoundError> {
        if path == Path::new("-") {
            return Sound::pipe(Box::new(io::stdout()));
        }
        let writer = hound::WavWriter::create(path, SPEC).map_err(failed(path))?;
        Ok(Sound::File(path.into(), Box::new(writer)))
    }

    /// Writes to a pipe, beginning with a header that states the greatest length: players read on until the pipe ends.
    ///
    /// # Errors
    /// [`SoundError::File`] if the pipe takes nothing.
    pub fn pipe(mut pipe: Box<dyn Write + Send>) -> Result<Sound, SoundError> {
        pipe.write_all(&stream_header())
            .map_err(|why| failed(Path::new("-"))(why.into()))?;
        Ok(Sound::Pipe(pipe, Vec::new()))
    }

    /// Writes samples of full scale 1; a pipe gets them at once.
    ///
    /// # Errors
    /// [`SoundError::File`], for example on a full disk, or if no process reads the pipe any more.
    pub fn write(&mut self, sound: &[f32]) -> Result<(), SoundError> {
        match self {
            Sound::File(path, writer) => {
                let before = writer.len();
                if sound.len() > (FILE_MAX - before) as usize {
                    return Err(SoundError::Full(path.clone()));
                }
                let mut written = { sound.iter() }.try_for_each(|&sample| writer.write_sample(quantized(sample)));
                if writer.len() / HEADER_EVERY > before / HEADER_EVERY {
                    written = written.and_then(|()| writer.flush());
                }
                written.map_err(failed(path))
            }
            Sound::Pipe(pipe, bytes) => {
                bytes.clear();
                bytes.extend(sound.iter().flat_map(|&sample| quantized(sample).to_le_bytes()));
                pipe.write_all(bytes)
                    .and_then(|()| pipe.flush())
                    .map_err(|why| failed(Path::new("-"))(why.into()))
            }
        }
    }

    /// Ends the sound: completes a file's header.
    ///
    /// # Errors
    /// [`SoundError::File`] if that fails.
    pub fn finish(self) -> Result<(), SoundError> {
        match self {
            Sound::File(path, writer) => writer.finalize().map_err(failed(&path)),
            Sound::Pipe(..) => Ok(()),
        }
    }
}

fn failed(path: &Path) -> impl FnOnce(hound::Error) -> SoundError {
    let path = path.to_path_buf();
    move |why| SoundError::File { path, why }
}

/// Header of a WAV file (Microsoft, RIFF 1.0) with the greatest possible length: almost 24 hours. Programs that ignore
/// the length of a pipe play on after it.
fn stream_header() -> Vec<u8> {
    let bytes = SPEC.bits_per_sample / 8;
    let longest = u32::MAX - 1;
    [
        b"RIFF".as_slice(),
        &longest.to_le_bytes(),
        b"WAVEfmt ",
        &16u32.to_le_bytes(),
        &1u16.to_le_bytes(), // plain numbers
        &SPEC.channels.to_le_bytes(),
        &SPEC.sample_rate.to_le_bytes(),
        &(SPEC.sample_rate * u32::from(bytes)).to_le_bytes(),
        &bytes.to_le_bytes(),
        &SPEC.bits_per_sample.to_le_bytes(),
        b"data",
        &(longest - 36).to_le_bytes(), // the header without its first 8 bytes
    ]
    .concat()
}

/// A whole WAV file, from sound of full scale 1.
pub fn wav(sound: &[f32]) -> Vec<u8> {
    let mut bytes = stream_header();
    let length = 2 * sound.len() as u32;
    // The two lengths in the header: bytes after the first length, and bytes of the samples.
    bytes[4..8].copy_from_slice(&(length + 36).to_le_bytes());
    bytes[40..44].copy_from_slice(&length.to_le_bytes());
    bytes.extend(sound.iter().flat_map(|&sample| quantized(sample).to_le_bytes()));
    bytes
}

/// Reads the sound of a WAV file, full scale 1.
///
/// # Errors
/// [`SoundError`] if it cannot be read, or is not mono, of 16 bits, at [`AUDIO_RATE`].
pub fn read(path: &Path) -> Result<Vec<f32>, SoundError> {
    let reader = hound::WavReader::open(path).map_err(failed(path))?;
    let spec = reader.spec();
    if spec != SPEC || reader.duration() > SAMPLES_MAX {
        return Err(SoundError::Kind {
            path: path.into(),
            channels: spec.channels,
            bits: spec.bits_per_sample,
            rate: spec.sample_rate,
        });
    }
    let samples: Result<Vec<i16>, hound::Error> = reader.into_samples().collect();
    Ok(samples.map_err(failed(path))?.into_iter().map(scaled).collect())
}
