//! Recordings in other formats and at other rates: they sound like the receiver's own, or are refused.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proptest::prelude::*;
use punctual_radio::format::InputOptions;
use punctual_radio::{InputError, Options, Recording, STATION, quality, receive};
use tempfile::TempDir;

/// Bytes of the first second of the shipped station.
static STATION_BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut bytes = vec![0; 500_000];
    assert_eq!(
        Recording::open(Path::new(STATION)).unwrap().read(&mut bytes).unwrap(),
        500_000
    );
    bytes
});

/// Its numbers, full scale 1.
fn numbers() -> Vec<f64> {
    STATION_BYTES
        .iter()
        .map(|&byte| (f64::from(byte) - 127.5) / 127.5)
        .collect()
}

fn bytes_of<const N: usize>(numbers: &[f64], to_bytes: impl Fn(f64) -> [u8; N]) -> Vec<u8> {
    numbers.iter().flat_map(|&number| to_bytes(number)).collect()
}

fn cs16(numbers: &[f64]) -> Vec<u8> {
    bytes_of(numbers, |it| ((it * 32_767.0) as i16).to_le_bytes())
}

fn cf32(numbers: &[f64]) -> Vec<u8> {
    bytes_of(numbers, |it| (it as f32).to_le_bytes())
}

/// A WAV file with one more chunk before the samples.
fn wav(kind: u16, channels: u16, rate: u32, bits: u16, samples: &[u8]) -> Vec<u8> {
    let block = channels * bits / 8;
    let length = samples.len() as u32;
    [
        b"RIFF".as_slice(),
        &(length + 50).to_le_bytes(),
        b"WAVEauxi\x05\0\0\0local\0fmt \x10\0\0\0",
        &kind.to_le_bytes(),
        &channels.to_le_bytes(),
        &rate.to_le_bytes(),
        &(rate * u32::from(block)).to_le_bytes(),
        &block.to_le_bytes(),
        &bits.to_le_bytes(),
        b"data",
        &length.to_le_bytes(),
        samples,
    ]
    .concat()
}

struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

fn options(format: Option<&str>, rate: Option<f64>) -> InputOptions {
    InputOptions {
        format: format.map(|name| name.parse().unwrap()),
        rate,
    }
}

fn read_all(recording: &mut Recording) -> Result<Vec<u8>, InputError> {
    let mut bytes = Vec::new();
    recording.copy_to(&mut bytes).map(|_| bytes)
}

/// Correlation of a recording's sound with that of the same station in the receiver's format.
fn correlation(path: &Path, options: &InputOptions) -> f64 {
    let bytes = read_all(&mut Recording::open_as(path, options).unwrap()).unwrap();
    let heard = |bytes: &[u8]| receive(bytes.as_chunks().0, &Options::default()).unwrap();
    let (sound, own) = (heard(&bytes), heard(&STATION_BYTES));
    assert!(
        sound.len().abs_diff(own.len()) <= 1,
        "{}: {} samples",
        path.display(),
        sound.len()
    );
    let found = quality(&sound, &own).unwrap();
    println!("{}: {found:?}", path.file_name().unwrap().display());
    found.correlation
}

/// Samples at `rate` by interpolation with an ideal low-pass of 64 samples to each side.
fn at_rate(numbers: &[f64], rate: u64) -> Vec<f64> {
    use std::f64::consts::PI;
    let samples = numbers.as_chunks::<2>().0;
    // Weights of the 128 samples around a place, by its distance from the sample before; few distances recur.
    let weights = |rest: u64| -> Vec<f64> {
        let weight = |it: i32| {
            let x = rest as f64 / rate as f64 - f64::from(it);
            let sinc = if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) };
            sinc * (0.5 + 0.5 * (PI * x / 65.0).cos())
        };
        (-63..=64).map(weight).collect()
    };
    let mut known = HashMap::<u64, Vec<f64>>::new();
    let mut found = Vec::new();
    for at in (0..samples.len() as u64 * rate / 250_000).map(|it| it * 250_000) {
        let (first, weights) = (at / rate, known.entry(at % rate).or_insert_with(|| weights(at % rate)));
        let skipped = 63u64.saturating_sub(first) as usize;
        let around = &samples[(first as usize).saturating_sub(63)..samples.len().min(first as usize + 65)];
        let (mut sum, mut at, weights) = ([0.0; 2], 0, &weights[skipped..]);
        // Iterators take twenty times as long where tests are not optimized.
        while at < around.len() {
            sum[0] += around[at][0] * weights[at];
            sum[1] += around[at][1] * weights[at];
            at += 1;
        }
        found.extend(sum);
    }
    found
}

