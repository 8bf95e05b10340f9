//! Agreement with SciPy (tests/fixtures, made by make_fixtures.py).

use punctual_radio::filters::{DeEmphasis, Fir, low_pass};
use punctual_radio::{IQ_RATE, Options, receive};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Largest accepted distance in sums of single precision of numbers up to 1, of some hundred terms.
const SINGLE: f64 = 2e-5;
/// Largest accepted distance of taps, which are doubles.
const DOUBLE: f64 = 1e-14;

#[derive(Deserialize)]
struct Filters {
    design: Vec<Design>,
    filtering: Vec<Filtering>,
    emphasis: Vec<Emphasis>,
}

#[derive(Deserialize)]
struct Design {
    taps: usize,
    cutoff: f64,
    rate: f64,
    expected: Vec<f64>,
}

#[derive(Deserialize)]
struct Filtering {
    taps: Vec<f64>,
    every: u32,
    input: Vec<f32>,
    expected: Vec<f64>,
}

#[derive(Deserialize)]
struct Emphasis {
    tau: f64,
    input: Vec<f32>,
    expected: Vec<f64>,
}

#[derive(Deserialize)]
struct Receivers {
    iq: Vec<u8>,
    cases: Vec<Reception>,
}

#[derive(Deserialize)]
struct Reception {
    gains: Vec<f64>,
    expected: Vec<f64>,
}

fn fixtures<T: DeserializeOwned>(file: &str) -> T {
    let path = format!("{}/tests/fixtures/{file}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The greatest distance between two signals of one length.
fn distance(found: impl IntoIterator<Item = f64>, expected: &[f64]) -> f64 {
    let found: Vec<f64> = found.into_iter().collect();
    assert_eq!(found.len(), expected.len());
    found
        .iter()
        .zip(expected)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max)
}

#[test]
fn low_passes_have_the_taps_of_firwin() {
    for case in fixtures::<Filters>("filters.json").design {
        let taps = low_pass(case.taps, case.cutoff, case.rate).unwrap();
        let apart = distance(taps, &case.expected);
        assert!(apart < DOUBLE, "{} taps: {apart:e} apart", case.taps);
    }
}

#[test]
fn filters_agree_with_lfilter() {
    for case in fixtures::<Filters>("filters.json").filtering {
        let mut fir = Fir::new(&case.taps, case.every);
        let mut output = vec![0.0; fir.outputs_max(case.input.len())];
        let mut line = fir.line();
        let made = fir.run(&mut line, &case.input, &mut output);
        let apart = distance(output[..made].iter().copied().map(f64::from), &case.expected);
        assert!(apart < SINGLE, "{} taps: {apart:e} apart", case.taps.len());
    }
}

#[test]
fn de_emphasis_agrees_with_bilinear() {
    for case in fixtures::<Filters>("filters.json").emphasis {
        let coefficients = DeEmphasis::coefficients(case.tau, IQ_RATE.into());
        let mut emphasis = DeEmphasis::START;
        let output = case
            .input
            .iter()
            .map(|&sample| emphasis.step(coefficients, sample).into());
        let apart = distance(output.collect::<Vec<f64>>(), &case.expected);
        assert!(apart < SINGLE, "{} s: {apart:e} apart", case.tau);
    }
}

#[test]
fn the_receiver_agrees_with_one_in_double_precision() {
    let Receivers { iq, cases } = fixtures("receiver.json");
    for case in cases {
        let options = Options {
            gains: case.gains,
            ..Options::default()
        };
        let sound = receive(iq.as_chunks().0, &options).unwrap();
        let apart = distance(sound.into_iter().map(f64::from), &case.expected);
        assert!(apart < SINGLE, "{:?} dB: {apart:e} apart", options.gains);
    }
}
