//! From readings to windows of equal progress.

use super::error::CountersError;
use super::event::EVENTS;

/// Windows of one run, at most: as many rows as a profile's reader takes.
pub const WINDOWS_MAX: usize = 1_000_000;

/// What a group has counted since it was opened, as the kernel tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Nanoseconds for which the group was switched on while a thread of the program ran.
    pub enabled_ns: u64,
    /// Of these, those in which it was counted.
    pub running_ns: u64,
    /// What was counted in them, event by event; the first is progress.
    pub counts: [u64; EVENTS],
}

/// A stretch of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CountedWindow {
    /// Nanoseconds of processor time, of all threads together.
    pub ns: f64,
    /// Event by event, scaled up where the counters were shared; the first is progress.
    pub counts: [f64; EVENTS],
}

impl CountedWindow {
    /// What was counted between two readings, scaled to the time between them. `None` if that is not known yet: the
    /// group was not counted since, or the later reading says less. (A thread that ends takes its counts over to the
    /// group's, and a reading in between may miss them.) Counters may begin again at 0 after their last.
    pub fn between(earlier: &Reading, later: &Reading) -> Option<CountedWindow> {
        let enabled = ahead(earlier.enabled_ns, later.enabled_ns)?;
        let running = ahead(earlier.running_ns, later.running_ns).filter(|running| *running > 0)?;
        // Both clocks are read one after another, so that running may be a few nanoseconds ahead.
        let scale = (enabled as f64 / running as f64).max(1.0);
        let mut counts = [0.0; EVENTS];
        for ((count, earlier), later) in counts.iter_mut().zip(earlier.counts).zip(later.counts) {
            *count = ahead(earlier, later)? as f64 * scale;
        }
        let ns = enabled as f64;
        Some(CountedWindow { ns, counts })
    }

    /// What windows are cut by.
    pub fn progress(&self) -> f64 {
        self.counts[0]
    }

    fn part(&self, share: f64) -> CountedWindow {
        CountedWindow {
            ns: self.ns * share,
            counts: self.counts.map(|count| count * share),
        }
    }

    fn add(&mut self, other: &CountedWindow) {
        self.ns += other.ns;
        self.counts
            .iter_mut()
            .zip(other.counts)
            .for_each(|(sum, more)| *sum += more);
    }
}

/// How far `later` is ahead of `earlier`, counters being of 64 bits and going round; `None` if it is behind.
fn ahead(earlier: u64, later: u64) -> Option<u64> {
    let difference = later.wrapping_sub(earlier);
    (difference < 1 << 63).then_some(difference)
}

/// Cuts a run into windows.
///
/// ```
/// use punctual_profiler::counters::{Cutter, Reading};
/// let mut cutter = Cutter::new(1500);
/// // In 4 us, of which the group was counted for 2 us: 2000 instructions, so about 4000.
/// cutter.take(&Reading { enabled_ns: 4000, running_ns: 2000, counts: [2000, 5000, 100, 10] })?;
/// let windows = cutter.finish()?;
/// assert_eq!(windows.iter().map(|window| window.progress()).collect::<Vec<_>>(), [1500.0, 1500.0, 1000.0]);
/// assert_eq!(windows.iter().map(|window| window.ns).collect::<Vec<_>>(), [1500.0, 1500.0, 1000.0]);
/// # Ok::<(), punctual_profiler::counters::CountersError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Cutter {
    window: f64,
    last: Reading,
    progress: f64,
    open: CountedWindow,
    complete: Vec<CountedWindow>,
    interpolated: u64,
    /// The latest reading said nothing yet.
    pending: bool,
}

impl Cutter {
    /// For windows of so much progress; at least 1. The counters begin at 0.
    pub fn new(window: u64) -> Cutter {
        Cutter {
            window: window.max(1) as f64,
            last: Reading::default(),
            progress: 0.0,
            open: CountedWindow::default(),
            complete: Vec::new(),
            interpolated: 0,
            pending: false,
        }
    }

    /// Takes the next reading.
    ///
    /// # Errors
    /// [`CountersError::TooManyWindows`].
    pub fn take(&mut self, reading: &Reading) -> Result<(), CountersError> {
        let step = CountedWindow::between(&self.last, reading);
        self.pending = step.is_none() && reading.enabled_ns != self.last.enabled_ns;
        let Some(step) = step else {
            return Ok(());
        };
        self.last = *reading;
        let (begin, end) = (self.progress, self.progress + step.progress());
        let before = self.complete.len();
        // Cuts are found from the beginning of the run, not from each other, so that rounding does not add up.
        let mut told = 0.0;
        while end >= self.boundary() {
            if self.complete.len() >= WINDOWS_MAX {
                return Err(CountersError::TooManyWindows { most: WINDOWS_MAX });
            }
            let share = (self.boundary() - begin) / step.progress();
            self.open.add(&step.part(share - told));
            self.open.counts[0] = self.window;
            self.complete.push(std::mem::take(&mut self.open));
            told = share;
        }
        self.open.add(&step.part(1.0 - told));
        self.open.counts[0] = end - self.complete.len() as f64 * self.window;
        self.progress = end;
        // The first window that ends in a step began before it.
        self.interpolated += (self.complete.len() - before).saturating_sub(1) as u64;
        Ok(())
    }

    /// Where the window that is under way will end.
    fn boundary(&self) -> f64 {
        (self.complete.len() + 1) as f64 * self.window
    }

    /// Windows that lie wholly between two readings: the reported figure is a mean over more.
    pub fn interpolated(&self) -> u64 {
        self.interpolated
    }

    /// Progress so far.
    pub fn progress(&self) -> f64 {
        self.progress
    }

    /// All windows; the last is shorter. A rest without progress belongs to the window before.
    ///
    /// # Errors
    /// [`CountersError::NeverFree`] if time passed and nothing was counted in it.
    pub fn finish(mut self) -> Result<Vec<CountedWindow>, CountersError> {
        if self.pending && self.last == Reading::default() {
            return Err(CountersError::NeverFree);
        }
        match self.complete.last_mut() {
            _ if self.open.progress().round() >= 1.0 => self.complete.push(self.open),
            Some(last) => last.ns += self.open.ns,
            None => {}
        }
        Ok(self.complete)
    }
}
