//! Which cache ways and how much memory bandwidth does each core get, phase by phase?
//!
//! **Problem.** Programs on different cores share the last-level cache and the memory. How much a program gains by a
//! way or by bandwidth changes as it runs; a fixed split wastes what one program does not need while another waits for
//! it.
//!
//! **Terms.** A machine's [`Grid`] is what can be split: cache ways and bandwidth partitions. A [`Share`] is what one
//! core has of both. The *rate* of a program is instructions retired per second, rho(i, c, b) after i instructions with
//! c ways and b partitions. A *phase* is a range of progress with one rate for each share ([`Phase`]); *progress* is
//! the share of a run's instructions that are done, in `[0, 1]`, because run lengths differ a little between shares.
//!
//! A [`Pool`] is what is handed out and the least that each core gets of it. [`Programs`] are profiles compiled for
//! deciding. A [`Policy`] says what each core gets; [`Allocator`] asks it at releases, completions and phase changes,
//! places the ways so that few change hands, and, where refilling ways costs, changes only what pays ([`hysteresis`]).
//!
//! Where stages of a pipeline run, and at which clocks, is allocated in [`mapping`].
//!
//! All of it is pure: values in, values out, no clock, no file, no randomness but a given seed.

pub mod mapping;
#[cfg(feature = "split")]
mod split;

#[cfg(feature = "split")]
pub use split::*;
