//! Recordings and sound files, good and bad.

use std::io::Read;
use std::path::Path;

use punctual_radio::sound::{self, Sound};
use punctual_radio::{InputError, Recording};

const STATION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/fm/station.cu8.zst");

fn of(bytes: &'static [u8]) -> Recording {
    Recording::from_reader(Path::new("test.cu8"), Box::new(bytes))
}

/// A reader that gives its bytes one by one, as a slow pipe may.
struct Trickle(&'static [u8]);

impl Read for Trickle {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let some = into.len().min(1);
        self.0.read(&mut into[..some])
    }
}

/// Reads on to the end.
fn read_all(recording: &mut Recording) -> Result<u64, InputError> {
    let (mut frame, mut bytes) = ([0; 500], 0);
    loop {
        match recording.read(&mut frame)? {
            0 => return Ok(bytes),
            read => bytes += read as u64,
        }
    }
}

#[test]
fn frames_are_whole_but_for_the_last() {
    let mut slow = Recording::from_reader(Path::new("-"), Box::new(Trickle(&[1, 2, 3, 4, 5, 6])));
    let mut frame = [0; 4];
    assert_eq!(slow.read(&mut frame).unwrap(), 4);
    assert_eq!(frame, [1, 2, 3, 4]);
    assert_eq!(slow.read(&mut frame).unwrap(), 2);
    assert_eq!(frame[..2], [5, 6]);
    assert_eq!(slow.read(&mut frame).unwrap(), 0);
    assert_eq!(slow.read(&mut frame).unwrap(), 0);
}

#[test]
fn a_recording_goes_on_where_another_process_was() {
    let mut first = Recording::open(Path::new(STATION)).unwrap();
    let (mut frame, mut same) = ([0; 500], [0; 500]);
    for _ in 0..1001 {
        first.read(&mut frame).unwrap();
    }
    let mut second = Recording::open(Path::new(STATION)).unwrap();
    second.skip(1000 * 500).unwrap();
    second.read(&mut same).unwrap();
    assert_eq!(frame, same);
}

#[test]
fn bad_recordings_are_told() {
    let told = |mut recording: Recording| read_all(&mut recording).unwrap_err().to_string();
    assert_eq!(
        told(of(&[])),
        "test.cu8: is empty; needed are IQ samples as rtl_sdr writes them, 250,000 a second"
    );
    assert_eq!(
        told(of(&[127; 501])),
        "test.cu8: ends within an IQ sample: 501 bytes are an odd number, and each sample has two; cut the last byte off"
    );
    assert!(matches!(
        Recording::open(Path::new("/no/such.cu8")),
        Err(InputError::Read { .. })
    ));
}

#[test]
fn bad_packed_recordings_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let packed = std::fs::read(STATION).unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    assert!(matches!(
        Recording::open(&file("no.cu8.zst", b"RIFF")),
        Err(InputError::NotPacked(_))
    ));
    assert!(matches!(
        Recording::open(&file("empty.cu8.zst", &[])),
        Err(InputError::NotPacked(_))
    ));
    let cut = file("cut.cu8.zst", &packed[..packed.len() / 2]);
    assert!(matches!(
        read_all(&mut Recording::open(&cut).unwrap()),
        Err(InputError::Damaged(_))
    ));
    let mut flipped = packed.clone();
    flipped[packed.len() / 3] ^= 0x10;
    let flipped = file("flipped.cu8.zst", &flipped);
    assert!(matches!(
        read_all(&mut Recording::open(&flipped).unwrap()),
        Err(InputError::Damaged(_))
    ));
}

#[test]
fn sound_comes_back_from_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.wav");
    let mut file = Sound::create(&path).unwrap();
    file.write(&[0.0, 0.5]).unwrap();
    file.write(&[-1.0]).unwrap();
    file.finish().unwrap();
    let read = sound::read(&path).unwrap();
    assert_eq!(
        read.iter().copied().map(sound::quantized).collect::<Vec<_>>(),
        [0, 16384, -32767]
    );
    assert!(Sound::create(&folder.path().join("no/a.wav")).is_err());
    assert!(sound::read(Path::new(STATION)).is_err());
}
