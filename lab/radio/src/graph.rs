//! The receiver as a graph of stages.

use punctual_pipelines::{AnyStage, EdgeSpec, Graph, GraphError, StageSpec, WhenFull, erase};

use crate::options::{AUDIO_TAPS, BAND_TAPS, CHANNEL_TAPS, IQ_BYTES, OptionError, Options};
use crate::receive::equalizer_band;
use crate::stages::{Demodulator, LowPass, Sum};

/// Name of the first stage, which is pinned: a [`crate::stages::Source`].
pub const SOURCE: &str = "source";
/// Name of the last stage, which is pinned: a [`crate::stages::Sink`].
pub const SINK: &str = "sink";

const LOW_PASS: &str = "low-pass";
const DEMODULATOR: &str = "demodulator";
const SUM: &str = "sum";

/// Bytes of a complex sample, and of a sample of sound, between stages.
const COMPLEX_BYTES: usize = 8;
const SOUND_BYTES: usize = 4;

/// Bytes of state for counters and single samples, also of the source and the sink.
pub(crate) const COUNTERS: usize = 64;

/// Why these options do not make a graph.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RadioError {
    /// An option is out of range.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The graph is invalid, for example because its rings are too short.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// Builds the graph: `source`, `low-pass`, `demodulator`, `band-1` to `band-N`, `sum`, `sink`; a step of each takes and
/// makes one frame.
///
/// # Errors
/// [`RadioError`] if the options do not make a graph.
pub fn graph(options: &Options) -> Result<Graph, RadioError> {
    options.check()?;
    let bands = options.gains.len();
    let one_each = vec![1; bands];
    let edge = |frame_bytes| EdgeSpec {
        slots: options.slots,
        frame_bytes,
        full: WhenFull::Wait,
    };
    let first = EdgeSpec {
        full: options.full,
        ..edge(options.frame * IQ_BYTES)
    };
    let complex = edge(options.frame * COMPLEX_BYTES);
    let sound = edge(options.sound() * SOUND_BYTES);
    let mut graph = Graph::builder("radio")
        .stage(StageSpec::new(SOURCE).makes(&[1]).state(COUNTERS).pinned())
        .stage(filter(LOW_PASS, 2 * CHANNEL_TAPS))
        .stage(filter(DEMODULATOR, AUDIO_TAPS))
        .edge((SOURCE, 0), (LOW_PASS, 0), first)
        .edge((LOW_PASS, 0), (DEMODULATOR, 0), complex);
    for number in 0..bands {
        let name = band_name(number);
        graph = graph
            .stage(filter(&name, BAND_TAPS))
            .edge((DEMODULATOR, 0), (&name, 0), sound)
            .edge((&name, 0), (SUM, number), sound);
    }
    Ok(graph
        .stage(StageSpec::new(SUM).takes(&one_each).makes(&[1]))
        .stage(StageSpec::new(SINK).takes(&[1]).state(COUNTERS).pinned())
        .edge((SUM, 0), (SINK, 0), sound)
        .build()?)
}

/// A stage with one input and one output, whose state holds at most `samples` samples of sound.
pub(crate) fn filter(name: &str, samples: usize) -> StageSpec {
    let bytes = SOUND_BYTES * samples + COUNTERS;
    StageSpec::new(name).takes(&[1]).makes(&[1]).state(bytes)
}

fn band_name(number: usize) -> String {
    format!("band-{}", number + 1)
}

/// Makes the stage of this name in [`graph`], except source and sink, which hold a file or a device: see
/// [`crate::stages::Source`] and [`crate::stages::Sink`].
///
/// # Errors
/// [`OptionError`] if an option is out of range, or there is no such stage.
pub fn stage(name: &str, options: &Options) -> Result<Box<dyn AnyStage>, OptionError> {
    options.check()?;
    match name {
        LOW_PASS => return Ok(erase(LowPass::new())),
        DEMODULATOR => return Ok(erase(Demodulator::new(options.emphasis))),
        SUM => return Ok(erase(Sum::new(options.gains.len()))),
        _ => {}
    }
    let bands = options.gains.len();
    match (0..bands).find(|&number| band_name(number) == name) {
        Some(number) => Ok(erase(equalizer_band(number, options))),
        None => Err(OptionError::Stage {
            name: name.into(),
            there: format!("{LOW_PASS}, {DEMODULATOR}, band-1 to band-{bands}, {SUM}"),
        }),
    }
}
