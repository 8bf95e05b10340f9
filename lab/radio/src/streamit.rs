//! The radio of StreamIt's benchmarks as a second graph: the shape of its work, from `FMRadio.str`.
//!
//! A benchmark of computation, not a receiver: its demodulator multiplies neighbouring samples, and its bands of 55 to
//! 1760 Hz lie within the first millionth of a rate of 250 MHz. Two differences: where StreamIt waits for the first 64
//! samples, filters here begin with silence; and the difference of two low-passes and its weight are one stage. So
//! there are 35 stages, with source and sink.

use punctual_pipelines::{AnyStage, EdgeSpec, Failure, Frames, Graph, Head, Stage, StageSpec, State, WhenFull, erase};
use serde::{Deserialize, Serialize};

use crate::filters::sinc_taps;
use crate::graph::{COUNTERS, RadioError, SINK, SOURCE, filter};
use crate::options::OptionError;
use crate::stages::{Filter, Sum, each_frame, samples_mut};

/// Sample rate, in hertz.
const RATE: f64 = 250e6;
/// Cutoff of the first low-pass, in hertz.
const CUTOFF: f64 = 108e6;
/// Number of taps of every filter.
const TAPS: usize = 64;
/// Number of inputs per output of the first low-pass.
const EVERY: u32 = 5;
/// Constants of the demodulator's gain.
const AMPLITUDE: f64 = 27_000.0;
const BANDWIDTH: f64 = 10_000.0;
/// Weights of the bands, the lowest band's first.
const WEIGHTS: [f32; 10] = [1.1, 1.3, 1.5, 1.7, 1.9, 1.9, 1.7, 1.5, 1.3, 1.1];

/// Greatest number of outputs in a frame.
const FRAME_MAX: usize = 1 << 20;

/// Lower edge of band `number` in hertz: 55 Hz, and half an octave more for each.
fn edge_below(number: usize) -> f64 {
    55.0 * libm::exp2(number as f64 / 2.0)
}

/// Builds the graph: `source`, `low-pass`, `demodulator`, for each of ten bands `low-N`, `high-N` and `difference-N`,
/// `sum`, `sink`. A frame ends as `outputs` samples.
///
/// # Errors
/// [`RadioError`] for empty or very long frames, and for rings that are too short.
pub fn graph(outputs: usize, slots: u32) -> Result<Graph, RadioError> {
    if !(1..=FRAME_MAX).contains(&outputs) {
        return Err(OptionError::Outputs(outputs).into());
    }
    let edge = |samples: usize| EdgeSpec {
        slots,
        frame_bytes: 4 * samples,
        full: WhenFull::Wait,
    };
    let (fast, slow) = (edge(outputs * EVERY as usize), edge(outputs));
    let mut graph = Graph::builder("streamit")
        .stage(StageSpec::new(SOURCE).makes(&[1]).state(COUNTERS).pinned())
        .stage(filter("low-pass", TAPS))
        .stage(filter("demodulator", 1))
        .edge((SOURCE, 0), ("low-pass", 0), fast)
        .edge(("low-pass", 0), ("demodulator", 0), slow);
    for number in 0..WEIGHTS.len() {
        let [low, high, difference] = ["low", "high", "difference"].map(|kind| format!("{kind}-{}", number + 1));
        graph = graph
            .stage(filter(&low, TAPS))
            .stage(filter(&high, TAPS))
            .stage(StageSpec::new(&difference).takes(&[1, 1]).makes(&[1]))
            .edge(("demodulator", 0), (&low, 0), slow)
            .edge(("demodulator", 0), (&high, 0), slow)
            .edge((&low, 0), (&difference, 0), slow)
            .edge((&high, 0), (&difference, 1), slow)
            .edge((&difference, 0), ("sum", number), slow);
    }
    Ok(graph
        .stage(StageSpec::new("sum").takes(&[1; WEIGHTS.len()]).makes(&[1]))
        .stage(StageSpec::new(SINK).takes(&[1]).state(COUNTERS).pinned())
        .edge(("sum", 0), (SINK, 0), slow)
        .build()?)
}

/// Makes the stage of this name in [`graph`], except the sink; `None` for other names. The source counts up in `frames`
/// frames, each of which ends as `outputs` samples.
pub fn stage(name: &str, outputs: usize, frames: u64) -> Option<Box<dyn AnyStage>> {
    match name {
        SOURCE => return Some(erase(Counter { outputs, frames })),
        "low-pass" => return Some(first_low_pass()),
        "demodulator" => return Some(erase(Product)),
        "sum" => return Some(erase(Sum::new(WEIGHTS.len()))),
        _ => {}
    }
    let (kind, number) = name.rsplit_once('-')?;
    let number = number.parse::<usize>().ok()?.checked_sub(1)?;
    let weight = *WEIGHTS.get(number)?;
    match kind {
        "low" => Some(band_low_pass(number)),
        "high" => Some(band_low_pass(number + 1)),
        "difference" => Some(erase(Sum::weighted(&[-weight, weight]))),
        _ => None,
    }
}

fn first_low_pass() -> Box<dyn AnyStage> {
    erase(Filter::<TAPS>::new(&sinc_taps(TAPS, CUTOFF, RATE), 0.0, EVERY))
}

fn band_low_pass(edge: usize) -> Box<dyn AnyStage> {
    erase(Filter::<TAPS>::new(&sinc_taps(TAPS, edge_below(edge), RATE), 0.0, 1))
}

/// Multiplies the gain by the arctangent of the product of each sample and the previous one.
struct Product;

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct ProductState {
    before: f32,
}

impl State for ProductState {
    const VERSION: u32 = 1;
}

impl Stage for Product {
    type State = ProductState;

    fn begin(&self) -> ProductState {
        ProductState::default()
    }

    fn step(&mut self, state: &mut ProductState, frames: &mut Frames<'_>) -> Result<(), Failure> {
        let gain = (AMPLITUDE * RATE / (BANDWIDTH * std::f64::consts::PI)) as f32;
        each_frame(frames, |input: &[f32], output: &mut [f32]| {
            for (made, &sample) in output.iter_mut().zip(input) {
                *made = gain * libm::atanf(state.before * sample);
                state.before = sample;
            }
            input.len()
        })
    }
}

/// Counts up as far as single precision allows, and then from 0 again.
struct Counter {
    outputs: usize,
    frames: u64,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct CounterState {
    frames: u64,
}

impl State for CounterState {
    const VERSION: u32 = 1;
}

impl Stage for Counter {
    type State = CounterState;

    fn begin(&self) -> CounterState {
        CounterState::default()
    }

    fn step(&mut self, state: &mut CounterState, frames: &mut Frames<'_>) -> Result<(), Failure> {
        if state.frames < self.frames {
            let length = self.outputs * EVERY as usize;
            let first = state.frames.wrapping_mul(length as u64);
            for (at, sample) in samples_mut::<f32>(frames.output(0))?[..length].iter_mut().enumerate() {
                *sample = (first.wrapping_add(at as u64) % (1 << 24)) as f32;
            }
            let head = Head {
                sequence: state.frames,
                ..Head::default()
            };
            frames.make(0, 4 * length, head);
            state.frames += 1;
        }
        if state.frames == self.frames {
            frames.end();
        }
        Ok(())
    }
}
