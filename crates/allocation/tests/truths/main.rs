//! What holds of every split, whoever decides; and that the optimum is one, by brute force.

mod common;
mod deciding;
mod near;
mod optimum;
mod paper;
mod statics;
