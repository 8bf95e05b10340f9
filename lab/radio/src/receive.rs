//! The whole receiver in one thread: the reference for every pipeline of the same stages.

use punctual_pipelines::Stage;

use crate::filters::band;
use crate::options::{AUDIO_RATE, BAND_TAPS, IQ_BYTES, OptionError, Options};
use crate::stages::{Band, Demodulator, DemodulatorState, FilterState, LowPass, LowPassState, Sum};

/// A receiver that runs all stages in turn, with their states.
#[derive(Clone, Debug)]
pub struct Receiver {
    low_pass: (LowPass, LowPassState),
    demodulator: (Demodulator, DemodulatorState),
    bands: Vec<(Band, FilterState<BAND_TAPS>)>,
    sum: Sum,
    iq: Vec<[f32; 2]>,
    sound: Vec<f32>,
    band: Vec<f32>,
}

impl Receiver {
    /// A receiver in its state before the first frame.
    ///
    /// # Errors
    /// [`OptionError`] if the options do not make a receiver.
    pub fn new(options: &Options) -> Result<Receiver, OptionError> {
        options.check()?;
        let low_pass = LowPass::new();
        let demodulator = Demodulator::new(options.emphasis);
        let bands = equalizer(options).into_iter().map(|band| {
            let state = band.begin();
            (band, state)
        });
        Ok(Receiver {
            low_pass: (low_pass.clone(), low_pass.begin()),
            demodulator: (demodulator.clone(), demodulator.begin()),
            bands: bands.collect(),
            sum: Sum::new(options.gains.len()),
            iq: vec![[0.0; 2]; options.frame],
            sound: vec![0.0; options.sound()],
            band: vec![0.0; options.sound()],
        })
    }

    /// Receives a frame of at most as many IQ samples as the options set, and adds its sound to `sound`.
    pub fn frame(&mut self, frame: &[[u8; IQ_BYTES]], sound: &mut Vec<f32>) {
        let iq = &mut self.iq[..frame.len()];
        self.low_pass.0.filter(&mut self.low_pass.1, frame, iq);
        let made = self.demodulator.0.filter(&mut self.demodulator.1, iq, &mut self.sound);
        let begin = sound.len();
        sound.resize(begin + made, 0.0);
        for (number, (band, state)) in self.bands.iter_mut().enumerate() {
            band.filter(state, &self.sound[..made], &mut self.band);
            self.sum.add(number, &self.band[..made], &mut sound[begin..]);
        }
    }
}

/// Bands of a receiver, the lowest first; the options must have been checked.
pub fn equalizer(options: &Options) -> Vec<Band> {
    (0..options.gains.len())
        .map(|number| equalizer_band(number, options))
        .collect()
}

/// Band `number`, from 0; the options must have been checked, and the band must exist.
pub(crate) fn equalizer_band(number: usize, options: &Options) -> Band {
    let taps = band(number, BAND_TAPS, &options.cutoffs(), AUDIO_RATE.into());
    Band::new(
        &taps.expect("cutoffs that rise below half the rate"),
        options.gains[number],
        1,
    )
}

/// Sound of a whole recording, full scale 1, by the stages of the pipeline in one thread, frame by frame.
///
/// ```
/// use punctual_radio::{Options, receive};
/// let silence = vec![[127, 128]; 2500];
/// assert_eq!(receive(&silence, &Options::default()).unwrap(), vec![0.0; 250]);
/// ```
///
/// # Errors
/// [`OptionError`] if the options do not make a receiver.
pub fn receive(recording: &[[u8; IQ_BYTES]], options: &Options) -> Result<Vec<f32>, OptionError> {
    let mut receiver = Receiver::new(options)?;
    let mut sound = Vec::with_capacity(recording.len() / 10 + 1);
    for frame in recording.chunks(options.frame) {
        receiver.frame(frame, &mut sound);
    }
    Ok(sound)
}
