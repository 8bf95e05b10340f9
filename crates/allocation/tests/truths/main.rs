//! What holds of every split, whoever decides; and that the optimum is one, by brute force.

mod common;
mod deciding;
mod optimum;
mod statics;
