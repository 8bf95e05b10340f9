//! Sink of the radio: takes each frame when it is due, writes its sound, and counts.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_os::LinuxOs;
use punctual_pipelines::linux::Pinned;
use punctual_pipelines::{Head, TurnResult, erase};
use punctual_platform::linux::probe::GapProbe;
use punctual_radio::AUDIO_RATE;
use punctual_radio::sound::{Fingerprint, Sound, SoundError};
use punctual_radio::stages::Sink;
use punctual_units::{Clock, CoreId, Nanos, Time};

use super::pipes::{Outgoing, Tap};
use punctual_files::failure::Failure;

/// Time from the first frame's capture until it is due, so that queues are full by then. Applies again after a silence
/// of the input.
pub const LEAD: Nanos = Nanos::from_millis(200);
/// Most samples kept for the comparison with the true sound: ten minutes, because a radio may play for a year.
pub const COMPARED_MAX: usize = 600 * AUDIO_RATE as usize;
/// Longest sleep, so that a slow radio soon notices its end.
const SLICE: Nanos = Nanos::from_millis(100);

/// Time between two frames, which the user may change meanwhile.
#[derive(Debug, Default)]
pub struct Pace(AtomicU64);

impl Pace {
    /// Sets the period; `None`: as fast as possible.
    pub fn set(&self, period: Option<Nanos>) {
        self.0
            .store(period.map_or(0, |period| period.0.max(1)), Ordering::Relaxed);
    }

    pub fn period(&self) -> Option<Nanos> {
        Some(Nanos(self.0.load(Ordering::Relaxed))).filter(|period| *period != Nanos::ZERO)
    }
}

/// Counts of frames at the sink.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub frames: u64,
    /// Frames that came after a successor, or twice.
    pub duplicated: u64,
    pub late: u64,
    /// Late frames that a gap of the machine explains.
    pub excused: u64,
    /// Number of times that the input was silent when a frame was due.
    pub stalls: u64,
    /// Fewest frames in the last queue when a frame was due.
    pub queue_least: Option<u64>,
}

/// Frames and sound that reached the sink.
#[derive(Clone, Debug, Default)]
pub struct DeliveredFrames {
    pub counts: Counts,
    /// Beginning of the sound, for the comparison with the true one.
    pub sound: Vec<f32>,
    /// Fingerprint of the whole sound.
    pub fingerprint: Fingerprint,
    /// Whether the reader of the sound has gone.
    pub reader_gone: bool,
}

/// State that the sink's thread shares with others.
#[derive(Debug)]
pub struct Wires {
    /// Set when the radio is to end in order: the user asked to stop, or the sound has no reader any more.
    pub stop: Arc<AtomicBool>,
    pub pace: Pace,
    /// The latest samples of the sound, and the latest bytes of the input.
    pub sound: Tap<f32>,
    pub input: Arc<Tap<u8>>,
    counts: Mutex<Counts>,
    /// Cores with a stage, a bit each.
    cores: AtomicU64,
}

impl Wires {
    pub fn new(period: Option<Nanos>, samples: usize) -> Wires {
        let pace = Pace::default();
        pace.set(period);
        Wires {
            stop: Arc::default(),
            pace,
            sound: Tap::new(samples),
            input: Arc::new(Tap::new(samples * punctual_radio::IQ_BYTES)),
            counts: Mutex::default(),
            cores: AtomicU64::new(0),
        }
    }

    /// Copy of the counts so far.
    pub fn counts(&self) -> Counts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the cores on which stages run.
    pub fn stages_run_on(&self, cores: impl IntoIterator<Item = CoreId>) {
        let bits = cores.into_iter().fold(0, |bits, core| bits | bit(core));
        self.cores.store(bits, Ordering::Relaxed);
    }

