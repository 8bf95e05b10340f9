//! Recordings and sound files, good and bad.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use punctual_radio::sound::{self, Sound};
use punctual_radio::{InputError, Recording, STATION};

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
fn a_named_pipe_is_read_from_its_first_byte() {
    let (pipe, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&[127; 30_000]).unwrap();
    drop(writer);
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&pipe));
    assert_eq!(
        read_all(&mut Recording::open(Path::new(&path)).unwrap()).unwrap(),
        30_000
    );
}

#[test]
fn a_recording_goes_on_where_another_process_was() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("station.cu8");
    let mut file = std::fs::File::create(&plain).unwrap();
    let copied = Recording::open(Path::new(STATION)).unwrap().copy_to(&mut file).unwrap();
    assert_eq!(copied, 5_000_000);
    let frame_after = |path: &Path, bytes: u64, by: fn(&mut Recording, u64)| {
        let (mut recording, mut frame) = (Recording::open(path).unwrap(), [0; 500]);
        by(&mut recording, bytes);
        let read = recording.read(&mut frame).unwrap();
        (read, frame)
    };
    let reading = |recording: &mut Recording, bytes: u64| {
        recording.read(&mut vec![0; bytes as usize]).unwrap();
    };
    for bytes in [0, 500_000, 4_999_900, 5_000_000] {
        let expected = frame_after(&plain, bytes, reading);
        assert_eq!(expected.0, 500.min(5_000_000 - bytes as usize));
        for path in [plain.as_path(), Path::new(STATION)] {
            assert_eq!(
                frame_after(path, bytes, |recording, bytes| recording.skip(bytes).unwrap()),
                expected
            );
        }
    }
}

#[test]
fn bad_recordings_are_told() {
    let told = |mut recording: Recording| read_all(&mut recording).unwrap_err().to_string();
    assert!(told(of(&[])).starts_with("test.cu8: is empty"));
    let half = told(of(&[127; 501]));
    assert!(half.starts_with("test.cu8: ") && half.contains("501 bytes"), "{half}");
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
        Recording::open(&cut).and_then(|mut cut| read_all(&mut cut)),
        Err(InputError::Damaged(_))
    ));
    let mut flipped = packed.clone();
    flipped[packed.len() / 3] ^= 0x10;
    let flipped = file("flipped.cu8.zst", &flipped);
    assert!(matches!(
        Recording::open(&flipped).and_then(|mut flipped| read_all(&mut flipped)),
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

/// A pipe whose other end the test keeps.
#[derive(Clone, Default)]
struct Pipe(Arc<Mutex<Vec<u8>>>);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_pipe_gets_a_stream_that_players_know() {
    let pipe = Pipe::default();
    let mut sound = Sound::pipe(Box::new(pipe.clone())).unwrap();
    sound.write(&[0.25, -0.25]).unwrap();
    sound.finish().unwrap();
    let bytes = pipe.0.lock().unwrap().clone();
    let mut reader = hound::WavReader::new(bytes.as_slice()).unwrap();
    let spec = reader.spec();
    assert_eq!((spec.channels, spec.sample_rate, spec.bits_per_sample), (1, 25_000, 16));
    let samples: Vec<i16> = reader.samples().take(2).map(Result::unwrap).collect();
    assert_eq!(samples, [8192, -8192]);
}

#[test]
fn a_pipe_without_a_reader_is_told() {
    // Room for the header, and for no sample.
    let full = std::io::Cursor::new(vec![0; 44].into_boxed_slice());
    let mut sound = Sound::pipe(Box::new(full)).unwrap();
    let why = sound.write(&[0.0]).unwrap_err().to_string();
    assert!(why.starts_with("-: "), "{why}");
}
