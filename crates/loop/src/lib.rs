//! When is what decided? Monitor, modes, controllers, and the loop that joins them. Pure: values and `now` in, values
//! out.
//!
//! Start with `tick`: it is the loop. Around it
//! * `monitor` closes windows of job outcomes into means. `goals` does so task by task and says which task is furthest
//!   from its goal, `reach` whether that goal can be held, `mode` whether to trust the means. `controller` turns them
//!   into knob positions by a model, `stepwise` without one, and a `staircase` turns the third knob where these are not
//!   enough. `prices` finds the admitted share that is worth its energy, `give_back` asks whether shedding helps.
//!   `pacing` sets the clock while a job runs, `idle` between jobs, and `exciter` moves the knobs to learn a model
//!   instead;
//! * `document` holds models and gains as files.
//!
//! `decider` has all that decide during a run as one type, with their time scales; `record` the log of their decisions,
//! which replays to the same ones.
//!
//! `backlog` moves the bound of what a node of a federation admits. `clocks` puts a regulator above the rows of a
//! mapping's table, for the clocks beneath a pipeline.
//!
//! `punctual-runtime` drives the [`Regulator`] on Linux, `punctual-scenario` on the simulated machine as well.

pub mod backlog;
mod clocks;
mod controller;
mod decider;
mod document;
mod event;
mod exciter;
mod give_back;
mod goals;
mod idle;
mod mode;
mod monitor;
mod pacing;
mod prices;
mod reach;
mod record;
mod split;
mod staircase;
mod stepwise;
mod tick;

pub use clocks::{CLOCKS_EVERY, ClockDomain, ClockGround, Clocks, ClocksSeen};
pub use controller::{Knobs, knobs_of};
pub use decider::{AdmissionSetup, Decider, DeciderAnswer, DeciderEvent, DeciderSetup};
pub use document::{
    ADMITTED, CLOCK, ControllerDocument, DRR, MadeFor, Mismatch, ModelDocument, TARDINESS, Unfit, law_kind,
};
pub use event::{Answer, Event, Step, Vitals, Window};
pub use exciter::Exciter;
pub use give_back::SheddingReview;
pub use goals::{Lead, TASKS_MAX, TaskWindow, stage_of};
pub use idle::JobRelease;
pub use mode::{GOOD_WINDOWS, Mode, ModeName, SILENT_RELEASES, SILENT_WINDOWS};
pub use monitor::Monitor;
pub use pacing::Forecast;
pub use reach::Unheld;
pub use record::{Decision, Difference, EventLog, LOG_KIND, LOG_OLDEST, LOG_VERSION, replay};
pub use split::{CoreJobs, SplitOptions};
pub use staircase::BestEffortRange;
pub use tick::{Regulator, RegulatorOptions};
