//! Whether samples can have the format that is assumed: magic numbers of other files, and coherence.
//!
//! **Problem.** Bytes state no format. Whatever is read in a wrong one is noise.
//!
//! **Method.** A receiver's band is wider than the station, so successive samples resemble each other: the correlation
//! of the signal, without its mean, with itself one sample later is near 1. In a wrong format it is lower, because the
//! order of bytes and the sign are lost. A format is refuted only if another one is far more coherent: noise without a
//! station is incoherent in all of them, and is played. Floats must be finite and of a size that receivers write.

use super::{Kind, SampleFormat};

/// Bytes that are judged: at least a thousand samples in each candidate.
pub const PROBE: usize = 1 << 14;

/// Least coherence of a format that refutes another one, and the least difference. Parts of the shipped station have
/// 0.59 to 0.99, and 0.15 to 0.48 less when its bytes are read as signed ones.
const COHERENT: f64 = 0.75;
const DIFFERENCE: f64 = 0.1;
/// Greatest size of a float: a 32-bit integer without a scale.
const FLOAT_MAX: f32 = 4.3e9;

/// Name of the kind of a file that holds no plain samples, by its first bytes.
pub fn foreign(head: &[u8]) -> Option<&'static str> {
    let known: [(&[u8], &str); 7] = [
        (b"fLaC", "FLAC"),
        (b"OggS", "Ogg"),
        (b"RIFX", "big-endian WAV"),
        (b"FORM", "AIFF"),
        (b"\x28\xb5\x2f\xfd", "zstd (its name must end in .zst)"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"\xfd7zXZ\0", "xz"),
    ];
    known
        .iter()
        .find(|(magic, _)| head.starts_with(magic))
        .map(|(_, name)| *name)
}

/// Why these samples do not have `format`; `None` if they may. With `is_raw`, coherence counts, too.
pub fn against(bytes: &[u8], format: SampleFormat, is_raw: bool) -> Option<String> {
    if !are_numbers(bytes, format) {
        return Some(format!("its samples are no numbers of the format {format}"));
    }
    let own = coherence(bytes, format);
    if !is_raw || bytes.len() < PROBE {
        return None;
    }
    let candidates = [
        SampleFormat::CU8,
        SampleFormat::new(Kind::Signed, 1),
        SampleFormat::new(Kind::Signed, 2),
        SampleFormat::new(Kind::Float, 4),
    ];
    let others = candidates
        .iter()
        .filter(|other| **other != format && are_numbers(bytes, **other));
    let best = others
        .map(|other| (*other, coherence(bytes, *other)))
        .max_by(|(_, a), (_, b)| a.total_cmp(b))
        .filter(|(_, best)| *best >= COHERENT && best - own >= DIFFERENCE);
    best.map(|(other, best)| {
        format!("successive samples resemble each other less as {format} ({own:.2} of 1) than as {other} ({best:.2})")
    })
}

/// Whether all floats of a recording are finite, and none is greater than receivers write.
fn are_numbers(bytes: &[u8], format: SampleFormat) -> bool {
    let mut samples = samples(bytes, format);
    format.kind != Kind::Float || samples.all(|sample| sample.iter().all(|number| number.abs() <= FLOAT_MAX))
}

fn samples(bytes: &[u8], format: SampleFormat) -> impl Iterator<Item = [f32; 2]> {
    bytes
        .chunks_exact(format.sample_bytes())
        .map(move |sample| format.sample(sample))
}

/// Correlation of the signal without its mean with itself one sample later, 0 to 1; 1 for a constant.
fn coherence(bytes: &[u8], format: SampleFormat) -> f64 {
    let count = (bytes.len() / format.sample_bytes()) as f64;
    let sum = samples(bytes, format).fold([0.0, 0.0], |[i, q], sample| {
        [i + f64::from(sample[0]), q + f64::from(sample[1])]
    });
    let mean = sum.map(|sum| sum / count);
    let (mut real, mut imaginary, mut power) = (0.0, 0.0, 0.0);
    let mut last = [0.0, 0.0];
    for sample in samples(bytes, format) {
        let (i, q) = (f64::from(sample[0]) - mean[0], f64::from(sample[1]) - mean[1]);
        real += i * last[0] + q * last[1];
        imaginary += q * last[0] - i * last[1];
        power += i * i + q * q;
        last = [i, q];
    }
    // The mean of a constant is rounded.
    if power > 1e-9 * count * (mean[0] * mean[0] + mean[1] * mean[1]) {
        libm::hypot(real, imaginary) / power
    } else {
        1.0
    }
}
