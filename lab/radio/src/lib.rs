//! An FM receiver as stages of a pipeline: filters, input, sound files, and the quality of the sound.
//!
//! - [`filters`]: taps by the window method, filters on streams, discriminator, de-emphasis.
//! - [`stages`]: the channel's low-pass, the demodulator, the bands of an equalizer and their sum.
//! - [`receive`]: all stages in one thread, the reference for every pipeline of them.
//! - [`graph`] and [`stage`]: the same stages as a pipeline; [`streamit`] is another graph of such stages.
//! - [`Recording`]: frames from a file or a pipe; [`mod@format`]: WAV, SigMF and raw samples at any rate.
//! - [`sound`]: 16-bit sound, in files and pipes.
//! - [`quality`]: delay, correlation and signal-to-noise ratio against the true sound.
//!
//! The sound of a recording is the same to the last bit for every length of frames, on every processor and wherever the
//! stages run.

pub mod filters;
pub mod format;
mod graph;
mod input;
mod options;
mod quality;
mod receive;
mod saved;
pub mod sound;
mod spectrum;
pub mod stages;
pub mod streamit;

pub use graph::{RadioError, SINK, SOURCE, graph, stage};
pub use input::{InputError, Recording};
pub use options::{
    AUDIO_RATE, BANDS_MAX, DECIMATION, DEVIATION, FRAME_MAX, GAIN_MAX, IQ_BYTES, IQ_RATE, OptionError, Options,
};
pub use quality::{Quality, QualityError, quality};
pub use receive::{Receiver, equalizer, receive};
pub use spectrum::{InputSpectrum, Spectrum};

/// File of the shipped recording.
pub const STATION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/station.cu8.zst");
/// File of its true sound.
pub const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/reference.wav");
/// File of the scenario that plays it.
pub const SCENARIO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fm.toml");
