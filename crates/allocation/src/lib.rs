//! Who gets which cache ways and how much memory bandwidth, phase by phase.
//!
//! **Problem.** Programs on different cores share the last-level cache and the memory. How much a program gains by a way
//! or by bandwidth changes as it runs; a fixed split wastes what one program does not need while another waits for it.
//!
//! **Terms.** A machine's [`Grid`] is what can be split: cache ways and bandwidth partitions. A [`Share`] is what one core
//! has of both. The *rate* of a program is instructions retired per second, rho(i, c, b) after i instructions with c ways
//! and b partitions. A *phase* is a range of progress with one rate for each share ([`Phase`]); *progress* is the
//! share of a run's instructions that are done, in `[0, 1]`, because run lengths differ a little between shares.
//!
//! Cores as a whole are shared out by [`exclusive`]: which real-time tasks share one, when it is lent, and how its jobs wait.
//!
//! All of it is pure: values in, values out, no clock, no file, no randomness but a given seed.

pub mod exclusive;
mod grid;
mod profile;
mod table;

pub use grid::{Grid, Share};
pub use profile::{Phase, Profile, ProfileError};
pub use table::RateTable;
