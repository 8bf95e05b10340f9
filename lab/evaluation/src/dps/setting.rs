//! Parameters of the second paper's experiments (E. Lee, Y. Kim and H. Bahn, "Dual Management of Real-Time and
//! Interactive Jobs in Smartphones", 2014, section 3), and those that were chosen where it is silent.
//!
//! The paper's trace is not public. Nothing below was fitted to its figures but [`DECODE`] (one claim is marked for
//! that): the film's rate is that of a disc format, its variation that of a published trace of the same film, and the
//! rest are orders of magnitude, marked "by hand".

use crate::dual::DualMachine;
use punctual_machine::media::Media;
use punctual_units::Nanos;

/// Period of 24 frames per second: the default, and the unit of [`DECODE`] and [`DISPLAY`].
pub const PERIOD: Nanos = Nanos(41_666_667);
/// The lowest and the highest permitted rate, in frames per second.
pub const FPS: [f64; 2] = [1.0, 240.0];
/// Number of frames that are played and judged.
pub const FRAMES: usize = 150;
/// Number of frames that warm the cache before: the stretch begins ten seconds into the film. By hand.
pub const FRAMES_BEFORE: usize = 240;
/// Time to decode a frame, as a share of [`PERIOD`], drawn uniformly. With [`DISPLAY`] the mean is 0.40: a job that
/// ends 58 % before its deadline (the paper's Fig. 4) has 0.42 for everything, reads included.
pub const DECODE: [f64; 2] = [0.36, 0.40];
/// Time to display a frame, as a share of [`PERIOD`]: 3 MB of a full-HD frame copied at 4 GB/s. By hand.
const DISPLAY: f64 = 0.02;

/// Number of references to the player's other pages while it decodes a frame (code, libraries, tables, reference
/// frames)...
pub const REFERENCES: usize = 200;
/// ...out of this number of pages: 40 MB at 4 KiB, the resident size of a player with its libraries. By hand.
pub const WORKING_SET: usize = 10_000;
/// Exponent of the popularity of the player's other pages: rank to the power of minus this (Zipf's law). By hand.
pub const ZIPF: f64 = 1.0;

/// Default number of interactive jobs, which run without a pause: both cores are busy under every scheduler. The paper
/// does not state the number.
const INTERACTIVE_JOBS: u32 = 4;
/// Limit of the number of interactive jobs.
pub const INTERACTIVE_JOBS_MAX: u32 = 64;
/// Computation of an interactive job between two requests, exponential with this mean. By hand.
pub const BURST: Nanos = Nanos::from_millis(10);
/// Number of bursts that are drawn for each job, then repeated: about 20 s.
pub const BURSTS: usize = 2048;
/// Share of writes among the requests of interactive jobs. By hand.
pub const WRITE_SHARE: f64 = 0.1;
/// Limit of the pages in a request of an interactive job. Half of the requests are of one page (4 KiB is 45 to 57 % of
/// the requests in 15 of 18 smartphone traces: D. Zhou and others, IISWC 2015), the others of 2 to this limit,
/// uniformly.
pub const REQUEST_PAGES_MAX: u32 = 8;
/// Locality of the interactive jobs' requests: 80 % go to 20 % of the pages.
pub const HOT: [f64; 2] = [0.8, 0.2];

/// Limit of the simulated time of a run: players on a disk need a hundred seconds.
pub const LIMIT: Nanos = Nanos::from_secs(1_000);

/// The read-ahead of stock Linux, in pages: 128 KiB.
pub const READ_AHEAD: u32 = 32;

punctual_units::named! {
    /// A film, by its bit rate, which determines the pages that are read for a frame; that of the claims first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Film by name {
        /// 48 Mbit/s: the maximum of film and sound on a Blu-ray disc. 61 pages of 4 KiB a frame.
        Bd = "bd",
        /// 20 Mbit/s: broadcast high definition. 25 pages.
        Hd = "hd",
        /// 10.08 Mbit/s: the maximum of a DVD. 13 pages.
        Dvd = "dvd",
    }
}

impl Film {
    pub const fn bits_per_second(self) -> f64 {
        match self {
            Film::Bd => 48e6,
            Film::Hd => 20e6,
            Film::Dvd => 10.08e6,
        }
    }

    /// Mean bytes of a frame, for one frame in each `period`.
    pub fn frame_bytes(self, period: Nanos) -> f64 {
        self.bits_per_second() / 8.0 * period.as_secs_f64()
    }

    /// The film that takes the place of `film` where the claims are about `self`: `Bd` and `self` are exchanged, so
    /// that all films still occur.
    pub fn in_place_of(self, film: Film) -> Film {
        match film {
            Film::Bd => self,
            film if film == self => Film::Bd,
            film => film,
        }
    }

