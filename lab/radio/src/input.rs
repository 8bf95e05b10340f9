//! Recordings: frames of IQ samples from a file, a compressed file or a pipe.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use thiserror::Error;

use crate::options::IQ_BYTES;

/// Bytes that are copied or discarded at a time.
const COPY: usize = 1 << 16;

/// Why a recording cannot be read to its end.
#[derive(Debug, Error)]
pub enum InputError {
    /// The system refuses to read the recording.
    #[error("{}: {why}", path.display())]
    Read {
        /// Path of the recording; `-` for the standard input.
        path: PathBuf,
        /// The system's error, with its error number.
        why: io::Error,
    },
    /// The name ends in `.zst`, but the content is not compressed by zstd.
    #[error("{}: is not packed by zstd, or its beginning is damaged; fetch it again", .0.display())]
    NotPacked(PathBuf),
    /// A compressed file is damaged or truncated.
    #[error("{}: is damaged, or ends too early: it cannot be unpacked to its end; fetch it again", .0.display())]
    Damaged(PathBuf),
    /// The recording ends with half of an IQ sample.
    #[error(
        "{}: ends within an IQ sample: {bytes} bytes are an odd number, and each sample has two; cut the last byte off",
        path.display()
    )]
    Odd {
        /// Path of the recording; `-` for the standard input.
        path: PathBuf,
        /// Length of the recording, in bytes.
        bytes: u64,
    },
    /// The recording has no sample.
    #[error("{}: is empty; needed are IQ samples as rtl_sdr writes them, 250,000 a second", .0.display())]
    Empty(PathBuf),
}

/// A source of IQ samples that are read frame by frame.
pub struct Recording {
    path: PathBuf,
    source: Source,
    /// Bytes read or skipped so far.
    bytes: u64,
}

enum Source {
    Plain(Box<dyn Read + Send>),
    File(BufReader<File>),
    Packed(Box<StreamingDecoder<BufReader<File>, FrameDecoder>>),
}

impl Recording {
    /// Opens the recording at `path`: unsigned bytes, I before Q; compressed by zstd if the name ends in `.zst`; the
    /// standard input for `-`.
    ///
    /// # Errors
    /// [`InputError::Read`] and [`InputError::NotPacked`].
    pub fn open(path: &Path) -> Result<Recording, InputError> {
        if path == Path::new("-") {
            return Ok(Recording::from_reader(path, Box::new(io::stdin())));
        }
        let file = File::open(path).map_err(|why| InputError::Read { path: path.into(), why })?;
        if path.extension().is_none_or(|extension| extension != "zst") {
            return Ok(Recording {
                path: path.into(),
                source: Source::File(BufReader::new(file)),
                bytes: 0,
            });
        }
        let decoder = StreamingDecoder::new(BufReader::new(file)).map_err(|_| InputError::NotPacked(path.into()))?;
        Ok(Recording {
            path: path.into(),
            source: Source::Packed(Box::new(decoder)),
            bytes: 0,
        })
    }

    /// A recording whose bytes come from `reader`; messages name it `path`.
    pub fn from_reader(path: &Path, reader: Box<dyn Read + Send>) -> Recording {
        Recording {
            path: path.into(),
            source: Source::Plain(reader),
            bytes: 0,
        }
    }

    /// Reads a frame and returns its length in bytes, an even number: all of `frame`, whose length is even, fewer at
    /// the end of the recording, 0 after it.
    ///
    /// [`InputError`] if the recording cannot be read or is empty; if it ends within a sample, only after all whole
    /// samples have been read.
    pub fn read(&mut self, frame: &mut [u8]) -> Result<usize, InputError> {
        let mut filled = 0;
        while filled < frame.len() {
            let read = self.some(&mut frame[filled..])?;
            if read == 0 {
                break;
            }
            filled += read;
        }
        if self.bytes == 0 && !frame.is_empty() {
            return Err(InputError::Empty(self.path.clone()));
        }
        if filled < IQ_BYTES && !self.bytes.is_multiple_of(IQ_BYTES as u64) {
            return Err(InputError::Odd {
                path: self.path.clone(),
                bytes: self.bytes,
            });
        }
        Ok(filled - filled % IQ_BYTES)
    }

    /// Copies the rest to `to`, uncompressed, and returns its length in bytes: this checks a recording before a run,
    /// and lets a process that takes over find its position at once.
    ///
    /// # Errors
    /// The errors of [`Recording::read`]; [`InputError::Read`] if `to` takes no more.
    pub fn copy_to(&mut self, to: &mut dyn Write) -> Result<u64, InputError> {
        let (mut room, begin) = (vec![0; COPY], self.bytes);
        loop {
            let read = self.read(&mut room)?;
            if read == 0 {
                return Ok(self.bytes - begin);
            }
            to.write_all(&room[..read]).map_err(|why| self.failure(why))?;
        }
    }

    /// Skips `bytes`, or as many as the recording has: for a process that takes over. A plain file is not read for
    /// that.
    ///
    /// # Errors
    /// [`InputError::Read`] and [`InputError::Damaged`].
    pub fn skip(&mut self, bytes: u64) -> Result<(), InputError> {
        // A named pipe cannot seek.
        if let Source::File(file) = &mut self.source
            && file.seek(SeekFrom::Start(self.bytes.saturating_add(bytes))).is_ok()
        {
            self.bytes = self.bytes.saturating_add(bytes);
            return Ok(());
        }
        let mut room = vec![0; COPY];
        let end = self.bytes.saturating_add(bytes);
        while self.bytes < end {
            let wanted = (end - self.bytes).min(COPY as u64) as usize;
            if self.some(&mut room[..wanted])? == 0 {
                break;
            }
        }
        Ok(())
    }

    fn some(&mut self, into: &mut [u8]) -> Result<usize, InputError> {
        loop {
            let read = match &mut self.source {
                Source::Plain(reader) => reader.read(into),
                Source::File(reader) => reader.read(into),
                Source::Packed(decoder) => decoder.read(into),
            };
            match read {
                Ok(read) => {
                    self.bytes += read as u64;
                    return if read == 0 { self.checked_end() } else { Ok(read) };
                }
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(self.failure(why)),
            }
        }
    }

    /// At the end: compares the checksum of the decompressed bytes with the stored one.
    fn checked_end(&self) -> Result<usize, InputError> {
        let Source::Packed(decoder) = &self.source else {
            return Ok(0);
        };
        let decoder = &decoder.decoder;
        match (decoder.get_checksum_from_data(), decoder.get_calculated_checksum()) {
            (Some(told), Some(found)) if told != found => Err(self.damaged()),
            _ => Ok(0),
        }
    }

    fn failure(&self, why: io::Error) -> InputError {
        match self.source {
            Source::Plain(_) | Source::File(_) => InputError::Read {
                path: self.path.clone(),
                why,
            },
            Source::Packed(_) => self.damaged(),
        }
    }

    fn damaged(&self) -> InputError {
        InputError::Damaged(self.path.clone())
    }
}
