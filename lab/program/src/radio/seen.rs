//! Figures for the page, gathered while a radio plays.

use punctual_os::LinuxOs;
use punctual_pipelines::linux::{Handover, Supervisor};
use punctual_radio::{InputSpectrum, Spectrum};
use punctual_units::{Clock, CoreId, Nanos, Time};

use super::sink::Wires;
use punctual_cli::pipeline::history::PipelineRecorder;

/// Interval between two spectra.
const SPECTRUM: Nanos = Nanos::from_millis(100);
/// Number of bands in the sound's spectrum, and of lines in the input's.
const BANDS: usize = 48;
const LINES: usize = 256;

/// All figures that are gathered.
pub struct RadioFigures {
    pub watched: PipelineRecorder,
    pub input: MeanSpectrum,
    pub sound: MeanSpectrum,
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
            input: MeanSpectrum::default(),
            sound: MeanSpectrum::default(),
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

/// Mean power of spectra, for each band.
#[derive(Clone, Debug, Default)]
pub struct MeanSpectrum {
    powers: Vec<f64>,
    spectra: u64,
}

impl MeanSpectrum {
    /// Adds a spectrum in decibels.
    pub fn add(&mut self, decibels: &[f32]) {
        self.powers.resize(self.powers.len().max(decibels.len()), 0.0);
        let powers = decibels.iter().map(|it| 10f64.powf(f64::from(*it) / 10.0));
        self.powers
            .iter_mut()
            .zip(powers)
            .for_each(|(sum, power)| *sum += power);
        self.spectra += 1;
    }

    /// Mean in decibels; empty without a spectrum.
    pub fn decibels(&self) -> Vec<f64> {
        let mean = |power: &f64| 10.0 * (power / self.spectra as f64).log10();
        self.powers.iter().map(mean).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_of_powers() {
        let mut mean = MeanSpectrum::default();
        assert!(mean.decibels().is_empty());
        mean.add(&[-10.0, -20.0]);
        mean.add(&[-10.0, -96.0]);
        let mean = mean.decibels();
        assert!(
            (mean[0] + 10.0).abs() < 1e-6 && (mean[1] + 23.01).abs() < 1e-2,
            "{mean:?}"
        );
    }
}