    /// A text, such as a formula, with `Bd` and this film's name exchanged as by `Film::in_place_of`.
    pub fn named(self, text: &str) -> String {
        let apart = |c: char| !c.is_ascii_alphanumeric();
        let exchanged = |piece: &str| {
            let word = piece.trim_end_matches(apart);
            let film = Film::ALL.into_iter().find(|film| film.name() == word);
            let named = film.map_or(word, |film| self.in_place_of(film).name());
            format!("{named}{}", &piece[word.len()..])
        };
        text.split_inclusive(apart).map(exchanged).collect()
    }
}

/// The film, and the number of interactive jobs beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Play {
    /// The film that the claims are about.
    pub film: Film,
    /// Time between two frames.
    pub period: Nanos,
    /// Mean time to decode a frame.
    pub decode: Nanos,
    /// Number of interactive jobs, which run without a pause.
    pub jobs: u32,
}

impl Default for Play {
    /// The paper's parameters, and those that were chosen where it is silent.
    fn default() -> Play {
        Play {
            film: Film::Bd,
            period: PERIOD,
            decode: PERIOD.scaled((DECODE[0] + DECODE[1]) / 2.0),
            jobs: INTERACTIVE_JOBS,
        }
    }
}

impl Play {
    /// A unit of time, and the shortest and the longest time to decode a frame as shares of that unit.
    pub fn decodes(&self) -> (Nanos, [f64; 2]) {
        let mean = (DECODE[0] + DECODE[1]) / 2.0;
        match self.decode == Play::default().decode {
            true => (PERIOD, DECODE),
            false => (self.decode, DECODE.map(|share| share / mean)),
        }
    }

    /// Time to display a frame.
    pub fn display(&self) -> Nanos {
        PERIOD.scaled(DISPLAY)
    }

    /// Mean share of a period for which a frame computes.
    pub fn computes(&self) -> f64 {
        (self.decode + self.display()).ratio(self.period)
    }

    /// Checks that the parameters are in range.
    ///
    /// # Errors
    /// A message that names the option out of range.
    pub fn check(&self) -> Result<(), String> {
        let [slowest, fastest] = FPS.map(|fps| Nanos::from_secs_f64(1.0 / fps));
        if !(fastest..=slowest).contains(&self.period) {
            return Err(format!("--fps: give {} to {} frames per second", FPS[0], FPS[1]));
        }
        let left = self.period.saturating_sub(self.display());
        if self.decode == Nanos::ZERO || self.decode >= left {
            return Err(format!(
                "--decode: {} of every {}: give more than 0 and less than {left}, which displaying leaves",
                self.decode, self.period
            ));
        }
        if !(1..=INTERACTIVE_JOBS_MAX).contains(&self.jobs) {
            return Err(format!("--hogs: give 1 to {INTERACTIVE_JOBS_MAX} jobs that never rest"));
        }
        Ok(())
    }
}

/// The parameters as (name, value) pairs for the report.
pub fn rows(machine: &DualMachine, media: &Media, play: &Play) -> Vec<(String, String)> {
    let (unit, decodes) = play.decodes();
    let exclusive: Vec<String> = machine.exclusive.iter().map(|core| core.to_string()).collect();
    let row = |name: &str, value: String| (name.to_string(), value);
    vec![
        row(
            "cores",
            format!("{}, of them exclusive: {}", machine.cores, exclusive.join(", ")),
        ),
        row(
            "quantum, switch",
            format!("{}, {}", machine.quantum(), machine.switch()),
        ),
        row("media", media.name.clone()),
        row(
            "player",
            format!("{FRAMES} frames, one every {}, due before the next", play.period),
        ),
        row(
            "film",
            format!(
                "{}; {:.0}, {:.0} or {:.2} Mbit/s, groups of 12 frames, frame sizes vary by 0.66",
                play.film.name(),
                Film::Bd.bits_per_second() * 1e-6,
                Film::Hd.bits_per_second() * 1e-6,
                Film::Dvd.bits_per_second() * 1e-6
            ),
        ),
        row(
            "decoding, displaying",
            format!(
                "{} .. {} and {}",
                unit.scaled(decodes[0]),
                unit.scaled(decodes[1]),
                play.display()
            ),
        ),
        row(
            "other pages",
            format!("{REFERENCES} references a frame to {WORKING_SET} pages, Zipf with exponent {ZIPF}"),
        ),
        row(
            "page cache",
            format!(
                "least recently used, 1 to 8 times {} pages; 7 where nothing else is said",
                machine.cache_step_pages
            ),
        ),
        row(
            "interactive jobs",
            format!(
                "{} that never rest: bursts of {BURST} on average, each followed by a request of 1 to {REQUEST_PAGES_MAX} pages to flash, {:.0} % of them writes",
                play.jobs,
                WRITE_SHARE * 100.0
            ),
        ),
    ]
}
