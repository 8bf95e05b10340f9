//! The player, which sleeps, reads, decodes and displays, and the sources of its frames.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use punctual_cores::Completion;
use punctual_os::linux::mapped::MappedFile;
use punctual_os::{LinuxOs, MappedWords as _};
use punctual_platform::linux::emulated::EmulatedClock;
use punctual_platform::linux::thread;
use punctual_runtime::linux::tenancy::{Account, Tenancy, quantile};
use punctual_units::{Clock, Nanos, Time};

use crate::beside::{BesideError, failed, sleep};
use crate::completion::{completion, completion_on_kept_core};
use crate::data_path::{PolledFile, check_room};

use super::Frame;

/// Bytes of one read through the page cache: the size of libavformat's buffer (`IO_BUFFER_SIZE`).
const READ_BYTES: usize = 32 << 10;
/// Bytes of a word of mapped memory; a frame has a multiple of them.
const WORD: usize = 8;
/// Number of reads that measure a medium's service times, polled and blocking each.
const SERVICES: usize = 60;

/// The file, with a checksum for each frame.
pub(super) struct Film {
    path: PathBuf,
    frame_bytes: usize,
    sums: Vec<u64>,
}

impl Film {
    /// Writes a film of whole frames, at least one, to `path`.
    pub(super) fn record(path: &Path, frame_bytes: usize, file_bytes: u64) -> Result<Film, BesideError> {
        let frames = (file_bytes / frame_bytes as u64).max(1);
        let mut file = File::create(path).map_err(failed("making", path))?;
        let mut sums = Vec::new();
        let mut state = 1u64;
        for _ in 0..frames {
            let words = (0..frame_bytes / 8).map(|_| {
                // Knuth's multiplicative generator: no two frames are alike.
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                state
            });
            let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
            sums.push(sum(&bytes));
            file.write_all(&bytes).map_err(failed("writing", path))?;
        }
        file.sync_all().map_err(failed("writing", path))?;
        Ok(Film {
            path: path.to_owned(),
            frame_bytes,
            sums,
        })
    }

    fn frame(&self, number: u32) -> (usize, u64) {
        let frame = number as usize % self.sums.len();
        (frame * self.frame_bytes, self.sums[frame])
    }

    fn bytes(&self) -> usize {
        self.sums.len() * self.frame_bytes
    }
}

/// Checksum: the sum of the little-endian words, each times its position from 1, so that swapped words are noticed.
fn sum(bytes: &[u8]) -> u64 {
    let word = |chunk: &[u8]| chunk.try_into().map_or(0, u64::from_le_bytes);
    let weighted = |(chunk, place): (&[u8], u64)| word(chunk).wrapping_mul(place);
    bytes.chunks_exact(8).zip(1..).map(weighted).fold(0, u64::wrapping_add)
}

/// Source of the frames.
#[expect(clippy::large_enum_variant, reason = "there is one per player")]
pub(super) enum Source {
    /// Blocking reads through the page cache, which keeps at most the last `cache_bytes` bytes.
    Cached { file: File, cache_bytes: u64 },
    /// Loads from mapped memory.
    Mapped(Partition),
    /// Reads from the device, polling for `spin` before blocking.
    Polled { file: PolledFile, spin: Nanos },
}

/// A mapped copy of the film, whose file is removed with it.
pub(super) struct Partition {
    map: MappedFile,
    path: PathBuf,
}

