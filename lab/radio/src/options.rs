//! Options of a receiver, and the quantities that follow from them.

use punctual_pipelines::WhenFull;
use thiserror::Error;

/// Complex samples per second of a recording.
pub const IQ_RATE: u32 = 250_000;
/// IQ samples per sample of sound.
pub const DECIMATION: u32 = 10;
/// Samples per second of the sound.
pub const AUDIO_RATE: u32 = IQ_RATE / DECIMATION;
/// Deviation of a station's carrier at full scale, in hertz (ITU-R BS.450).
pub const DEVIATION: f64 = 75_000.0;
/// Bytes of one IQ sample as received: I, then Q, one byte each.
pub const IQ_BYTES: usize = 2;

/// Greatest number of bands of the equalizer.
pub const BANDS_MAX: usize = 16;
/// Greatest length of a frame: 10 s of IQ samples.
pub const FRAME_MAX: usize = 10 * IQ_RATE as usize;
/// Greatest gain of a band, and least with the opposite sign, in decibels.
pub const GAIN_MAX: f64 = 40.0;

/// The channel filter. Carson's rule gives a mono station 2 (75 + 15) kHz; the neighbours are 100 kHz away.
pub(crate) const CHANNEL_TAPS: usize = 81;
pub(crate) const CHANNEL_CUTOFF: f64 = 95_000.0;
/// The filter before decimation. Its number of taps is even: with the discriminator's half sample, the total delay
/// before the bands is a whole number of sound samples, 29.
pub(crate) const AUDIO_TAPS: usize = 500;
pub(crate) const AUDIO_CUTOFF: f64 = 11_500.0;
/// A band's filter: 8 ms of delay, edges 200 Hz wide.
pub(crate) const BAND_TAPS: usize = 401;
/// Range of the cutoffs, in hertz; the bands divide it into equal parts on a logarithmic scale.
const BANDS_FROM: f64 = 200.0;
const BANDS_UPTO: f64 = 11_000.0;

/// Options of a receiver, with defaults for a live one.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// IQ samples of a frame, a multiple of [`DECIMATION`], at most [`FRAME_MAX`].
    pub frame: usize,
    /// Gains of the bands in decibels, the lowest band's first; 1 to [`BANDS_MAX`] of them.
    pub gains: Vec<f64>,
    /// The time constant of the station's pre-emphasis in microseconds: 50 in most countries, 75 in America and Korea.
    pub emphasis: f64,
    /// Capacity of each queue between two stages, in frames.
    pub slots: u32,
    /// Policy for frames that arrive while the first queue is full. All other stages wait.
    pub full: WhenFull,
}

impl Default for Options {
    /// Frames of 1 ms, four bands at 0 dB, 50 us, 14 slots.
    fn default() -> Options {
        Options {
            frame: 250,
            gains: vec![0.0; 4],
            emphasis: 50.0,
            slots: 14,
            full: WhenFull::Wait,
        }
    }
}

/// Why these options do not make a receiver.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum OptionError {
    /// The frame is empty, too long, or ends within a sample of sound.
    #[error(
        "a frame of {0} IQ samples: take a multiple of {DECIMATION}, the IQ samples of a sample of sound, of at most \
         {FRAME_MAX}"
    )]
    Frame(usize),
    /// The number of bands is out of range.
    #[error("{0} bands: take 1 to {BANDS_MAX}")]
    Bands(usize),
    /// The gain of a band is out of range.
    #[error("the gain of band {band} is {gain} dB: take -{GAIN_MAX} to {GAIN_MAX}")]
    Gain {
        /// Number of the band, from 1.
        band: usize,
        /// Gain of the band, in decibels.
        gain: f64,
    },
    /// The time constant of the pre-emphasis is out of range.
    #[error("a pre-emphasis of {0} us: take 50 (Europe) or 75 (America), at least 0, at most 1000")]
    Emphasis(f64),
    /// The frame of the second graph is empty or too long.
    #[error("a frame of {0} outputs: take 1 to 1048576")]
    Outputs(usize),
    /// The receiver has no such stage.
    #[error("no stage is called \"{name}\"; there are {there}")]
    Stage {
        /// Name of the requested stage.
        name: String,
        /// Text that lists the existing stages.
        there: String,
    },
}

impl Options {
    /// Checks that the options make a receiver.
    ///
    /// # Errors
    /// [`OptionError`] names the first option that is out of range.
    pub fn check(&self) -> Result<(), OptionError> {
        if self.frame == 0 || !self.frame.is_multiple_of(DECIMATION as usize) || self.frame > FRAME_MAX {
            return Err(OptionError::Frame(self.frame));
        }
        if !(1..=BANDS_MAX).contains(&self.gains.len()) {
            return Err(OptionError::Bands(self.gains.len()));
        }
        let wrong = |gain: &&f64| !(-GAIN_MAX..=GAIN_MAX).contains(*gain);
        if let Some((band, &gain)) = self.gains.iter().enumerate().find(|(_, gain)| wrong(gain)) {
            return Err(OptionError::Gain { band: band + 1, gain });
        }
        if !(0.0..=1000.0).contains(&self.emphasis) {
            return Err(OptionError::Emphasis(self.emphasis));
        }
        Ok(())
    }

    /// Number of sound samples that a frame becomes.
    pub fn sound(&self) -> usize {
        self.frame / DECIMATION as usize
    }

    /// Delay of a receiver in sound samples: the channel filter, the discriminator and the filter before decimation,
    /// then the bands.
    pub fn delay(&self) -> usize {
        let iq = (CHANNEL_TAPS - 1) + (AUDIO_TAPS - 1) + 1;
        iq / 2 / DECIMATION as usize + (BAND_TAPS - 1) / 2
    }

    /// Frequencies between the bands in hertz, one fewer than there are bands.
    pub fn cutoffs(&self) -> Vec<f64> {
        let bands = self.gains.len() as f64;
        let octaves = libm::log2(BANDS_UPTO / BANDS_FROM);
        (1..self.gains.len())
            .map(|edge| BANDS_FROM * libm::exp2(octaves * edge as f64 / bands))
            .collect()
    }
}
