//! Recordings: frames of IQ samples from a file, a compressed file or a pipe.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use thiserror::Error;

use crate::format::{Converter, InputOptions, Layout, RecordingFile};
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
    /// The recording ends with a part of an IQ sample.
    #[error(
        "{}: ends within an IQ sample: {bytes} bytes are no multiple of the {each} of a sample; cut the last {} off, \
         or give the right --format",
        path.display(),
        bytes % *each as u64
    )]
    Odd {
        /// Path of the recording; `-` for the standard input.
        path: PathBuf,
        /// Length of its samples, in bytes.
        bytes: u64,
        /// Bytes of a sample.
        each: usize,
    },
    /// The recording has a format that the receiver cannot take, or not the assumed one.
    #[error("{}: {found}: {remedy}", path.display())]
    Format {
        /// Path of the recording; `-` for the standard input.
        path: PathBuf,
        /// Description of its content.
        found: String,
        /// Advice, for the message.
        remedy: String,
    },
    /// The recording has no sample.
    #[error("{}: is empty; needed are IQ samples as rtl_sdr writes them, 250,000 a second", .0.display())]
    Empty(PathBuf),
}

impl InputError {
    /// The error that a reader of a recording wrapped, or the system's.
    pub(crate) fn of(why: io::Error, path: &Path) -> InputError {
        let path = path.into();
        why.downcast().unwrap_or_else(|why| InputError::Read { path, why })
    }
}

/// A source of IQ samples that are read frame by frame.
pub struct Recording {
    path: PathBuf,
    source: Source,
    layout: Option<Layout>,
    /// Bytes read or skipped so far.
    bytes: u64,
}

enum Source {
    Plain(Box<dyn Read + Send>),
    File(BufReader<File>),
    Packed(Box<StreamingDecoder<BufReader<File>, FrameDecoder>>),
}

impl Recording {
    /// Opens the recording at `path` in the format of its header or name: see [`Recording::open_as`].
    ///
    /// # Errors
    /// Those of [`Recording::open_as`].
    pub fn open(path: &Path) -> Result<Recording, InputError> {
        Recording::open_as(path, &InputOptions::default())
    }

    /// Opens the recording at `path`, compressed by zstd if the name ends in `.zst`; the standard input for `-`. It is
    /// read as the receiver's unsigned bytes, I before Q, whatever its format.
    ///
    /// # Errors
    /// [`InputError::Read`], [`InputError::NotPacked`], and [`InputError::Format`] if the header or the first samples
    /// contradict the format.
    pub fn open_as(path: &Path, options: &InputOptions) -> Result<Recording, InputError> {
        let located = RecordingFile::new(path, options)?;
        let of = |source, layout| Recording {
            path: path.into(),
            source,
            layout,
            bytes: 0,
        };
        if path == Path::new("-") {
            let converted = Converter::new(located, io::stdin());
            return Ok(Recording::from_reader(path, Box::new(converted)));
        }
        let data = located.path.clone();
        let file = File::open(&data).map_err(|why| InputError::Read {
            path: data.clone(),
            why,
        })?;
        let mut file = BufReader::new(file);
        // A named pipe cannot seek: what was read of it for its format comes from the converter.
        let seeks = file.stream_position().is_ok();
        if data.extension().is_none_or(|extension| extension != "zst") {
            let mut converted = Converter::new(located, file);
            let layout = Some(converted.check()?);
            if !seeks {
                return Ok(of(Source::Plain(Box::new(converted)), layout));
            }
            return Ok(match converted.plain() {
                Ok(mut file) => {
                    file.rewind().map_err(|why| InputError::Read { path: data, why })?;
                    of(Source::File(file), layout)
                }
                Err(converted) => of(Source::Plain(converted), layout),
            });
        }
        let decoder = StreamingDecoder::new(file).map_err(|_| InputError::NotPacked(path.into()))?;
        let mut converted = Converter::new(located, RawBytes(of(Source::Packed(Box::new(decoder)), None)));
        let layout = Some(converted.check()?);
        Ok(of(Source::Plain(Box::new(converted)), layout))
    }

    /// A recording whose bytes come from `reader`; messages name it `path`.
    pub fn from_reader(path: &Path, reader: Box<dyn Read + Send>) -> Recording {
        Recording {
            path: path.into(),
            source: Source::Plain(reader),
            layout: None,
            bytes: 0,
        }
    }

    /// Format of the recording, if [`Recording::open_as`] read it from a file.
    pub fn layout(&self) -> Option<Layout> {
        self.layout
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
                each: IQ_BYTES,
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
            Source::Plain(_) | Source::File(_) => InputError::of(why, &self.path),
            Source::Packed(_) => self.damaged(),
        }
    }

    fn damaged(&self) -> InputError {
        InputError::Damaged(self.path.clone())
    }
}

/// Bytes of a compressed recording, whatever its format.
struct RawBytes(Recording);

impl Read for RawBytes {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.some(into).map_err(io::Error::other)
    }
}