    /// Whether a gap of `core` delays frames: a stage runs there.
    fn delays_frames(&self, core: CoreId) -> bool {
        self.cores.load(Ordering::Relaxed) & bit(core) != 0
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// The bit of a core; of cores beyond the 64th, none: their gaps excuse nothing.
fn bit(core: CoreId) -> u64 {
    1u64.checked_shl(core.0).unwrap_or(0)
}

/// Opens the destination of the sound.
///
/// # Errors
/// [`Failure::Input`] if it cannot be written.
pub fn open(wav: Option<&Path>, stop: &Arc<AtomicBool>) -> Result<Option<Sound>, Failure> {
    let sound = match wav {
        None => return Ok(None),
        Some(path) if path == Path::new("-") => {
            let pipe = Outgoing::stdout(stop);
            let pipe = pipe.map_err(|why| Failure::of(format!("standard output: {why}")))?;
            Sound::pipe(Box::new(pipe))
        }
        Some(path) => Sound::create(path),
    };
    sound.map(Some).map_err(Failure::of)
}

/// Sound and counts of the frames so far.
#[derive(Default)]
struct ReceivedSound {
    delivered: DeliveredFrames,
    /// Number of the next frame.
    next: u64,
    /// Sound of the last frame, until it is written.
    fresh: Vec<f32>,
    /// Most samples to keep.
    room: usize,
}

impl ReceivedSound {
    fn take(&mut self, head: Head, samples: &[f32]) {
        let counts = &mut self.delivered.counts;
        counts.frames += 1;
        counts.duplicated += u64::from(head.sequence < self.next);
        self.next = self.next.max(head.sequence + 1);
        self.delivered.fingerprint.add(samples);
        self.fresh.extend_from_slice(samples);
        if self.delivered.sound.len() < self.room {
            self.delivered.sound.extend_from_slice(samples);
        }
    }
}

fn locked<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// End of the wait for a frame.
enum FrameWait {
    /// A frame has come and is due; `late` if it was missing when due.
    Frame { late: bool },
    /// No more frames will come.
    End,
}

/// State of the sink's thread.
pub struct Player<'p> {
    pub sink: Pinned,
    pub wires: &'p Wires,
    pub probes: &'p [GapProbe],
    /// Whether the input is a pipe: its silence is no fault of a stage.
    pub live: bool,
    /// Number of samples to keep from the beginning.
    pub keeps: usize,
    /// Instant at which to play the next frame; `None` before the first one, and without a period.
    pub due: Option<Time>,
}

impl Player<'_> {
    /// Plays until the end of the stream.
    ///
    /// # Errors
    /// [`Failure::Input`] if the sound cannot be written, or a stage cannot continue.
    pub fn play(mut self, mut sound: Option<Sound>) -> Result<DeliveredFrames, Failure> {
        let failed = |why: String| Failure::of(why);
        let room = self.keeps;
        let kept = Arc::new(Mutex::new(ReceivedSound {
            room,
            ..ReceivedSound::default()
        }));
        let taking = Arc::clone(&kept);
        let mut body = erase(Sink::new(move |head: Head, samples: &[f32]| {
            locked(&taking).take(head, samples);
            Ok(())
        }));
        let mut counts = Counts::default();
        while let FrameWait::Frame { late } = self.awaited(&mut counts) {
            match self.sink.turn(body.as_mut()) {
                TurnResult::Stepped => {}
                TurnResult::Wait => continue,
                TurnResult::Ended | TurnResult::ShutOut => break,
                TurnResult::Failed(why) => return Err(failed(why.to_string())),
            }
            if late {
                counts.late += 1;
                counts.excused += u64::from(self.is_excused());
            }
            let mut kept = locked(&kept);
            (counts.frames, counts.duplicated) = (kept.delivered.counts.frames, kept.delivered.counts.duplicated);
            self.wires.sound.add(&kept.fresh);
            let written = sound.as_mut().map_or(Ok(()), |sound| self.write(sound, &kept.fresh));
            kept.fresh.clear();
            if let Err(why) = written {
                if !why.is_gone() && !self.wires.stopped() {
                    return Err(failed(why.to_string()));
                }
                // Frames in the queues are still consumed, without output.
                (sound, kept.delivered.reader_gone) = (None, why.is_gone());
                self.wires.stop.store(true, Ordering::Release);
            }
            self.tell(&counts);
        }
        let finished = sound.map_or(Ok(()), Sound::finish);
        finished.map_err(|why| failed(why.to_string()))?;
        let mut kept = locked(&kept);
        kept.delivered.counts = counts;
        Ok(std::mem::take(&mut kept.delivered))
    }

    /// Waits until the next frame has come and is due.
    fn awaited(&mut self, counts: &mut Counts) -> FrameWait {
        let mut late = false;
        loop {
            self.sleep_until_due();
            let heard = self.sink.heard();
            let level = self.sink.waiting(0);
            let Some(head) = self.sink.next(0) else {
                if self.sink.is_last(0) || !self.sink.runs() {
                    return FrameWait::End;
                }
                // After a stop request, frames are played before they are due.
                late |= self.due.is_some() && !self.wires.stopped();
                self.sink.wait(heard, None);
                continue;
            };
            match (self.wires.pace.period(), self.due) {
                (None, _) => self.due = None,
                (Some(_), None) => {
                    self.due = Some(Time(head.captured_at.0 + LEAD.0));
                    continue;
                }
                (Some(_), Some(due)) => {
                    // The frame was captured after it was due: the input was silent, and later frames are shifted.
                    if late && self.live && head.captured_at > due {
                        counts.stalls += 1;
                        self.due = Some(Time(head.captured_at.0 + LEAD.0));
                        late = false;
                        continue;
                    }
                    if !self.sink.is_last(0) {
                        let level = if late { 0 } else { level };
                        counts.queue_least = Some(counts.queue_least.map_or(level, |least| least.min(level)));
                    }
                }
            }
            return FrameWait::Frame {
                late: late && self.due.is_some(),
            };
        }
    }

    fn sleep_until_due(&self) {
        let clock = LinuxOs;
        while let (Some(due), false) = (self.due, self.wires.stopped()) {
            let now = clock.now();
            if now >= due {
                return;
            }
            clock.sleep_until(due.min(Time(now.0 + SLICE.0)));
        }
    }

    /// Writes the sound of a frame, and shifts the next due time by the time that a pipe blocked: the playing clock
    /// stops meanwhile.
    fn write(&mut self, sound: &mut Sound, fresh: &[f32]) -> Result<(), SoundError> {
        let begin = self.sink.now();
        let written = sound.write(fresh);
        let took = self.sink.now().since(begin);
        if let (Some(period), Some(due)) = (self.wires.pace.period(), &mut self.due)
            && took > period
        {
            due.0 += took.0;
        }
        written
    }

    /// Whether a gap of a core on which a stage runs explains that the frame is late.
    fn is_excused(&self) -> bool {
        let (Some(due), now) = (self.due, self.sink.now()) else {
            return false;
        };
        let from = Time(due.0.saturating_sub(LEAD.0));
        let mut probes = self
            .probes
            .iter()
            .filter(|probe| self.wires.delays_frames(probe.core()));
        probes.any(|probe| probe.longest_gap(from, now) >= now.since(due))
    }

    /// Advances to the next frame, and publishes the counts.
    fn tell(&mut self, counts: &Counts) {
        self.due = match (self.due, self.wires.pace.period()) {
            (Some(due), Some(period)) => Some(Time(due.0 + period.0)),
            _ => None,
        };
        if let Ok(mut shown) = self.wires.counts.try_lock() {
            *shown = *counts;
        }
    }
}
