//! Views of a pipeline, during and after its run; for the radio, and for the stages of a scenario.

pub mod display;
pub mod history;
pub mod meddler;
pub mod page;
pub mod shown;
pub mod view;

use punctual_units::percentile;
use serde::Serialize;

/// Number and percentiles of spans, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spans {
    pub n: usize,
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

impl Spans {
    pub fn of(values: &[f64]) -> Option<Spans> {
        let at = |share| percentile(values.iter().copied(), share).unwrap_or(0.0);
        (!values.is_empty()).then(|| Spans {
            n: values.len(),
            p50: at(0.5),
            p99: at(0.99),
            max: at(1.0),
        })
    }
}

/// Panics if a test has ordered it, in debug builds, so that tests can check the state after a panic.
pub fn planted_panic(place: &str) {
    if cfg!(debug_assertions) && std::env::var_os("PUNCTUAL_TEST_PANIC").is_some_and(|ordered| ordered == place) {
        panic!("as ordered");
    }
}
