//! Figures for the page, gathered while a radio plays.

use punctual_os::LinuxOs;
use punctual_pipelines::linux::{Handover, Supervisor};
use punctual_radio::{InputSpectrum, Spectrum};
use punctual_units::{Clock, CoreId, Nanos, Time};

use super::sink::Wires;
use punctual_cli::pipeline::history::{Mean, PipelineRecorder};

/// Interval between two spectra.
const SPECTRUM: Nanos = Nanos::from_millis(100);
/// Number of bands in the sound's spectrum, and of lines in the input's.
const BANDS: usize = 48;
const LINES: usize = 256;

/// All figures that are gathered.
pub struct RadioFigures {
    pub watched: PipelineRecorder,
    pub input: Mean,
    pub sound: Mean,
    pub spectrum: Spectrum,
    input_spectrum: InputSpectrum,
    measured: Time,
}

impl RadioFigures {
    /// Starts with a pipeline on these cores.
    pub fn new(cores: &[CoreId]) -> RadioFigures {
        let now = LinuxOs.now();
        RadioFigures {
            watched: PipelineRecorder::new(cores),
            input: Mean::default(),
            sound: Mean::default(),
            spectrum: Spectrum::new(BANDS),
            input_spectrum: InputSpectrum::new(LINES),
            measured: now,
        }
    }

    /// Records handovers, and takes samples and spectra that are due.
    pub fn look(&mut self, supervisor: &Supervisor, wires: &Wires, handovers: &[Handover]) {
        let now = LinuxOs.now();
        self.watched.look(supervisor, handovers);
        if now.since(self.measured) >= SPECTRUM {
            self.measured = now;
            self.measure(wires);
        }
    }

    /// Adds the spectra of the latest sound and input, if there are enough samples.
    fn measure(&mut self, wires: &Wires) {
        let (sound, input) = (wires.sound.latest(), wires.input.latest());
        let mut powers = Vec::new();
        if sound.len() >= Spectrum::SAMPLES {
            self.spectrum.measure(&sound, &mut powers);
            self.sound.add(&powers);
        }
        // The tap keeps an even number of bytes, but may start within a sample.
        if input.len() >= 2 * InputSpectrum::SAMPLES {
            self.input_spectrum.measure(input.as_chunks().0, &mut powers);
            self.input.add(&powers);
        }
    }
}