#[test]
fn formats_at_the_receivers_rate_sound_alike() {
    let (folder, numbers) = (Folder::new(), numbers());
    let three = |it: f64| {
        let [a, b, c, _] = ((it * 8_388_607.0) as i32).to_le_bytes();
        [a, b, c]
    };
    let s16 = cs16(&numbers);
    let s32 = bytes_of(&numbers, |it| ((it * 2_147_483_000.0) as i32).to_le_bytes());
    let signed: Vec<u8> = STATION_BYTES.iter().map(|byte| byte ^ 0x80).collect();
    let swapped = bytes_of(&numbers, |it| ((it * 32_767.0) as i16).to_be_bytes());
    let mut rf64 = wav(1, 2, 250_000, 16, &s16);
    rf64[..4].copy_from_slice(b"RF64");
    let mut unknown = wav(1, 2, 250_000, 16, &s16);
    let length = unknown.len() - s16.len() - 4;
    unknown[length..length + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    let extensible = {
        let mut file = wav(0xfffe, 2, 250_000, 16, &s16);
        let format = file.windows(4).position(|it| it == b"fmt ").unwrap();
        file[format + 4] = 40;
        let more: [&[u8]; 3] = [
            &22u16.to_le_bytes(),
            &[16, 0, 3, 0, 0, 0],
            &[1, 0, 0, 0, 0, 0, 16, 0, 128, 0, 0, 170, 0, 56, 155, 113],
        ];
        file.splice(format + 24..format + 24, more.concat());
        file
    };
    let loud = cf32(&numbers.iter().map(|it| it * 32_768.0).collect::<Vec<_>>());
    let weak = cf32(&numbers.iter().map(|it| it * 1e-4).collect::<Vec<_>>());
    let cases: [(&str, &[u8], Option<&str>); 16] = [
        ("a.wav", &wav(1, 2, 250_000, 8, &STATION_BYTES), None),
        ("b.wav", &wav(1, 2, 250_000, 16, &s16), None),
        ("c.wav", &wav(1, 2, 250_000, 24, &bytes_of(&numbers, three)), None),
        ("d.wav", &wav(1, 2, 250_000, 32, &s32), None),
        ("e.wav", &wav(3, 2, 250_000, 32, &cf32(&numbers)), None),
        ("f.wav", &rf64, None),
        ("g.wav", &unknown, Some("cs16")),
        ("h.dat", &extensible, None),
        ("a.cs8", &signed, None),
        ("a.cs16", &s16, None),
        ("a.cf32", &cf32(&numbers), None),
        ("loud.cf32", &loud, None),
        ("weak.cfile", &weak, None),
        ("a.bin", &s16, Some("cs16")),
        ("b.bin", &swapped, Some("ci16_be")),
        ("c.iq", &STATION_BYTES, None),
    ];
    for (name, bytes, format) in cases {
        let found = correlation(&folder.file(name, bytes), &options(format, None));
        assert!(found > 0.999, "{name}: {found}");
    }
}

#[test]
fn other_rates_sound_alike() {
    let (folder, numbers) = (Folder::new(), numbers());
    for rate in [192_000, 250_100, 1_000_000] {
        let samples = cs16(&at_rate(&numbers, u64::from(rate)));
        let raw = folder.file(&format!("{rate}.cs16"), &samples);
        // The first samples have no past to interpolate from, and 192 kHz cut off half of the other station.
        let found = correlation(&raw, &options(None, Some(rate.into())));
        assert!(found > 0.999, "{rate}: {found}");
        if rate == 1_000_000 {
            let wav = folder.file("fast.wav", &wav(1, 2, rate, 16, &samples));
            assert_eq!(
                correlation(&wav, &InputOptions::default()),
                found,
                "the rate of the header"
            );
        }
    }
}

fn sigmf(folder: &Folder, global: &str) -> PathBuf {
    let text =
        format!("{{\"global\":{{\"core:version\":\"1.0.0\",{global}}},\"captures\":[{{\"core:sample_start\":0}}]}}");
    folder.file("x.sigmf-meta", text.as_bytes())
}

#[test]
fn sigmf_is_played_by_either_of_its_names() {
    let folder = Folder::new();
    let meta = sigmf(&folder, "\"core:datatype\":\"ci16_le\",\"core:sample_rate\":250000");
    let data = folder.file("x.sigmf-data", &cs16(&numbers()));
    for path in [&meta, &data, &meta.with_extension("sigmf")] {
        assert!(correlation(path, &InputOptions::default()) > 0.999);
    }
    folder.file("other.bin", &STATION_BYTES);
    let meta = sigmf(&folder, "\"core:datatype\":\"cu8\",\"core:dataset\":\"other.bin\"");
    assert!(correlation(&meta, &options(None, Some(250_000.0))) > 0.999);
}

/// Each refusal names the file, what it found and what to do.
fn assert_refused(path: &Path, options: &InputOptions, said: &str) {
    let opened = Recording::open_as(path, options);
    let why = opened.and_then(|mut it| read_all(&mut it).map(|_| it)).err();
    let why = why
        .unwrap_or_else(|| panic!("{}: played, not refused: {said}", path.display()))
        .to_string();
    println!("{why}");
    assert!(
        why.contains(said) && why.starts_with(&path.with_extension("").display().to_string()),
        "{why}"
    );
}

#[test]
fn contradictions_are_refused() {
    let (folder, numbers) = (Folder::new(), numbers());
    let none = InputOptions::default();
    let (s16, f32s) = (cs16(&numbers), cf32(&numbers));
    let iq = folder.file("iq.wav", &wav(1, 2, 250_000, 16, &s16));
    assert_refused(&iq, &options(Some("cs8"), None), "header says cs16");
    assert_refused(&iq, &options(None, Some(1e6)), "header says 250000");
    assert_refused(
        &folder.file("mono.wav", &wav(1, 1, 250_000, 16, &s16)),
        &none,
        "1 channel",
    );
    assert_refused(
        &folder.file("slow.wav", &wav(1, 2, 48_000, 16, &s16)),
        &none,
        "48000 IQ samples a second",
    );
    assert_refused(&folder.file("law.wav", &wav(7, 2, 250_000, 8, &s16)), &none, "kind 7");
    let cut = wav(1, 2, 250_000, 16, &s16);
    assert_refused(
        &folder.file("cut.wav", &cut[..cut.len() - 4]),
        &none,
        "promises 1000000 bytes",
    );
    assert_refused(&folder.file("head.wav", &cut[..30]), &none, "breaks off");
    let raw = folder.file("x.cs16", &s16);
    assert_refused(&raw, &options(None, Some(100_000.0)), "100000 IQ samples a second");
    assert_refused(&raw, &options(None, Some(f64::NAN)), "NaN IQ samples");
    assert_refused(
        &folder.file("odd.cs16", &s16[..s16.len() - 1]),
        &none,
        "within an IQ sample",
    );
    assert_refused(
        &folder.file("odd.cf32", &f32s[..f32s.len() - 3]),
        &none,
        "within an IQ sample",
    );
    assert_refused(&raw, &options(Some("cf32"), None), "no numbers of the format cf32");
    for (name, bytes) in [
        ("a.bin", &s16),
        ("b.iq", &f32s),
        ("c.cu8", &s16),
        ("d.cs8", &STATION_BYTES),
    ] {
        assert_refused(&folder.file(name, bytes), &none, "resemble each other less");
    }
    let floats = folder.file("x.cf32", &f32s);
    assert_refused(&floats, &options(Some("cs16"), None), "resemble each other less");
    assert_refused(&folder.file("x.bin", b"fLaC\0\0\0\x22\x10\0\x10\0"), &none, "FLAC");
}

#[test]
fn contradictions_of_sigmf_are_refused() {
    let folder = Folder::new();
    let data = folder.file("x.sigmf-data", &STATION_BYTES);
    let none = InputOptions::default();
    let refused = |global: &str, options: &InputOptions, said: &str| {
        assert_refused(&sigmf(&folder, global), options, said);
    };
    assert_refused(&data, &none, "metadata are missing");
    refused("\"core:datatype\":\"ru8\"", &none, "core:datatype is \"ru8\"");
    refused("\"core:datatype\":\"cu8\"", &none, "states no sample rate");
    refused("\"core:sample_rate\":1", &none, "no SigMF metadata");
    let whole = "\"core:datatype\":\"cu8\",\"core:sample_rate\":250000";
    refused(whole, &options(Some("cs8"), None), "SigMF header says cu8");
    refused(whole, &options(None, Some(1e6)), "SigMF header says 250000");
    refused(&format!("{whole},\"core:num_channels\":2"), &none, "num_channels is 2");
    refused(
        &format!("{whole},\"core:trailing_bytes\":9"),
        &none,
        "other than plain samples",
    );
    refused(&format!("{whole},\"core:dataset\":\"../x\""), &none, "core:dataset");
}

#[test]
fn a_pipe_in_another_format_is_refused_while_it_plays() {
    for (bytes, plays) in [(cs16(&numbers()), false), (STATION_BYTES.clone(), true)] {
        let located = punctual_radio::format::RecordingFile::new(Path::new("-"), &InputOptions::default()).unwrap();
        let converted = punctual_radio::format::Converter::new(located, std::io::Cursor::new(bytes));
        let mut recording = Recording::from_reader(Path::new("-"), Box::new(converted));
        let read = read_all(&mut recording);
        assert_eq!(read.is_ok(), plays);
        assert!(plays || matches!(read, Err(InputError::Format { .. })), "{read:?}");
    }
}

#[test]
fn noise_and_silence_are_played() {
    let folder = Folder::new();
    let mut random = 1u32;
    let mut noise = |wide: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 16) % wide
    };
    let wide: Vec<u8> = (0..100_000).map(|_| noise(256) as u8).collect();
    let narrow: Vec<u8> = (0..100_000).map(|_| 120 + noise(16) as u8).collect();
    let still: Vec<u8> = (0..100_000).map(|_| 127 + noise(2) as u8).collect();
    let off_centre: Vec<u8> = (0..100_000).map(|_| 128 + noise(4) as u8).collect();
    for bytes in [wide, narrow, still, off_centre, vec![127; 100_000]] {
        let mut recording = Recording::open(&folder.file("x.iq", &bytes)).unwrap();
        assert_eq!(read_all(&mut recording).unwrap(), bytes);
    }
    for name in ["x.cs16", "x.cf32"] {
        let bytes = read_all(&mut Recording::open(&folder.file(name, &[0; 80_000])).unwrap()).unwrap();
        let sound = receive(bytes.as_chunks().0, &Options::default()).unwrap();
        assert!(sound.iter().all(|it| it.abs() < 1e-6), "{name}");
    }
}

