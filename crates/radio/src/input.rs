//! Recordings: frames of IQ samples from a file, a packed file or a pipe.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use thiserror::Error;

use crate::options::IQ_BYTES;

/// Bytes that are copied or thrown away at a time.
const COPY: usize = 1 << 16;

/// A recording that cannot be read to its end.
#[derive(Debug, Error)]
pub enum InputError {
    /// The system refuses.
    #[error("{}: {why}", path.display())]
    Read {
        /// The recording; `-` for the standard input.
        path: PathBuf,
        /// What the system says.
        why: io::Error,
    },
    /// A name that ends in `.zst` on something else.
    #[error("{}: is not packed by zstd, or its beginning is damaged; fetch it again", .0.display())]
    NotPacked(PathBuf),
    /// A packed file that breaks off.
    #[error("{}: is damaged, or ends too early: it cannot be unpacked to its end; fetch it again", .0.display())]
    Damaged(PathBuf),
    /// Half of an IQ sample at the end.
    #[error(
        "{}: ends within an IQ sample: {bytes} bytes are an odd number, and each sample has two; cut the last byte off",
        path.display()
    )]
    Odd {
        /// The recording.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// No sample at all.
    #[error("{}: is empty; needed are IQ samples as rtl_sdr writes them, 250,000 a second", .0.display())]
    Empty(PathBuf),
}

/// IQ samples that are read frame by frame.
pub struct Recording {
    path: PathBuf,
    source: Source,
    /// Read or passed over so far.
    bytes: u64,
}

enum Source {
    Plain(Box<dyn Read + Send>),
    File(BufReader<File>),
    Packed(Box<StreamingDecoder<BufReader<File>, FrameDecoder>>),
}

impl Recording {
    /// The recording at `path`: unsigned bytes, I before Q; packed by zstd where the name ends in `.zst`; the standard
    /// input for `-`.
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

    /// A recording that comes from `reader`; messages name it `path`.
    pub fn from_reader(path: &Path, reader: Box<dyn Read + Send>) -> Recording {
        Recording {
            path: path.into(),
            source: Source::Plain(reader),
            bytes: 0,
        }
    }

    /// Reads a frame and tells how many bytes of it there are, an even number: all of `frame`, whose length is even,
    /// fewer at the end of the recording, 0 after it.
    ///
    /// # Errors
    /// [`InputError`] where the recording cannot be read or is empty; where it ends within a sample, once all whole
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

    /// Copies all that is left to `to`, plain, and tells how many bytes: to be sure of a recording before a run, and to
    /// have it where a process that takes over finds its place at once.
    ///
    /// # Errors
    /// Those of [`Recording::read`]; [`InputError::Read`] where `to` takes no more.
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

    /// Goes on after `bytes`, as far as the recording has them: for a process that takes over. A plain file is not read
    /// for it.
    ///
    /// # Errors
    /// [`InputError::Read`] and [`InputError::Damaged`].
    pub fn skip(&mut self, bytes: u64) -> Result<(), InputError> {
        // A named pipe has no places to go to.
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

    /// At the end: whether what was unpacked is what was packed.
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
