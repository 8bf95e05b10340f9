//! Headers of WAV files (Microsoft, RIFF 1.0) and RF64 files (EBU Tech 3306), read from a stream.

use std::io::{self, Read};
use std::path::Path;

use super::{Header, Kind, SampleFormat, refused};
use crate::input::InputError;

/// Bytes that tell a WAV file.
pub const HEAD: usize = 12;
/// Least length of samples that stands for an unknown one: programs that write to a pipe put about the greatest number
/// there.
const UNKNOWN: u32 = u32::MAX - (1 << 16);
/// Most bytes before the samples, and of a format chunk.
const HEADER_MAX: u64 = 1 << 24;
const FORMAT_MAX: u32 = 4096;

/// Whether a file with this beginning is a WAV file.
pub fn is_wav(head: &[u8]) -> bool {
    head.len() >= HEAD && matches!(&head[..4], b"RIFF" | b"RF64") && &head[8..HEAD] == b"WAVE"
}

/// Reads the header from a stream whose first [`HEAD`] bytes were read; afterwards the stream is at the samples.
///
/// # Errors
/// [`InputError::Format`] if the file is damaged, or its samples are not I and Q in two channels.
pub fn read(path: &Path, stream: &mut dyn Read) -> Result<Header, InputError> {
    let broken = |why: io::Error| refused(path, format!("its WAV header breaks off ({why})"), "fetch it again");
    let (mut format, mut long, mut read) = (None, None, 0u64);
    loop {
        let mut head = [0; 8];
        stream.read_exact(&mut head).map_err(broken)?;
        let length = u32_at(&head, 4);
        match &head[..4] {
            b"data" => {
                let Some((format, rate)) = format else {
                    return Err(refused(
                        path,
                        "its WAV header has no format before the samples".into(),
                        "fetch it again",
                    ));
                };
                return Ok(Header {
                    format,
                    rate: Some(rate),
                    header: "WAV",
                    // Recorders that were killed leave 0.
                    length: match length {
                        0 | UNKNOWN.. => long,
                        length => Some(length.into()),
                    },
                });
            }
            b"fmt " if length <= FORMAT_MAX => {
                let mut chunk = vec![0; length as usize + length as usize % 2];
                stream.read_exact(&mut chunk).map_err(broken)?;
                format = Some(samples(path, &chunk)?);
            }
            // Lengths of 64 bits: of the whole file, then of the samples.
            b"ds64" if (16..=FORMAT_MAX).contains(&length) => {
                let mut chunk = vec![0; length as usize + length as usize % 2];
                stream.read_exact(&mut chunk).map_err(broken)?;
                long =
                    Some(u64::from(u32_at(&chunk, 8)) | u64::from(u32_at(&chunk, 12)) << 32).filter(|&long| long > 0);
            }
            _ => {
                let padded = u64::from(length) + u64::from(length % 2);
                let skipped = io::copy(&mut stream.take(padded.min(HEADER_MAX)), &mut io::sink()).map_err(broken)?;
                if skipped < padded {
                    let found = format!("its WAV header has {padded} bytes that are no samples, or breaks off there");
                    return Err(refused(path, found, "fetch it again"));
                }
            }
        }
        read += 8 + u64::from(length);
        if read > HEADER_MAX {
            return Err(refused(path, "its WAV header does not end".into(), "fetch it again"));
        }
    }
}

/// Format and rate of a format chunk.
fn samples(path: &Path, chunk: &[u8]) -> Result<(SampleFormat, f64), InputError> {
    if chunk.len() < 16 {
        let found = format!("its WAV format has {} bytes, not 16", chunk.len());
        return Err(refused(path, found, "fetch it again"));
    }
    let number = |at: usize| u16::from_le_bytes([chunk[at], chunk[at + 1]]);
    let (channels, rate, block, bits) = (number(2), u32_at(chunk, 4), number(12), number(14));
    // The extended format has its kind behind the first one's fields.
    let kind = match number(0) {
        0xfffe if chunk.len() >= 26 => number(24),
        kind => kind,
    };
    if channels != 2 {
        let found = format!("a WAV file with {channels} channel(s), such as sound has");
        return Err(refused(path, found, "needed is a recording of two, I and Q"));
    }
    let bytes = usize::from(block / channels);
    let format = match (kind, bits, bytes) {
        (1, 8, 1) => SampleFormat::CU8,
        (1, 16 | 24 | 32, 2..=4) if usize::from(bits) <= 8 * bytes => SampleFormat {
            used: usize::from(bits / 8),
            ..SampleFormat::new(Kind::Signed, bytes)
        },
        (3, 32, 4) | (3, 64, 8) => SampleFormat::new(Kind::Float, bytes),
        _ => {
            let found = format!("a WAV file of kind {kind}, {bits} bits in {bytes} bytes");
            let remedy = "needed are integers (kind 1) of 8, 16, 24 or 32 bits, or floats (kind 3) of 32 or 64";
            return Err(refused(path, found, remedy));
        }
    };
    Ok((format, rate.into()))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
