//! Knobs to set, meters to read, and time: the interface to the machine.
//!
//! A [`Machine`] is a handful of methods. Two implementations exist: `linux::LinuxMachine` here, and the simulated
//! machine of `punctual-sim`; both pass one conformance suite (`punctual-testing`). A knob that is missing or refused
//! is a result, not an error: [`Offers`] lists the available knobs and meters, [`Refusal`] says why something did not
//! work and what would help.
//!
//! This crate and `punctual-custody`, which restores what is changed, alone know kernel paths.

mod knob;
#[cfg(target_os = "linux")]
pub mod linux;
mod machine;
mod neighbours;
mod observation;
mod parts;

pub use knob::{Applied, DOMAINS_MAX, DomainId, KNOBS_MAX, KnobId, Plan, TooManyKnobs, UnknownKnob, Value};
pub use machine::{ClockOffer, KnobOffer, Machine, Measure, MeterId, Offers, Provenance, Range, Reading, Readings};
pub use neighbours::{CoreChoice, Neighbours, Stay, Why};
pub use observation::{Observation, ThreadSelector, WaitCall};
pub use parts::Parts;
pub use punctual_os::Refusal;
