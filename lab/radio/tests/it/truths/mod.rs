//! Truths about the receiver: agreement with SciPy, identities, and how good it is on stations of which the sound is
//! known.

mod cutting;
mod formats;
mod input;
mod pipeline;
mod reception;
mod reference;
mod signals;
mod station;
