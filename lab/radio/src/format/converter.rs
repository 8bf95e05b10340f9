//! A recording of any format as a stream of the receiver's bytes.

use std::io::{self, Read};

use super::evidence::{self, PROBE};
use super::resampler::Resampler;
use super::{Kind, Layout, RecordingFile, SAMPLE_MAX, refused, wav};
use crate::input::InputError;
use crate::options::IQ_RATE;

/// Samples converted at a time: 4 ms at the receiver's rate.
const BLOCK: usize = 1000;
/// Peak of a block below which the gain rises, the peak that a new gain makes, and the greatest gain of integers and
/// of floats, whose scale is free.
const WEAK: f32 = 1.0 / 8.0;
const LEVEL: f32 = 0.75;
const GAIN_INTEGERS: f32 = 64.0;
const GAIN_FLOATS: f32 = 1e9;

/// A reader of the receiver's bytes, from a reader of a recording.
///
/// The bytes depend on the recording alone, not on the lengths in which it is read.
pub struct Converter<R> {
    file: RecordingFile,
    raw: R,
    layout: Option<Layout>,
    resampler: Option<Resampler>,
    gain: f32,
    /// Bytes read before they were needed, and the number of them that were consumed.
    head: Vec<u8>,
    consumed: usize,
    /// Beginning of the samples, until there is enough of it to judge.
    judged: Option<Vec<u8>>,
    /// Bytes of samples so far.
    bytes: u64,
    /// Samples at the rate of the receiver, before they are rounded.
    fresh: Vec<[f32; 2]>,
    out: Vec<u8>,
    given: usize,
    is_over: bool,
    failed: Option<InputError>,
}

impl<R: Read> Converter<R> {
    /// Converts the samples at `file`, which `raw` reads from the beginning; reads nothing yet.
    pub fn new(file: RecordingFile, raw: R) -> Converter<R> {
        Converter {
            file,
            raw,
            layout: None,
            resampler: None,
            gain: 1.0,
            head: Vec::new(),
            consumed: 0,
            judged: Some(Vec::new()),
            bytes: 0,
            fresh: Vec::new(),
            out: Vec::new(),
            given: 0,
            is_over: false,
            failed: None,
        }
    }

    /// Determines the layout, and judges the beginning of the samples: before a run, for a recording that does not keep
    /// its reader waiting. Without this, both happen while it is read.
    ///
    /// # Errors
    /// [`InputError`] if the recording cannot be read, or cannot have its format.
    pub fn check(&mut self) -> Result<Layout, InputError> {
        let layout = self.begin()?;
        let mut probe = vec![0; PROBE];
        let read = self.fill(&mut probe)?;
        probe.truncate(read);
        self.judge(&probe, layout)?;
        self.bytes -= read as u64;
        self.head = probe;
        self.consumed = 0;
        self.judged = None;
        Ok(layout)
    }

    /// The reader of the recording, if its bytes are the receiver's from the first one on, without a header.
    pub fn plain(self) -> Result<R, Box<Converter<R>>> {
        match self.layout {
            Some(layout) if layout.is_plain() && layout.is_raw => Ok(self.raw),
            _ => Err(Box::new(self)),
        }
    }

    fn begin(&mut self) -> Result<Layout, InputError> {
        if let Some(layout) = self.layout {
            return Ok(layout);
        }
        let mut head = vec![0; wav::HEAD];
        let read = self.fill(&mut head)?;
        head.truncate(read);
        self.bytes = 0;
        let layout = self.file.layout_of(&head, &mut self.raw)?;
        if self.file.stated.is_some() || !wav::is_wav(&head) {
            self.head = head;
        }
        if layout.rate != f64::from(IQ_RATE) {
            let made = Resampler::new(layout.rate, BLOCK);
            let remedy = format!("record at {IQ_RATE} a second");
            self.resampler = Some(made.map_err(|why| refused(&self.file.path, why, &remedy))?);
        }
        self.layout = Some(layout);
        Ok(layout)
    }

    /// Reads until `room` is full or the samples end; returns the number of bytes.
    fn fill(&mut self, room: &mut [u8]) -> Result<usize, InputError> {
        let mut filled = 0;
        while filled < room.len() {
            let read = self.some(&mut room[filled..])?;
            if read == 0 {
                break;
            }
            filled += read;
        }
        Ok(filled)
    }

