//! Truths about identification and control, on random systems and against reference solutions.
//!
//! A failing property prints the smallest input that fails; every random number here comes from such an input.

mod actuators;
mod documents;
mod excitation;
mod identification;
mod law;
mod optimality;
mod pacing;
mod reference;
mod steady;
mod supervision;
mod systems;
mod tail;
