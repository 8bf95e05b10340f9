//! What holds of every split, whoever decides; and that the optimum is one, by brute force.

mod common;
mod deciding;
mod haste;
mod near;
mod optimum;
mod paper;
mod statics;
