//! The papers' evaluations on the simulated machine, and its calibration.

pub mod calibrate;