impl Drop for Partition {
    fn drop(&mut self) {
        // If the removal fails, the folder's removal deletes the file.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Source {
    pub(super) fn cached(film: &Film, cache_bytes: u64) -> Result<Source, BesideError> {
        let file = File::open(&film.path).map_err(failed("opening", &film.path))?;
        forget(&file, 0, 0);
        Ok(Source::Cached { file, cache_bytes })
    }

    /// Maps a copy of the film in memory; where memory is too small, reads from the device.
    pub(super) fn mapped(
        film: &Film,
        path: &Path,
        slack: Option<Nanos>,
        told: &mut Vec<String>,
    ) -> Result<Source, BesideError> {
        match Source::try_mapped(film, path) {
            Ok(partition) => {
                told.push(format!("film mapped on {}", partition.map.medium()));
                Ok(Source::Mapped(partition))
            }
            Err(error) => {
                told.push(format!("film not in memory: {error}"));
                Source::polled(film, slack, told)
            }
        }
    }

    fn try_mapped(film: &Film, path: &Path) -> Result<Partition, BesideError> {
        check_room(film.bytes() as u64)?;
        let partition = Partition {
            map: MappedFile::open(path, film.bytes() / WORD)?,
            path: path.to_owned(),
        };
        let file = File::open(&film.path).map_err(failed("opening", &film.path))?;
        // Copies frame by frame, because a buffer of the whole film would lock that memory twice.
        let mut frame = vec![0u8; film.frame_bytes];
        for number in 0..film.sums.len() as u32 {
            let (offset, _) = film.frame(number);
            file.read_exact_at(&mut frame, offset as u64)
                .map_err(failed("reading", &film.path))?;
            let words = &partition.map.words()[offset / WORD..];
            for (word, bytes) in words.iter().zip(frame.as_chunks().0) {
                word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
            }
        }
        Ok(partition)
    }

    /// Reads from the device. Decides between polling and blocking by `slack`, where the core stays reserved during the
    /// read, otherwise by measured service times. Where direct reads are refused, reads blocking through the page
    /// cache.
    pub(super) fn polled(film: &Film, slack: Option<Nanos>, told: &mut Vec<String>) -> Result<Source, BesideError> {
        let mut file = match PolledFile::open(&film.path, film.frame_bytes) {
            Ok(file) => file,
            Err(refusal) => {
                told.push(refusal.to_string());
                told.push("film read through the page cache, blocking".into());
                return Source::cached(film, 0);
            }
        };
        let mut services = |spin: Nanos| -> std::io::Result<Vec<Nanos>> {
            let one = |n: usize| -> std::io::Result<Nanos> {
                let (offset, _) = film.frame(n as u32);
                let began = LinuxOs.now();
                file.read(offset as u64, film.frame_bytes, spin)?;
                Ok(LinuxOs.now().since(began))
            };
            (0..SERVICES).map(one).collect()
        };
        let measured = services(Nanos::MAX).and_then(|polled| Ok((polled, services(Nanos::ZERO)?)));
        let (polled, blocked) = measured.map_err(failed("reading", &film.path))?;
        let block = quantile(&blocked, 0.5).saturating_sub(quantile(&polled, 0.5)) + BLOCK_AT_LEAST;
        let way = match slack {
            Some(slack) => completion_on_kept_core(slack),
            // Without a service time there is no reason against polling.
            None => completion(&polled, block).unwrap_or(Completion::Poll),
        };
        let (way, spin) = match way {
            Completion::Poll => ("polling".to_owned(), Nanos::MAX),
            Completion::SpinThenBlock(spin) => (format!("polling for {spin}, then blocking"), spin),
            Completion::Block => ("blocking".to_owned(), Nanos::ZERO),
        };
        told.push(format!(
            "film on its device, {way}: a frame takes {} (p99 {}) polled, {} (p99 {}) blocking",
            quantile(&polled, 0.5),
            quantile(&polled, 0.99),
            quantile(&blocked, 0.5),
            quantile(&blocked, 0.99),
        ));
        Ok(Source::Polled { file, spin })
    }

    /// Reads the frame at `offset` into `frame`.
    fn read(&mut self, offset: usize, frame: &mut [u8]) -> std::io::Result<()> {
        match self {
            Source::Cached { file, cache_bytes } => {
                for (n, piece) in frame.chunks_mut(READ_BYTES).enumerate() {
                    file.read_exact_at(piece, (offset + n * READ_BYTES) as u64)?;
                }
                // A film is read again beyond its cache, however much memory the machine has.
                let end = (offset + frame.len()) as u64;
                let behind = end.saturating_sub(*cache_bytes);
                let length = (frame.len() as u64).min(behind);
                if length > 0 {
                    forget(file, behind - length, length);
                }
                if offset == 0 {
                    forget(file, frame.len() as u64, 0);
                }
            }
            Source::Mapped(partition) => {
                let words = &partition.map.words()[offset / WORD..];
                for (bytes, word) in frame.as_chunks_mut().0.iter_mut().zip(words) {
                    *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
                }
            }
            Source::Polled { file, spin } => frame.copy_from_slice(file.read(offset as u64, frame.len(), *spin)?),
        }
        Ok(())
    }
}

/// Least cost of blocking: it is never free, even where noise makes it look faster.
const BLOCK_AT_LEAST: Nanos = Nanos::from_micros(1);

/// Drops a range of `file` from the page cache; 0 bytes mean to its end.
fn forget(file: &File, offset: u64, bytes: u64) {
    // SAFETY: the call takes plain numbers and is only advice.
    unsafe {
        libc::posix_fadvise(
            file.as_raw_fd(),
            offset as libc::off_t,
            bytes as libc::off_t,
            libc::POSIX_FADV_DONTNEED,
        );
    }
}

/// Parameters of a player, and the lease of its core.
pub(super) struct Player<'s> {
    pub(super) film: &'s Film,
    pub(super) clock: &'s EmulatedClock,
    pub(super) period: Nanos,
    pub(super) deadline: Nanos,
    pub(super) decode: Nanos,
    pub(super) frames: u32,
    pub(super) tenancy: Option<Tenancy>,
}

