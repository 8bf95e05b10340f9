//! Parts of a simulated machine that only experiments have: storage media (`media`).
//!
//! [`punctual_sim::Simulation`] knows them by their traits.

pub mod media;