    fn some(&mut self, room: &mut [u8]) -> Result<usize, InputError> {
        let length = self.layout.and_then(|layout| layout.length);
        let left = length.map_or(u64::MAX, |length| length.saturating_sub(self.bytes));
        let room_len = room.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let room = &mut room[..room_len];
        let ahead = &self.head[self.consumed..];
        let read = match ahead.is_empty() {
            false => {
                let taken = ahead.len().min(room.len());
                room[..taken].copy_from_slice(&ahead[..taken]);
                self.consumed += taken;
                taken
            }
            true => loop {
                match self.raw.read(room) {
                    Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                    Err(why) => return Err(InputError::of(why, &self.file.path)),
                    Ok(read) => break read,
                }
            },
        };
        self.bytes += read as u64;
        Ok(read)
    }

    fn judge(&self, samples: &[u8], layout: Layout) -> Result<(), InputError> {
        let why = evidence::against(samples, layout.format, layout.is_raw);
        why.map_or(Ok(()), |why| {
            let remedy = "give its format and its IQ samples a second, such as --format cs16 --iq-rate 250k";
            Err(refused(&self.file.path, why, remedy))
        })
    }

    /// Converts the next block; an error is kept until the bytes before it are read.
    fn convert(&mut self) -> Result<(), InputError> {
        let layout = self.begin()?;
        (self.given, self.is_over) = (0, false);
        self.out.clear();
        let each = layout.format.sample_bytes();
        let mut room = [0; BLOCK * SAMPLE_MAX];
        let mut read = 0;
        if layout.is_plain() {
            // Bytes as they come: a live recording does not wait for a block.
            read = self.some(&mut room)?;
            self.out.extend_from_slice(&room[..read]);
        } else {
            read += self.fill(&mut room[..BLOCK * each])?;
        }
        if let Some(mut seen) = self.judged.take() {
            seen.extend_from_slice(&room[..read]);
            match seen.len() >= PROBE || read == 0 {
                true => self.judge(&seen, layout)?,
                false => self.judged = Some(seen),
            }
        }
        self.is_over = read == 0 || !layout.is_plain() && read < BLOCK * each;
        if layout.is_plain() {
            return self.checked_end(layout);
        }
        self.fresh.clear();
        let samples = room[..read]
            .chunks_exact(each)
            .map(|sample| layout.format.sample(sample));
        match &mut self.resampler {
            None => self.fresh.extend(samples),
            Some(resampler) => {
                let block: Vec<[f32; 2]> = samples.collect();
                let path = &self.file.path;
                let failed = |why: String| refused(path, why, "record at the receiver's rate");
                resampler.take(&block, &mut self.fresh).map_err(failed)?;
                if self.is_over {
                    resampler.finish(&mut self.fresh).map_err(failed)?;
                }
            }
        }
        self.round(layout);
        self.checked_end(layout)
    }

    /// Scales the fresh samples by a gain that keeps them within a byte, and rounds them.
    fn round(&mut self, layout: Layout) {
        let numbers = self.fresh.as_flattened();
        let peak = numbers.iter().fold(0.0, |peak: f32, number| peak.max(number.abs()));
        let most = if layout.format.kind == Kind::Float {
            GAIN_FLOATS
        } else {
            GAIN_INTEGERS
        };
        let level = peak * self.gain;
        if level > 1.0 || (level < WEAK && peak > 0.0) {
            self.gain = (LEVEL / peak).min(most);
        }
        let gain = self.gain;
        // The cast saturates, and turns NaN into 0.
        let byte = |number: &f32| libm::rintf(number * gain * 127.5 + 127.5) as u8;
        self.out.extend(self.fresh.as_flattened().iter().map(byte));
    }

    /// At the end: refuses a last sample that is not whole, and samples that a header promises.
    fn checked_end(&mut self, layout: Layout) -> Result<(), InputError> {
        if !self.is_over {
            return Ok(());
        }
        let (path, bytes) = (&self.file.path, self.bytes);
        let each = layout.format.sample_bytes();
        if let Some(length) = layout.length.filter(|length| *length > bytes) {
            let found = format!("its header promises {length} bytes of samples, it has {bytes}");
            self.failed = Some(refused(path, found, "what is there was played; fetch it again"));
        } else if !bytes.is_multiple_of(each as u64) {
            let path = path.clone();
            self.failed = Some(InputError::Odd { path, bytes, each });
        }
        Ok(())
    }
}

impl<R: Read> Read for Converter<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.given == self.out.len() && !into.is_empty() {
            if let Some(why) = self.failed.take() {
                return Err(io::Error::other(why));
            }
            if self.is_over {
                return Ok(0);
            }
            self.convert().map_err(io::Error::other)?;
        }
        let given = into.len().min(self.out.len() - self.given);
        into[..given].copy_from_slice(&self.out[self.given..self.given + given]);
        self.given += given;
        Ok(given)
    }
}