/// Instants of one frame.
pub(super) struct FrameInstants {
    pub(super) released: Time,
    woken: Time,
    read: Option<Time>,
    pub(super) finished: Time,
    /// Time by which the frame missed its deadline; `None`: it was in time.
    pub(super) overrun: Option<Nanos>,
}

impl FrameInstants {
    pub(super) fn told(&self, explained: bool) -> Frame {
        Frame {
            woken: self.woken.since(self.released),
            read: self.read.map(|read| read.since(self.released)),
            finished: self.finished.since(self.released),
            late: self.overrun.is_some(),
            explained,
        }
    }
}

/// Measurements of a performance.
#[derive(Default)]
pub(super) struct Performance {
    pub(super) frames: Vec<FrameInstants>,
    pub(super) wrong: u32,
    pub(super) cpu: Nanos,
    pub(super) lending: Account,
    /// The first error of lending.
    pub(super) trouble: Option<String>,
}

impl Player<'_> {
    /// Plays all frames from `start` on, on the calling thread.
    pub(super) fn play(mut self, mut source: Source, start: Time) -> Result<Performance, BesideError> {
        let mut played = Performance {
            frames: Vec::with_capacity(self.frames as usize),
            ..Performance::default()
        };
        let decode_cycles = (self.decode.as_secs_f64() * self.clock.clock().0 as f64) as u64;
        let mut frame = vec![0u8; self.film.frame_bytes];
        let mut display = frame.clone();
        let before = thread::thread_cpu_time();
        for number in 0..self.frames {
            let released = start + self.period * u64::from(number);
            sleep(&mut self.tenancy, released);
            let woken = LinuxOs.now();
            let (offset, expected) = self.film.frame(number);
            let mut read = None;
            if woken < released + self.deadline {
                source
                    .read(offset, &mut frame)
                    .map_err(failed("reading", &self.film.path))?;
                read = Some(LinuxOs.now());
                played.wrong += u32::from(sum(&frame) != expected);
                self.clock.compute(decode_cycles);
                display.copy_from_slice(&frame);
                std::hint::black_box(&display);
            }
            let finished = LinuxOs.now();
            let overrun = finished.since(released).saturating_sub(self.deadline);
            played.frames.push(FrameInstants {
                released,
                woken,
                read,
                finished,
                overrun: (overrun > Nanos::ZERO || read.is_none()).then_some(overrun),
            });
        }
        // Sleeps until the window closes, as between any two frames, so that the core is lent until then.
        sleep(&mut self.tenancy, start + self.period * u64::from(self.frames));
        played.cpu = thread::thread_cpu_time().saturating_sub(before);
        if let Some(accountant) = self.tenancy.as_ref().map(Tenancy::accountant) {
            played.lending = accountant.account();
            played.trouble = accountant.trouble();
        }
        Ok(played)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: usize = 8192;

    #[test]
    fn every_source_gives_every_frame_and_a_wrong_byte_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("movie");
        let film = Film::record(&path, FRAME, 5 * FRAME as u64 + 100).unwrap();
        assert_eq!(film.bytes(), 5 * FRAME);
        let mut told = Vec::new();
        let sources = [
            Source::cached(&film, FRAME as u64).unwrap(),
            Source::mapped(&film, &folder.path().join("mapped"), None, &mut told).unwrap(),
            Source::polled(&film, None, &mut told).unwrap(),
            Source::polled(&film, Some(Nanos::from_millis(20)), &mut told).unwrap(),
        ];
        let polled = told.iter().any(|line| line.contains("polling for 20.00 ms"));
        let refused = told.iter().any(|line| line.contains("through the page cache"));
        assert!(polled || refused, "a core that is kept is polled on: {told:?}");
        let mut frame = vec![0; FRAME];
        for mut source in sources {
            for number in 0..12 {
                let (offset, expected) = film.frame(number);
                source.read(offset, &mut frame).unwrap();
                assert_eq!(sum(&frame), expected);
            }
            frame[77] ^= 1;
            assert_ne!(sum(&frame), film.frame(11).1, "planted");
            frame[77] ^= 1;
            frame[..16].rotate_left(8);
            assert_ne!(sum(&frame), film.frame(11).1, "words that changed places");
        }
    }
}
