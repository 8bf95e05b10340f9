//! What holds of every split, whichever policy decides; and that the optimum is one, by brute force.

mod common;
mod deciding;
mod haste;
mod near;
mod optimum;
mod paper;
mod statics;