/// The sound depends on the recording alone: a process that takes over skips to its place.
#[test]
fn a_converted_recording_goes_on_where_another_process_was() {
    let folder = Folder::new();
    let path = folder.file("x.cs16", &cs16(&numbers()));
    let options = options(None, Some(300_000.0));
    let whole = read_all(&mut Recording::open_as(&path, &options).unwrap()).unwrap();
    for bytes in [2, 999, 100_001] {
        let mut later = Recording::open_as(&path, &options).unwrap();
        later.skip(2 * bytes).unwrap();
        assert_eq!(read_all(&mut later).unwrap(), whole[2 * bytes as usize..]);
    }
}

proptest! {
    /// No header makes it panic, or read without end.
    #[test]
    fn damaged_headers_are_refused_or_played(
        changes in prop::collection::vec((0usize..70, any::<u8>()), 1..12),
        cut in 0usize..400,
    ) {
        let folder = Folder::new();
        let mut bytes = wav(1, 2, 250_000, 16, &[1; 300]);
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        bytes.truncate(bytes.len().saturating_sub(cut));
        let path = folder.file("x.wav", &bytes);
        if let Ok(mut recording) = Recording::open(&path) {
            let _ = read_all(&mut recording);
        }
    }

    #[test]
    fn damaged_metadata_are_refused_or_played(
        datatype in "[cr]?[uif]?(8|16|32)?(_le|_be)?",
        rate in prop::num::f64::ANY,
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let folder = Folder::new();
        let meta = sigmf(&folder, &format!("\"core:datatype\":\"{datatype}\",\"core:sample_rate\":{rate:?}"));
        folder.file("x.sigmf-data", &[1; 300]);
        let mut bytes = std::fs::read(&meta).unwrap();
        let at = at.index(bytes.len());
        for damaged in [false, true] {
            if damaged {
                bytes[at] = byte;
                std::fs::write(&meta, &bytes).unwrap();
            }
            if let Ok(mut recording) = Recording::open(&meta) {
                let _ = read_all(&mut recording);
            }
        }
    }
}
