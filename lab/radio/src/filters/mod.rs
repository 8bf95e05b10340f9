//! Filters, from their design to their output, one sample after the other.
//!
//! Every result is the same to the last bit however a signal is cut into frames, and on every processor: sums have a
//! fixed order, sine and cosine come from `libm`, not from the system, and the arctangent is a polynomial.

mod demodulation;
mod design;
mod fir;
mod vectors;

pub use demodulation::{DeEmphasis, Discriminator, full_scale};
pub(crate) use design::sinc_taps;
pub use design::{TapsError, band, bands, low_pass};
pub use fir::{Fir, Line};
